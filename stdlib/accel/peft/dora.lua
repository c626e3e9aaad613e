--- DoRA (Liu and others, "DoRA: Weight-Decomposed Low-Rank Adaptation"): W' = m * V / ||V|| by rows, V = W + B A * scaling. The
--- magnitudes m are trained together with A and B. The norms count as constants in backward (section 4.3 there). Used by lora.lua.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"

--- The magnitudes of one adapter of a layer, as PEFT keeps them: lora_magnitude_vector.<adapter>.weight [out], of
--- convolutions [1, out, 1 ...].
--- example: local c = accel.peft.LoraConfig { target_modules = { "0" }, use_dora = true }
---   local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), c)
---   return m.base_model.model[1].lora_magnitude_vector.default.weight.shape --> { 3 }
---@class accel.peft.DoraLinearLayer : accel.nn.Module
---@field weight accel.Tensor
local Dora = Module:extend "accel.peft.DoraLinearLayer"

---@param magnitudes accel.Tensor [out]
function Dora:init(magnitudes) self.weight = Parameter(magnitudes:detach()) end

--- The norms of the rows of V.
---@param values accel.Tensor W [out, in], f32
---@param delta accel.Tensor B A * scaling [out, in]
---@return accel.Tensor [out]
function Dora.norms(values, delta)
  local _ <close> = accel.no_grad()
  local v = values:to "f32" + delta
  return (v * v):sum(2):sqrt()
end

--- The factor of each row of V, [out]. Gradients flow to the magnitudes.
---@param values accel.Tensor
---@param delta accel.Tensor
---@return accel.Tensor
function Dora:factors(values, delta)
  local norms = Dora.norms(values, delta)
  return self.weight:reshape(-1) / norms:to(self.weight.dtype)
end

return Dora
