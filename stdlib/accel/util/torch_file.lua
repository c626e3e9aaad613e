--- accel.util.torch_file: writes files of torch.save (the zip format of PyTorch 1.6 and later), which torch.load reads with
--- weights_only = True. The file is a pickle of the tree (accel.util.pickle) and one entry per storage. Called by accel.save, by the
--- functions with safe_serialization = false and by writers of folders of other tools.
---
--- Tensors that share memory share a storage in the file, as far as their bytes overlap: of a large buffer only the parts that tensors
--- see are written.
local accel = require "accel.core"
local core = require "accel.file.core"
local pickle = require "accel.util.pickle"
local raise = require "accel.util.raise"
local unwritten = require "accel.util.unwritten"
local writer = require "accel.util.writer"
local zip_write = require "accel.util.zip_write"

local M = {}

local TOP <const> = "archive/"
local PIECE <const> = 64 << 20 -- bytes that are written at a time, and copied if they are on another device

--- A part of a storage in memory that becomes one storage of the file.
---@class accel.util.torch_file.Region
---@field tensor accel.Tensor one of its tensors
---@field first integer byte of the storage
---@field last integer
---@field typed boolean all its tensors have one dtype, which has a storage class
---@field key string? in the file, by first use

--- The regions of the tensors: by tensor. Tensors of one storage whose bytes overlap are in one region.
local function regions_of(tensors)
  local by_storage, order = {}, {}
  for _, t in ipairs(tensors) do
    local id, first, bytes = core.storage_range(t)
    if not by_storage[id] then
      by_storage[id] = {}
      order[#order + 1] = by_storage[id]
    end
    table.insert(by_storage[id], { tensor = t, first = first, last = first + bytes })
  end
  local regions = {}
  for _, list in ipairs(order) do
    table.sort(list, function(a, b) return a.first < b.first end)
    local region
    for _, part in ipairs(list) do
      if not region or part.first >= region.last then
        region = { tensor = part.tensor, first = part.first, last = part.last, typed = core.torch_dtype(part.tensor.dtype) ~= nil }
      end
      region.last = math.max(region.last, part.last)
      region.typed = region.typed and part.tensor.dtype == region.tensor.dtype
      regions[part.tensor] = region
    end
  end
  for _, region in next, regions do -- of several dtypes: begins where elements of each may begin
    if not region.typed then region.first = region.first - region.first % 8 end
  end
  return regions
end

--- The mark of a tensor in the pickle. storages: regions in the order of their keys, filled here.
local function tensor_mark(t, region, storages)
  if not region.key then
    region.key, storages[#storages + 1] = ("%d"):format(#storages), region
  end
  local size, _, first = t:element_size(), core.storage_range(t)
  local class, name = core.torch_dtype(t.dtype)
  local bytes = region.last - region.first
  local type = region.typed and pickle.global("torch", class) or pickle.global("torch.storage", "UntypedStorage")
  local storage = pickle.persistent(pickle.tuple { "storage", type, region.key, "cpu", region.typed and bytes // size or bytes })
  local args = { storage, (first - region.first) // size, pickle.tuple(table.move(t.shape, 1, t.ndim, 1, {})), pickle.tuple(t:stride()),
    t.requires_grad, pickle.odict {} }
  if not region.typed then args[#args + 1] = pickle.global("torch", name) end
  return pickle.call("torch._utils", region.typed and "_rebuild_tensor_v2" or "_rebuild_tensor_v3", args)
end

--- The pickle of a tree and the regions of its storages.
local function encode(value, who)
  local tensors, seen = {}, {}
  pickle.encode(value, { who = who, tensor = function(t, at)
    if t.device == "meta" then
      raise("%s: %s: the tensor is on the meta device, so it has no values to save", who, at == "" and "value" or at)
    end
    if not seen[t] then tensors[#tensors + 1], seen[t] = t, true end
    return nil
  end })
  local regions, storages = regions_of(tensors), {}
  local text = pickle.encode(value, { who = who, tensor = function(t) return tensor_mark(t, regions[t], storages) end })
  return text, storages
end

local function write_region(zip, region)
  local at = region.first
  while at < region.last do
    local n = math.min(region.last - at, PIECE)
    local done, message, code = zip:storage(region.tensor, at, n)
    if not done then return nil, message, code end
    at = at + n
  end
  return true
end

local function write(file, text, storages)
  local zip = zip_write(file)
  local done, message, code = zip:entry(TOP .. "data.pkl", text)
  local function add(name, bytes)
    if done then done, message, code = zip:entry(TOP .. name, bytes) end
  end
  add(".format_version", "1")
  add(".storage_alignment", "64")
  add("byteorder", string.pack("=I2", 1) == "\1\0" and "little" or "big")
  for _, region in ipairs(storages) do
    if done then done, message, code = zip:begin(TOP .. "data/" .. region.key) end
    if done then done, message, code = write_region(zip, region) end
  end
  add("version", "3\n")
  if done then done, message, code = zip:finish() end
  if not done then return nil, message, code end
  return zip.at
end

--- Appends a tree to an open file of accel.util.writer, as a stream of torch.save. Returns its length in bytes. On failure returns nil,
--- message, code.
---@param file accel.util.writer.File
---@param value any
---@param who? string begins messages
---@return integer?, string?, string?
function M.write(file, value, who)
  return write(file, encode(value, who or "save"))
end

--- Whether a value is a table of tensors by name.
local function is_flat(value)
  if type(value) ~= "table" then return false end
  for key, t in next, value do
    if type(key) ~= "string" or not accel.is_tensor(t) then return false end
  end
  return true
end

--- Writes a tree of plain data and tensors as a file of torch.save. With a set of accel.util.writer, path is a name in it. On failure
--- returns nil, message, code. Raises for values that such a file cannot hold.
--- example: local path = os.tmpname() require "accel.util.torch_file".save(path, { epoch = 3, w = accel.ones(2) })
---   local back = accel.load(path) os.remove(path) return back.epoch --> 3
---@param path string
---@param value any
---@param set? accel.util.writer.Set
---@param who? string begins messages
---@return boolean?, string?, string?
function M.save(path, value, set, who)
  if unwritten.dry_run() then
    if is_flat(value) then return accel.save(path, value, { format = "safetensors" }, set) end -- the script may load it
    if unwritten.leaves_state(path) then return true end
  end
  local text, storages = encode(value, who or "save")
  local create = set and set.create or writer.create
  local file <close>, why, kind = create(set or path, set and path)
  if not file then return nil, why, kind end
  local bytes, message, code = write(file, text, storages)
  if not bytes then return nil, message, code end
  return file:commit()
end

return M
