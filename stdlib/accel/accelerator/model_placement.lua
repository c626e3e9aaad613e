--- Puts the tensors of a model on devices and tiers, and hooks on its modules: the common part of cpu_offload, disk_offload and
--- dispatch_model. All or nothing: an error leaves the model, and the folder, as they were.
local accel = require "accel"
local core = require "accel.offload.core"
local folder = require "accel.accelerator.offload_folder"
local listed = require "accel.util.listed"
local model_hooks = require "accel.accelerator.model_hooks"
local module_sizes = require "accel.nn.module_sizes"
local module_tensors = require "accel.accelerator.module_tensors"
local offload = require "accel.offload"
local raise = require "accel.util.raise"
local sizes = require "accel.util.sizes"
local tensors = require "accel.util.tensors"
local Tiers = require "accel.offload.tiers"

local M = {}

--- Bytes of the largest layer of which something is offloaded: tensors of one module, or of a child that is a leaf.
---@param model accel.nn.Module
---@param is_offloaded fun(name: string, kind: string): boolean
---@return integer
function M.largest_layer(model, is_offloaded)
  local of, most = {}, 0
  module_tensors._each(model, function(name, t, kind, module)
    if is_offloaded(name, kind) then
      of[module] = (of[module] or 0) + t:numel() * t:element_size()
      most = math.max(most, of[module])
    end
  end)
  return most
end

--- Bytes of a window: the given size, or room for the computing layer and the next one.
---@param who string
---@param window integer|string|nil
---@param largest integer
---@return integer
function M.budget(who, window, largest)
  if window == nil then return 2 * largest end
  local bytes = sizes.convert_file_size_to_int(window)
  if bytes < largest then
    raise("%s: window of %s cannot hold the largest layer, which needs %s", who, sizes.convert_bytes(bytes),
      sizes.convert_bytes(largest))
  end
  return bytes
end

local function shape_of(entry) return tensors.shape_string { shape = entry.shape } end

--- A tensor whose home is given by an entry of an index.
local function open_entry(o, device, name, t, entry)
  local path, offset, shape, dtype = nil, 0, entry.shape, folder._dtype_of(entry.dtype)
  if entry.safetensors_file then
    path = entry.safetensors_file
    local reader <close>, message = accel.open_safetensors(path)
    if not reader then raise("%s: '%s': %s", o.who, name, message) end
    local ok, info = pcall(reader.info, reader, entry.weight_name or name)
    if not ok then raise("%s: %s lacks '%s'", o.who, path, entry.weight_name or name) end
    shape, offset = info.shape, info.offset
    if dtype and dtype ~= info.dtype then -- converted once, and kept in host memory
      local value = reader:get(entry.weight_name or name):to(dtype)
      local new = o.tiers:in_host(device, shape, dtype)
      core.home(new):copy_(value)
      return new
    end
    dtype = info.dtype
  else
    if not o.folder then raise("%s: '%s' is on disk: give the folder it is in", o.who, name) end
    path = folder._file_of(o.folder, name)
  end
  if not tensors.same_shape({ shape = shape }, t) then
    raise("%s: '%s' has shape %s in %s, the model needs %s: is this the folder of another model?", o.who, name,
      shape_of { shape = shape }, path, tensors.shape_string(t))
  end
  local new, message = o.tiers:in_part_of(device, path, offset, shape, dtype)
  if not new then raise("%s: '%s': %s", o.who, name, message) end
  return new
end

--- The entry of a tensor on disk under one of its names, and that name. nil: it must be written.
local function known(o, name)
  for _, alias in ipairs(o.names_of[name] or { name }) do
    local entry = o.index[alias] or rawget(o.new_index, alias)
    if entry then return entry, alias end
  end
end

--- Writes a tensor that is to be on disk into the set, unless an index has it.
local function store(o, begun, name, t)
  if known(o, name) then return end
  local value = o.state_dict and o.state_dict[name] or t
  if value.device == "meta" then
    raise("%s: '%s' has no values, and %s does not have it: is this the folder of another model?", o.who, name,
      o.folder or "the index")
  end
  if not begun then raise("%s: '%s' is to be on disk: give a folder", o.who, name) end
  folder._put(begun, value, name, o.new_index)
end

