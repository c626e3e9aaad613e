--- The mesh of an Accelerator: from a ParallelismConfig or a MegatronLMPlugin to axes of ranks, and models onto them. Used by
--- resolve.lua, accelerator.lua, prepare.lua and training.lua. accel.parallel does the work.
---
--- Dimensions of the mesh, the last one fastest: pp, dp_replicate, dp_shard, cp, sp, tp. Those of size 1 are left out. Joint ones: dp
--- (dp_replicate and dp_shard: ranks that read different data), dp_shard_cp, dp_cp, and data, all over which gradients are averaged. The
--- data axis is cut into runs of ep_size ranks that divide the experts among them, ep. Ranks with the same experts form edp, and those of
--- them in one replica edp_shard.
local accel = require "accel"
local class = require "accel.util.class"
local check = require "accel.util.check"
local environment = require "accel.accelerator.environment"
local dist = require "accel.dist"
local megatron_model = require "accel.accelerator.megatron_model"
local raise = require "accel.util.raise"
local recipes = require "accel.accelerator.recipes"
local verify = require "accel.dist.verify"

local M = {}

--- The mesh of the last Accelerator, which keeps it. nil if it has none, or the state was reset.
---@type accel.accelerator.Parallelism?
M.current = nil
local held = setmetatable({}, { __mode = "v" })
setmetatable(M, { __index = function(_, key) return key == "current" and held[1] or nil end })

local PLUGINS <const> = {
  parallelism_config = { "ParallelismConfig", "accel.accelerator.plugins.parallelism", "ACCELERATE_USE_PARALLELISM_CONFIG" },
  megatron_lm_plugin = { "MegatronLMPlugin", "accel.accelerator.plugins.megatron", "ACCELERATE_USE_MEGATRON_LM" },
}

--- Takes the constructor's options, or the environment's, into the configuration.
---@param values table
---@param origins table
---@param o table options of the constructor
function M.take(values, origins, o)
  for _, key in ipairs { "parallelism_config", "megatron_lm_plugin" } do
    local name, home, variable = table.unpack(PLUGINS[key])
    local given, origin = o[key], "argument"
    if given == nil and environment.parse_flag_from_env(variable) then given, origin = require(home)[name] {}, variable end
    if given ~= nil and not class.isinstance(given, require(home)[name]) then
      raise("Accelerator: %s must be a %s, made by accel.%s { ... }, got %s", key, name, name, check.shown(given))
    end
    values[key], origins[key] = given, given and origin or nil
  end
  local megatron = values.megatron_lm_plugin
  if megatron and (values.parallelism_config or values.fsdp_plugin or values.deepspeed_plugin) then
    raise "Accelerator: megatron_lm_plugin already sets the mesh; give no parallelism_config, fsdp_plugin or deepspeed_plugin"
  end
end

--- Sizes and handlers of the requested mesh. nil for plain data parallelism.
local function wanted(values, num_processes)
  local megatron = values.megatron_lm_plugin
  if megatron then return megatron:parallelism(num_processes) end
  return values.parallelism_config
end

---@class accel.accelerator.Parallelism
---@field config accel.accelerator.ParallelismConfig
---@field mesh accel.parallel.DeviceMesh
local Parallelism = class("accel.accelerator.Parallelism")

local ORDER <const> = { "pp", "dp_replicate", "dp_shard", "cp", "sp", "tp" }
local JOINTS <const> = { dp = { "dp_replicate", "dp_shard" }, dp_shard_cp = { "dp_shard", "cp" },
  dp_cp = { "dp_replicate", "dp_shard", "cp" }, data = { "dp_replicate", "dp_shard", "cp", "sp" },
  shard = { "dp_shard", "cp", "sp" } }

