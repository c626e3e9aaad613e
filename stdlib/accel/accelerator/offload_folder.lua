--- Folders of offloaded weights, as accelerate.utils.offload writes them: one file NAME.dat per tensor, with its bytes in row-major
--- order, and index.json with the dtype and shape of each, or its position in a safetensors file.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"
local tensors = require "accel.util.tensors"
local writer = require "accel.util.writer"

local M = {}

local PIECE <const> = 1 << 20 -- elements
local INDEX <const> = "index.json"

-- Names of dtypes in an index.
local LONG <const> = { f64 = "float64", f32 = "float32", f16 = "float16", bf16 = "bfloat16", i64 = "int64", i32 = "int32",
  i16 = "int16", i8 = "int8", u8 = "uint8", u16 = "uint16", u32 = "uint32", bool = "bool", f8_e4m3 = "float8_e4m3fn",
  f8_e5m2 = "float8_e5m2" }
local SHORT <const> = {}
for short, long in next, LONG do SHORT[long] = short end

--- The file of a weight. Names come from files of others: none leaves the folder.
local function file_of(folder, name)
  if name:find "[/\\%c]" or name == "" then raise("offload folder %s: '%s' is not a name of a weight", folder, name) end
  return ("%s/%s.dat"):format(folder, name)
end
M._file_of = file_of

--- The dtype of an index entry in accel's names, or nil if accel has none.
---@param name string
---@return string?
function M._dtype_of(name) return SHORT[name] end

--- Writes a tensor's bytes into a file of accel.util.writer. nil, message.
local function write(t, file, message)
  local _ <close> = file
  if not file then return nil, message end
  local flat, n, ok = t:detach():reshape(-1), t:numel(), true
  for at = 1, n, PIECE do
    ok, message = file:write(flat:narrow(1, at, math.min(PIECE, n - at + 1)):to_bytes())
    if not ok then return nil, message end
  end
  return file:commit()
end

--- Begins to write into an offload folder, which is made: its weights and its index switch together at M._commit. A folder into which
--- nothing is written may be read-only.
---@param who string begins messages
---@param offload_folder string
---@return table
function M._begin(who, offload_folder)
  local made, why = accel.makedirs(offload_folder)
  if not made then raise("%s: %s", who, why) end
  return setmetatable({ who = who, folder = offload_folder }, { __close = function(self)
    if self.set then self.set:close() end
  end })
end

local function set_of(begun)
  local why
  if not begun.set then begun.set, why = writer.set(begun.folder) end
  return begun.set or raise("%s: %s", begun.who, why)
end

--- A weight as a file of a set, and its entry in the index. Made by M._begin.
---@param begun table
---@param weight accel.Tensor
---@param name string
---@param index table<string, table>
function M._put(begun, weight, name, index)
  local ok, message = write(weight, set_of(begun):create((file_of("", name):sub(2))))
  if not ok then raise("%s: '%s': %s", begun.who, name, message) end
  index[name] = { dtype = LONG[weight.dtype], shape = accel.json.array(weight.shape) }
end

--- Writes a weight to FOLDER/NAME.dat and its dtype and shape into index, which is returned.
---@param weight accel.Tensor
---@param weight_name string
---@param offload_folder string
---@param index? table<string, table>
---@return table? index
function M.offload_weight(weight, weight_name, offload_folder, index, ...)
  check.surplus("offload_weight", ...)
  if not tensors.is_tensor(weight) then raise("offload_weight: expected a tensor, got %s", check.shown(weight)) end
  local ok, message = write(weight, writer.create(file_of(offload_folder, weight_name)))
  if not ok then raise("offload_weight: '%s': %s", weight_name, message) end
  if index then index[weight_name] = { dtype = LONG[weight.dtype], shape = accel.json.array(weight.shape) } end
  return index
end

--- Reads a tensor that offload_weight wrote. weight_info is its entry of the index.
---@param weight_file string
---@param weight_info {dtype: string, shape: integer[]}
---@return accel.Tensor
function M.load_offloaded_weight(weight_file, weight_info, ...)
  check.surplus("load_offloaded_weight", ...)
  local dtype = SHORT[weight_info.dtype]
  if not dtype then raise("%s: its index has the unknown dtype '%s'", weight_file, tostring(weight_info.dtype)) end
  local tiers = require "accel.offload.tiers" {}
  local t, message = tiers:in_part_of("cpu", weight_file, 0, weight_info.shape, dtype)
  if not t then raise("load_offloaded_weight: %s", message) end
  local _ <close> = accel.no_grad()
  return t:clone()
end

--- The index of a folder. nil, message, code if there is none.
---@param folder string
---@return table<string, table>?, string?, string?
function M._read_index(folder)
  local index, message, code = read_json(folder .. "/" .. INDEX)
  if not index then return nil, message, code end
  for name, entry in next, index do
    local shape = type(entry) == "table" and entry.shape
    local fine = type(entry) == "table" and (type(entry.safetensors_file) == "string"
      or (type(shape) == "table" and SHORT[entry.dtype] ~= nil))
    for _, n in ipairs(fine and shape or {}) do fine = fine and math.type(n) == "integer" and n >= 0 end
    if not fine then return nil, ("%s/%s: the entry of '%s' is wrong"):format(folder, INDEX, tostring(name)), "format" end
  end
  return index
end

--- Writes index.json as the last file of a set, merged with existing entries, and commits the set. Nothing for an empty index.
---@param begun table
---@param index table<string, table>?
function M._commit(begun, index)
  if not index or next(index) == nil then return end
  local all, set = ordered(), set_of(begun)
  local current, message, code = M._read_index(begun.folder)
  if not current and code ~= "not_found" then raise("%s: %s", begun.who, message) end
  for _, list in ipairs { current or {}, index } do
    for name, entry in accel.pairs(list) do all[name] = entry end
  end
  local ok, why = set:write(INDEX, accel.json.encode(all, { pretty = true }) .. "\n")
  if ok then ok, why = set:commit() end
  if not ok then raise("%s: %s", begun.who, why) end
