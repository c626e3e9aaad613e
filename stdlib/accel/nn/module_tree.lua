--- Walks over the tree of modules: parameters, buffers, children, modules, and `to`. Part of nn.Module,
--- installed by nn/module.lua.
---
--- The plain forms return lists, which can also be called as iterators (`for p in m:parameters() do`); the
--- named forms return tables in registration order, for `pairs`, as iterators, or by name. A tensor or
--- module that is reachable by several names appears once, under the first.
local accel = require "accel"
local check = require "accel.util.check"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local parameter = require "accel.nn.parameter"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local dtypes = {
  f64 = true, f32 = true, f16 = true, bf16 = true, double = true, float = true, half = true, float64 = true,
  float32 = true, float16 = true, bfloat16 = true,
}

local list_meta = {}

-- The next value. A for loop hands over the one before, nil at its start: so every loop begins at the first, also
-- after one that was left by break, and loops over one list may be nested.
function list_meta.__call(list, ...)
  local i = list.n or 0
  if select("#", ...) == 2 then
    local _, last = ...
    if last == nil or not rawequal(list[i], last) then
      i = 0
      while last ~= nil and list[i + 1] ~= nil do
        i = i + 1
        if rawequal(list[i], last) then break end
      end
    end
  end
  i = i + 1
  list.n = list[i] ~= nil and i or nil
  return list[i]
end

local function list() return setmetatable({}, list_meta) end

