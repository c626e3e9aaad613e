--- Raises an error that no restart can fix, because the run's settings are refused: accel-run --max-restarts does not restart it, and
--- if ranks are refused alike only the first one reports it. It points at the script's line, as raise does.
---   if not known[arg[1]] then accel.util.refuse("there is no task '%s'", arg[1]) end
local raise = require "accel.util.raise"

local M = {}

local last -- the message of the last one. Scripts may have caught it

--- Whether an error is one of these, even with text after it, as a message handler adds.
---@param err any
---@return boolean
function M.raised(err)
  return last ~= nil and type(err) == "string" and err:sub(1, #last) == last
end

---@param fmt string
---@param ... any for string.format
local function refuse(_, fmt, ...)
  local _, message = pcall(raise, fmt, ...)
  last = message
  error(message, 0)
end

return setmetatable(M, { __call = refuse })
