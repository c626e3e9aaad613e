--- nn.parallel.FullyShardedDataParallel(module, opts): one model over several ranks, each of which holds a part of the
--- parameters, gradients and optimizer states, and trains on its own part of the batch (accel.shard.engine).
---
---   local model = nn.parallel.FullyShardedDataParallel(net, { auto_wrap_policy = { kind = "transformer",
---     classes = { "Block" } } })
---   local optimizer = accel.optim.AdamW(model:parameters())
---   for x, y in batches() do loss(model(x), y):backward() optimizer:step() optimizer:zero_grad() end
---
--- Names, shapes and identity of parameters do not change. Optimizers, made before or after, update this rank's shards of
--- the parameters, flat views that replace them in param_groups. Elementwise update rules support this. Gradients of a
--- backward end as means in the pieces, the parameters' own ->grad is nil then. Code that reads or changes parameters
--- outside the forward and backward of their unit must do so inside summon_full_params, on all ranks.
---
--- Three parts are cut independently, by sharding_strategy or zero_stage:
---   optimizer states            zero_stage = 1
---   and gradients               zero_stage = 2
---   and parameters              zero_stage = 3, "FULL_SHARD". "SHARD_GRAD_OP": gathered until the backward is over
---   within a machine            "HYBRID_SHARD", "HYBRID_SHARD_ZERO2". Machines hold the same
---   nothing                     "NO_SHARD"
--- If all ranks are on one machine, parameters are in its memory once regardless of sharding, and gathering is a
--- barrier.
local accel = require "accel"
local BatchStatistics = require "accel.nn.parallel.batch_statistics"
local Engine = require "accel.shard.engine"
local Module = require "accel.nn.module"
local Trained = require "accel.nn.trained"
local check = require "accel.util.check"
local check_micro_batches = require "accel.dist.check_micro_batches"
local coalesce = require "accel.dist.coalesce"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local materialize = require "accel.shard.materialize"
local options = require "accel.util.options"
local owners = require "accel.shard.owners"
local packed = require "accel.shard.packed"
local policies = require "accel.shard.policy"
local precision = require "accel.shard.precision"
local raise = require "accel.util.raise"
local summon = require "accel.shard.summon"
local tensors = require "accel.util.tensors"
local transparent = require "accel.nn.parallel.transparent"
local verify = require "accel.dist.verify"

local WHO = "FullyShardedDataParallel"

--- A module whose parameters, gradients and optimizer states are spread over ranks.
--- example: local net = accel.nn.Linear(2, 1) local model = accel.nn.parallel.FullyShardedDataParallel(net)
---   model(accel.ones(1, 2)):sum():backward() accel.optim.SGD(model:parameters(), { lr = 1 }):step()
---   return #net:state_dict().weight.shape, model.module == net --> 2, true
---@class accel.nn.parallel.FullyShardedDataParallel : accel.nn.Module
---@field module accel.nn.Module
---@field require_backward_grad_sync boolean false inside no_sync()
local FSDP = Module:extend("accel.nn.parallel.FullyShardedDataParallel")

transparent(FSDP, WHO)

local declared = {
  process_group = options.none, sharding_strategy = options.none, zero_stage = options.none,
  reshard_after_forward = options.none, auto_wrap_policy = options.none, ignored_modules = options.none,
  ignored_parameters = options.none, sync_module_states = true, broadcast_buffers = true, deterministic = options.none,
  micro_batches = options.none,
  fsdp_version = 1, share_memory = true, mixed_precision = options.none, master_weights = false,
  backward_prefetch = "BACKWARD_PRE", forward_prefetch = false, param_init_fn = options.none, device_id = options.none,
  limit_all_gathers = true, use_orig_params = true, zero = options.none, cpu_offload = false, offload = options.none,
  apart = options.none,
}

local PREFETCH <const> = { "BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH" }

-- PyTorch's options with only one value here: warned about once if another value is requested.
local FIXED <const> = {
  limit_all_gathers = { true, "one unit at most is gathered ahead of the one that computes" },
  use_orig_params = { true, "parameters keep their names, shapes and identity" },
}
local said = {}

