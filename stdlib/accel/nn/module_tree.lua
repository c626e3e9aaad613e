--- Walks over the tree of modules: parameters, buffers, children, modules, and `to`. Part of nn.Module,
--- installed by nn/module.lua.
---
--- The plain forms return lists, which can also be called as iterators (`for p in m:parameters() do`). The named forms
--- return tables in registration order, for `pairs`, as iterators, or by name. A tensor or module that is reachable by
--- several names appears once, under the first.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local divided = require "accel.nn.divided"
local optimizers = require "accel.nn.replaced"
local check = require "accel.util.check"
local core = require "accel.shard.core"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local parameter = require "accel.nn.parameter"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local dtypes = {
  f64 = true, f32 = true, f16 = true, bf16 = true, double = true, float = true, half = true, float64 = true,
  float32 = true, float16 = true, bfloat16 = true,
}

local modules_arguments = arguments("named_modules", { "prefix", "" })
local named_arguments = arguments("named_parameters", { "prefix", "" }, { "recurse", true })
local list_arguments = arguments("parameters", { "recurse", true })

local list_meta = {}

-- The next value. A for loop passes the previous one, nil at its start, so every loop begins at the first, even after
-- one that was left by break, and loops over one list may be nested.
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
  --- The current value of a registered field. nil for a reserved name.
  local function kind_of(value, registered)
    if type(value) == "userdata" then
      if registered == "buffer" or registered == "temporary" then return registered end
      return parameter.is(value) and "parameter" or nil
    end
    return Module.is_module(value) and "module" or nil
  end

  --- The module that a walk visits here: itself, or the wrapped module of a wrapper that keeps names.
  function Module:_itself() return self end

  --- An error if this is a lazy layer without sizes (lazy.lua): parameters that come later would be missing from an optimizer, a plan or
  --- a file.
  ---@param name string
  function Module:_refuse_lazy(name)
    local lazy = rawget(self, "_lazy")
    if lazy then
      raise("%s%s has no tensors before its first batch; call the model with one (or load_state_dict) before its parameters are used",
        lazy.who, name ~= "" and (" '%s'"):format(name) or "")
    end
  end

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
  ---@param ... any prefix, by position or in a table
  function Module:named_modules(...)
    check.object(self, "m", "named_modules")
    local out = ordered()
    walk_modules(self, modules_arguments(...).prefix, {}, function(name, module) out[name] = module end)
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

  local function named_tensors(self, wanted, prefix, recurse)
    local out, seen = ordered(), {}
    local function visit(name, module)
      module:_refuse_lazy(name)
      for key, value, kind in module:_fields() do
        if wanted[kind] and not seen[value] then
          seen[value] = true
          out[name == "" and key or name .. "." .. key] = value
        end
      end
    end
    if recurse == false then visit(prefix, self) else walk_modules(self, prefix, {}, visit) end
    return out
  end

  local parameters, buffers = { parameter = true }, { buffer = true, temporary = true }

  --- Dotted name and parameter, each once: `for name, p in net:named_parameters() do`.
  ---@param ... any prefix = "", recurse = true, by position or in a table
  function Module:named_parameters(...)
    check.object(self, "m", "named_parameters")
    local o = named_arguments(...)
    return named_tensors(self, parameters, o.prefix, o.recurse)
  end

  --- The parameters of this module and all below, each once: a list, for optimizers, or `for p in
  --- net:parameters() do`.
  ---@param ... any recurse = true, by position or in a table
  function Module:parameters(...)
    check.object(self, "m", "parameters")
    return values(named_tensors(self, parameters, "", list_arguments(...).recurse))
  end

  --- Dotted name and buffer, as named_parameters.
  ---@param ... any prefix = "", recurse = true, by position or in a table
  function Module:named_buffers(...)
    local o = named_arguments(...)
    return named_tensors(self, buffers, o.prefix, o.recurse)
  end

  --- The buffers of this module and all below, as parameters.
  ---@param ... any recurse = true, by position or in a table
  function Module:buffers(...) return values(named_tensors(self, buffers, "", list_arguments(...).recurse)) end

  --- The module or tensor with this dotted name. Raises if there is none.
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

  --- The tensor of this kind with a dotted name. Raises if there is none.
  local function get_tensor(self, name, wanted, what)
    local path, key = tostring(name):match "^(.*)%.([^.]+)$"
    local owner = path and self:get_submodule(path) or self
    for k, value, kind in owner:_fields() do
      if k == (key or name) and wanted[kind] then return value end
    end
    raise("%s has no %s '%s'", getmetatable(owner).__name, what, tostring(key or name))
  end

  --- The parameter with this dotted name, as in named_parameters. Raises if there is none.
  ---@param name string
  ---@return accel.Tensor
  function Module:get_parameter(name) return get_tensor(self, name, parameters, "parameter") end

  --- The buffer with this dotted name. Raises if there is none.
  ---@param name string
  ---@return accel.Tensor
  function Module:get_buffer(name) return get_tensor(self, name, buffers, "buffer") end

  --- Parameters that ranks divide among them stay as they were divided: parts of others, and places in flat tensors, would be of another
  --- dtype or device.
  local function refuse_divided(self, fn)
    local placements, owners = divided.placements, divided.owners
    if not placements and not owners then return end
    local _ <close> = accel.no_grad()
    for name, p in pairs(self:named_parameters()) do
      local cut = placements and (placements.of[p] or placements.experts[p])
      cut = cut or owners and owners.of[p]
      if cut and fn(p) ~= p then
        raise("Module:to: ranks divide '%s' among them, so it cannot be moved or converted; do so before the model is divided", name)
      end
    end
  end

  --- Whether a parameter can take other bytes and remain itself: not a packed one, nor one that DeepSpeed created in parts.
  local function stays(p, new)
    local zero = divided.creation
    return not p.quant_state and not new.quant_state and p.is_leaf and not (zero and zero.holds(p))
  end

  --- A parameter takes the bytes of another tensor, as PyTorch's does: names that share it, optimizers and hooks keep it.
  local function take(p, new, fn)
    local grad = p.grad
    p.grad = nil
    core.bind(p, accel.unscoped(new.contiguous, new), 0)
    if grad then p.grad = accel.unscoped(fn, grad) end
    parameter.conversions = parameter.conversions + 1
  end

  --- Every parameter and buffer t becomes fn(t). Tensors that several fields share stay shared, gradients follow, and optimizers convert
  --- their states. With `wanted` a parameter remains the same tensor, so that modules outside self that share it (a tied embedding) have
  --- the new bytes as well. Otherwise, and for packed parameters, fn(t) takes its place. Otherwise, and for packed parameters, fn(t) takes
  --- its place. The new tensors outlive an open scope, like those they replace. Parameters that ranks divide stay, and so do parameters of
  --- wrappers (nn.parallel), which check the common request.
  ---@param fn fun(t: accel.Tensor): accel.Tensor
  ---@param wanted? {dtype: string?, device: string?} fn's conversion of a tensor
  function Module:_map_tensors(fn, wanted)
    local done, replaced = {}, false
    if wanted then refuse_divided(self, fn) end
    local _ <close> = accel.no_grad()
    for _, module in ipairs(self:modules()) do
      for _, t, kind, field in module:_fields() do
        if kind ~= "module" then
          local new = done[t]
          if new == nil then
            new = accel.unscoped(fn, t)
            local changes = kind == "parameter" and new ~= t
            if changes and wanted and stays(t, new) then
              take(t, new, fn)
              new = t
            elseif changes and not parameter.is(new) then
              local grad = t.grad
              new = accel.unscoped(parameter, new, t.requires_grad)
              if grad then new.grad = accel.unscoped(fn, grad) end
            end
            done[t], done[new] = new, new
            if changes then replaced = replaced or {} replaced[t] = new end
          end
          rawset(rawget(module, field) == nil and module._tensors or module, field, new)
        end
      end
    end
    if replaced then optimizers.replace(replaced) end
    return self
  end

  --- to("bf16"), to("cpu"), to("cpu", "bf16"), to{dtype=, device=}: moves parameters and buffers. A dtype applies only to
  --- floating ones. Parameters remain the same tensors, even under the other names of tied ones.
  ---@param ... string|{dtype: string?, device: string?}
  function Module:to(...)
    local o = {}
    for i = 1, math.max(1, select("#", ...)) do
      local what = select(i, ...)
      local given = what
      if type(what) == "string" then given = { [dtypes[what] and "dtype" or "device"] = what }
      elseif type(what) ~= "table" and (i == 1 or what ~= nil) then
        raise("Module:to: expected a dtype, a device or a table of both, got %s", check.shown(what))
      end
      for name, value in next, options("Module:to", given, { dtype = options.none, device = options.none }) do
        if o[name] ~= nil then raise("Module:to: %s is given twice, as %s and %s", name, check.shown(o[name]), check.shown(value)) end
        o[name] = value
      end
    end
    local dtype, device = o.dtype, o.device
    if dtype and not dtypes[dtype] then raise("Module:to: '%s' is not a floating dtype", tostring(dtype)) end
    for _, module in ipairs(self:modules()) do
      local lazy = rawget(module, "_lazy")
      if lazy then lazy.dtype, lazy.device = dtype or lazy.dtype, device or lazy.device end
    end
    return self:_map_tensors(function(t)
      local new = t
      if device then new = new:to(device) end
      if dtype and tensors.is_floating(t.dtype) then new = new:to(dtype) end
      return new
    end, { dtype = dtype, device = device })
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
