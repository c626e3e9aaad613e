--- Initial values of adapters' parameters, as PEFT begins them. Used by the types in this folder.
local init = require "accel.nn.initialization"

local M = {}

--- Uniform in +-1 / sqrt(fan_in), as layers begin.
---@param t accel.Tensor
function M.kaiming(t) init.kaiming_uniform_(t, { a = math.sqrt(5) }) end

--- A function that draws from a normal distribution.
---@param mean number
---@param std number
---@return fun(t: accel.Tensor)
function M.normal(mean, std) return function(t) init.normal_(t, mean, std) end end

--- A function that fills with one value.
---@param value number
---@return fun(t: accel.Tensor)
function M.constant(value) return function(t) t:fill_(value) end end

return M
