--- is_plain(module, forward): whether a call of the module only runs this forward: the module has no other, no own call
--- and no hooks on calls. Code that runs several modules as one op checks it.
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