local function choose(o, name, t, kind)
  local device, tier = o.exec_of(name), o.tier_of(name, kind)
  if core.tier(t) then return nil end
  if tier == "disk" then
    local entry, alias = known(o, name)
    return open_entry(o, device, alias, t, entry)
  end
  local value = o.state_dict and o.state_dict[name] or t
  if value.device == "meta" then
    raise("%s: '%s' is on the meta device and has no values; load a checkpoint into the model first", o.who, name)
  end
  if tier == "host" then
    local new = o.tiers:in_host(device, t.shape, value.dtype)
    core.home(new):copy_(value:to("cpu"))
    return new
  end
  return (value ~= t or value.device ~= device) and value:to(device) or nil
end

--- Names that are one tensor, by each of them.
local function aliases(model)
  local of = {}
  for _, group in ipairs(module_sizes.find_tied_parameters(model)) do
    for _, name in ipairs(group) do of[name] = group end
  end
  return of
end

local function add_hooks(model, o)
  for name, module in pairs(model:named_modules()) do
    local away, direct = false, false
    for key, _, kind in module:_fields() do
      if kind ~= "module" then
        direct = true
        away = away or o.tier_of(name == "" and key or name .. "." .. key, kind) ~= nil
      end
    end
    if direct or name == "" then
      local hook = model_hooks.AlignDevicesHook {
        execution_device = name == "" and o.main or o.exec_of(name), offload = away, io_same_device = name == "",
        offload_buffers = o.offload_buffers, skip_keys = o.skip_keys,
      }
      hook.placed, hook.tiers, hook.begins, hook.original_devices = true, o.tiers, name == "", {}
      model_hooks.add_hook_to_module(module, hook, true)
    end
  end
end

--- Moving a dispatched model undoes the dispatch. This warns, or raises if parts of it are offloaded.
local function guard(model, away)
  for _, method in ipairs { "to", "double", "float", "half", "bfloat16" } do
    local plain = model[method]
    rawset(model, method, function(self, ...)
      if away then
        raise("%s: a model with offloaded parts cannot be moved or converted; remove its hooks first"
          .. " (accel.accelerator.remove_hook_from_submodules)", method)
      end
      warn(("%s: the model was dispatched to several devices, and moving it undoes that"):format(method))
      return plain(self, ...)
    end)
  end
end

--- Places a model.
---@param model accel.nn.Module
---@param o table
---  who string: begins messages
---  main string: device of the root
---  exec_of fun(name: string): string: the device that a module or tensor computes on
---  tier_of fun(name: string, kind: string): "host"|"disk"|nil: nil for resident
---  state_dict, index, folder: the sources of values. Missing index entries are written to folder
---  offload_buffers, skip_keys: of the hooks
---  window integer|string|nil: bytes on each device for weights that come and go
---  tiers accel.offload.Tiers?: those that some tensors are in already
function M.place(model, o)
  local largest = M.largest_layer(model, function(name, kind) return o.tier_of(name, kind) ~= nil end)
  o.tiers = o.tiers or Tiers { budget = M.budget(o.who, o.window, largest) }
  o.names_of, o.index, o.new_index = aliases(model), o.index or {}, require "accel.util.ordered"()
  local begun <close> = o.folder and folder._begin(o.who, o.folder) or nil
  module_tensors._each(model, function(name, t, kind)
    if o.tier_of(name, kind) == "disk" and not core.tier(t) then accel.unscoped(store, o, begun, name, t) end
  end)
  if begun then folder._commit(begun, o.new_index) end
  module_tensors._replace(model, function(name, t, kind)
    local new = choose(o, name, t, kind)
    if new and t.quant_state and not new.quant_state then new:quantized_like_(t) end
    return new
  end,
    function(name) return o.exec_of(name) end)
  local away = false
  module_tensors._each(model, function(name, _, kind) away = away or o.tier_of(name, kind) ~= nil end)
  add_hooks(model, o)
  guard(model, away)
  offload._set(model, o.tiers)
end

--- Raises for names of a state_dict that are to be offloaded and are not there.
---@param who string
---@param model accel.nn.Module
---@param state_dict table?
function M.check_values(who, model, state_dict)
  local missing = {}
  for name, t in pairs(model:state_dict()) do
    if t.device == "meta" and not (state_dict and state_dict[name]) then missing[#missing + 1] = name end
  end
  if #missing > 0 then
    raise("%s: no values for %s, on the meta device: load a checkpoint first, or give a state_dict", who, listed(missing))
  end
end

return M