local function values(map)
  local out = list()
  for _, value in pairs(map) do out[#out + 1] = value end
  return out
end

--- Field -> key in names: integers count from 0 there.
local function key_of(field) return math.type(field) == "integer" and ("%d"):format(field - 1) or field end

return function(Module)
  --- What a registered field is now; nil for what only has its place kept.
  local function kind_of(value, registered)
    if type(value) == "userdata" then
      if registered == "buffer" or registered == "temporary" then return registered end
      return parameter.is(value) and "parameter" or nil
    end
    return Module.is_module(value) and "module" or nil
  end

  --- The module that a walk meets here: itself, or for a wrapper that leaves names as they are what it wraps.
  function Module:_itself() return self end

  --- Registered fields in order: (key, value, kind, field), skipping those that are empty. Every walk comes
  --- through here.
  function Module:_fields()
    self = self:_itself()
    self:_audit()
    local i, order, kinds, fallback = 0, self._order, self._kinds, rawget(self, "_tensors")
    return function()
      while true do
        i = i + 1
        local field = order[i]
        if field == nil then return nil end
        local value = rawget(self, field)
        if value == nil and fallback then value = rawget(fallback, field) end
        local kind = value ~= nil and kind_of(value, kinds[field])
        if kind then return key_of(field), value, kind, field end
      end
    end
  end

  local function walk_modules(self, prefix, seen, visit)
    self = self:_itself()
    if seen[self] then return end
    seen[self] = true
    visit(prefix, self)
    for key, value, kind in self:_fields() do
      if kind == "module" then
        walk_modules(value, prefix == "" and key or prefix .. "." .. key, seen, visit)
      end
    end
  end

  --- This module (name: the prefix) and all below, each once.
  ---@param prefix? string
  function Module:named_modules(prefix)
    check.object(self, "m", "named_modules")
    local out = ordered()
    walk_modules(self, prefix or "", {}, function(name, module) out[name] = module end)
    return out
  end

  --- This module and all below, each once: a list, or `for m in net:modules() do`.
  function Module:modules() return values(self:named_modules()) end

  --- Direct children.
  function Module:named_children()
    local out, seen = ordered(), {}
    for key, value, kind in self:_fields() do
      if kind == "module" and not seen[value] then
        seen[value] = true
        out[key] = value
      end
    end
    return out
  end

  --- Direct children without their names.
  function Module:children() return values(self:named_children()) end

  local function named_tensors(self, prefix, recurse, wanted)
    local out, seen = ordered(), {}
    local function visit(name, module)
      for key, value, kind in module:_fields() do
        if wanted[kind] and not seen[value] then
          seen[value] = true
          out[name == "" and key or name .. "." .. key] = value
        end
      end
    end
    if recurse == false then
      visit(prefix or "", self)
    else
      walk_modules(self, prefix or "", {}, visit)
    end
    return out
  end

  local parameters, buffers = { parameter = true }, { buffer = true, temporary = true }

  --- Dotted name and parameter, each once: `for name, p in net:named_parameters() do`.
  ---@param prefix? string
  ---@param recurse? boolean default true
  function Module:named_parameters(prefix, recurse)
    check.object(self, "m", "named_parameters")
    return named_tensors(self, prefix, recurse, parameters)
  end

  --- The parameters of this module and all below, each once: a list, for optimizers, or `for p in
  --- net:parameters() do`.
  ---@param recurse? boolean default true
  function Module:parameters(recurse)
    check.object(self, "m", "parameters")
    return values(named_tensors(self, nil, recurse, parameters))
  end

  --- Dotted name and buffer, as named_parameters.
  function Module:named_buffers(prefix, recurse) return named_tensors(self, prefix, recurse, buffers) end

  --- The buffers of this module and all below, as parameters.
  function Module:buffers(recurse) return values(named_tensors(self, nil, recurse, buffers)) end

  --- The module or tensor with this dotted name; raises when there is none.
  ---@param name string
  function Module:get_submodule(name)
    local at = self
    for key in name:gmatch("[^.]+") do
      local found
      for k, value, kind in at:_fields() do
        if k == key and kind == "module" then found = value end
      end
      if not found then
        raise("%s has no module '%s' (looking for '%s')", getmetatable(at).__name, key, name)
      end
      at = found
    end
    return at
  end

  --- The tensor of this kind with a dotted name; raises when there is none.
  local function get_tensor(self, name, wanted, what)
    local path, key = tostring(name):match "^(.*)%.([^.]+)$"
    local owner = path and self:get_submodule(path) or self
    for k, value, kind in owner:_fields() do
      if k == (key or name) and wanted[kind] then return value end
    end
    raise("%s has no %s '%s'", getmetatable(owner).__name, what, tostring(key or name))
  end

  --- The parameter with this dotted name, as named_parameters has it; raises when there is none.
  ---@param name string
  ---@return accel.Tensor
  function Module:get_parameter(name) return get_tensor(self, name, parameters, "parameter") end

  --- The buffer with this dotted name; raises when there is none.
  ---@param name string
  ---@return accel.Tensor
  function Module:get_buffer(name) return get_tensor(self, name, buffers, "buffer") end

  --- Replaces every parameter and buffer t by fn(t); tensors shared by several fields stay shared,
  --- gradients follow. They outlive a scope that is open now, as what they replace would. Make
  --- optimizers afterwards: they hold the tensors themselves.
  function Module:_map_tensors(fn)
    local done = {}
    local _ <close> = accel.no_grad()
    for _, module in ipairs(self:modules()) do
      for _, t, kind, field in module:_fields() do
        if kind ~= "module" then
          local new = done[t]
          if new == nil then
            new = accel.unscoped(fn, t)
            if kind == "parameter" and new ~= t and not parameter.is(new) then
              local grad = t.grad
              new = accel.unscoped(parameter, new, t.requires_grad)
              if grad then new.grad = accel.unscoped(fn, grad) end
            end
            done[t], done[new] = new, new
          end
          rawset(rawget(module, field) == nil and module._tensors or module, field, new)
        end
      end
    end
    return self
  end

  --- to("bf16"), to("cpu"), to{dtype=, device=}: moves parameters and buffers; a dtype concerns floating
  --- ones only.
  ---@param what string|{dtype: string?, device: string?}
  function Module:to(what)
    local dtype, device
    if type(what) == "table" then
      local o = options("Module:to", what, { dtype = options.none, device = options.none })
      dtype, device = o.dtype, o.device
    elseif type(what) == "string" then
      if dtypes[what] then dtype = what else device = what end
    else
      raise("Module:to: expected a dtype, a device or a table of both, got %s", type(what))
    end
    if dtype and not dtypes[dtype] then raise("Module:to: '%s' is not a floating dtype", tostring(dtype)) end
    return self:_map_tensors(function(t)
      local new = t
      if device then new = new:to(device) end
      if dtype and tensors.is_floating(t.dtype) then new = new:to(dtype) end
      return new
    end)
  end

  --- The same as to("f64").
  function Module:double() return self:to "f64" end
  --- The same as to("f32").
  function Module:float() return self:to "f32" end
  --- The same as to("f16").
  function Module:half() return self:to "f16" end
  --- The same as to("bf16").
  function Module:bfloat16() return self:to "bf16" end
end
