--- Makes a wrapper stand in for its module: names, fields and methods are the module's. Installed by the wrappers of
--- nn/parallel on their classes.
local accel = require "accel"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

---@param Wrapper table a class whose instances have the raw field `module`
---@param who string begins messages
return function(Wrapper, who)
  --- The module that walks over the tree meet here.
  function Wrapper:_itself() return self.module end

  -- Fields that the wrapper lacks are the module's. Each has its own names with an underscore.
  function Wrapper.__index(self, key)
    local value = Wrapper[key]
    if value ~= nil or (type(key) == "string" and key:byte() == 95) then return value end
    return rawget(self, "module")[key]
  end

  function Wrapper.__newindex(self, key, value) rawget(self, "module")[key] = value end

  for _, name in ipairs { "register_buffer", "register_parameter", "register_module", "add_module", "clone" } do
    Wrapper[name] = function(self, ...) return self.module[name](self.module, ...) end
  end

  --- The module's. The wrapper follows.
  ---@param mode? boolean [true]
  function Wrapper:train(mode)
    self.module:train(mode)
    rawset(self, "training", self.module.training)
    return self
  end

  --- As the module's.
  ---@param fn fun(module: accel.nn.Module)
  function Wrapper:apply(fn)
    self.module:apply(fn)
    return self
  end

  --- Module:to does nothing if all tensors already have the requested dtype and device. Parts that other ranks hold are on the meta
  --- device here.
  function Wrapper:_map_tensors(_, wanted)
    local to = wanted or {}
    local probe = accel.empty(0) -- converted: accepts the names that tensors accept, and refuses the same
    if to.device then probe = probe:to(to.device) end
    if to.dtype then probe = probe:to(to.dtype) end
    local to_device, to_dtype = to.device and tostring(probe.device), to.dtype and probe.dtype
    for _, list in ipairs { self.module:named_parameters(), self.module:named_buffers() } do
      for name, t in pairs(list) do
        local here = tostring(t.device)
        local moves = to_device and here ~= to_device and not here:find "^meta"
        if not wanted or moves or to_dtype and tensors.is_floating(t.dtype) and t.dtype ~= to_dtype then
          raise("%s: parameters can no longer be moved or converted%s; do so before wrapping", who,
            wanted and (": '%s' is %s on %s"):format(name, t.dtype, here) or "")
        end
      end
    end
    return self
  end

  function Wrapper.__tostring(self)
    return ("%s(\n  (module): %s\n)"):format(who, (tostring(self.module):gsub("\n", "\n  ")))
  end
end
