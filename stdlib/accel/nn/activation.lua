--- Modules around element-wise functions and softmax: ReLU, GELU, SiLU, Tanh, Sigmoid, Softmax, LogSoftmax.
local accel = require "accel"
local Module = require "accel.nn.module"
local check = require "accel.util.check"
local options = require "accel.util.options"

local M = {}

for class, op in pairs { ReLU = accel.relu, SiLU = accel.silu, Tanh = accel.tanh, Sigmoid = accel.sigmoid } do
  local Activation = Module:extend("accel.nn." .. class)
  function Activation.forward(_, x) return op(x) end
  M[class] = Activation
end

--- nn.GELU{approximate = "none" | "tanh"}
---@class accel.nn.GELU : accel.nn.Module
M.GELU = Module:extend("accel.nn.GELU")

---@param opts? {approximate: string?}
function M.GELU:init(opts)
  self.options = options("GELU", opts, { approximate = "none" })
  check.word("GELU", "approximate", self.options.approximate, { "none", "tanh" })
end

function M.GELU:forward(x) return accel.gelu(x, self.options) end

function M.GELU:extra_repr() return ("approximate='%s'"):format(self.options.approximate) end

local function over_dim(class, op)
  local Softmax = Module:extend("accel.nn." .. class)

  ---@param dim integer 1-based, negative from the end
  function Softmax:init(dim)
    self.dim = check.integer(class, "dim", dim)
  end

  function Softmax:forward(x) return op(x, self.dim) end

  function Softmax:extra_repr() return ("dim=%d"):format(self.dim) end

  M[class] = Softmax
end

over_dim("Softmax", accel.softmax)
over_dim("LogSoftmax", accel.log_softmax)

return M
