--- nn.Dropout(p): zeroes elements with probability p while training and scales the rest by 1 / (1 - p).
local accel = require "accel"
local Module = require "accel.nn.module"
local check = require "accel.util.check"

local dropout = accel.dropout

---@class accel.nn.Dropout : accel.nn.Module
local Dropout = Module:extend("accel.nn.Dropout")

---@param p? number default 0.5
function Dropout:init(p)
  self.p = check.number("Dropout", "p", p == nil and 0.5 or p, 0, 1)
end

function Dropout:forward(x)
  if not self.training or self.p == 0 then return x end
  return dropout(x, self.p, true)
end

function Dropout:extra_repr() return ("p=%g"):format(self.p) end

return Dropout
