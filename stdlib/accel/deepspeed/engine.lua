--- What DeepSpeed's engine does at the end of a backward, for the Accelerator that has a DeepSpeedPlugin: where gradients are
--- complete, they are clipped, the optimizer steps, the configuration's schedule advances and the gradients are dropped; the
--- script's own optimizer:step(), scheduler:step() and zero_grad() then do nothing. With several optimizers in one Accelerator it
--- is not known which one a backward is for: each steps in its own optimizer:step(), with the same clipping.
local class = require "accel.util.class"
local forward_precision = require "accel.accelerator.forward_precision"
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
---@field stepped accel.accelerator.AcceleratedOptimizer? that stepped in the last backward
local Engine = class "accel.deepspeed.Engine"

function Engine:init(accelerator, plugin)
  self.accelerator, self.plugin, self.schedules = accelerator, plugin, setmetatable({}, { __mode = "k" })
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
function Engine:owns(schedule) self.schedules[schedule] = true end

--- After accelerator:backward.
function Engine:after_backward()
  self.stepped = nil
  local list = self.accelerator._prepared.optimizers
  if #list ~= 1 or not self.accelerator.gradient_state.sync_gradients then return end
  list[1]:step()
  list[1]:zero_grad()
  self.stepped = list[1]
end

--- Whether optimizer:step() of a script is about an update that is made already.
function Engine:made_update(optimizer)
  local own = self.stepped == optimizer
  if own then self.stepped = nil end
  return own
end

--- Clips complete gradients to gradient_clipping and keeps their norm.
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
function Engine:after_step(optimizer, skipped)
  if skipped then return end
  for _, schedule in ipairs(self.accelerator._prepared.schedulers) do
    local real = schedule.scheduler
    if self.schedules[real] and real.optimizer == optimizer.optimizer then real:step() end
  end
end

--- Gradients of a loss, and, where an update ends, the update.
---@param loss accel.Tensor
---@param opts? table as accelerator:backward's
function Engine:backward(loss, opts) self.accelerator:backward(loss, opts) end

--- The norm of the gradients of the last update, before they were clipped, over all ranks; nil before the first.
---@return number?
function Engine:get_global_grad_norm() return self.norm and self.norm:item() end

--- The whole state of a model at stage 3, on the main process, for accelerator:get_state_dict: in the 16 bits that are computed
--- in. Only where the configuration says that it is to be gathered.
---@param model accel.nn.Module
---@return table<string, accel.Tensor>
function Engine:whole_state(model)
  local plugin, accelerator = self.plugin, self.accelerator
  if plugin:get_value("zero_optimization." .. GATHERS) ~= true then
    raise("get_state_dict: stage 3 gathers whole weights only where it is told to: set zero_optimization.%s = true in the"
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

--- accelerator:clip_grad_norm_ after an update that is made: the norm, and a word on a bound that is not the configuration's.
---@param max_norm number
---@return accel.Tensor?
function Engine:norm_instead(max_norm)
  local max = self.plugin:get_value "gradient_clipping"
  if max_norm ~= max and max_norm ~= math.huge then
    self.accelerator:_warn(("clip_grad_norm_: under DeepSpeed the configuration's gradient_clipping, %s, clips, when backward steps;"
      .. " max_norm = %g has no effect"):format(tostring(max), max_norm))
  end
  return self.norm
end

return Engine
