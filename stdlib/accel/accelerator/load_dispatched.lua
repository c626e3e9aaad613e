--- Loading a checkpoint to the devices of a map, tensor by tensor: load_checkpoint_in_model with a device_map, and
--- load_checkpoint_and_dispatch. Part of load_checkpoint.lua.
---
--- The model gets its tensors when all of them are loaded, so that a damaged file leaves it unchanged. Only tensors that already
--- have values are filled in place, after the checksums were compared.
local accel = require "accel"
local big_modeling = require "accel.accelerator.big_modeling"
local core = require "accel.offload.core"
local device_maps = require "accel.accelerator.device_map"
local dist = require "accel.dist"
local folder = require "accel.accelerator.offload_folder"
local listed = require "accel.util.listed"
local model_placement = require "accel.accelerator.model_placement"
local module_sizes = require "accel.nn.module_sizes"
local module_tensors = require "accel.accelerator.module_tensors"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local Tiers = require "accel.offload.tiers"

local M = {}

local LONG <const> = { f64 = "float64", f32 = "float32", f16 = "float16", bf16 = "bfloat16", i64 = "int64", i32 = "int32",
  i16 = "int16", i8 = "int8", u8 = "uint8", bool = "bool" }

--- The dtype for a tensor of the file: the requested one, or the model's. Integers keep the dtype of the file.
local function target_dtype(o, name, entry, t)
  if not tensors.is_floating(entry.dtype) then return entry.dtype end
  for _, part in ipairs(o.keep_in_fp32_modules or {}) do
    if o.dtype and name:find(part, 1, true) then return "f32" end
  end
  if o.dtype then return accel.empty(0, { dtype = o.dtype, device = "cpu" }).dtype end
  return tensors.is_floating(t.dtype) and t.dtype or entry.dtype
end

--- The target of each tensor: a list of { name, t, entry, device, tier, dtype }, tied names once.
local function plan(model, source, o, places, main)
  local list, done, group_of = {}, {}, {}
  for _, group in ipairs(module_sizes.find_tied_parameters(model)) do
    for _, name in ipairs(group) do group_of[name] = group end
  end
  module_tensors._each(model, function(name, t, kind)
    local at = device_maps.device_of(name, places) or { device = main }
    local tier = (kind == "parameter" or o.offload_buffers) and at.tier or nil
    local key = ("%s %s"):format(at.device, tier)
    done[t] = done[t] or {}
    if done[t][key] then return end
    for _, alias in ipairs(group_of[name] or { name }) do
      local entry = rawget(source.entries, alias)
      if entry then
        done[t][key] = true
        list[#list + 1] = { name = alias, own = name, t = t, entry = entry, device = at.device, tier = tier,
          dtype = target_dtype(o, name, entry, t) }
        return
      end
    end
  end)
  return list
end

--- Reads a tensor of the file into memory of the host. With broadcast, rank 0 reads for all.
local function read(who, source, item, into, o)
  local broadcast = o.broadcast_from_rank0 and dist.get_world_size() > 1
  if not broadcast or dist.get_rank() == 0 then
    local ok, message = source:read(item.name, into)
    if not ok then raise("%s: %s", who, message) end
  end
  if broadcast then dist.broadcast(into, 0) end
end

--- A tensor on disk: mapped from its safetensors file, or written to the folder. Returns the entry of the index.
local function on_disk(who, source, item, o, index)
  local file = source.dir .. "/" .. item.entry.file
  if file:find "%.safetensors$" and item.dtype == item.entry.dtype then
    return { safetensors_file = file, weight_name = item.name, dtype = LONG[item.dtype] }
  end
  if not o.offload_folder then
    raise("%s: '%s' goes to disk and %s does not hold it as %s in a safetensors file: give an offload_folder", who, item.own, file,
      item.dtype)
  end
  local value, message = source:get(item.name)
  if not value then raise("%s: %s", who, message) end
  folder._put(o.begun, value:to(item.dtype), item.own, index)
  return index[item.own]
end

