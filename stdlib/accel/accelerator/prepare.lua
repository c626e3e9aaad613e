--- Methods of Accelerator: prepare and its parts, their undoing, and free_memory.
local accel = require "accel"
local Module = require "accel.nn.module"
local check = require "accel.util.check"
local check_self = require "accel.accelerator.check_self"
local checks = require "accel.accelerator.prepare_checks"
local class = require "accel.util.class"
local environment = require "accel.accelerator.environment"
local forward_precision = require "accel.amp.forward_precision"
local listed = require "accel.util.listed"
local low_memory = require "accel.accelerator.low_memory"
local nearest = require "accel.util.nearest"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local parallelism = require "accel.accelerator.parallelism"
local raise = require "accel.util.raise"
local recipes = require "accel.accelerator.recipes"
local sharding = require "accel.accelerator.sharding"
local together = require("accel.accelerator.elastic").together
local verify = require "accel.dist.verify"

local M = {}

local function is_a(x, module)
  local cls = package.loaded[module]
  return cls ~= nil and class.isinstance(x, cls)
end

local function has(x, ...)
  if type(x) ~= "table" or class.isclass(x) then return false end
  for _, method in ipairs { ... } do
    if type(x[method]) ~= "function" then return false end
  end
  return true
end

--- The kind of an object for prepare: "loader", "indexed" (data sets of Megatron's form), "model", "optimizer", "scheduler", or nil,
--- which leaves it unchanged.
local function kind_of(x)
  if type(x) ~= "table" then return nil end
  if Module.is_module(x) then return "model" end
  local dummy = package.loaded["accel.deepspeed.dummies"] and require("accel.deepspeed.prepare").dummy_kind(x)
  if dummy then return dummy end
  if is_a(x, "accel.accelerator.loader") or is_a(x, "accel.data.dataloader") then return "loader" end
  local indexed = package.loaded["accel.accelerator.megatron_data"]
  if indexed and class.isinstance(x, indexed.MegatronLMDummyDataLoader) then return "indexed" end
  local skip = package.loaded["accel.accelerator.skip"]
  if skip and class.isinstance(x, skip.Skipped) then return "skipped" end
  if type(x.param_groups) == "table" and has(x, "step", "zero_grad") then return "optimizer" end
  if has(x, "step", "get_last_lr") then return "scheduler" end
end

--- Whether a last argument is a table of options: of one key, device_placement or like it.
local function is_options(x)
  if type(x) ~= "table" or getmetatable(x) ~= nil then return false end
  local key = next(x)
  return type(key) == "string" and next(x, key) == nil and nearest(key, { "device_placement" }) ~= nil
end

local prepares = {
  loader = "prepare_data_loader", indexed = "_prepare_indexed", skipped = "_prepare_skipped", model = "prepare_model",
  optimizer = "prepare_optimizer", scheduler = "prepare_scheduler",
}

--- Dummies stand for the optimizer and schedule of a DeepSpeed configuration.
local function refuse_dummies(given)
  if not package.loaded["accel.deepspeed.dummies"] then return end
  for i = 1, given.n do
    local kind = require("accel.deepspeed.prepare").dummy_kind(given[i])
    if kind then
      raise("prepare: argument %d is a %s, which stands for the %s of a DeepSpeed configuration, but there is no deepspeed_plugin", i,
        class.of(given[i]).__name:match "[^.]*$", kind)
    end
  end
end

--- Makes models, optimizers, schedules and loaders work on all ranks and in the precision of this Accelerator. Returns
--- them in the order of the arguments, everything else unchanged. You can pass them in any order, in one call or
--- several. Prepared objects are returned unchanged. A last argument { device_placement = { true, false, ... } } sets
--- for each object whether it is moved.
---@param ... any
---@return any ...
function M.prepare(self, ...)
  check_self(self, "prepare")
  local given = table.pack(...)
  local last, placement = given[given.n], nil
  if given.n > 1 and is_options(last) then
    placement = options("prepare", last, { device_placement = {} }).device_placement
    given.n = given.n - 1
    if #placement ~= given.n then
      raise("prepare: device_placement has %d entries for %d objects", #placement, given.n)
    end
  end
  local kinds, out, times = {}, {}, {}
  for i = 1, given.n do
    kinds[i], out[i] = kind_of(given[i]) or false, given[i]
    if kinds[i] == "indexed" then -- which of its loaders
      times[given[i]] = (times[given[i]] or 0) + 1
      times[i] = times[given[i]]
    end
  end
  if self.num_processes > 1 then
    local lines = {}
    for i = 1, given.n do lines[i] = kinds[i] or "something else" end
    together(self, verify, "prepare", "object", lines, "call it on all of them, with the same objects in the same order")
  end
  self._prepared.given = setmetatable({}, { __mode = "v" })
  for i = 1, given.n do self._prepared.given[i] = kinds[i] == "model" and given[i] or nil end
  checks.optimizers(self, given, kinds)
  if self.deepspeed_plugin then
    require("accel.deepspeed.prepare").before(self, given, kinds)
  else
    refuse_dummies(given)
  end
  if self.megatron_lm_plugin then require("accel.accelerator.megatron_groups").before(self, given, kinds) end
  for _, second in ipairs { false, true } do -- schedules last: they are tied to prepared optimizers
    for i = 1, given.n do
      if kinds[i] and (kinds[i] == "scheduler") == second then
        local moves = kinds[i] ~= "optimizer" and kinds[i] ~= "scheduler"
        out[i] = self[prepares[kinds[i]]](self, given[i], moves and { device_placement = placement and placement[i] } or nil, times[i])
      end
    end
  end
  if self.megatron_lm_plugin then self.megatron_lm_plugin:count_batch(self._prepared.dataloaders[1], parallelism.data_place(self)) end
  self._resume:objects_came()
  return table.unpack(out, 1, given.n)
end

--- The target device of an object. nil leaves it on its device.
local function target_device(self, o)
  local moves = o.device_placement
  if moves == nil then moves = self.device_placement end
  return moves and self.device or nil
end

--- Gives an optimizer the parts of sharded parameters in their place.
local function adopt(optimizer)
  parallelism.adopt(optimizer)
  local owners = package.loaded["accel.shard.owners"]
  if owners and optimizer._private then owners.adopt(optimizer) end
end

-- Models -----------------------------------------------------------------------------------------

--- Sharded over the ranks by a plugin. From now on the prepared optimizers update the shards.
local function shard(self, model, settings)
  if settings.deterministic == "world" and self.gradient_state.sync_each_batch then
    raise 'prepare: deterministic = "world" sums gradients once per update; set sync_each_batch = false'
  end
  local wrapped = require("accel.nn.parallel").FullyShardedDataParallel(model, settings)
  for _, optimizer in ipairs(self._prepared.optimizers) do adopt(optimizer.optimizer) end
  return wrapped
end

--- The devices of a dispatched model's map, each once.
local function spread(model)
  local list, seen = {}, {}
  for _, device in ordered.iterate(rawget(model, "hf_device_map") or {}) do
    if not seen[device] then list[#list + 1], seen[device] = tostring(device), true end
  end
  return list
end

local function wrap(self, model)
  local handler = self.ddp_handler
  local settings = sharding.options(self, model)
  local size, group, experts = self.num_processes, nil, nil
  if self._parallel then
    size, group = self._parallel:data_group()
    if settings then settings = self._parallel:sharding(settings, model) end
    experts = self._parallel:expert_parameters()
    if size == 1 and not sharding.alone(self, model) then return model end
  end
  if settings then return shard(self, model, settings) end
  local given, hook = handler and handler:to_kwargs() or {}, checks.hook_of(handler)
  given.comm_hook, given.comm_wrapper, given.comm_state_option = nil, nil, nil
  given.dim, given.check_reduction = nil, nil -- reported by the Accelerator
  given.process_group, given.micro_batches = group, self.micro_batches
  if experts and #experts > 0 then given.ignored_parameters = experts end
  local world = given.deterministic == "world"
  if world and self.gradient_state.sync_each_batch then
    raise 'prepare: deterministic = "world" sums gradients once per update; set sync_each_batch = false'
  end
  local wrapped = together(self, require("accel.nn.parallel").DistributedDataParallel, model, given)
  if hook then wrapped:register_comm_hook(table.unpack(hook, 1, 2)) end
  local elastic = rawget(self, "_elastic")
  if elastic then elastic:adopt(wrapped) end
  return wrapped
end

--- A model on its device, in the precision of this Accelerator and, with several ranks, wrapped in
--- nn.parallel.DistributedDataParallel, which keeps every name. evaluation_mode: not wrapped. With several ranks, a model that was
--- dispatched to several devices raises, unless ACCELERATE_BYPASS_DEVICE_MAP is true.
---@param model accel.nn.Module
---@param opts? {device_placement: boolean?, evaluation_mode: boolean?}
---@return accel.nn.Module
function M.prepare_model(self, model, opts, ...)
  check.surplus("prepare_model", ...)
  local o = options("prepare_model", opts, { device_placement = options.none, evaluation_mode = false })
  if not Module.is_module(model) then raise("prepare_model: %s", Module.not_a_module(model)) end
  local made = self._prepared:find(model)
  if made then return made end
  if M.verify_device_map(self, model) and self.num_processes > 1 and not o.evaluation_mode
    and not environment.parse_flag_from_env "ACCELERATE_BYPASS_DEVICE_MAP" then
    raise("prepare_model: the model was dispatched to several devices (%s) for one process; train it on one rank, shard it"
      .. " with fsdp_plugin, or set ACCELERATE_BYPASS_DEVICE_MAP=true if every rank has its own devices", listed(spread(model)))
  end
  local device, learns, wrapped = target_device(self, o), false, rawget(model, "reducer") ~= nil
  for _, p in ipairs(model:parameters()) do
    learns = learns or p.requires_grad
    -- a meta model has no bytes to move: sharding receives them. A dispatched model is on its devices already
    if device and p.device ~= device and not p.device:find "^meta" and not rawget(model, "hf_device_map") then
      model:to(device)
      device = nil
    end
  end
  checks.note(model)
  if learns and not o.evaluation_mode then low_memory.model(self, wrapped and model.module or model) end
  if learns and not o.evaluation_mode then checks.hold_in_f32(self, model, wrapped) end
  local dtype, handler = forward_precision.dtype(self.mixed_precision), self.autocast_handler
  if dtype then
    local inner = wrapped and model.module or model
    forward_precision.wrap(inner, dtype, handler == nil or handler.enabled ~= false, recipes.convert(self, inner))
  end
  local world = self.ddp_handler and self.ddp_handler.deterministic == "world"
  made = model
  local wraps = self.num_processes > 1 or world or sharding.alone(self, model) or sharding.offloads(self)
  if self._parallel and not wrapped then
    made = self._parallel:share_out(self, model, sharding.options(self, model))
    for _, optimizer in ipairs(self._prepared.optimizers) do adopt(optimizer.optimizer) end
  end
  if made == model and learns and not wrapped and not o.evaluation_mode then
    if wraps then
      made = wrap(self, model)
      local engine = rawget(made, "reducer")
      if engine and engine.units then engine.upcasts = checks.trains_in_f32(self) end -- of parameters trained later
      -- routers count the tokens of all ranks, but with "world", which has one rank's numbers by micro-batch
      if not self._parallel and self.num_processes > 1 and not world and package.loaded["accel.models.mixture"] then
        local everyone = require("accel.parallel.mesh").world(self.num_processes, self.process_index)
        require("accel.parallel.experts").count_together(model, everyone, true)
      end
    else
      checks.alone(self, model)
    end
  end
  if not o.evaluation_mode then require "accel.accelerator.changes".watch(self, model, made, checks.trains_in_f32(self)) end
  local dynamo = self.dynamo_plugin
  if dynamo and not dynamo.disable then -- the last: precision is inside
    local compile = require "accel.compile"
    local how = dynamo.use_regional_compilation and compile.compile_regions or compile.compile
    how(wrapped and model.module or model, { backend = dynamo.backend, fullgraph = dynamo.fullgraph,
      mode = dynamo.options == nil and dynamo.mode or nil, dynamic = dynamo.dynamic, options = dynamo.options })
  end
  if self._parallel then self._parallel:wrapped_experts(made) end
  if made ~= model then require("accel.accelerator.loss_weights").watch(self, made) end
  -- whole parameters that are sharded now, and the buffers that carried rank 0's, are freed before the first step
  if made ~= model or self._parallel then accel.collect() end
  return self._prepared:add(self._prepared.models, model, made)
end

--- The model without its wrapper. keep_fp32_wrapper = false also takes off the mixed precision.
---@param model accel.nn.Module
---@param keep_fp32_wrapper? boolean|{keep_fp32_wrapper: boolean?, keep_torch_compile: boolean?} default true
---@return accel.nn.Module
function M.unwrap_model(_, model, keep_fp32_wrapper, ...)
  check.surplus("unwrap_model", ...)
  return require("accel.accelerator.standalone")._unwrap("unwrap_model", model, keep_fp32_wrapper, {})
end

--- The state of a model, with the names that it had before it was prepared. If parameters are sharded over ranks, all ranks must
--- call it. The main process gets whole copies, gathered one unit after the other, and the others an empty table. adapter_only: of a
--- model with adapters, only the active one's tensors, by the names of PEFT's files.
---@param model accel.nn.Module
---@param opts? {adapter_only: boolean?}
---@return table<string, accel.Tensor>
function M.get_state_dict(self, model, opts, ...)
  check.surplus("get_state_dict", ...)
  if opts ~= nil then
    local adapter_only = require "accel.accelerator.adapter_only"
    if adapter_only.option("get_state_dict", opts) then return adapter_only.state(self, "get_state_dict", model) end
  end
  if self._parallel and self._parallel:is_model_parallel() then
    return require("accel.parallel.checkpoint").state(self, model, self.is_main_process)
  end
  local engine, deepspeed = rawget(model, "reducer"), rawget(self, "_deepspeed")
  if deepspeed and deepspeed.plugin.zero_stage == 3 then return deepspeed:whole_state(model) end
  if not engine or not engine.units or not engine:gathers() then return self:unwrap_model(model):state_dict() end
  return require("accel.shard.summon").state(engine, self:unwrap_model(model), self.is_main_process) or ordered()
end

--- Whether a model was dispatched to several devices or tiers (dispatch_model): then it is not wrapped for several processes.
---@param model accel.nn.Module
---@return boolean
function M.verify_device_map(_, model)
  for _, module in ipairs(Module.is_module(model) and model:modules() or {}) do
    if #spread(module) > 1 then return true end
  end
  return false
end

-- Optimizers and schedules -----------------------------------------------------------------------

--- An optimizer whose steps belong to updates: it waits while gradients accumulate and skips steps with overflow.
---@param optimizer accel.optim.Optimizer
---@param opts? {device_placement: boolean?}
---@return accel.accelerator.AcceleratedOptimizer
function M.prepare_optimizer(self, optimizer, opts, ...)
  no_effect("accel.accelerator.Accelerator:prepare_optimizer",
    options("prepare_optimizer", opts, { device_placement = options.none }, ...))
  if kind_of(optimizer) ~= "optimizer" then
    raise("prepare_optimizer: expected an optimizer, got %s", check.shown(optimizer))
  end
  local made = self._prepared:find(optimizer)
  if made then return made end
  recipes.convert_optimizer(self, optimizer)
  low_memory.optimizer(self, optimizer)
  checks.warn_whole(self, optimizer)
  adopt(optimizer)
  local Wrapper = require "accel.accelerator.optimizer"
  made = self._prepared:add(self._prepared.optimizers, optimizer, Wrapper(optimizer, { accelerator = self }))
  for _, schedule in ipairs(self._prepared.schedulers) do -- that were prepared before their optimizer
    if schedule.scheduler.optimizer == optimizer then schedule:_follow { made } end
  end
  return made
end

--- A schedule that advances with the updates of its optimizer, or of all prepared ones if its own is not prepared.
---@param scheduler accel.optim.LRScheduler
---@return accel.accelerator.AcceleratedScheduler
function M.prepare_scheduler(self, scheduler, ...)
  check.surplus("prepare_scheduler", ...)
  if kind_of(scheduler) ~= "scheduler" then
    raise("prepare_scheduler: expected a schedule, got %s", check.shown(scheduler))
  end
  local made = self._prepared:find(scheduler)
  if made then return made end
  local prepared = self._prepared
  if scheduler.configure and self.megatron_lm_plugin then
    local loader = prepared.dataloaders[1]
    scheduler:configure(self.megatron_lm_plugin, loader and loader.total_batch_size)
  end
  local own, all = prepared:find(scheduler.optimizer), prepared.optimizers
  local Wrapper = require "accel.accelerator.scheduler"
  return prepared:add(prepared.schedulers, scheduler, Wrapper(scheduler, {
    optimizers = own and { own } or table.move(all, 1, #all, 1, {}), accelerator = self,
    step_with_optimizer = self.step_scheduler_with_optimizer, split_batches = self.split_batches,
  }))
end

-- Loaders ----------------------------------------------------------------------------------------

--- A loader that gives every rank its part of the data, marks padding rows, and moves batches to the device.
---@param loader accel.data.DataLoader
---@param opts? {device_placement: boolean?, slice_fn_for_dispatch: function?}
---@return accel.accelerator.DataLoader
function M.prepare_data_loader(self, loader, opts, ...)
  check.surplus("prepare_data_loader", ...)
  local o = options("prepare_data_loader", opts, {
    device_placement = options.none, slice_fn_for_dispatch = options.none,
  })
  if kind_of(loader) ~= "loader" then
    raise("prepare_data_loader: expected a DataLoader, got %s", check.shown(loader))
  end
  local made = self._prepared:find(loader) or is_a(loader, "accel.accelerator.loader") and loader
  if made then return made end
  local prepare = require "accel.accelerator.loader".prepare
  return self._prepared:add(self._prepared.dataloaders, loader, prepare(loader, {
    accelerator = self, device = target_device(self, o), slice_fn = o.slice_fn_for_dispatch,
  }))
end

--- The train, valid or test loader that a MegatronLMDummyDataLoader stands for.
function M._prepare_indexed(self, dummy, opts, part)
  return require("accel.accelerator.megatron_data").prepare(self, dummy, part, opts)
end

--- The rest of an epoch of a loader that is prepared here.
function M._prepare_skipped(self, view, opts)
  return self:skip_first_batches(self:prepare_data_loader(view.loader, opts), view.skip_batches)
end

--- The coming pass of a loader without its first n batches: see accel.accelerator.skip_first_batches.
---@param dataloader accel.accelerator.DataLoader|accel.data.DataLoader
---@param num_batches? integer 0
function M.skip_first_batches(_, dataloader, num_batches, ...)
  check.surplus("skip_first_batches", ...)
  return require("accel.accelerator.skip").skip_first_batches(dataloader, num_batches)
end

-- The end ----------------------------------------------------------------------------------------

--- Releases all prepared objects and frees their memory. Returns one nil per argument, so that you can clear your variables:
--- model, optimizer = accelerator:free_memory(model, optimizer).
---@param ... any
---@return nil ...
function M.free_memory(self, ...)
  self:wait_for_save()
  self._prepared:clear()
  if self._parallel then self._parallel:forget() end
  self.gradient_state.step = 0
  self._update:discard()
  self._checkpointing.custom = {}
  require("accel.accelerator.memory").release_memory()
  local nils = {}
  return table.unpack(nils, 1, select("#", ...))
end

M.clear = M.free_memory

return M