local function say_fixed(o)
  for name, fixed in accel.pairs(FIXED) do
    if o[name] ~= fixed[1] and not said[name] and dist.get_rank() == 0 then
      warn(("%s: %s = %s has no effect: %s"):format(WHO, name, tostring(o[name]), fixed[2]))
      said[name] = true
    end
  end
end

local STRATEGIES <const> = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2" }

--- The strategy's choice: {parameters =, gradients =}, whether to reshard after the forward, hybrid, none.
local function settings(o)
  if o.zero_stage ~= nil then
    if o.sharding_strategy ~= nil then raise("%s: give zero_stage or sharding_strategy, not both", WHO) end
    local stage = check.integer(WHO, "zero_stage", o.zero_stage, 0, 3)
    return { parameters = stage == 3, gradients = stage >= 2 }, stage == 3, false, stage == 0
  end
  local s = o.sharding_strategy or "FULL_SHARD"
  s = STRATEGIES[math.tointeger(tonumber(s)) or 0] or s
  check.word(WHO, "sharding_strategy", s, STRATEGIES)
  local hybrid, reshard = s:find "^HYBRID" ~= nil, s == "FULL_SHARD" or s == "HYBRID_SHARD"
  return { parameters = s ~= "NO_SHARD", gradients = s ~= "NO_SHARD" }, reshard, hybrid, s == "NO_SHARD"
end

