--- nn.parallel.DistributedDataParallel(module, opts): the same model on every rank, each with its own part of the
--- batch. Gradients are averaged over the ranks during backward (accel.dist.reducer).
---
---   local model = nn.parallel.DistributedDataParallel(net)
---   for x, y in batches() do loss(model(x), y):backward() optimizer:step() optimizer:zero_grad() end
---
--- Names do not change: the wrapper stands in the place of the module, so that state_dict, named_parameters and similar
--- methods return the module's results, without a prefix, and fields that the wrapper lacks are read from it. `.module`
--- is the module itself. Parameters and buffers are rank 0's from the start. Ranks have to call forward and backward
--- equally often (see join), and a backward belongs to the forward before it. ->grad of parameters lies in the buckets
--- that are reduced: one that is kept changes with the next backward, clone it or say gradient_as_bucket_view = false.
--- It changes with the next backward: clone it, or set gradient_as_bucket_view = false. Means have no history, even
--- after backward { create_graph = true }: for gradient penalties, use accel.grad's gradients, and add the penalty to
--- the loss.
---
--- With deterministic = "world" gradients do not depend on how many ranks there are: if the global batch is always cut
--- into the same M micro-batches, and every rank takes a power of two of them, consecutive ones, the mean gradient has
--- the same bits for 1, 2, 4, ... ranks. A micro-batch is one forward and backward. All but the last of an update run
--- inside no_sync(), in which the wrapper counts and sums them itself. It scales once at the end, by their number over
--- all ranks: losses are means over their micro-batch and are not divided. ->grad holds the whole sum only after the
--- last one, and an update starts from zero regardless of ->grad. Call accel.micro_batch(row0) before each forward,
--- with the position of its first row in the global batch, to get the same dropout. Buffers do depend on the number of
--- ranks: running statistics of batch norm cover the micro-batches of rank 0.
---
--- With micro_batches = M as well, there can be any number of ranks up to M. Rank r of N takes the micro-batches from r M // N to
--- (r + 1) M // N - 1, counted from 0, and their gradients are added up in the tree of one rank that takes all M. Running
--- statistics of batch norm then move once per update, by all micro-batches in order (batch_statistics).
---
--- Which parameters learn may change between two updates: some are frozen or learn again, modules are replaced, adapters come. The
--- next forward that learns compares (accel.nn.trained) and lays the buckets out anew. Ranks have to make the same change.
local accel = require "accel"
local BatchStatistics = require "accel.nn.parallel.batch_statistics"
local Module = require "accel.nn.module"
local Reducer = require "accel.dist.reducer"
local Trained = require "accel.nn.trained"
local check = require "accel.util.check"
local check_micro_batches = require "accel.dist.check_micro_batches"
local coalesce = require "accel.dist.coalesce"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local verify = require "accel.dist.verify"

local WHO = "DistributedDataParallel"

--- A module whose gradients are averaged over ranks.
--- example: local net = accel.nn.Linear(2, 1) local model = accel.nn.parallel.DistributedDataParallel(net)
---   model(accel.ones(1, 2)):sum():backward() return #net:state_dict().weight.shape, model.module == net --> 2, true
---@class accel.nn.parallel.DistributedDataParallel : accel.nn.Module
---@field module accel.nn.Module
---@field require_backward_grad_sync boolean false inside no_sync()
local DDP = Module:extend("accel.nn.parallel.DistributedDataParallel")

require "accel.nn.parallel.transparent"(DDP, WHO)

local declared = {
  device_ids = options.none, output_device = options.none, dim = options.none, process_group = options.none,
  bucket_cap_mb = 25, first_bucket_mb = 1, broadcast_buffers = true, init_sync = true,
  find_unused_parameters = false, static_graph = false, gradient_as_bucket_view = true, check_reduction = false,
  deterministic = options.none, micro_batches = options.none, ignored_parameters = options.none,
}

local function read(opts, ...)
  local o = options(WHO, opts, declared, ...)
  no_effect("accel.nn.parallel.DistributedDataParallel", o)
  for _, key in ipairs { "bucket_cap_mb", "first_bucket_mb" } do
    check.number(WHO, key, o[key], 0)
    if math.type(o[key]) == "float" and o[key] == math.huge then raise("%s: %s must be finite", WHO, key) end
  end
  if o.deterministic ~= nil then check.word(WHO, "deterministic", o.deterministic, { "world" }) end
  check_micro_batches(WHO, o)
  return o
