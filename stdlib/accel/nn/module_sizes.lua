--- Bytes of modules and their content, by name, for device maps and estimates. It uses the names and results of
--- accelerate.utils.modeling.
local accel = require "accel"
local check = require "accel.util.check"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function is_module(x) return require("accel.nn.module").is_module(x) end

local function check_module(who, model)
  local Module = require "accel.nn.module"
  if not Module.is_module(model) then raise("%s: %s", who, Module.not_a_module(model)) end
end

-- Bytes of dtypes that no tensor here has, and of booleans, which the reference counts in bits.
local OTHER_BYTES <const> = {
  bool = 1 / 8, int4 = 1 / 2, int2 = 1 / 4, fp8 = 1, float8_e4m3fn = 1, float8_e5m2 = 1, complex64 = 8, complex128 = 16,
}

--- Bytes of one element of a dtype, which may be less than one: booleans count one bit, as in the reference.
--- example: accel.accelerator.dtype_byte_size "bf16", accel.accelerator.dtype_byte_size "int4" --> 2, 0.5
---@param dtype string
---@return number
function M.dtype_byte_size(dtype)
  return OTHER_BYTES[dtype] or accel.empty(0, { dtype = dtype, device = "cpu" }):element_size()
end

--- The name of a module's class, as no_split_module_classes has it.
---@param module accel.nn.Module
---@return string
function M.class_name(module) return (getmetatable(module).__name:match "[^.]*$") end

--- Class names as a set, from a list, one name or nil.
---@param who string
---@param classes string|string[]|nil
---@return table<string, boolean>
function M.class_set(who, classes)
  local set = {}
  if type(classes) == "string" then classes = { classes } end
  if classes ~= nil and type(classes) ~= "table" then
    raise("%s: no_split_module_classes must be a list of class names, got %s", who, check.shown(classes))
  end
  if classes and next(classes) ~= nil and classes[1] == nil then
    raise("%s: no_split_module_classes must be a list of class names, got a table with the key '%s'", who, tostring((next(classes))))
  end
  for _, name in ipairs(classes or {}) do set[name] = true end
  return set
end

--- Parameters, then buffers, by name: of this module alone, or with recurse of all below.
--- example: local n = 0 for name in accel.accelerator.named_module_tensors(accel.nn.BatchNorm2d(2)) do n = n + 1 end return n --> 5
---@param module accel.nn.Module
---@param opts? {include_buffers: boolean?, recurse: boolean?, remove_non_persistent: boolean?} true, false, false
---@return table<string, accel.Tensor> ordered
function M.named_module_tensors(module, opts, ...)
  check.surplus("named_module_tensors", ...)
  local who = "named_module_tensors"
  check_module(who, module)
  local o = require "accel.util.options"(who, opts, { include_buffers = true, recurse = false, remove_non_persistent = false })
  local out = ordered()
  for name, p in pairs(module:named_parameters(nil, o.recurse)) do out[name] = p end
  if o.include_buffers then
    local kept = o.remove_non_persistent and module:state_dict()
    for name, b in pairs(module:named_buffers(nil, o.recurse)) do
      if not kept or rawget(kept, name) then out[name] = b end
    end
  end
  return out
end

--- The bytes of a tensor when loaded as dtype: integers keep their dtype, and no dtype gets wider.
local function bytes_as(t, dtype, special)
  local own = M.dtype_byte_size(t.dtype)
  if special then return t:numel() * M.dtype_byte_size(special) end
  if dtype == nil or not tensors.is_floating(t.dtype) then return t:numel() * own end
  return t:numel() * math.min(M.dtype_byte_size(dtype), own)
end

local function sizes_of(list, dtype, special_dtypes)
  local sizes = ordered()
  for _, named in ipairs(list) do
    for name, t in pairs(named) do
      local bytes, at = bytes_as(t, dtype, special_dtypes and special_dtypes[name]), 0
      sizes[""] = (rawget(sizes, "") or 0) + bytes
      repeat -- "a.b.c" counts for "a", "a.b" and itself
        at = name:find(".", at + 1, true)
        local part = at and name:sub(1, at - 1) or name
        sizes[part] = (rawget(sizes, part) or 0) + bytes
      until not at
    end
  end
  return sizes
end

