--- models.Conv1D(in_features, out_features): GPT-2's linear layer, whose weight is [in, out].
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local init = require "accel.nn.initialization"

local addmm = accel.addmm

---@class accel.models.Conv1D : accel.nn.Module
--- example: accel.models.Conv1D(3, 5)(accel.zeros(2, 3)).shape --> { 2, 5 }
local Conv1D = Module:extend("accel.models.Conv1D")

---@param in_features integer
---@param out_features integer
---@param std? number default 0.02
function Conv1D:init(in_features, out_features, std)
  in_features = check.positive("Conv1D", "in_features", in_features)
  out_features = check.positive("Conv1D", "out_features", out_features)
  self.in_features, self.out_features = in_features, out_features
  self.weight = Parameter(init.normal_(accel.empty(in_features, out_features), 0, std or 0.02))
  self.bias = Parameter(accel.zeros(out_features))
end

function Conv1D:forward(x) return addmm(self.bias, x, self.weight) end

function Conv1D:extra_repr() return ("nf=%d, nx=%d"):format(self.out_features, self.in_features) end

return Conv1D
