--- amp.GradScaler: dynamic loss scaling. The loss is multiplied by a scale so that gradients in f16 do not vanish.
--- Before a step they are divided by it again, and an optimizer whose gradients are not finite skips its step. The
--- scale falls by backoff_factor after every update with such a step, and rises by growth_factor after growth_interval
--- updates without one.
---
---   local scaler = accel.amp.GradScaler()
---   scaler:scale(loss):backward()
---   scaler:unscale_(optimizer) nn.utils.clip_grad_norm_(net:parameters(), 1)   -- only if you read or clip gradients
---   scaler:step(optimizer) scaler:update() optimizer:zero_grad()
---
--- Scale and counters are on a device, the given one or the first tensor's. Accelerator uses the same object, including
--- the methods with an underscore: it defers an update until the next backward, so that all optimizers that step
--- together use one scale.
local accel = require "accel"
local core = require "accel.optim.core"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local class = require "accel.util.class"
local deferred = require "accel.nn.deferred"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local WHO = "GradScaler"

--- GradScaler(device = the first tensor's, init_scale = 65536, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2000, enabled
--- = true), or a table of these. With enabled = false every method acts as without a scaler.
--- example: local p = accel.ones(1, { requires_grad = true }) local o = accel.optim.SGD({ p }, { lr = 1 })
---   local scaler = accel.amp.GradScaler { init_scale = 8 } scaler:scale((p * 1e39):sum()):backward() scaler:step(o)
---   scaler:update() return p, scaler:get_scale() --> { 1 }, 4
---@class accel.amp.GradScaler
---@field enabled boolean
---@field device string? the device of scale and counters. nil if none is given and no tensor has been seen
---@field growth_factor number
---@field backoff_factor number
---@field growth_interval integer
local GradScaler = class("accel.amp.GradScaler")

local parse = arguments(WHO, { "device" }, { "init_scale", 65536.0 }, { "growth_factor", 2.0 },
  { "backoff_factor", 0.5 }, { "growth_interval", 2000 }, { "enabled", true })

local READY <const>, UNSCALED <const>, STEPPED <const> = 1, 2, 3

local function growth_factor(value)
  if check.number(WHO, "growth_factor", value) <= 1 then
    raise("%s: growth_factor must be above 1, got %g", WHO, value)
  end
  return value
end

local function backoff_factor(value)
  if check.number(WHO, "backoff_factor", value, 0) >= 1 then
    raise("%s: backoff_factor must be below 1, got %g", WHO, value)
  end
  return value
end

--- Puts scale and growth tracker on the device, which is this one unless they have one.
local function settle(self, device)
  if self._scale then return end
  local start = self._start
  self.device = self.device or device
  self._scale = accel.unscoped(accel.full, {}, start.scale, { dtype = "f32", device = self.device })
  self._growth_tracker = accel.unscoped(accel.full, {}, start.tracker, { dtype = "i32", device = self.device })
end

---@param ... any
function GradScaler:init(...)
  local o = parse(...)
  self.enabled, self.device = o.enabled, o.device
  self.growth_factor, self.backoff_factor = growth_factor(o.growth_factor), backoff_factor(o.backoff_factor)
  self.growth_interval = check.positive(WHO, "growth_interval", o.growth_interval)
  if check.number(WHO, "init_scale", o.init_scale) <= 0 then
    raise("%s: init_scale must be above 0, got %g", WHO, o.init_scale)
  end
  self._start = { scale = o.init_scale, tracker = 0 } -- numbers, until a device is known
  if self.device then settle(self) end
  self._records = setmetatable({}, { __mode = "k" }) -- optimizer -> {stage, found, recorded}
  self._due = false -- an update was asked for that is made before the next use of the scale
  self._lost = false -- an overflow was found by an optimizer that is not to step any more
end

-- One optimizer ----------------------------------------------------------------------------------