--- Bytes of every module and tensor by name, "" for the whole. dtype: as if loaded so. special_dtypes: by tensor. Booleans
--- count an eighth of a byte, as in the reference.
--- example: accel.accelerator.compute_module_sizes(accel.nn.Linear(3, 4))[""] --> 64
---@param model accel.nn.Module
---@param opts? {dtype: string?, special_dtypes: table<string, string>?, buffers_only: boolean?}
---@return table<string, number> ordered
function M.compute_module_sizes(model, opts, ...)
  check.surplus("compute_module_sizes", ...)
  local who = "compute_module_sizes"
  check_module(who, model)
  local options = require "accel.util.options"
  local o = options(who, opts, { dtype = options.none, special_dtypes = options.none, buffers_only = false })
  local list = { model:named_buffers() }
  if not o.buffers_only then table.insert(list, 1, model:named_parameters()) end
  return sizes_of(list, o.dtype, o.special_dtypes)
end

--- Bytes of all buffers of a module.
--- example: accel.accelerator.compute_module_total_buffer_size(accel.nn.BatchNorm2d(4)) --> 40
---@param model accel.nn.Module
---@param opts? {dtype: string?, special_dtypes: table<string, string>?}
---@return number
function M.compute_module_total_buffer_size(model, opts, ...)
  local options = require "accel.util.options"
  local o = options("compute_module_total_buffer_size", opts, { dtype = options.none, special_dtypes = options.none }, ...)
  local sizes = M.compute_module_sizes(model, { dtype = o.dtype, special_dtypes = o.special_dtypes, buffers_only = true })
  return rawget(sizes, "") or 0
end

--- The direct content of a module: parameters, children, and with buffers those at the end. Returns a list of
--- { name, object }.
---@param model accel.nn.Module
---@param prefix string "" or "a.b."
---@param buffers boolean
---@return table[]
function M.direct(model, prefix, buffers)
  local list = {}
  local function add(named)
    for name, object in pairs(named) do list[#list + 1] = { prefix .. name, object } end
  end
  add(model:named_parameters(nil, false))
  add(model:named_children())
  if buffers then add(model:named_buffers(nil, false)) end
  return list
end

--- The bytes of the largest layer among modules, and the names of those that have so many. A layer is a module without
--- children, or one of a class that is not to be split.
---@param modules table[] list of { name, module or tensor }
---@param module_sizes table<string, number>
---@param no_split_module_classes? string|string[]
---@return number, string[]
function M.get_max_layer_size(modules, module_sizes, no_split_module_classes, ...)
  check.surplus("get_max_layer_size", ...)
  local whole, most, names = M.class_set("get_max_layer_size", no_split_module_classes), 0, {}
  local function visit(name, object)
    local children = is_module(object) and object:named_children() or {}
    if next(children) and not whole[M.class_name(object)] then
      for key, child in pairs(children) do visit(name .. "." .. key, child) end
      return
    end
    local size = rawget(module_sizes, name) or 0
    if size > most then
      most, names = size, { name }
    elseif size == most then
      names[#names + 1] = name
    end
  end
  for _, entry in ipairs(modules) do visit(entry[1], entry[2]) end
  return most, names
end

--- The bytes of a model, and of its largest layer with the names of those that have so many.
--- example: local total, layer, names = accel.accelerator.calculate_maximum_sizes(accel.nn.Sequential(accel.nn.Linear(3, 4),
---   accel.nn.Linear(4, 5))) return total, layer, names --> 164, 100, { "1" }
---@param model accel.nn.Module
---@return number, number, string[]
function M.calculate_maximum_sizes(model)
  local sizes = M.compute_module_sizes(model)
  local layer, names = M.get_max_layer_size(M.direct(model, "", true), sizes, rawget(model, "_no_split_modules"))
  return rawget(sizes, "") or 0, layer, names
end

--- Names of parameters that are the same parameter: a list of sorted lists.
--- example: local m = accel.nn.Sequential(accel.nn.Linear(2, 2), accel.nn.Linear(2, 2)) m[2].weight = m[1].weight
---   return accel.accelerator.find_tied_parameters(m) --> { { "0.weight", "1.weight" } }
---@param model accel.nn.Module
---@return string[][]
function M.find_tied_parameters(model)
  check_module("find_tied_parameters", model)
  local names_of, order = {}, {}
  local function visit(module, prefix)
    for key, value, kind in module:_fields() do
      if kind == "parameter" then
        if not names_of[value] then names_of[value], order[#order + 1] = {}, value end
        table.insert(names_of[value], prefix .. key)
      end
    end
    for key, value, kind in module:_fields() do
      if kind == "module" then visit(value, prefix .. key .. ".") end
    end
  end
  visit(model, "")
  local groups = {}
  for _, p in ipairs(order) do
    if #names_of[p] > 1 then
      table.sort(names_of[p])
      groups[#groups + 1] = names_of[p]
    end
  end
  return groups
end

return M
