--- Accelerator { memory = "low" }: training in less memory, from parts that exist. Blocks of prepared models are computed again in
--- backward, prepared optimizers keep their states in 8 bits, and each parameter is stepped within the backward, as soon as its gradient
--- is complete, after which the gradient is dropped. memory = "reduced" leaves the gradients until optimizer:step(), which clipping needs.
--- Used by resolve.lua (check), prepare.lua (model, optimizer), training.lua (consumer), and all that would need gradients (refuse).
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"
local class = require "accel.util.class"
local deferred = require "accel.nn.deferred"
local raise = require "accel.util.raise"
local recording = require "accel.util.recording"

local M = {}

M.WORDS = { "normal", "low", "reduced" }

--- Settings that the option cannot serve.
---@param values table settings so far
---@param precision string
function M.check(values, precision)
  local memory = values.memory
  if memory == "normal" then return end
  local function refuse(what, way) raise('Accelerator: memory = "%s" does not support %s; %s', memory, what, way) end
  if values.parallelism_config or values.megatron_lm_plugin then
    refuse("parallelism_config and megatron_lm_plugin yet", "leave memory out, and use model:gradient_checkpointing_enable and optim.AdamW8bit")
  end
  if require "accel.elastic.core".active() then
    refuse("elastic jobs yet", "leave memory out, and use model:gradient_checkpointing_enable and optim.AdamW8bit")
  end
  if precision == "fp16" and memory == "low" then
    refuse("fp16, whose steps wait until all gradients are known to be finite", 'use mixed_precision = "bf16" or memory = "reduced"')
  end
end

local function shards(self) return self.fsdp_plugin ~= nil or self.deepspeed_plugin ~= nil end

-- Models -----------------------------------------------------------------------------------------

local recomputed = setmetatable({}, { __mode = "k" })

