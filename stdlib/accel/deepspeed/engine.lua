--- The end of a backward in DeepSpeed's engine, for an Accelerator with a DeepSpeedPlugin: once gradients are complete, they are
--- clipped, the optimizer steps, the configuration's schedule advances and the gradients are dropped. The script's own
--- optimizer:step(), scheduler:step() and zero_grad() then do nothing. With several optimizers in one Accelerator it is not known
--- which one a backward is for: each steps in its own optimizer:step(), with the same clipping.
local check = require "accel.util.check"
local class = require "accel.util.class"
local forward_precision = require "accel.amp.forward_precision"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local utils = require "accel.nn.utils"

local GATHERS <const> = "stage3_gather_16bit_weights_on_model_save"

--- example: local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { gradient_clipping = 1.0 } }
---   local w = accel.nn.Linear(1, 1, { bias = false }) local o = accel.optim.SGD(w:parameters()) w, o = a:prepare(w, o)
---   a:backward(w(accel.full({ 1, 1 }, 3.0)):sum()) local norm = a.deepspeed_engine_wrapped:get_global_grad_norm()
---   accel.AcceleratorState._reset_state(true) return norm --> 3
---@class accel.deepspeed.Engine
---@field plugin accel.accelerator.DeepSpeedPlugin
---@field norm accel.Tensor? of the gradients of the last update, before they were clipped
---@field n_no_sync integer open blocks of accelerator:no_sync
---@field stepped accel.accelerator.AcceleratedOptimizer? that stepped in the last backward
local Engine = class "accel.deepspeed.Engine"

--- Made by accelerator:prepare, and read as accelerator.deepspeed_engine_wrapped.
---@param accelerator accel.Accelerator
---@param plugin accel.accelerator.DeepSpeedPlugin
function Engine:init(accelerator, plugin)
  if type(accelerator) ~= "table" or type(plugin) ~= "table" then
    raise "DeepSpeedEngineWrapper: only accelerator:prepare makes an engine; read accelerator.deepspeed_engine_wrapped"
  end
  self.accelerator, self.plugin, self.schedules = accelerator, plugin, setmetatable({}, { __mode = "k" })
  self.n_no_sync = 0
end

--- The engine of an Accelerator. It follows the plugin that was active when its first model was prepared.
---@param accelerator accel.Accelerator
---@param plugin accel.accelerator.DeepSpeedPlugin
---@return accel.deepspeed.Engine
function Engine.of(accelerator, plugin)
  local engine = rawget(accelerator, "_deepspeed")
  if not engine then
    engine = Engine(accelerator, plugin)
    rawset(accelerator, "_deepspeed", engine)
  elseif #accelerator._prepared.models == 0 then
    engine.plugin = plugin
  end
  return engine
end

--- A schedule of the configuration: the engine advances it.
---@param schedule accel.optim.lr_scheduler.LRScheduler
function Engine:owns(schedule) self.schedules[schedule] = true end

--- After accelerator:backward.
function Engine:after_backward()
  self.stepped = nil
  local list = self.accelerator._prepared.optimizers
  if #list ~= 1 or not self.accelerator.gradient_state.sync_gradients then return end
  if self.n_no_sync > 0 then
    raise("backward: it ends an update, whose step DeepSpeed makes here, but runs inside no_sync(); set gradient_accumulation_steps, which says how "
      .. "many backwards an update has, or run its last one outside")
  end
  list[1]:step()
  list[1]:zero_grad()
  self.stepped = list[1]
end

--- Whether optimizer:step() of a script is about an update that is made already.
---@param optimizer accel.optim.Optimizer
function Engine:made_update(optimizer)
  local own = self.stepped == optimizer
  if own then self.stepped = nil end
  return own
end

