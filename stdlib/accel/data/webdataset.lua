--- data.WebDataset(paths, options): samples of tar archives by WebDataset's conventions, as a stream. Files next to each other whose names
--- agree up to the first dot of the last part are one sample: { __key__ = "dir/0001", jpg = bytes, cls = "3" }. The rest of the name,
--- in lower case, is the field. Folders, links and names without a dot are left out. Archives may be compressed.
---
--- Values are the bytes of the files. decode = true makes text of .txt .text, numbers of .cls .index .id, values of .json.
local accel = require "accel"
local class = require "accel.util.class"
local core = require "accel.file.core"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local ShardStream = require "accel.data.shard_stream"

--- example: local set = accel.data.WebDataset("no such file") return (pcall(set.iterate(set, 0, 0))) --> false
---@class accel.data.WebDataset : accel.data.ShardStream
local WebDataset = ShardStream:extend("accel.data.WebDataset")

WebDataset.SHARD_OPTIONS = { decode = false, fields = options.none, limit = 0 }

--- Key and extension of a name, or nil if it has none: the key ends at the first dot after the last slash.
local function split(name)
  local folder, last = name:match "^(.*/)([^/]*)$"
  folder, last = folder or "", last or name
  local stem, extension = last:match "^([^.]*)%.(.*)$"
  if not stem then return nil end
  if stem == "" then -- a key of folders only, if its last part has no dot
    local run = folder:match "[^.]*$"
    if run == "" or run ~= folder and not run:sub(1, -2):find "/" then return nil end
  end
  return folder .. stem, extension:lower()
end

local as_integer = function(bytes) return math.tointeger(tonumber(bytes)) end
local as_json = function(bytes) return accel.json.decode(bytes, { records = true }) end
local as_text = function(bytes) return bytes end
local decoders = {
  txt = as_text, text = as_text, cls = as_integer, index = as_integer, id = as_integer, json = as_json,
}

local Shard = class("accel.data.WebDataset.Shard")

function Shard:init(path, o)
  self.path, self.o = path, o
  local message
  self.tar, message = core.open_tar(path, { limit = o.limit })
  if not self.tar then raise("WebDataset: %s", message) end
  if o.fields then
    self.wanted, self.lacking, self.seen_fields = {}, {}, {}
    for _, name in ipairs(o.fields) do
      self.wanted[name:lower()] = true
      if name == "__key__" then self.key_is_enough = true else self.lacking[name:lower()] = true end
    end
  end
end

local function names(set)
  local list = {}
  for name in next, set do list[#list + 1] = name end
  table.sort(list)
  return table.concat(list, ", ", 1, math.min(#list, 12))
end

--- Warns at the end of an archive if no sample had one of the wanted fields: a rare field may be in other archives only.
local function check_fields(self)
  for field in next, self.any and self.lacking or {} do
    no_effect.once("WebDataset", ("the field '%s' of `fields`"):format(field), ("in %s: no sample has it; the fields there are %s"):format(
      self.path, names(self.seen_fields)))
  end
end

--- The next member that belongs to a sample: key, field, its name. Its content is unread.
local function advance(self)
  while true do
    local name, kind = self.tar:next()
    if not name then
      if kind then raise("WebDataset: %s", kind) end
      return nil
    end
    if kind == "file" and not name:find "^__[^/]*__$" then
      local key, field = split(name)
      if key then return key, field, name end
    end
  end
end

function Shard:next(skip)
  local key, field, name = self.key, self.field, self.name
  if key == false then
    check_fields(self)
    return nil
  end
  if not key then key, field, name = advance(self) end
  if not key then return nil end
  self.any = true
  local sample, seen, first = { __key__ = key }, {}, key
  while key == first do
    if seen[field] then raise("WebDataset: %s: sample %s has two fields '%s'", self.path, key, field) end
    seen[field] = true
    if self.lacking then self.lacking[field], self.seen_fields[field] = nil, true end
    if not skip and (not self.wanted or self.wanted[field]) then
      local bytes, message = self.tar:read()
      if not bytes then raise("WebDataset: %s", message) end
      local make = self.o.decode and decoders[field:match "[^.]*$"]
      if make then
        local ok, value = pcall(make, bytes)
        if not ok or value == nil then
          raise("WebDataset: %s: member %s cannot be decoded%s", self.path, name, ok and "" or ": " .. tostring(value))
        end
        bytes = value
      end
      sample[field] = bytes
    end
    key, field, name = advance(self)
  end
  self.key, self.field, self.name = key or false, field, name -- false: after the last one nothing is read again
  if self.wanted and not skip and not self.key_is_enough and next(sample, next(sample)) == nil then
    raise("WebDataset: %s: sample %s has none of the `fields`; its fields are %s", self.path, first, names(seen))
  end
  return sample
end

function Shard:close() self.tar:close() end

--- One file of a stream, for data.ShardStream.
---@param path string
---@param o table options of the stream
---@return table shard with next and close
function WebDataset._open_shard(path, o) return Shard(path, o) end

---@param paths string|string[] with braces and patterns: "train-{000..099}.tar"
---@param opts? table
---  decode boolean = false: text, numbers and JSON by extension
---  fields string[]: read only these (default: all). Raises for a sample that has none of them, and warns at the end of an archive
---    in which no sample has one of them
---  limit integer = 0: bytes that a file in the archive may have. 0: 128 MiB and 64 times the size of the archive
---  shuffle_shards boolean = false: the archives in another order in every epoch
---  native_shards boolean = false: each rank of a prepared loader reads only its own archives
function WebDataset:init(paths, opts) ShardStream.init(self, "webdataset", paths, opts) end

function WebDataset:worker_spec() return { module = "accel.data.webdataset", args = { self.paths, self.given, n = 2 } } end

return WebDataset