end

--- Writes index.json, merged with existing entries. Nothing for an empty index.
---@param index table<string, table>?
---@param offload_folder string
function M.save_offload_index(index, offload_folder)
  if not index or next(index) == nil then return end
  local begun <close> = M._begin("save_offload_index", offload_folder)
  M._commit(begun, index)
end

--- Writes all tensors of a state_dict to a folder, and its index. All switch together.
--- example: local dir = accel.mkdtemp "/tmp/example-" accel.accelerator.offload_state_dict(dir, { w = accel.ones(2) })
---   return accel.accelerator.OffloadedWeightsLoader { save_folder = dir }:get("w") --> { 1, 1 }
---@param save_dir string
---@param state_dict table<string, accel.Tensor>
function M.offload_state_dict(save_dir, state_dict)
  local begun <close> = M._begin("offload_state_dict", save_dir)
  local index = ordered()
  for name, t in ordered.iterate(state_dict) do M._put(begun, t, name, index) end
  M._commit(begun, index)
end

--- The entries of a state_dict that belong to these modules: "a.1" is not "a.10".
--- example: accel.accelerator.extract_submodules_state_dict({ ["a.1"] = 1, ["a.10"] = 2, ["a.2"] = 3 }, { "a.1", "a.2" })
---   --> { ["a.1"] = 1, ["a.2"] = 3 }
---@param state_dict table<string, any>
---@param submodule_names string[]
---@return table<string, any> ordered
function M.extract_submodules_state_dict(state_dict, submodule_names)
  local out = ordered()
  for _, module in ipairs(submodule_names) do
    for name, value in ordered.iterate(state_dict) do
      if name == module or name:sub(1, #module + 1) == module .. "." then out[name] = value end
    end
  end
  return out
end

--- Weights by name from a state_dict and from a folder, read on request. The state_dict takes precedence.
--- example: accel.accelerator.OffloadedWeightsLoader({ state_dict = { w = accel.ones(2) } }):keys() --> { "w" }
---@class accel.accelerator.OffloadedWeightsLoader
local Loader = class("accel.accelerator.OffloadedWeightsLoader")
M.OffloadedWeightsLoader = Loader

---@param o {state_dict: table?, save_folder: string?, index: table?, device: string?}
function Loader:init(o)
  local options = require "accel.util.options"
  o = options("OffloadedWeightsLoader", o, {
    state_dict = options.none, save_folder = options.none, index = options.none, device = options.none,
  })
  if not o.state_dict and not o.save_folder and not o.index then
    raise "OffloadedWeightsLoader: give a state_dict, a save_folder or an index"
  end
  self.state_dict, self.save_folder, self.index, self.device = o.state_dict or {}, o.save_folder, o.index, o.device
  if not self.index and self.save_folder then
    local index, message = M._read_index(self.save_folder)
    if not index then raise("OffloadedWeightsLoader: %s", message) end
    self.index = index
  end
  self.index = self.index or {}
end

--- All names: of the state_dict in its order, then of the index.
---@return string[]
function Loader:keys()
  local keys, seen = {}, {}
  for name in ordered.iterate(self.state_dict) do keys[#keys + 1], seen[name] = name, true end
  for name in accel.pairs(self.index) do
    if not seen[name] then keys[#keys + 1] = name end
  end
  return keys
end

--- A weight, or nil if no weight has this name.
---@param name string
---@return accel.Tensor?
function Loader:get(name)
  local t = self.state_dict[name]
  if t then return t end
  local entry = self.index[name]
  if not entry then return nil end
  if entry.safetensors_file then
    local reader <close>, message = accel.open_safetensors(entry.safetensors_file)
    if not reader then raise("OffloadedWeightsLoader: %s", message) end
    local value, why = accel.device("cpu", reader.get, reader, entry.weight_name or name)
    if not value then raise("OffloadedWeightsLoader: %s", why) end
    t = value
    if SHORT[entry.dtype] then t = t:to(SHORT[entry.dtype]) end
  else
    t = M.load_offloaded_weight(file_of(self.save_folder, name), entry)
  end
  return self.device and t:to(self.device) or t
end

--- The entries under a prefix of a mapping with a get(name), or of a plain table.
--- example: accel.accelerator.PrefixedDataset({ ["a.w"] = 1, ["b.w"] = 2 }, "a."):get "w" --> 1
---@class accel.accelerator.PrefixedDataset
local Prefixed = class("accel.accelerator.PrefixedDataset")
M.PrefixedDataset = Prefixed

---@param dataset table
---@param prefix string
function Prefixed:init(dataset, prefix) self.dataset, self.prefix = dataset, prefix end

--- The mapping's value at prefix .. name.
---@param name string
function Prefixed:get(name)
  local dataset = self.dataset
  if class.of(dataset) and dataset.get then return dataset:get(self.prefix .. name) end
  return dataset[self.prefix .. name]
end

--- The names, prefix and all, that begin with the prefix.
---@return string[]
function Prefixed:keys()
  local keys = {}
  local all = class.of(self.dataset) and self.dataset.keys and self.dataset:keys()
  if not all then
    all = {}
    for name in accel.pairs(self.dataset) do all[#all + 1] = name end
  end
  for _, name in ipairs(all) do
    if name:sub(1, #self.prefix) == self.prefix then keys[#keys + 1] = name end
  end
  return keys
end

return M
