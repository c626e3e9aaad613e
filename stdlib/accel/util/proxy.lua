--- Objects that stand in front of others: what their class lacks is read from, and written to, the object behind. Used by
--- the Accelerator's optimizers, schedules and views of loaders.

--- Gives a class the metamethods. `field` is the raw field that holds the object behind; a method of it that is called
--- on the one in front gets the one behind.
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