end

--- The reducer of the parameters that learn.
local function reduces(trained, o, statistics)
  local names, learnt, mb = {}, {}, 1 << 20
  for _, e in ipairs(trained.entries) do
    if e.learns then names[#names + 1], learnt[#learnt + 1] = e.name, e.p end
  end
  local reducer = Reducer(names, learnt, {
    first = math.min(o.first_bucket_mb, o.bucket_cap_mb) * mb, cap = o.bucket_cap_mb * mb, group = o.process_group,
    find_unused = o.find_unused_parameters, static = o.static_graph, as_view = o.gradient_as_bucket_view,
    world = o.deterministic == "world", micro_batches = o.micro_batches,
  })
  if o.micro_batches then reducer.statistics = statistics or BatchStatistics(WHO, { group = o.process_group }) end
  return reducer
end

---@param module accel.nn.Module
---@param opts? {process_group: any, bucket_cap_mb: number?, first_bucket_mb: number?, broadcast_buffers: boolean?,
--- find_unused_parameters: boolean?, static_graph: boolean?, gradient_as_bucket_view: boolean?, init_sync: boolean?,
--- deterministic: "world"?, micro_batches: integer?, ignored_parameters: accel.Tensor[]?} ignored_parameters: their gradients are
--- not averaged; device_ids, output_device, dim and check_reduction have no effect, of which a warning tells
function DDP:init(module, opts, ...)
  if not Module.is_module(module) then raise("%s: %s", WHO, Module.not_a_module(module)) end
  if rawget(module, "reducer") then raise("%s: the module is already wrapped; wrap its .module", WHO) end
  local o = read(opts, ...)
  rawset(self, "module", module)
  rawset(self, "options", o)
  rawset(self, "require_backward_grad_sync", true)
  rawset(self, "require_forward_param_sync", true)
  rawset(self, "joining", false)
  rawset(self, "training", module.training)
  local ignored = {}
  for _, p in ipairs(o.ignored_parameters or {}) do ignored[p] = true end
  local trained = Trained(module, ignored)
  rawset(self, "trained", trained)
  local params = {}
  for i, e in ipairs(trained.entries) do params[i] = e.p end
  if #trained.learning == 0 then raise("%s: %s has no parameter that requires gradients; call it unwrapped", WHO,
    getmetatable(module).__name or "the module") end
  if o.micro_batches then
    verify(WHO, "option", { ("micro_batches = %d"):format(o.micro_batches) }, "give the same ones on all of them", o.process_group)
  end
  verify(WHO, "parameter", trained:lines(), "build the same model on all of them", o.process_group)
  local group_size = dist.get_world_size(o.process_group)
  if group_size > 1 and o.init_sync then
    local buffers = {}
    for name, b in pairs(module:named_buffers()) do
      buffers[#buffers + 1] = ("'%s' %s %s"):format(name, b.dtype, tensors.shape_string(b))
    end
    verify(WHO, "buffer", buffers, "build the same model on all of them", o.process_group)
    coalesce.broadcast(params, 0, o.process_group)
    coalesce.broadcast(module:buffers(), 0, o.process_group)
  end
  rawset(self, "reducer", reduces(trained, o))
end

-- Changes ----------------------------------------------------------------------------------------

--- The trained parameters differ from those in the buckets: creates new buckets, after ranks agreed on the parameters. Values of
--- parameters that are new come from rank 0, as at the start.
function DDP:_follow(changes)
  local before, o, trained = self.reducer, self.options, self.trained
  if self.joining then
    raise("%s: the trained parameters changed inside join: %s; change them between two of these blocks", WHO, Trained.shown(changes))
  end
  if before.transactional then
    raise("%s: the trained parameters changed in an elastic job, which needs the same ones in every update: %s; set them before prepare", WHO,
      Trained.shown(changes))
  end
  if rawget(self, "_changing") then self._changing(changes) end
  local fresh = trained:renew()
  Trained.agree(WHO, changes, trained:lines(), o.process_group)
  before:check_idle(Trained.shown(changes))
  local gradients = before:give_up()
  if before.size > 1 and o.init_sync then coalesce.broadcast(fresh, 0, o.process_group) end
  local reducer = reduces(trained, o, before.statistics)
  for p, grad in next, gradients do p.grad = grad end
  reducer.hook, reducer.hook_state = before.hook, before.hook_state
  rawset(self, "reducer", reducer)
end

-- Forward ----------------------------------------------------------------------------------------

--- Gives all ranks the buffers of rank `src` of the group.
function DDP:_sync_buffers(src)
  local list = self.module:buffers()
  if #list > 0 then coalesce.broadcast(list, src, self.options.process_group) end
end

--- The module's forward. The backward of its outputs averages gradients, unless it runs inside no_sync().
function DDP:forward(...)
  local sync = self.require_backward_grad_sync
  local changes = accel.is_grad_enabled() and not self.reducer.running and self.trained:changes()
  if changes then self:_follow(changes) end
  local reducer = self.reducer
  local learns, sends = accel.is_grad_enabled(), self.require_forward_param_sync and self.options.broadcast_buffers
  local src = 0
  if self.joining then src = self.joining:forward(learns and sync, sends, learns and sync and reducer:tracks_use()) end
  if learns then reducer:prepare(sync, self.joining) end
  if sends and reducer.size > 1 then self:_sync_buffers(src) end
  if learns and reducer.statistics and self.module.training then return reducer.statistics:forward(self.module, ...) end
  return self.module(...)
end

--- Gradients are only accumulated, on each rank for itself, until the block ends: `local _ <close> = model:no_sync()`,
--- or model:no_sync(fn, ...). Forward and backward both belong inside. Forward and backward both belong inside. The
--- next backward outside averages the accumulated gradients together with its own.
---@param fn? function
---@param ... any
function DDP:no_sync(fn, ...)
  local was = self.require_backward_grad_sync
  rawset(self, "require_backward_grad_sync", false)
  rawset(self, "require_forward_param_sync", false)
  return guard(function()
    rawset(self, "require_backward_grad_sync", was)
    rawset(self, "require_forward_param_sync", was)
  end, fn, ...)
end

--- Makes the next backward average gradients, although its forward ran inside no_sync().
function DDP:sync_next_backward()
  rawset(self, "require_backward_grad_sync", true)
  rawset(self, "require_forward_param_sync", true)
  self.reducer:prepare(true, self.joining)
end

--- Replaces the all-reduce of each bucket of gradients. hook(state, bucket), with an accel.dist.GradBucket, returns the
--- averaged flat tensor, a future of it (accel.dist.hooks.Future), the work of a collective on the buffer, or nothing
--- if the buffer holds it already. Hooks that compress are in accel.dist.hooks. Once per wrapper.
---@param state any
---@param hook fun(state: any, bucket: accel.dist.GradBucket): any
function DDP:register_comm_hook(state, hook)
  check.callable("register_comm_hook", "hook", hook)
  local reducer = self.reducer
  if reducer.hook then raise "register_comm_hook: there is a hook already" end
  if reducer.counter then
    raise 'register_comm_hook: deterministic = "world" sums exactly, and a hook would replace that; leave one of them out'
  end
  reducer.hook, reducer.hook_state = hook, state
end

--- For ranks with different numbers of inputs, around the loop over them. A rank whose loop ends first answers the
--- collectives of the others with zeros, until all are done. Then all have the parameters and buffers of a rank that
--- finished last. Inside, a backward that averages follows every forward that learns. `local _ <close> = model:join()`,
--- or model:join(opts, fn, ...).
---
--- divide_by_initial_world_size (true): gradients are divided by the number of all ranks, otherwise by the number of
--- ranks that still have inputs. throw_on_early_termination (false): the first rank without inputs ends all, with an
--- error.
---@param opts? {divide_by_initial_world_size: boolean?, enable: boolean?, throw_on_early_termination: boolean?}
---@param fn? function
---@param ... any
function DDP:join(opts, fn, ...)
  if type(opts) == "function" then return self:join(nil, opts, fn, ...) end
  return require "accel.dist.join"(self, opts, fn, ...)
end

return DDP
