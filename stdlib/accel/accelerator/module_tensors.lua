--- Tensors of modules by name: placed all at once or one by one. It uses the names of accelerate.utils.modeling.
--- Dispatch and the hooks use it.
local accel = require "accel"
local check = require "accel.util.check"
local core = require "accel.offload.core"
local options = require "accel.util.options"
local parameter = require "accel.nn.parameter"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function check_module(who, module)
  local Module = require "accel.nn.module"
  if not Module.is_module(module) then raise("%s: %s", who, Module.not_a_module(module)) end
end
M._check_module = check_module

--- A device as accel names it: GPU i is "cuda:i". Without a GPU, 0 is the CPU's pool, so that maps for one GPU, host
--- memory and disk work as well.
---@param who string
---@param device integer|string
---@return string
function M._device_name(who, device)
  local there = accel.devices()
  local name = device
  if math.type(device) == "integer" then
    name = ("cuda:%d"):format(device)
    if device == 0 and not table.concat(there, " "):find "cuda" then name = "cpu" end
  end
  for _, known in ipairs(there) do
    if name == known then return known end
  end
  raise("%s: device %s does not exist; choose from %s and 'disk'", who, check.shown(device), table.concat(there, ", "))
end

--- Stores a tensor in a module's field in place of another of its kind: no check of kinds, no change of order.
---@param module accel.nn.Module
---@param field string|integer
---@param t accel.Tensor
local function store(module, field, t) rawset(rawget(module, field) == nil and module._tensors or module, field, t) end

--- Every tensor of a model with its place: fn(name, t, kind, module, field), including repeated ones.
---@param model accel.nn.Module
---@param fn function
---@param recurse? boolean default true
function M._each(model, fn, recurse)
  local seen = {}
  local function visit(module, prefix)
    module = module:_itself()
    if seen[module] then return end
    seen[module] = true
    for key, t, kind, field in module:_fields() do
      if kind ~= "module" then fn(prefix .. key, t, kind, module, field) end
    end
    if recurse == false then return end
    for key, child, kind in module:_fields() do
      if kind == "module" then visit(child, prefix .. key .. ".") end
    end
  end
  visit(model, "")
end

