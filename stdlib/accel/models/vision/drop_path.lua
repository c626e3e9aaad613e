--- DropPath: stochastic depth (Huang et al. 2016). In training a part's result is left out for some rows, and the others are scaled up.
local accel = require "accel"
local nn = require "accel.nn"

---@class accel.models.DropPath : accel.nn.Module
local DropPath = nn.Module:extend("DropPath")

---@param rate number
function DropPath:init(rate) self.rate = rate end

function DropPath:forward(x)
  if not self.training or self.rate <= 0 then return x end
  local shape = { x.shape[1] }
  for i = 2, x.ndim do shape[i] = 1 end
  return x * accel.dropout(accel.ones(shape, { dtype = x.dtype, device = x.device }), self.rate)
end

return DropPath