--- The record of an optimizer since the last update. A wrapper's record is its inner optimizer's.
local function record_of(self, optimizer)
  if type(optimizer) ~= "table" or type(optimizer.param_groups) ~= "table" then
    raise("%s: expected an optimizer, got %s", WHO, check.shown(optimizer))
  end
  local real = rawget(optimizer, "optimizer") or optimizer
  local record = self._records[real]
  if not record then
    local first = (real.param_groups[1] or { params = {} }).params[1]
    settle(self, first and first.device or accel.get_default_device())
    record = {
      stage = READY, recorded = false,
      found = accel.unscoped(accel.zeros, {}, { dtype = "f32", device = self.device }),
    }
    self._records[real] = record
  end
  return record, real
end

local function reset(record)
  if record.recorded then record.found:zero_() end
  record.stage, record.recorded = READY, false
end

--- One pass over each list of gradients: all times its factor and, with unscale, divided by the scale. The handles
--- in the lists are spent.
---@param lists {grads: accel.Tensor[], factor: number}[]
---@param unscale boolean
function GradScaler:_apply(optimizer, lists, unscale)
  local record = record_of(self, optimizer)
  local _ <close> = accel.no_grad()
  for _, list in ipairs(lists) do
    local grads = list.grads
    if unscale and not record.checked then
      for i = 1, #grads do
        if grads[i].dtype == "f16" then
          raise("%s: attempting to unscale f16 gradients; keep parameters in f32 and compute in f16 with autocast", WHO)
        end
      end
    end
    if #grads > 0 then
      local device = grads[1].device -- the host's, if a device's gradients are offloaded there
      local here = device == self.device
      local factor = accel.full({}, list.factor, { dtype = "f64", device = device })
      if unscale then factor = factor / (here and self._scale or self._scale:to(device)) end
      local found = here and record.found or accel.zeros({}, { dtype = "f32", device = device })
      deferred.each(grads, function(some) accel.amp_foreach_unscale_(some, found, factor) end)
      if not here then record.found:add_(found:to(self.device)) end
      record.recorded = true
      core.spend(grads)
    end
  end
  if unscale then record.stage, record.checked = UNSCALED, record.recorded end
end

--- Replaces the local result by the result over all ranks.
---@param reduce fun(found: accel.Tensor) in place
function GradScaler:_agree(optimizer, reduce)
  local record = record_of(self, optimizer)
  record.recorded = true
  reduce(record.found)
end

--- One norm clips the gradients of these optimizers: if one has values that are not finite, then all have them, and all
--- skip their steps.
---@param optimizers table[]
function GradScaler:_share(optimizers)
  local found
  for _, optimizer in ipairs(optimizers) do
    local record = record_of(self, optimizer)
    if record.recorded then found = found and found + record.found or record.found end
  end
  if not found then return end
  for _, optimizer in ipairs(optimizers) do
    local record = record_of(self, optimizer)
    if record.found ~= found then record.found:copy_(found) end
    record.recorded = true
  end
end

--- Whether the gradients of an optimizer still are to be unscaled.
function GradScaler:_is_scaled(optimizer) return record_of(self, optimizer).stage == READY end

--- Whether an infinite or NaN gradient was found since the last update.
function GradScaler:_overflowed(optimizer)
  local record = record_of(self, optimizer)
  return record.recorded and record.found:item() ~= 0
end

--- The check of an optimizer's gradients since the last update, on the device: above 0 if some are infinite or NaN. nil if nothing was
--- checked, or on the host, which can read it for free.
---@return accel.Tensor?
function GradScaler:_found(optimizer)
  local record = record_of(self, optimizer)
  return record.recorded and self.device ~= "cpu" and record.found or nil
end

--- The optimizer's gradients were dropped without a step: an overflow that was found in them still lowers the scale, unless they are computed
--- again.
function GradScaler:_forget(optimizer, again)
  if not again and self:_overflowed(optimizer) then self._lost, self._due = true, true end
  reset(record_of(self, optimizer))
end

