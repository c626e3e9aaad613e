--- Proxy objects: fields that their class lacks are read from, and written to, the wrapped object. Used by the
--- Accelerator's optimizers, schedules and views of loaders.

--- Gives a class the metamethods. `field` is the raw field that holds the wrapped object. A method of it that is called
--- on the proxy gets the wrapped object.
---@param cls table a class
---@param field string
return function(cls, field)
  function cls.__index(self, key)
    local value = cls[key]
    if value ~= nil then return value end
    local real = rawget(self, field)
    if real == nil then return nil end
    value = real[key]
    if type(value) ~= "function" then return value end
    return function(receiver, ...)
      if receiver == self then receiver = real end
      return value(receiver, ...)
    end
  end
  function cls.__newindex(self, key, value) rawget(self, field)[key] = value end
end
