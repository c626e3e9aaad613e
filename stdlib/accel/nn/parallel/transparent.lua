--- What makes a wrapper stand in the place of its module: names, fields and methods are the module's. Installed by the
--- wrappers of nn/parallel on their classes.
local raise = require "accel.util.raise"

---@param Wrapper table a class whose instances have the raw field `module`
---@param who string begins messages
return function(Wrapper, who)
  --- The module that walks over the tree meet here.
  function Wrapper:_itself() return self.module end

  -- Fields that the wrapper lacks are the module's; what begins with an underscore is each one's own.
  function Wrapper.__index(self, key)
    local value = Wrapper[key]
    if value ~= nil or (type(key) == "string" and key:byte() == 95) then return value end
    return rawget(self, "module")[key]
  end

  function Wrapper.__newindex(self, key, value) rawget(self, "module")[key] = value end

  for _, name in ipairs { "register_buffer", "register_parameter", "register_module", "add_module", "clone" } do
    Wrapper[name] = function(self, ...) return self.module[name](self.module, ...) end
  end

  --- As the module's; the wrapper follows.
  function Wrapper:train(mode)
    self.module:train(mode)
    rawset(self, "training", self.module.training)
    return self
  end

  --- As the module's.
  function Wrapper:apply(fn)
    self.module:apply(fn)
    return self
  end

  function Wrapper:_map_tensors()
    raise("%s: parameters cannot be moved or converted any more; do so before wrapping", who)
  end

  function Wrapper.__tostring(self)
    return ("%s(\n  (module): %s\n)"):format(who, (tostring(self.module):gsub("\n", "\n  ")))
  end
end