--- Replaces tensors of a model: choose(name, t, kind) returns the replacement of t, or nil to leave it. One tensor under several names
--- stays one if choose gives the same key as its second value (default: one for all names). All are chosen before the first is
--- replaced, so that an error leaves the model as it was.
---@param model accel.nn.Module
---@param choose fun(name: string, t: accel.Tensor, kind: string): accel.Tensor?, any
---@param key? fun(name: string): any
---@param recurse? boolean
function M._replace(model, choose, key, recurse)
  local new, places = {}, {}
  local _ <close> = accel.no_grad()
  M._each(model, function(name, t, kind, module, field)
    local of = new[t]
    if not of then
      of = {}
      new[t] = of
    end
    local at = key and key(name) or true
    if of[at] == nil then
      local value = accel.unscoped(choose, name, t, kind)
      if value and value ~= t and kind == "parameter" and not parameter.is(value) then value = accel.unscoped(parameter, value, t.requires_grad) end
      of[at] = value or false
    end
    if of[at] and of[at] ~= t then places[#places + 1] = { module, field, of[at] } end
  end, recurse)
  for _, place in ipairs(places) do store(place[1], place[2], place[3]) end
end

--- The module and the field that a dotted name means, the tensor there, and its kind.
local function find(who, module, name)
  local path, key = name:match "^(.*)%.([^.]+)$"
  local owner = path and module:get_submodule(path) or module
  owner = owner:_itself()
  for k, t, kind, field in owner:_fields() do
    if k == (key or name) and kind ~= "module" then return owner, field, t, kind end
  end
  raise("%s: %s has no parameter and no buffer '%s'", who, getmetatable(owner).__name, key or name)
end

--- Puts one tensor of a module on a device, optionally with a new value (required for tensors of the meta device). A value is
--- converted to dtype, or to the dtype of the tensor it replaces. Integers are never converted.
--- example: local m = accel.nn.Linear(2, 1) accel.accelerator.set_module_tensor_to_device(m, "bias", "meta")
---   return m.bias.device, m.weight.device --> "meta", "cpu"
---@param module accel.nn.Module
---@param tensor_name string
---@param device integer|string
---@param opts? {value: accel.Tensor?, dtype: string?}
function M.set_module_tensor_to_device(module, tensor_name, device, opts, ...)
  check.surplus("set_module_tensor_to_device", ...)
  local who = "set_module_tensor_to_device"
  check_module(who, module)
  local o = options(who, opts, { value = options.none, dtype = options.none })
  local owner, field, old, kind = find(who, module, tensor_name)
  local name = device == "meta" and "meta" or M._device_name(who, device)
  local value = o.value or old
  if o.value and not tensors.same_shape(o.value, old) then
    raise("%s: '%s' has shape %s, the value has %s", who, tensor_name, tensors.shape_string(old), tensors.shape_string(o.value))
  end
  if not o.value and old.device == "meta" and name ~= "meta" then
    raise("%s: '%s' is on the meta device: give its value to put it on %s", who, tensor_name, name)
  end
  local dtype = o.dtype or (o.value and old.dtype)
  local _ <close> = accel.no_grad()
  local new = accel.unscoped(function()
    local t = value:detach()
    if dtype and tensors.is_floating(t.dtype) then t = t:to(dtype) end
    if name ~= t.device or core.tier(t) then t = core.tier(t) and name == t.device and t:clone() or t:to(name) end
    return t
  end)
  if kind == "parameter" then new = accel.unscoped(parameter, new, old.requires_grad) end
  store(owner, field, new)
end

--- Makes tied parameters one again: all names of a group get the first one's parameter.
---@param model accel.nn.Module
---@param tied_params string[][] of find_tied_parameters
function M.retie_parameters(model, tied_params)
  for _, group in ipairs(tied_params) do
    local first
    for _, name in ipairs(group) do
      local _, _, t = find("retie_parameters", model, name)
      if not first or (first.device == "meta" and t.device ~= "meta") then first = t end
    end
    for _, name in ipairs(group) do
      local owner, field = find("retie_parameters", model, name)
      store(owner, field, first)
    end
  end
end

--- The identity of a storage: device, number of its memory, bytes.
---@param t accel.Tensor
---@return string, integer, integer
function M.id_tensor_storage(t)
  local address = 0
  if t.device ~= "meta" and not core.tier(t) then address = t:data_ptr() end
  return t.device, address, t:numel() * t:element_size()
end

--- Whether some of a module's weights have their home in host memory or on disk because of a dispatch or a hook.
---@param module accel.nn.Module
---@return boolean
function M.has_offloaded_params(module)
  check_module("has_offloaded_params", module)
  local hook = rawget(module, "_hf_hook")
  return hook ~= nil and hook.offload == true
end

--- A block that moves a module's own parameters to a device, `local _ <close> = align_module_device(module, "cpu")`. Afterwards they
--- return to their former device with their new values. Offloaded ones are on their device whenever they are used. Also with a
--- function.
---@param module accel.nn.Module
---@param execution_device? integer|string
---@param fn? function
---@return any
function M.align_module_device(module, execution_device, fn, ...)
  check.surplus("align_module_device", ...)
  local who = "align_module_device"
  check_module(who, module)
  local was = {}
  if execution_device ~= nil and not M.has_offloaded_params(module) then
    local device = M._device_name(who, execution_device)
    M._each(module, function(_, t, kind, owner, field)
      if kind == "parameter" and t.device ~= device then was[#was + 1] = { owner, field, t } end
    end, false)
    for _, place in ipairs(was) do
      local _ <close> = accel.no_grad()
      store(place[1], place[2], parameter(place[3]:detach():to(device), place[3].requires_grad))
    end
  end
  local function back()
    local _ <close> = accel.no_grad()
    for _, place in ipairs(was) do
      local owner, field, t = place[1], place[2], place[3]
      local now = owner[field]
      if now.device ~= "meta" then t:copy_(now:to(t.device)) end
      store(owner, field, t)
    end
    was = {}
  end
  local block = setmetatable({}, { __close = back })
  if not fn then return block end
  local _ <close> = block
  return fn()
end

return M