function Parallelism:init(config, num_processes, values)
  if config.total_size == 1 and num_processes > 1 then config:_replicate(num_processes) end
  if config.total_size ~= num_processes then
    raise("ParallelismConfig: the sizes multiply to %d ranks (%s), but there are %d; start as many, or change a size",
      config.total_size, config:_sizes(), num_processes)
  end
  if num_processes > 1 then
    verify("ParallelismConfig", "size", { config:_sizes() }, "give all of them the same sizes")
  end
  local names, shape = {}, {}
  for _, name in ipairs(ORDER) do
    local size = config[name .. "_size"]
    if size > 1 then names[#names + 1], shape[#shape + 1] = name, size end
  end
  self.config, self.megatron = config, values.megatron_lm_plugin
  self.mesh = accel.parallel.DeviceMesh(names, shape, JOINTS)
  local data, ep = self:axis "data".size, config.ep_size
  if data % ep ~= 0 then
    raise("ParallelismConfig: ep_size %d does not divide the %d ranks of dp_replicate_size, dp_shard_size, cp_size and sp_size, which"
      .. " divide the experts among them", ep, data)
  end
  if ep > 1 then
    self.mesh:divide("data", ep, "ep", "edp")
    local replicated = self:axis "dp_replicate".size > 1 and self:axis "shard".size % ep == 0
    if replicated then self.mesh:divide("shard", ep, "ep", "edp_shard") end -- of edp those that share one replica's parameters
  end
  self.pipelines, self.experts = {}, {}
end

--- The mesh of an Accelerator. nil for plain data parallelism.
---@param values table resolved settings
---@param num_processes integer
---@return accel.accelerator.Parallelism?
function M.open(values, num_processes)
  local config = wanted(values, num_processes)
  held[1] = nil
  if not config or dist.get_world_size() ~= num_processes then return nil end
  local made = Parallelism(config, num_processes, values)
  held[1] = made
  return made
end

--- Forgets the mesh of the last Accelerator: its state was reset.
function M.reset() held[1] = nil end

function Parallelism:axis(name) return self.mesh:axis(name) end

--- Whether a rank shares the model with others, other than by data.
function Parallelism:is_model_parallel()
  local c = self.config
  return c.tp_size > 1 or c.pp_size > 1 or c.ep_size > 1
end

--- The options that data-parallel wrappers take from the mesh.
function Parallelism:data_group()
  local axis = self:axis "data"
  return axis.size, axis.group
end

--- The options of FullyShardedDataParallel on the mesh: sharded over dp_shard, cp and sp, replicated on dp_replicate. nil if there
--- are no ranks to shard over: gradients are averaged, and nothing is sharded.
function Parallelism:sharding(settings, model)
  local shard, replicas = self:axis "shard", self:axis "dp_replicate"
  if shard.size == 1 then return nil end
  settings.process_group = shard.group
  settings.ignored_parameters = self:expert_parameters()
  if replicas.size > 1 then
    if settings.zero_stage then
      raise "ParallelismConfig: dp_replicate_size above 1 needs FullyShardedDataParallelPlugin; DeepSpeed's stages shard over all data ranks"
    end
    settings.process_group = { shard.group, replicas.group }
    local strategy = settings.sharding_strategy or "FULL_SHARD"
    settings.sharding_strategy = tostring(strategy):find "GRAD_OP" and "HYBRID_SHARD_ZERO2" or "HYBRID_SHARD"
  end
  settings.apart = self:expert_sharding(model)
  return settings
end

-- Experts ----------------------------------------------------------------------------------------

--- Divides a model's experts, and has its routers count the tokens of all data ranks together.
function Parallelism:divide_experts(model, ddp)
  local data, c = self:axis "data", self.config
  if c.ep_size == 1 and (data.size == 1 or not package.loaded["accel.models.mixture"]) then return end
  local experts, world, whole = require "accel.parallel.experts", ddp and ddp.deterministic == "world", c.cp_size * c.sp_size == 1
  if world and c.ep_size > 1 then
    -- An expert's product has rows of micro-batches of several ranks, added up in one go, while one rank adds up a product of each: the
    -- bits differ. A product for each rank's rows would lose the advantage of expert parallelism, large products.
    raise('prepare: deterministic = "world" with ep_size %d: products of divided experts add up tokens of several ranks, which one rank adds'
      .. " up apart; leave it out (runs repeat their bits on the same layout), or take ep_size = 1", c.ep_size)
  end
  -- One rank's routers count by micro-batch, and with "world" a rank's have its numbers.
  if not (world and whole) then experts.count_together(model, data, whole) end
  if c.ep_size == 1 then return end
  self.experts[#self.experts + 1] = { params = experts.divide(model, self:axis "ep") }
  accel.collect() -- experts of others
end

--- How divided experts of a model are sharded: over the ranks with the same experts. Replicas hold the same shards. nil if there are
--- none, or each replica has every expert once.
---@param model accel.nn.Module
---@return {units: table[], group: accel.dist.Group, replicas: accel.dist.Group?}?
function Parallelism:expert_sharding(model)
  if #self.experts == 0 then return nil end
  local replicas = self:axis "dp_replicate"
  local axis = self:axis(replicas.size > 1 and "edp_shard" or "edp")
  if axis.size == 1 then return nil end
  return { units = require "accel.parallel.experts".units(model), group = axis.group,
    replicas = replicas.size > 1 and replicas.group or nil }
end

--- Parameters of divided experts, which are neither cut nor averaged over the data axis.
---@return accel.Tensor[]
function Parallelism:expert_parameters()
  local all = {}
  for _, e in ipairs(self.experts) do table.move(e.params, 1, #e.params, #all + 1, all) end
  return all
end

--- Reports the prepared form of a given model: whether its backwards reduce inside.
function Parallelism:wrapped_experts(model)
  local last = self.experts[#self.experts]
  if last and not last.wrapped then last.wrapped = model end
end

--- After a backward: gradients of experts become means over the ranks that have them, unless it only accumulates.
function Parallelism:reduce_experts()
  for _, e in ipairs(self.experts) do
    if not e.wrapped or rawget(e.wrapped, "require_backward_grad_sync") ~= false then
      require("accel.parallel.experts").reduce(e.params, self:axis "edp")
    end
  end
end

-- Models -----------------------------------------------------------------------------------------

--- Splits a model over tp, ep and pp, after parameters became rank 0's. Existing optimizers then update the remaining
--- parameters.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module
---@param settings table? of FullyShardedDataParallel
function Parallelism:share_out(accelerator, model, settings)
  local config, handler, megatron = self.config, self.config.tp_handler, self.megatron
  if megatron then
    settings = megatron.use_custom_fsdp and {} or megatron.use_distributed_optimizer and { zero_stage = 1 } or nil
    local missing = megatron_model.set_dropout(model, megatron)
    if #missing > 0 then accelerator:_warn("MegatronLMPlugin: no effect on this model: " .. table.concat(missing, "; ")) end
  end
  if dist.get_world_size() > 1 and (self:is_model_parallel() or config.cp_size * config.sp_size > 1) then
    require("accel.parallel.tensor_parallel").synchronize(model)
    accel.collect() -- their former holders
  end
  if config.tp_size > 1 then
    local plan = handler.tp_plan
    accel.parallel.parallelize_module(model, self:axis "tp", type(plan) == "table" and plan or nil,
      { sequence_parallel = handler.sequence_parallel or false, enable_async_tp = handler.enable_async_tp,
        tp_comm_overlap = handler.tp_comm_overlap, init_sync = false })
    accel.collect() -- the former whole parameters
  end
  self:divide_experts(model, accelerator.ddp_handler)
  if config.cp_size > 1 or config.sp_size > 1 then
    require("accel.parallel.context").attach(model, self:axis(config.cp_size > 1 and "cp" or "sp"), config)
  end
  if config.pp_size > 1 or megatron then -- Megatron's step has several micro-batches even with one stage
    local o = config.pp_handler or { schedule = "1f1b", virtual_stages = 1, num_micro_batches = megatron.num_micro_batches,
      loss_fn = megatron.custom_loss_function }
    local chunks = megatron and megatron_model.chunks(model, megatron) or o.virtual_stages
    local pipeline = accel.nn.parallel.PipelineParallel(model, self:axis "pp", {
      num_micro_batches = o.num_micro_batches, schedule = o.schedule, virtual_stages = chunks,
      split_points = megatron and "even" or o.split_points, -- Megatron-LM's stages have equally many layers
      stage_layers = megatron and megatron_model.stage_layers(model, megatron) or o.stage_layers, loss_fn = o.loss_fn, plan = o.pipeline_plan,
      init_sync = false,
    })
    if megatron then megatron_model.recompute(model, pipeline._blocks, megatron) end
    local shared = pipeline:_shared() -- makes groups, with all ranks
    local sharded = settings and self:cut_stage(pipeline, model, shared, settings)
    self:drive(accelerator, pipeline, sharded)
    if megatron then
      megatron_model.average(pipeline, model, megatron)
      require("accel.accelerator.megatron_step").attach(pipeline, model, megatron, function(text) accelerator:_warn(text) end)
    end
    recipes.adopt(model, pipeline, accelerator.device)
    model = pipeline
  end
  for _, optimizer in ipairs(accelerator._prepared.optimizers) do M.adopt(optimizer.optimizer) end
  return model
end

--- Shards a stage's parameters over the data axis. Parameters of several stages, and of other stages, are left out.
function Parallelism:cut_stage(pipeline, model, shared, settings)
  local ignored = {}
  for p in next, pipeline._foreign do ignored[#ignored + 1] = p end
  for _, s in ipairs(shared) do ignored[#ignored + 1] = s.param end
  for _, p in ipairs(self:expert_parameters()) do ignored[#ignored + 1] = p end
  settings = self:sharding(settings, model)
  if not settings then return nil end
  settings.ignored_parameters, settings.broadcast_buffers = ignored, false
  local wrapped = accel.nn.parallel.FullyShardedDataParallel(model, settings)
  rawset(pipeline, "module", wrapped)
  rawset(pipeline, "reducer", wrapped.reducer)
  return wrapped
end

--- Whether an update begins: the last one's step was, or its gradients were dropped.
local function begins(pipeline, update)
  if update.closed then return true end
  for _, p in ipairs(pipeline:parameters()) do
    if p.grad then return false end
  end
  return true
end

--- Ties a pipeline to the updates of an Accelerator: losses are scaled as its backward does, and gradients averaged over the data axis
--- when an update is complete.
function Parallelism:drive(accelerator, pipeline, sharded)
  local update, axis = accelerator._update, self:axis "data"
  local means = pipeline._means
  self.pipelines[#self.pipelines + 1] = pipeline
  means.axis, means.steps = axis, function() return accelerator.gradient_state.num_steps end
  rawset(pipeline, "_seed", function(_, loss, n)
    return accelerator:_backward_seed(loss, n)
  end)
  rawset(pipeline, "_start", function(self_)
    means:begin(begins(self_, update))
    update:begin(false)
    if sharded then rawset(sharded, "require_backward_grad_sync", false) end
  end)
  rawset(pipeline, "_before_last", sharded and function()
    rawset(sharded, "require_backward_grad_sync", accelerator.gradient_state.sync_gradients)
  end or nil)
  rawset(pipeline, "_finish", function(self_)
    update:add()
    accelerator._resume:trains()
    if not accelerator.gradient_state.sync_gradients then return end
    self_:_sum_shared()
    local grads = {}
    local cut = sharded and package.loaded["accel.shard.owners"].of or {}
    local experts = require "accel.parallel.placements".experts
    for _, p in ipairs(self_:parameters()) do
      if p.requires_grad and not cut[p] and not experts[p] then
        if not p.grad then p.grad = accel.zeros_like(p:detach()) end
        grads[#grads + 1] = p.grad
      end
    end
    if axis.size > 1 then require("accel.dist.coalesce").mean(grads, axis.group) end
    self:reduce_experts()
    means:finish(self_:parameters())
  end)
end

--- Fields that a MegatronLMDummyScheduler takes over when it is prepared.
local SCHEDULE <const> = [[train_iters train_samples weight_decay_incr_style start_weight_decay end_weight_decay lr_decay_style lr_decay_iters
  lr_decay_samples lr_warmup_iters lr_warmup_samples lr_warmup_fraction min_lr]]

--- Says which fields of a schedule have no effect, since none that takes them is prepared.
local function say_unscheduled(accelerator, megatron)
  local list = {}
  for field in SCHEDULE:gmatch "%S+" do
    local of_data = megatron.megatron_dataset_flag and field:find "^train_" -- the options of a MegatronLMDummyDataLoader
    list[#list + 1] = not of_data and megatron._asked[field] ~= nil and field or nil
  end
  if #list == 0 then return end
  accelerator:_warn(("MegatronLMPlugin: %s: no effect here: prepare a MegatronLMDummyScheduler, which takes them"):format(
    table.concat(list, ", ")))
end

--- Before a step of an optimizer under Megatron's plugin: gradients are clipped to its gradient_clipping.
function Parallelism:clip(optimizer)
  if self.scheduled == nil then -- before the first one
    self.scheduled = false
    for _, scheduler in ipairs(optimizer.accelerator._prepared.schedulers) do
      if scheduler.scheduler.configure then self.scheduled = true end
    end
    if not self.scheduled then say_unscheduled(optimizer.accelerator, self.megatron) end
  end
  local most = self.megatron.gradient_clipping
  if type(most) ~= "number" or most <= 0 then return end
  optimizer.accelerator:clip_grad_norm_(optimizer:_parameters(), most)
end

--- The pipeline that made a loss, whose gradients are there already.
---@param loss any
function Parallelism:made(loss)
  for _, pipeline in ipairs(self.pipelines) do
    if pipeline:made(loss) then return pipeline end
  end
end

--- Forgets the models.
function Parallelism:forget() self.pipelines, self.experts = {}, {} end

--- The number of ranks that read different data, and this rank's index. true if other ranks read the same.
---@param accelerator accel.Accelerator
---@return integer size
---@return integer rank
---@return boolean meshed
function M.data_place(accelerator)
  local parallel = rawget(accelerator, "_parallel")
  if not parallel then return accelerator.num_processes, accelerator.process_index, false end
  local axis = parallel:axis "dp"
  return axis.size, axis.rank, true
end

--- Removes other ranks' parameters from an optimizer.
---@param optimizer accel.optim.Optimizer
function M.adopt(optimizer)
  if package.loaded["accel.parallel.placements"] and optimizer.param_groups then
    require("accel.parallel.optimizers").adopt(optimizer)
  end
end

return M
