--- record_function(name [, fn, ...]): a span of the script's own.
local check = require "accel.util.check"
local guard = require "accel.util.guard"
local raise = require "accel.util.raise"
local spans = require "accel.util.spans"

local M = {}

--- A span of this name in whatever profile runs: `local _ <close> = record_function("data")`, or, given a function, for the
--- time of fn(...), whose results are returned. Without a profile it costs next to nothing.
--- example: return accel.profiler.record_function("sum", function(a, b) return a + b end, 1, 2) --> 3
---@param name string
---@param fn? function
---@param ... any its arguments
function M.record_function(name, fn, ...)
  if type(name) ~= "string" then raise("record_function: the name must be a string, got %s", check.shown(name)) end
  local span = spans.running and spans.begin(spans.FUNCTION, name)
  return guard(function()
    if span then spans.finish(span) end
  end, fn, ...)
end

return M
