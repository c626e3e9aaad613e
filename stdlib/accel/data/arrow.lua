--- data.Arrow(paths, options): rows of Arrow files (IPC files and streams, Feather 2) as samples. Files without compression are mapped,
--- so rows are read in place, in any order. Arrow.load_from_disk reads what `save_to_disk` of Hugging Face's datasets wrote.
---
--- If another program cuts a mapped file while a row is read, the process ends. Do not overwrite files that are in use.
local check = require "accel.util.check"
local lfs = require "lfs"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"
local TableDataset = require "accel.data.table_dataset"

--- example: return (pcall(accel.data.Arrow, "no such file")) --> false
---@class accel.data.Arrow : accel.data.TableDataset
local Arrow = TableDataset:extend("accel.data.Arrow")

---@param paths string|string[] with braces and patterns: "data-*.arrow"
---@param opts? table
---  columns string[]: read only these (default: all)
---  nulls boolean = false: null is accel.json.null in samples, instead of a missing value
---  limit integer = 0: bytes that a compressed batch may take in memory, and a compressed file. 0: 128 MiB and 64 times the size of the file
function Arrow:init(paths, opts)
  self.given = opts
  self:_open("Arrow", paths, options("Arrow", opts, TableDataset.SHARD_OPTIONS), 1 << 20)
end

function Arrow:worker_spec() return { module = "accel.data.arrow", args = { self.paths, self.given, n = 2 } } end

--- A stream of the same samples: data.ShardStream.
---@param paths string|string[]
---@param opts? table
---@return accel.data.ShardStream
function Arrow.stream(paths, opts, ...)
  check.surplus("Arrow.stream", ...)
  return TableDataset._streamed("arrow", paths, opts)
end

local function state_of(folder, name)
  local state, message = read_json(folder .. "/" .. name)
  if not state then raise("load_from_disk: %s", message) end
  return state
end

local function load_one(folder, opts)
  if not lfs.attributes(folder .. "/state.json", "mode") then
    raise("load_from_disk: %s has no state.json or dataset_dict.json; give a folder that save_to_disk wrote", folder)
  end
  local state = state_of(folder, "state.json")
  local paths = {}
  if type(state._data_files) ~= "table" then raise("load_from_disk: %s/state.json: _data_files is missing", folder) end
  for i, entry in ipairs(state._data_files) do
    local name = type(entry) == "table" and entry.filename
    if type(name) ~= "string" or name:find "/" or name == ".." or name:find "%z" then
      raise("load_from_disk: %s/state.json: entry %d of _data_files names no file of this folder", folder, i)
    end
    paths[i] = folder .. "/" .. name
    if not lfs.attributes(paths[i], "mode") then
      raise("load_from_disk: %s is missing, which state.json names; copy the whole folder", paths[i])
    end
  end
  if type(state._indices_data_files) == "table" and #state._indices_data_files > 0 then
    raise("load_from_disk: %s has an indices mapping; save it after flatten_indices()", folder)
  end
  return Arrow(paths, opts)
end

--- The data set of a folder that `save_to_disk` wrote: a data.Arrow, or a table of them by split.
---@param folder string
---@param opts? table options of data.Arrow
---@return accel.data.Arrow|table<string, accel.data.Arrow>
function Arrow.load_from_disk(folder, opts, ...)
  check.surplus("load_from_disk", ...)
  if not lfs.attributes(folder .. "/dataset_dict.json", "mode") then return load_one(folder, opts) end
  local splits = state_of(folder, "dataset_dict.json").splits
  if type(splits) ~= "table" then raise("load_from_disk: %s/dataset_dict.json: splits is missing", folder) end
  local out = {}
  for _, name in ipairs(splits) do
    if type(name) ~= "string" or name:find "/" or name == ".." then
      raise("load_from_disk: %s/dataset_dict.json names the split %s, no folder in it", folder, check.shown(name))
    end
    out[name] = load_one(folder .. "/" .. name, opts)
  end
  return out
end

return Arrow
