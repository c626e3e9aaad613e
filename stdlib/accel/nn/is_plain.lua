--- is_plain(module, forward): whether a call of the module only runs this forward: the module has no other, no own call
--- and no hooks on calls. Code that runs several modules as one op checks it.
local module_call = require "accel.nn.module_call"

---@param module accel.nn.Module
---@param forward function a class's forward
---@return boolean
return function(module, forward)
  if type(module) ~= "table" or module.forward ~= forward or not module_call.is_own(getmetatable(module).__call) then
    return false
  end
  local hooks = rawget(module, "_hooks")
  return hooks == nil or not hooks:see_calls()
end
