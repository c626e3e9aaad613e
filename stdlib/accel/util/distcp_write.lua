--- Writes a folder in torch.distributed.checkpoint's own format, which torch.distributed.checkpoint.load and accel.load read:
--- __0_0.distcp with every value as a stream of torch.save, and .metadata with their places. Called by accel.save with format = "dcp" and
--- by accel-run ckpt convert. accel.util.distcp reads such folders.
---
--- As in torch, a tree is flattened: names are paths joined by dots, and a list without tensors is one value.
local accel = require "accel.core"
local ordered = require "accel.util.ordered"
local pickle = require "accel.util.pickle"
local raise = require "accel.util.raise"
local torch_file = require "accel.util.torch_file"
local unwritten = require "accel.util.unwritten"
local writer = require "accel.util.writer"
local core = require "accel.file.core"

local FILE <const>, METADATA <const> = "__0_0.distcp", ".metadata"
local CLASSES <const> = "torch.distributed.checkpoint.metadata"

local function has_tensors(value)
  if accel.is_tensor(value) then return true end
  if type(value) ~= "table" or pickle.is_mark(value) then return false end
  for _, item in pickle.iterate(value) do
    if has_tensors(item) then return true end
  end
  return false
end

--- Values by flat name, and the path of each.
local function flatten(who, tree)
  local values, paths, open = ordered(), ordered(), {}
  local function visit(path, value)
    local is_table = type(value) == "table" and not pickle.is_mark(value) and next(value) ~= nil
    if is_table and (not pickle.is_list(value) or has_tensors(value)) then
      if open[value] then raise("%s: %s: it contains itself, and a file cannot hold that", who, table.concat(path, ".")) end
      open[value] = true
      local is_list = pickle.is_list(value)
      for key, item in pickle.iterate(value) do
        path[#path + 1] = is_list and key - 1 or tostring(key)
        visit(path, item)
        path[#path] = nil
      end
      open[value] = nil
      return
    end
    local name = table.concat(path, ".")
    if values[name] ~= nil then raise("%s: two values have the flat name '%s'; rename one", who, name) end
    values[name], paths[name] = value, pickle.tuple(table.move(path, 1, #path, 1, {}))
  end
  visit({}, tree)
  return values, paths
end

local function object(name, fields) return pickle.object(CLASSES, name, fields) end

local function metadata_of_tensor(t)
  local zeros = {}
  for d = 1, t.ndim do zeros[d] = 0 end
  local shape = table.move(t.shape, 1, t.ndim, 1, {})
  local _, dtype = core.torch_dtype(t.dtype)
  return object("TensorStorageMetadata", {
    properties = object("TensorProperties", pickle.tuple {
      pickle.global("torch", dtype), pickle.call("torch.serialization", "_get_layout", { "torch.strided" }), false,
      pickle.call(CLASSES, "_MEM_FORMAT_ENCODING", { 0 }), false,
    }),
    size = pickle.size(shape),
    chunks = { object("ChunkStorageMetadata", { offsets = pickle.size(zeros), sizes = pickle.size(shape) }) },
  }), pickle.size(zeros)
end

--- Writes the folder. The tensors of a tree whose values are read later are on the meta device: read(name) returns one, or nil, message,
--- code.
---@param dir string
---@param tree table
---@param opts? {read: (fun(name: string): accel.Tensor?, string?, string?)?, who: string?}
---@return boolean?, string?, string?
return function(dir, tree, opts)
  local who, read = opts and opts.who or "save", opts and opts.read
  local values, paths = flatten(who, tree)
  if unwritten.leaves_state(dir) then return true end
  local set <close>, message, code = writer.set(dir)
  if not set then return nil, message, code end
  local file <close>, why, kind = set:create(FILE)
  if not file then return nil, why, kind end
  local described, places, at, bytes, done = ordered(), {}, 0, nil, nil
  for name, value in pairs(values) do
    local index = { fqn = name, index = accel.json.null }
    if accel.is_tensor(value) then
      described[name], index.offset = metadata_of_tensor(value)
      index.index = 0
      if read then value, message, code = read(name) end
      if value == nil then return nil, message, code end
      value = value:detach():contiguous()
    else
      described[name] = object("BytesStorageMetadata", {})
    end
    bytes, message, code = torch_file.write(file, value, ("%s: %s"):format(who, name))
    if not bytes then return nil, message, code end
    places[#places + 1] = { object("MetadataIndex", index), pickle.object("torch.distributed.checkpoint.filesystem", "_StorageInfo", {
      relative_path = FILE, offset = at, length = bytes,
    }) }
    at = at + bytes
  end
  done, message, code = file:commit()
  if not done then return nil, message, code end
  done, message, code = set:write(METADATA, pickle.encode(object("Metadata", {
    state_dict_metadata = described, planner_data = paths, storage_data = pickle.entries(places), version = "1.0.0",
  }), { who = who }))
  if not done then return nil, message, code end
  return set:commit()
end