local function gradients(optimizer)
  local grads = {}
  for _, group in ipairs(optimizer.param_groups) do
    for _, grad in ipairs((core.gradients(group.params))) do grads[#grads + 1] = grad or nil end
  end
  return grads
end

--- Divides the optimizer's gradients by the scale, in place, and notes whether they are finite: before they are
--- clipped or looked at. Otherwise step does it.
---@param optimizer accel.optim.Optimizer
function GradScaler:unscale_(optimizer)
  if not self.enabled then return end
  local record, real = record_of(self, optimizer)
  if record.stage == UNSCALED then
    raise("%s: unscale_() has been called on this optimizer already since the last update()", WHO)
  elseif record.stage == STEPPED then
    raise("%s: unscale_() is called after step(); call update() first", WHO)
  end
  self:_apply(real, { { grads = gradients(real), factor = 1 } }, true)
end

--- Steps the optimizer unless its gradients are infinite or NaN. Returns the step's result, or nil when it skips.
---@param optimizer accel.optim.Optimizer
---@param ... any for the optimizer's step, without a closure
---@return any
function GradScaler:step(optimizer, ...)
  if not self.enabled then return optimizer:step(...) end
  for i = 1, select("#", ...) do
    if select(i, ...) ~= nil then raise("%s: step takes no closure: gradients are scaled before it runs", WHO) end
  end
  local record, real = record_of(self, optimizer)
  if record.stage == STEPPED then raise("%s: step() has been called already since the last update()", WHO) end
  if record.stage == READY then self:unscale_(real) end
  if not record.recorded then
    raise("%s: no parameter of this optimizer has a gradient; call backward() on scale(loss) before step()", WHO)
  end
  record.stage = STEPPED
  if self.device ~= "cpu" and real.fuses and real:fuses() then -- who steps looks there: nothing waits for the device
    real.found_inf = record.found
    return real:step()
  end
  if record.found:item() ~= 0 then
    deferred.drop(real)
    if real._skip then real:_skip() end
    accel.step() -- the boundary that the optimizer's step would have been
    return nil
  end
  return real:step()
end

-- The scale --------------------------------------------------------------------------------------

local function first_tensor(x)
  if tensors.is_tensor(x) then return x end
  for _, value in ordered.iterate(type(x) == "table" and x or {}) do
    local found = first_tensor(value)
    if found then return found end
  end
end

local function scaled(x, scale)
  if tensors.is_tensor(x) then return x * scale end
  if type(x) ~= "table" then raise("%s: scale takes a tensor or a table of them, got %s", WHO, check.shown(x)) end
  local out = {}
  for key, value in ordered.iterate(x) do out[key] = scaled(value, scale) end
  return out
end

--- The outputs multiplied by the scale: a tensor, or a table of tensors, nested as it may be.
---@generic T
---@param outputs T
---@return T
function GradScaler:scale(outputs)
  if not self.enabled then return outputs end
  local first = not self._scale and first_tensor(outputs)
  if first then settle(self, first.device) end
  return scaled(outputs, self:_current())
end

--- The scale that is due now, on the device.
---@return accel.Tensor
function GradScaler:_current()
  if self._due then self:update() end
  return self._scale
end

--- The scale for a loss, on the device.
---@param loss accel.Tensor
---@return accel.Tensor
function GradScaler:_scale_of(loss)
  settle(self, loss.device)
  return self._scale
end

--- The combined records of all optimizers. nil if none has a result.
local function found_by_all(self)
  local found = self._lost and accel.ones({}, { device = self.device }) or nil
  for _, record in next, self._records do
    if record.recorded then found = found and found + record.found or record.found end
  end
  return found
end

--- Updates scale and tracker in place. `found` holds whether gradients were not finite. Other rules than this one
--- override it.
---@param scale accel.Tensor
---@param tracker accel.Tensor
---@param found accel.Tensor above 0: there were some
function GradScaler:_rule(scale, tracker, found)
  accel.amp_update_scale_(scale, tracker, found, self.growth_factor, self.backoff_factor, self.growth_interval)
end

local function advance(self, scale, tracker)
  local found = found_by_all(self)
  if not found then return false end
  local _ <close> = accel.no_grad()
  self:_rule(scale, tracker, found)
  return true
end

--- Once per update, after the steps of all optimizers: the scale for the next one. new_scale sets it instead.
---@param new_scale? number|accel.Tensor
function GradScaler:update(new_scale, ...)
  check.surplus("GradScaler:update", ...)
  if not self.enabled then return end
  if new_scale ~= nil then
    local value = new_scale
    if tensors.is_tensor(value) then
      if value.requires_grad or value:numel() ~= 1 or not value:is_floating_point() then
        raise("%s: new_scale must be a float tensor of one element without gradients", WHO)
      end
      value = value:item()
    end
    if check.number(WHO, "new_scale", value) <= 0 then raise("%s: new_scale must be above 0, got %g", WHO, value) end
    if self._scale then self._scale:fill_(value) else self._start.scale = value end
  elseif not advance(self, self._scale, self._growth_tracker) then
    raise("%s: no gradients were checked since the last update(); call step() or unscale_() before it", WHO)
  end
  self._due, self._lost = false, false
  for _, record in next, self._records do reset(record) end
end

--- Makes an update due, if an optimizer's gradients were checked.
function GradScaler:_defer_update()
  if self._due then return end
  for _, record in next, self._records do
    if record.recorded then
      self._due = true
      return
    end
  end
end

--- Scale and tracker after the pending update. Numbers if there is no device yet.
local function ahead(self)
  if not self._scale then return self._start.scale, self._start.tracker end
  if not self._due then return self._scale, self._growth_tracker end
  local scale, tracker = self._scale:clone(), self._growth_tracker:clone()
  advance(self, scale, tracker)
  return scale, tracker
end

local function number(x) return tensors.is_tensor(x) and x:item() or x end

--- The scale of the next backward. 1 when disabled.
---@return number
function GradScaler:get_scale()
  if not self.enabled then return 1.0 end
  return number((ahead(self)))
end

--- Whether it scales at all.
function GradScaler:is_enabled() return self.enabled end
--- The factor of the scale after growth_interval updates without an overflow.
function GradScaler:get_growth_factor() return self.growth_factor end
--- The factor of the scale after an overflow.
function GradScaler:get_backoff_factor() return self.backoff_factor end
--- How many updates without an overflow let the scale grow.
function GradScaler:get_growth_interval() return self.growth_interval end

--- See get_growth_factor.
---@param value number above 1
function GradScaler:set_growth_factor(value) self.growth_factor = growth_factor(value) end
--- See get_backoff_factor.
---@param value number below 1
function GradScaler:set_backoff_factor(value) self.backoff_factor = backoff_factor(value) end
--- See get_growth_interval.
---@param value integer
function GradScaler:set_growth_interval(value) self.growth_interval = check.positive(WHO, "growth_interval", value) end

-- Saving -----------------------------------------------------------------------------------------

--- {scale =, growth_factor =, backoff_factor =, growth_interval =, _growth_tracker =}. Empty when disabled.
---@return table
function GradScaler:state_dict()
  if not self.enabled then return {} end
  local scale, tracker = ahead(self)
  return {
    scale = number(scale), growth_factor = self.growth_factor, backoff_factor = self.backoff_factor,
    growth_interval = self.growth_interval, _growth_tracker = number(tracker),
  }
end

--- Goes on from a saved scale and its settings.
---@param state table the result of state_dict
function GradScaler:load_state_dict(state)
  if not self.enabled then return end
  if type(state) ~= "table" then raise("%s: expected the result of state_dict, got %s", WHO, check.shown(state)) end
  if next(state) == nil then raise("%s: the state is empty; was it saved from a disabled GradScaler?", WHO) end
  local scale = check.number(WHO, "scale", state.scale)
  local growth, backoff = growth_factor(state.growth_factor), backoff_factor(state.backoff_factor)
  local interval = check.positive(WHO, "growth_interval", state.growth_interval)
  local tracker = check.count(WHO, "_growth_tracker", state._growth_tracker)
  self.growth_factor, self.backoff_factor, self.growth_interval = growth, backoff, interval
  if self._scale then
    self._scale:fill_(scale)
    self._growth_tracker:fill_(tracker)
  else
    self._start = { scale = scale, tracker = tracker }
  end
  self._due, self._lost = false, false
  for _, record in next, self._records do reset(record) end
end

function GradScaler.__tostring(self)
  if not self.enabled then return "GradScaler(enabled=false)" end
  return ("GradScaler(scale=%g, growth_factor=%g, backoff_factor=%g, growth_interval=%d)"):format(self:get_scale(),
    self.growth_factor, self.backoff_factor, self.growth_interval)
end

return GradScaler
