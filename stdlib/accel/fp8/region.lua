--- The region in which converted layers multiply in fp8.
local guard = require "accel.util.guard"

local M = {}

--- fn(...) with fp8 as in a forward of the model in training, like TransformerEngine's fp8_autocast.
---@param scaling accel.fp8.Scaling the result of convert_model
---@param fn function
---@param ... any
---@return any ...
function M.autocast(scaling, fn, ...)
  scaling:enter(true, require("accel").get_default_device())
  local _ <close> = guard(function() scaling:leave() end)
  return fn(...)
end

return M
