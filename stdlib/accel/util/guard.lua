--- guard(restore, fn, ...): a mode that lasts until the end of a block, `local _ <close> = mode()`, or, given a
--- function, for the time of fn(...), whose results are returned. Used by modes written in Lua. The host's modes
--- (accel.no_grad) have their own.

--- example: local x = 1 do local _ <close> = accel.util.guard(function() x = 2 end) end return x --> 2
---@class accel.util.Guard
local Guard = {}
Guard.__index, Guard.__name = Guard, "accel.util.Guard"

--- Ends the mode. Only the first call has an effect.
function Guard:close(failure)
  local restore = self.restore
  self.restore = nil
  if restore then restore(failure) end
end

Guard.__close = Guard.close

function Guard:__tostring() return self.restore and "guard, open; :close() ends it" or "guard, closed" end

local function run(guard, fn, ...)
  local _ <close> = guard
  return fn(...)
end

---@param restore fun(failure: any) called once. failure is the error that ends the block, nil without one
---@param fn? function
---@param ... any its arguments
return function(restore, fn, ...)
  local guard = setmetatable({ restore = restore }, Guard)
  if fn ~= nil then return run(guard, require "accel.util.check".callable("guard", "fn", fn), ...) end
  return guard
end