--- The tensor that replaces item.t. nil: it was filled in place.
local function load(who, source, item, o, tiers)
  if item.tier == "host" and tiers then
    local new = tiers:in_host(item.device, item.entry.shape, item.dtype)
    read(who, source, item, core.home(new), o)
    return new
  end
  local device = item.tier == "host" and "cpu" or item.device
  if item.t.device == device and item.t.dtype == item.dtype and not core.tier(item.t) then
    read(who, source, item, item.t:detach(), o)
    return nil
  end
  local new = accel.empty(item.entry.shape, { dtype = item.dtype, device = device })
  read(who, source, item, new, o)
  return new
end

local function check_shapes(who, source, list)
  local wrong = {}
  for _, item in ipairs(list) do
    if not tensors.same_shape(item.entry, item.t) then
      wrong[#wrong + 1] = ("'%s' has shape %s, the model needs %s"):format(item.name, tensors.shape_string(item.entry),
        tensors.shape_string(item.t))
    end
  end
  if #wrong > 0 then raise("%s: %s does not fit the model: %s", who, source.path, table.concat(wrong, "; ")) end
end

local function check_disk(who, source, list, o)
  if o.offload_folder then return end
  for _, item in ipairs(list) do
    if item.tier == "disk" and not (item.entry.file:find "%.safetensors$" and item.dtype == item.entry.dtype) then
      raise("%s: '%s' goes to disk: give an offload_folder", who, item.own)
    end
  end
end

--- Loads. The model's tensors on disk stay on the meta device, unless `dispatch` provides a function that makes them.
---@param who string
---@param model accel.nn.Module
---@param source accel.ckpt.Weights
---@param o table options of load_checkpoint_in_model
---@param direct? {window: any} for load_checkpoint_and_dispatch: tiers are made and filled
---@return accel.offload.Tiers? tiers
---@return table<string, table> index of the tensors on disk
function M.load(who, model, source, o, direct)
  device_maps.check_device_map(model, o.device_map)
  local places, main = big_modeling._read_map(who, o.device_map)
  local list = plan(model, source, o, places, main)
  check_shapes(who, source, list)
  check_disk(who, source, list, o)
  for _, item in ipairs(list) do
    if item.t.device ~= "meta" and item.tier ~= "disk" then
      local ok, message = source:verify()
      if not ok then raise("%s: %s", who, message) end
      break
    end
  end
  local tiers
  if direct then
    local largest = model_placement.largest_layer(model, function(name, kind)
      local at = device_maps.device_of(name, places)
      return at ~= nil and at.tier ~= nil and (kind == "parameter" or o.offload_buffers)
    end)
    tiers = Tiers { budget = model_placement.budget(who, direct.window, largest) }
  end
  local new, index = {}, ordered()
  local begun <close> = o.offload_folder and folder._begin(who, o.offload_folder) or nil
  o.begun = begun
  local _ <close> = accel.no_grad()
  for _, item in ipairs(list) do
    new[item.t] = new[item.t] or {}
    local key = ("%s %s"):format(item.device, item.tier)
    if item.tier == "disk" then
      index[item.own] = on_disk(who, source, item, o, index)
      new[item.t][key] = accel.empty(item.entry.shape, { dtype = item.dtype, device = "meta" })
    else
      new[item.t][key] = accel.unscoped(load, who, source, item, o, tiers) or item.t
    end
  end
  if begun then folder._commit(begun, index) end
  local function key_of(name, kind)
    local at = device_maps.device_of(name, places) or { device = main }
    return ("%s %s"):format(at.device, (kind == "parameter" or o.offload_buffers) and at.tier or nil)
  end
  module_tensors._replace(model, function(name, t, kind) return new[t] and new[t][key_of(name, kind)] end,
    function(name) return key_of(name, "parameter") end)
  if direct then -- tensors of which the file has nothing get their place by the dispatch
    local left = {}
    module_tensors._each(model, function(name, t) if t.device == "meta" and not index[name] then left[#left + 1] = name end end)
    local tied = {}
    for _, group in ipairs(module_sizes.find_tied_parameters(model)) do
      for _, name in ipairs(group) do
        for _, other in ipairs(group) do tied[name] = tied[name] or index[other] end
      end
    end
    local lacking = {}
    for _, name in ipairs(left) do
      if not tied[name] then lacking[#lacking + 1] = name end
    end
    if #lacking > 0 then raise("%s: %s lacks %s, which have no values", who, source.path, listed(lacking)) end
  end
  return tiers, index
end

return M
