--- is_plain(module, forward): whether calling the module is nothing but this forward: it has no other, no call of its own
--- and no hooks that look at calls. Asked by what runs several modules as one op.
local Module = require "accel.nn.module"

---@param module accel.nn.Module
---@param forward function a class's forward
---@return boolean
return function(module, forward)
  if type(module) ~= "table" or module.forward ~= forward or getmetatable(module).__call ~= Module.__call then
    return false
  end
  local hooks = rawget(module, "_hooks")
  return hooks == nil or not hooks:see_calls()
end
