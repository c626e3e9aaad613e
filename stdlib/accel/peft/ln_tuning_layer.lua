--- peft.LNTuningLayer: a norm, or any other module, next to copies that learn.
local check = require "accel.util.check"
local AdapterLayer = require "accel.peft.layer"
local ModuleDict = require "accel.nn.module_dict"

--- Calls the copy of the active adapter. Made by get_peft_model in the place of its base.
--- example: local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.LayerNorm(3)), accel.peft.LNTuningConfig { target_modules = { "0" } })
---   return m.base_model.model[1].ln_tuning_layers.default.weight.shape --> { 3 }
---@class accel.peft.LNTuningLayer : accel.peft.AdapterLayer
---@field ln_tuning_layers accel.nn.ModuleDict
local LNTuningLayer = AdapterLayer:extend("accel.peft.LNTuningLayer")

---@param base accel.nn.Module
function LNTuningLayer:init(base)
  self:take(base)
  self.ln_tuning_layers = ModuleDict()
end

--- Adds a copy for an adapter.
---@param name string
function LNTuningLayer:add(name)
  local copy = self.base_layer:clone()
  copy:requires_grad_(true)
  self.ln_tuning_layers:set(name, copy)
  self.names[#self.names + 1] = name
  self.active = self.active or name
end

--- The adapter's parameters.
---@param name string
---@return accel.Tensor[]
function LNTuningLayer:weights_of(name)
  local copy = self.ln_tuning_layers[name]
  return copy and copy:parameters() or {}
end

--- Names below this layer and names in files.
---@param name string
---@return table[]
function LNTuningLayer:saved(name)
  local out = {}
  for key in pairs(self.ln_tuning_layers[name] and self.ln_tuning_layers[name]:named_parameters() or {}) do
    out[#out + 1] = { "ln_tuning_layers." .. name .. "." .. key, "ln_tuning_layers." .. key }
  end
  return out
end

--- Deletes an adapter, if this layer has it.
---@param name string
function LNTuningLayer:delete(name)
  if self:forget(name) then self.ln_tuning_layers[name] = nil end
end

--- The copy takes the base's place.
---@param name? string default the active one
function LNTuningLayer:merge(name, ...)
  check.surplus("LNTuningLayer:merge", ...)
  name = self:known(name or self.active)
  if self.merged == name then return end
  if self.merged then self:unmerge() end
  local copy = self.ln_tuning_layers[name]:clone()
  copy:requires_grad_(false)
  rawset(self, "kept", self.base_layer)
  self.base_layer = copy
  self.merged = name
end

function LNTuningLayer:forward(...)
  local copy = not self.disabled and not self.merged and self:has(self.active) and self.ln_tuning_layers[self.active]
  return (copy or self.base_layer)(...)
end

return LNTuningLayer