--- The group whose ranks share a unit, and the group of ranks that hold the same part (nil: none).
local function groups(o, hybrid, none)
  local given = o.process_group
  if hybrid and type(given) == "table" then return given[1], given[2] end
  if none then
    if given ~= nil then raise("%s: NO_SHARD takes no process_group", WHO) end
    local own
    for r = 0, dist.get_world_size() - 1 do
      local g = dist.new_group { r }
      if r == dist.get_rank() then own = g end
    end
    return own, dist.get_world_size() > 1 and dist.group.WORLD or nil
  end
  if not hybrid then return given, nil end
  local n, P = dist.get_local_world_size(), dist.get_world_size()
  if P % n ~= 0 then raise("%s: hybrid sharding needs the same number of ranks on every machine", WHO) end
  local shard, replicas
  for first = 0, P - 1, n do
    local list = {}
    for r = first, first + n - 1 do list[#list + 1] = r end
    local g = dist.new_group(list)
    if dist.get_rank() // n == first // n then shard = g end
  end
  for k = 0, n - 1 do
    local list = {}
    for r = k, P - 1, n do list[#list + 1] = r end
    local g = dist.new_group(list)
    if dist.get_rank() % n == k then replicas = g end
  end
  return shard, P > n and replicas or nil
end

--- Settings that must be the same on all ranks, since they determine the collectives.
local function describe_options(o)
  local lines = {}
  for _, key in ipairs { "zero_stage", "sharding_strategy", "reshard_after_forward", "fsdp_version", "share_memory", "deterministic",
    "micro_batches", "sync_module_states", "broadcast_buffers", "master_weights", "backward_prefetch", "forward_prefetch" } do
    lines[#lines + 1] = ("%s = %s"):format(key, tostring(o[key]))
  end
  for key, value in accel.pairs(o.mixed_precision or {}) do
    lines[#lines + 1] = ("mixed_precision.%s = %s"):format(key, tostring(value))
  end
  return lines
end

local function describe(units)
  local lines = {}
  for _, u in ipairs(units) do
    for i, p in ipairs(u.params) do
      lines[#lines + 1] = ("'%s' %s %s%s in the unit '%s'"):format((u.name == "" and "" or u.name .. ".") .. u.names[i],
        p.dtype, tensors.shape_string(p), p.requires_grad and "" or " frozen", u.name)
    end
  end
  return lines
end

--- Parameters that are not compared: in ignored modules, and in other ranks' stages and experts.
local function left_out(o)
  local set = {}
  for _, p in ipairs(o.ignored_parameters or {}) do set[p] = true end
  for _, module in ipairs(o.ignored_modules or {}) do
    for _, p in ipairs(module:parameters()) do set[p] = true end
  end
  return set
end

--- The units of a model as it is now. whole: parameters that no unit takes.
local function units_of(module, o, policy, whole)
  local params = { table.unpack(o.ignored_parameters or {}) }
  local ignored = { modules = o.ignored_modules, params = table.move(whole, 1, #whole, #params + 1, params) }
  return (o.fsdp_version == 2 and policies.per_parameter or policies.flat)(module, policy, ignored)
end

local function tier_of(offload, phantom)
  local o = { phantom = phantom }
  for key, value in next, offload do o[key] = value end
  return require "accel.offload.training"(o)
end

---@param module accel.nn.Module
---@param opts? table
---  sharding_strategy string = "FULL_SHARD": the sharded tensors, by name or number
---  zero_stage integer: 0 to 3, in its place
---  auto_wrap_policy table: { kind = "transformer", classes = {...} }, { kind = "size", min_num_params = n }, { kind =
---    "lambda", fn = ... }. Without one the whole model is one unit
---  reshard_after_forward boolean: parameters are given back between forward and backward (the strategy's)
---  process_group any: the ranks (all). For hybrid strategies { ranks that share, ranks that hold the same }
---  ignored_modules accel.nn.Module[]: not sharded, and their gradients are not averaged
---  ignored_parameters accel.Tensor[]: the same. Quantised parameters (QLoRA) are never sharded: every rank has them whole
---  sync_module_states boolean = true: parameters and buffers become rank 0's
---  broadcast_buffers boolean = true: buffers are rank 0's in every forward
---  deterministic string: "world": bits that do not depend on the number of ranks, see DistributedDataParallel
---  micro_batches integer: of an update over all ranks, with deterministic = "world": ranks can have any share of them. With replicas the
---    ranks of the first replica take the first ones
---  share_memory boolean = true: parameters lie once for the ranks of one machine
---  cpu_offload boolean|table = false: parameters, gradients and optimizer states stay in host memory. { offload_params = true } is
---    the same
---  offload table: the tier of each, options of accel.offload.training: { parameters = "host" or "file", optimizer = "host" or
---    "file", parameters_folder =, optimizer_folder =, host_limit =, slice = }
---  fsdp_version integer = 1: whose wrap policy cuts the model
---  mixed_precision table: { param_dtype =, reduce_dtype =, buffer_dtype =, output_dtype =, cast_forward_inputs = true }, dtypes of
---    gathered parameters, of the reduction of gradients, of buffers (version 1), of results (version 2). Shards that optimizers update
---    on keep the dtype that parameters had
---  master_weights boolean = false: of trained parameters of 16 bits these parts are in f32
---  backward_prefetch string = "BACKWARD_PRE": the unit that the backward needs next comes while this one computes, or once this
---    one's gradients are there ("BACKWARD_POST"), or when it is needed ("NO_PREFETCH")
---  forward_prefetch boolean = false: the unit that came next in the first forward comes while this one computes
---  param_init_fn fun(module): makes the tensors of a module that is on the meta device
---  device_id string: the device for meta tensors, if rank 0 has values for them ("cpu")
---  limit_all_gathers boolean = true: always so
---  use_orig_params boolean = true: always so
---  apart table: { units =, group =, replicas = }: units of ignored_parameters that are cut over other ranks than the rest, as experts are
---    over those that have the same ones (accel.parallel.experts.units). Ranks have the same values of them before
function FSDP:init(module, opts, ...)
  if not Module.is_module(module) then raise("%s: %s", WHO, Module.not_a_module(module)) end
  if rawget(module, "reducer") then raise("%s: the module is already wrapped; wrap its .module", WHO) end
  local o = options(WHO, opts, declared, ...)
  if o.deterministic ~= nil then check.word(WHO, "deterministic", o.deterministic, { "world" }) end
  check_micro_batches(WHO, o)
  check.word(WHO, "backward_prefetch", o.backward_prefetch, PREFETCH)
  say_fixed(o)
  local dtypes = precision.check(WHO, o.mixed_precision, o.fsdp_version)
  verify(WHO, "option", describe_options(o), "give the same ones on all of them")
  local cut, reshard, hybrid, none = settings(o)
  if o.reshard_after_forward ~= nil then reshard = o.reshard_after_forward end
  local group, replicas = groups(o, hybrid, none)
  rawset(self, "module", module)
  rawset(self, "options", o)
  rawset(self, "require_backward_grad_sync", true)
  rawset(self, "require_forward_param_sync", true)
  rawset(self, "training", module.training)
  local everyone = not hybrid and not none and group or nil -- the ranks with this model. nil: all ranks
  rawset(self, "everyone", everyone)
  if o.param_init_fn then materialize.init(module, o.param_init_fn) end
  local policy = o.auto_wrap_policy or { kind = "none" }
  rawset(self, "policy", policy)
  rawset(self, "trained", Trained(module, left_out(o)))
  local whole = packed.list(module, o.ignored_modules)
  local units = units_of(module, o, policy, whole)
  verify(WHO, "sharded parameter", describe(units), "build and wrap the model alike on all of them",
    everyone)
  local world = dist.get_world_size()
  local device = materialize.device(WHO, module, { sync = o.sync_module_states, device = o.device_id,
    ignored = o.ignored_parameters })
  local weak = setmetatable({ self }, { __mode = "v" })
  local offload = o.offload
  if offload == nil and (o.cpu_offload == true or (type(o.cpu_offload) == "table" and o.cpu_offload.offload_params)) then
    offload = { parameters = "host", optimizer = "host" }
  end
  local given = {
    tier = offload and tier_of(offload, device == nil and materialize.all_on_meta(module)),
    who = WHO, group = group, replicas = replicas, cut = cut, reshard = reshard,
    share = o.share_memory, zero = o.zero, world = o.deterministic == "world", micro_batches = o.micro_batches,
    sync = o.sync_module_states, syncs = function() return not weak[1] or weak[1].require_backward_grad_sync end,
    backward_prefetch = o.backward_prefetch, forward_prefetch = o.forward_prefetch, device = device,
    dtypes = precision.dtypes(module, dtypes, o.master_weights),
  }
  local engine = Engine(module, units, given)
  if o.micro_batches then engine.statistics = BatchStatistics(WHO, { group = group, replicas = replicas }) end
  rawset(self, "reducer", engine)
  local apart = not none and o.apart
  if apart then
    if given.tier and given.tier.delayed then raise("%s: delayed_update goes not with experts that ranks divide among them", WHO) end
    local own = setmetatable({ group = apart.group, replicas = apart.replicas, sync = false }, { __index = given })
    own.zero, own.world = false, false -- sizes of ZeRO's buckets are of the rest
    engine.apart = Engine(module, apart.units, own)
  end
  rawset(self, "dtypes", dtypes)
  local rest = device and materialize.rest(module, device, owners.of) or { table.unpack(whole) }
  local buffers = table.move(module:buffers(), 1, #module:buffers(), #rest + 1, rest)
  if world > 1 and o.sync_module_states and #buffers > 0 then coalesce.broadcast(buffers, 0, everyone) end
  if o.sync_module_states and o.share_memory then packed.share(whole, group) end
  if dtypes and dtypes.buffer_dtype then engine.buffer_dtypes = precision.cast_buffers(module, dtypes.buffer_dtype) end
  rawset(self, "cast", setmetatable({}, { __mode = "k" }))
  self:_cast_units(units)
end

--- Casts inputs and outputs of units if the precision is a version 2 policy.
function FSDP:_cast_units(units)
  if not self.dtypes or not self.dtypes.each then return end
  for _, u in ipairs(units) do
    if u.module ~= self.module:_itself() and not self.cast[u.module] then
      self.cast[u.module] = true
      precision.add_hooks(u.module, self.dtypes)
    end
  end
end

-- Changes ----------------------------------------------------------------------------------------

--- The trained parameters are others than those that were cut: they are cut anew, after ranks agreed on them.
function FSDP:_follow(changes)
  local o, engine, module = self.options, self.reducer, self.module
  if rawget(self, "_changing") then self._changing(changes) end
  engine:upcast(module:parameters())
  local units = units_of(module, o, self.policy, packed.list(module, o.ignored_modules))
  self.trained:take()
  Trained.agree(WHO, changes, describe(units), self.everyone)
  if engine.tier and not changes.others and engine:covers(self.trained.learning) then return end
  engine:check_idle(Trained.shown(changes))
  engine.o.dtypes = precision.dtypes(module, self.dtypes, o.master_weights)
  engine:follow(module, units)
  self:_cast_units(units)
end

-- Forward ----------------------------------------------------------------------------------------

--- The module's forward. The backward of its outputs reduces gradients, unless it runs inside no_sync().
function FSDP:forward(...)
  local engine = self.reducer
  engine:prepare()
  local changes = accel.is_grad_enabled() and self.trained:changes()
  if changes and not engine.in_backward() then self:_follow(changes) end
  if self.require_forward_param_sync and self.options.broadcast_buffers and engine.size > 1 then
    local list = self.module:buffers()
    if #list > 0 then coalesce.broadcast(list, 0, self.everyone) end
  end
  local module, statistics = self.module, engine.statistics
  if statistics and module.training and accel.is_grad_enabled() and not engine.in_backward() then
    module = function(...) return statistics:forward(self.module, ...) end
  end
  if not self.dtypes then return module(...) end
  return precision.outputs(self.dtypes, module(precision.inputs(self.dtypes, ...)))
end

--- Gradients are only accumulated, whole and on each rank for itself, until the block ends: `local _ <close> =
--- model:no_sync()`, or model:no_sync(fn, ...). The next backward outside reduces them with its own. A backward outside
--- that is not followed by a step accumulates as well, reduced and cut, which takes less memory and more traffic.
---@param fn? function
---@param ... any
function FSDP:no_sync(fn, ...)
  local was = self.require_backward_grad_sync
  rawset(self, "require_backward_grad_sync", false)
  rawset(self, "require_forward_param_sync", false)
  return guard(function()
    rawset(self, "require_backward_grad_sync", was)
    rawset(self, "require_forward_param_sync", was)
  end, fn, ...)
end

--- Makes the next backward reduce gradients, although its forward ran inside no_sync().
function FSDP:sync_next_backward()
  rawset(self, "require_backward_grad_sync", true)
  rawset(self, "require_forward_param_sync", true)
end

--- Ranks with different numbers of inputs cannot train a sharded model: finished ranks must keep gathering.
function FSDP:join()
  raise("%s: join: ranks of a sharded model need equally many batches; use even_batches = true", WHO)
end

--- Drops every gradient.
function FSDP:zero_grad()
  self.module:zero_grad()
  self.reducer:zero_grad()
end

-- Whole parameters -------------------------------------------------------------------------------

--- Every rank has all parameters until the block ends: `local _ <close> = model:summon_full_params()`, or
--- model:summon_full_params(opts, fn, ...). On all ranks, at the begin and at the end. It is a collective at its begin and at its
--- end. A rank's changes to its shard of them are kept, unless writeback = false. With rank0_only = true the other ranks keep only
--- their shards. with_grads = true includes gradients, as means over the ranks. Parameters have the dtype in which they are kept,
--- whatever mixed_precision computes in.
---@param opts? {writeback: boolean?, rank0_only: boolean?, with_grads: boolean?}
---@param fn? function
---@param ... any
function FSDP:summon_full_params(opts, fn, ...)
  if type(opts) == "function" then return self:summon_full_params(nil, opts, fn, ...) end
  local o = options("summon_full_params", opts, { writeback = true, rank0_only = false, with_grads = false })
  if o.writeback and o.rank0_only then
    raise "summon_full_params: with rank0_only only rank 0 has whole parameters, so they cannot be written back; set writeback = false"
  end
  return summon.summon(self.reducer, o, fn, ...)
end

--- The module's state with whole tensors. Sharded parameters are copied. A collective then.
---@param prefix? string
---@return table<string, accel.Tensor>
function FSDP:state_dict(prefix, ...)
  check.surplus("state_dict", ...)
  if not self.reducer:gathers() then return self.module:state_dict(prefix) end
  return summon.state(self.reducer, self.module, true, prefix)
end

--- Takes over a whole state. On all ranks, with the same values.
function FSDP:load_state_dict(...)
  local args = table.pack(...)
  return self:summon_full_params({ writeback = true }, function()
    return self.module:load_state_dict(table.unpack(args, 1, args.n))
  end)
end

return FSDP