--- Modules of ModuleLists, in the order of the model, each once. Of lists inside lists only the outer ones.
local function blocks_of(module, list, met)
  for _, child in module:named_children() do
    if class.isinstance(child, require "accel.nn.module_list") then
      for _, block in ipairs(child) do
        if not met[block] then list[#list + 1], met[block] = block, true end
      end
    else
      blocks_of(child, list, met)
    end
  end
  return list
end

--- In training, the blocks of a model keep only their inputs.
---@param self accel.Accelerator
---@param model accel.nn.Module before it is wrapped
function M.model(self, model)
  if self.memory == "normal" or recomputed[model] then return end
  recomputed[model] = true
  local plugin = self.fsdp_plugin
  if plugin and plugin.activation_checkpointing then return end
  if model.gradient_checkpointing_enable then
    if not model:is_gradient_checkpointing() then model:gradient_checkpointing_enable() end
    return
  end
  local blocks = blocks_of(model, {}, {})
  for _, block in ipairs(blocks) do
    local forward = block.forward
    rawset(block, "forward", function(it, ...)
      if not it.training or not accel.is_grad_enabled() then return forward(it, ...) end
      return accel.checkpoint(forward, it, ...)
    end)
  end
  if #blocks == 0 then
    self:_warn(('memory = "%s": %s has neither gradient_checkpointing_enable nor a ModuleList, so its activations stay in memory; let its'
      .. " forward call accel.checkpoint for each block"):format(self.memory, class.of(model).__name))
  end
end

-- States in 8 bits -------------------------------------------------------------------------------

--- The class that keeps an optimizer's states in 8 bits with the same rule, or nil and the reason.
local function coded(optimizer)
  local optim, cls = require "accel.optim", class.of(optimizer)
  local name = cls and cls.__name:match "[^.]*$" or type(optimizer)
  if class.isinstance(optimizer, require "accel.optim.blockwise") then return nil end
  if cls ~= optim.AdamW and cls ~= optim.Adam and cls ~= optim.Lion then return nil, ("%s has no form of 8 bits"):format(name) end
  if rawget(optimizer, "_compressed") then return nil, "the fp8 recipe has compressed them" end
  if next(optimizer.state) ~= nil then return nil, ("this %s has stepped, or loaded a state, before it was prepared"):format(name) end
  for _, group in ipairs(optimizer.param_groups) do
    if group.amsgrad or group.maximize then return nil, ("%s8bit has no amsgrad or maximize"):format(name) end
    if cls == optim.Adam and group.weight_decay ~= 0 then return nil, "Adam8bit decays weights as AdamW does" end
  end
  return optim[name .. "8bit"]
end

--- An optimizer's states take 8 bits. The object stays the same, since schedules and scripts hold it. Parameters of bf16, which have no
--- copy in f32, are rounded at random, so that small updates count.
---@param self accel.Accelerator
---@param optimizer accel.optim.Optimizer
function M.optimizer(self, optimizer)
  if self.memory == "normal" or not class.isinstance(optimizer, Optimizer) then return end
  if shards(self) then
    return self:_warn(('memory = "%s": blocks are computed again in backward, but gradients and optimizer states stay as %s divides them'
      .. " over the ranks"):format(self.memory, self.fsdp_plugin and "fsdp_plugin" or "deepspeed_plugin"))
  end
  local target, why = coded(optimizer)
  if why then self:_warn(('memory = "%s": optimizer states stay as they are: %s'):format(self.memory, why)) end
  if not target then return end
  local function complete(options, params)
    for key in next, options do
      if key ~= "params" and key ~= "initial_lr" and target.defaults[key] == nil then options[key] = nil end
    end
    for _, key in ipairs { "min_8bit_size", "stochastic_rounding" } do options[key] = target.defaults[key] end
    for _, p in ipairs(params) do options.stochastic_rounding = options.stochastic_rounding or p.dtype == "bf16" end
  end
  setmetatable(optimizer, target)
  for _, group in ipairs(optimizer.param_groups) do complete(group, group.params) end
  complete(optimizer.options, optimizer.param_groups[1].params)
end

-- Gradients --------------------------------------------------------------------------------------

--- Why a backward keeps its gradients until the optimizer's step, although memory is "low". nil: it does not.
local function keeps(self, update, engine)
  local optimizers = self._prepared.optimizers
  if update.no_syncs > 0 then return "backward is inside no_sync" end
  if self.gradient_state.num_steps > 1 then return "gradients accumulate over micro-batches" end
  if self.num_processes > 1 then return "ranks average them in buckets" end
  for _, model in ipairs(self._prepared.models) do
    if rawget(model, "reducer") then return "a wrapper of the model holds them in buckets" end
  end
  if #optimizers ~= 1 then return ("%d optimizers are prepared, and a backward cannot tell which one steps"):format(#optimizers) end
  local optimizer = optimizers[1].optimizer
  if not class.isinstance(optimizer, Optimizer) or not optimizer:_steps_singly() then
    local cls = class.of(optimizer)
    return ("%s steps on all parameters together"):format(cls and cls.__name:match "[^.]*$" or "a class of the script")
  end
  if update.weighted then return "a weight divides them when all are complete" end
  if update:scaler() then return "a loss scale divides them when all are complete" end
  if engine and (engine.retain_graph or engine.create_graph or engine.inputs) then return "backward has retain_graph, create_graph or inputs" end
  if recording.running then return "accel.graph records the step" end
end

--- The options of a group that are numbers or booleans.
local function options_of(group)
  local options = {}
  for key, value in next, group do
    if type(value) == "number" or type(value) == "boolean" then options[key] = value end
  end
  return options
end

--- Before a backward: refuses a second one in an update whose parameters have moved.
function M.begin(update)
  if update.consumed then
    raise('backward: with memory = "low" the first backward of this update has stepped; call step() of the prepared optimizer once for each, add'
      .. ' the losses and call backward once, or set memory = "reduced"')
  end
end

--- Around a backward that ends an update: every parameter steps as soon as its gradient is complete. Returns a value to close, or nil if
--- gradients stay.
---@param self accel.Accelerator
---@param update accel.accelerator.Update
---@param engine table? options of the backward
function M.consumer(self, update, engine)
  if self.memory ~= "low" or not self.gradient_state.sync_gradients or shards(self) then return nil end
  local why = keeps(self, update, engine)
  if why then
    self:_warn(('memory = "low": gradients stay until optimizer:step(): %s; set memory = "reduced" to avoid this message'):format(why))
    return nil
  end
  local optimizer = self._prepared.optimizers[1].optimizer
  local step, handles, stepped = optimizer:_singly(), {}, 0
  update.options = {}
  for g, group in ipairs(optimizer.param_groups) do update.options[g] = options_of(group) end
  for _, group in ipairs(optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      if p.requires_grad then
        handles[#handles + 1] = p:register_post_accumulate_grad_hook(function()
          if not p.grad then return end -- a hook of the script has dropped it
          update.consumed, stepped = true, stepped + 1
          deferred.consumed[p] = true
          step(p)
        end)
      end
    end
  end
  return require "accel.util.guard"(function(failure)
    for _, handle in ipairs(handles) do handle:remove() end
    if failure ~= nil and stepped > 0 then
      self:_warn(('memory = "low": backward failed after %d of %d parameters had stepped, so the model is between two updates; load the last'
        .. " checkpoint"):format(stepped, #handles))
    end
  end)
end

--- When the optimizer steps: options of groups that changed since the backward, whose steps have used the values before.
---@param self accel.Accelerator
---@param update accel.accelerator.Update
---@param optimizer accel.optim.Optimizer
function M.changed(self, update, optimizer)
  local options = update.options
  for g, group in ipairs(optimizer.param_groups) do
    for key, value in next, options[g] or {} do
      if group[key] ~= value then
        self:_warn(('memory = "low": %s of a parameter group has changed between backward and optimizer:step(), and the steps in backward'
          .. ' used the value before; change it before backward, or set memory = "reduced"'):format(key))
      end
    end
  end
end

--- For calls that need the gradients which a backward has consumed.
---@param update accel.accelerator.Update
---@param who string
function M.refuse(update, who)
  if update.consumed then
    raise('%s: memory = "low" has stepped and dropped each gradient in backward; set memory = "reduced", which keeps them until'
      .. " optimizer:step()", who)
  end
end

return M
