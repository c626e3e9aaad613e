--- Scales from the tensor at hand: every cast looks for the largest magnitude first. torchao's tensorwise recipe, and MS-AMP's with scales
--- that are powers of two. Nothing is kept from step to step.
local class = require "accel.util.class"
local product = require "accel.fp8.product"

local cast = product.cast

--- The common part of CurrentScaling and DelayedScaling: layer(name, transposed) converts a layer, active(layer) returns whether it
--- multiplies in fp8 now, enter(training, device) and leave() surround a forward of the model.
--- example: local s = accel.fp8.convert_model(accel.nn.Linear(16, 32), accel.MSAMPRecipeKwargs {})
---   return s.pow2, s:active(), s:state_dict() --> true, true, nil
---@class accel.fp8.CurrentScaling : accel.fp8.Scaling
local CurrentScaling = class "accel.fp8.CurrentScaling"

--- Always on, in evaluation as well, as torchao's layers are.
---@param opts {pow2: boolean?}
function CurrentScaling:init(opts)
  self.pow2 = opts.pow2 or false
end

--- How a layer casts: input and weight as e4m3, the gradient of its output as e5m2.
---@param transposed boolean
---@return accel.fp8.Layer
function CurrentScaling:layer(_, transposed)
  local pow2 = self.pow2
  return {
    fprop = true, dgrad = true, wgrad = true, transposed = transposed,
    input = function(_, x) return cast(x, nil, nil, "e4m3", pow2) end,
    weight = function(_, w) return cast(w, nil, nil, "e4m3", pow2) end,
    gradient = function(_, dy) return cast(dy, nil, nil, "e5m2", pow2) end,
  }
end

--- Whether layers multiply in fp8: always.
---@return boolean
function CurrentScaling:active() return true end -- luacheck: ignore self

--- Before a forward: there is nothing to do.
function CurrentScaling:enter() end -- luacheck: ignore self

--- Behind a forward: there is nothing to do.
function CurrentScaling:leave() end -- luacheck: ignore self

--- Nothing outlives a step.
function CurrentScaling:state_dict() return nil end -- luacheck: ignore self

return CurrentScaling