--- Clips complete gradients to gradient_clipping and keeps their norm.
---@param optimizer accel.optim.Optimizer
function Engine:clip(optimizer)
  local max = self.plugin:get_value "gradient_clipping"
  if type(max) ~= "number" or max <= 0 then max = nil end
  if not max and self.plugin:get_value "zero_optimization.compute_grad_norm" == false then return end
  local parallel, params = self.accelerator._parallel, optimizer:_parameters()
  if parallel and parallel:is_model_parallel() then -- of all that the mesh shares out
    self.norm = require("accel.parallel.clip").norm(params, max or math.huge, nil, parallel)
  else
    self.norm = utils.clip_grad_norm_(params, max or math.huge)
  end
end

--- After a step, or one that was left out, of an optimizer.
---@param optimizer accel.optim.Optimizer
---@param skipped boolean the step was left out
function Engine:after_step(optimizer, skipped)
  if skipped then return end
  for _, schedule in ipairs(self.accelerator._prepared.schedulers) do
    local real = schedule.scheduler
    if self.schedules[real] and real.optimizer == optimizer.optimizer then real:step() end
  end
end

--- Gradients of a loss, and the update if it ends here.
---@param loss accel.Tensor
---@param opts? table as accelerator:backward's
function Engine:backward(loss, opts, ...)
  check.surplus("backward", ...)
  self.accelerator:backward(loss, opts)
end

--- The norm of the gradients of the last update, before clipping, over all ranks. nil before the first.
---@return number?
function Engine:get_global_grad_norm() return self.norm and self.norm:item() end

--- The whole state of a model at stage 3, on the main process, for accelerator:get_state_dict: in the 16 bits that are computed
--- in. Available only if the configuration enables gathering.
---@param model accel.nn.Module
---@return table<string, accel.Tensor>
function Engine:whole_state(model)
  local plugin, accelerator = self.plugin, self.accelerator
  if plugin:get_value("zero_optimization." .. GATHERS) ~= true then
    raise("get_state_dict: stage 3 gathers whole weights only on request: set zero_optimization.%s = true in the"
      .. " DeepSpeed configuration, or zero3_save_16bit_model = true; save_state writes all without gathering", GATHERS)
  end
  local reducer, inner = rawget(model, "reducer"), accelerator:unwrap_model(model)
  local state = inner:state_dict()
  if reducer and reducer.units and reducer:gathers() then
    state = require("accel.shard.summon").state(reducer, inner, accelerator.is_main_process) or ordered()
  end
  local dtype = forward_precision.dtype(plugin:precision())
  if not dtype then return state end
  local out, done = ordered(), {}
  for name, t in pairs(state) do
    done[t] = done[t] or t:is_floating_point() and t:to(dtype) or t -- tied ones stay one
    out[name] = done[t]
  end
  return out
end

--- accelerator:clip_grad_norm_ after an update that is made: the norm, and a warning for each argument that comes too late.
---@param max_norm number
---@param o {norm_type: number, error_if_nonfinite: boolean, optimizer: any}
---@return accel.Tensor?
function Engine:norm_instead(max_norm, o)
  local max = self.plugin:get_value "gradient_clipping"
  if max_norm ~= max and max_norm ~= math.huge then
    self.accelerator:_warn(("clip_grad_norm_: under DeepSpeed the configuration's gradient_clipping, %s, clips, when backward steps;"
      .. " max_norm = %g has no effect"):format(tostring(max), max_norm))
  end
  if o.norm_type ~= 2 then
    self.accelerator:_warn(("clip_grad_norm_: norm_type = %g has no effect: under DeepSpeed backward uses the 2-norm; leave it out")
      :format(o.norm_type))
  end
  if o.optimizer then
    self.accelerator:_warn "clip_grad_norm_: optimizer has no effect: under DeepSpeed backward has clipped and stepped; leave it out"
  end
  if o.error_if_nonfinite and self.norm and not (self.norm:item() < math.huge) then
    raise("clip_grad_norm_: the norm of the gradients is %s; check the loss of this update", tostring(self.norm:item()))
  end
  return self.norm
end

return Engine
