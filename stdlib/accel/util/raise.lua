--- Raises an error that points at the script's line: the first caller outside the training library. Without such a
--- caller, as in the thread of a data worker, it names no line.
local caller = require "accel.util.caller"

---@param fmt string
---@param ... any for string.format
return function(fmt, ...)
  local _, level = caller()
  error(select("#", ...) > 0 and fmt:format(...) or fmt, level or 0)
end
