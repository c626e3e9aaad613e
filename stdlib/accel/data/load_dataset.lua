--- data.load_dataset(folder, options): the splits of a data set's folder, as the Hugging Face hub lays it out: Parquet, Arrow, JSON Lines
--- or CSV files, with splits named by the `configs` of README.md, by folders (train/, test/) or by file names (train-00000.parquet,
--- validation.jsonl). Nothing is downloaded.
local accel = require "accel"
local check = require "accel.util.check"
local folders = require "accel.util.folders"
local lfs = require "lfs"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local read_file = require "accel.util.read_file"

local WHO <const> = "load_dataset"
local CLASSES <const> = { parquet = "Parquet", arrow = "Arrow", jsonl = "JSONL", json = "JSONL", csv = "CSV" }
local WORDS <const> = { -- of names -> split
  train = "train", training = "train", test = "test", testing = "test", eval = "test", evaluation = "test", validation = "validation",
  valid = "validation", dev = "validation", val = "validation",
}

-- Files that describe a data set.
local ABOUT <const> = { ["dataset_info.json"] = true, ["dataset_infos.json"] = true, ["dataset_dict.json"] = true, ["state.json"] = true,
  ["metadata.jsonl"] = true, ["metadata.csv"] = true, ["metadata.parquet"] = true }

local function extension_of(name)
  local plain = name:gsub("%.gz$", ""):gsub("%.zst$", ""):gsub("%.xz$", ""):gsub("%.bz2$", ""):gsub("%.lz4$", "")
  return plain:match "%.(%w+)$"
end

--- All data files below a folder, relative to it, sorted.
local function files_of(folder, below, list)
  for _, name in ipairs(folders.names(folder .. (below == "" and "" or "/" .. below))) do
    local path = below == "" and name or below .. "/" .. name
    local mode = lfs.attributes(folder .. "/" .. path, "mode")
    if mode == "directory" and name:sub(1, 1) ~= "." then files_of(folder, path, list)
    elseif mode == "file" and CLASSES[extension_of(name)] and not ABOUT[name] then list[#list + 1] = path end
  end
  return list
end

local function split_of(path)
  for part in path:gmatch "[^/]+" do
    for word in part:lower():gmatch "%a+" do
      if WORDS[word] then return WORDS[word] end
    end
  end
end

local function matches(path, pattern)
  local form = "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*%*", "\1"):gsub("%*", "[^/]*"):gsub("\1", ".*") .. "$"
  return path:find(form) ~= nil
end

--- A node of YAML as plain data, with text for all scalars.
local function plain(node)
  if node.kind == "map" then
    local out = {}
    for _, pair in ipairs(node) do out[pair.key] = plain(pair.value) end
    return out
  elseif node.kind == "list" then
    local out = {}
    for i, item in ipairs(node) do out[i] = plain(item) end
    return out
  end
  return node.text
end

--- The configuration of README.md by its name, the first one without. nil if the file names none.
local function config_of(folder, name)
  local text = lfs.attributes(folder .. "/README.md", "mode") and read_file(folder .. "/README.md", 1 << 24)
  local head = text and text:match "^%-%-%-\r?\n(.-)\n%-%-%-"
  local parsed, message
  if head then parsed, message = accel.yaml.decode(head) end
  if head and not parsed then raise("%s: %s/README.md: %s", WHO, folder, tostring(message)) end
  local top = parsed and plain(parsed)
  local configs = type(top) == "table" and type(top.configs) == "table" and top.configs or nil
  local names = {}
  for i, c in ipairs(configs or {}) do
    if c.config_name == (name or "default") or not name and #configs == 1 then return c end
    names[i] = tostring(c.config_name)
  end
  if configs or name then
    raise("%s: %s has no configuration '%s'%s", WHO, folder, name or "default", #names > 0 and "; it has " .. table.concat(names, ", ") or "")
  end
end

local function each_entry(data_files)
  if type(data_files) == "string" then return { { split = "train", path = data_files } } end
  local list = {}
  for _, entry in ipairs(data_files or {}) do
    list[#list + 1] = type(entry) == "table" and entry or { split = "train", path = entry }
  end
  return list
end

--- Paths by split, and the splits in order.
local function splits_of(folder, files, config)
  local by, order = {}, {}
  local function add(split, path)
    if not by[split] then
      by[split], order[#order + 1] = {}, split
    end
    table.insert(by[split], folder .. "/" .. path)
  end
  if not config then
    local named = false
    for _, path in ipairs(files) do named = named or split_of(path) ~= nil end
    for _, path in ipairs(files) do -- those without a split beside others that have one belong to none
      if split_of(path) or not named then add(split_of(path) or "train", path) end
    end
    return by, order
  end
  for _, entry in ipairs(each_entry(config.data_files)) do
    for _, pattern in ipairs(type(entry.path) == "table" and entry.path or { entry.path }) do
      local before = by[entry.split] and #by[entry.split] or 0
      for _, path in ipairs(files) do
        if matches(path, tostring(pattern)) then add(entry.split, path) end
      end
      if not by[entry.split] or #by[entry.split] == before then raise("%s: no file of %s matches '%s'", WHO, folder, tostring(pattern)) end
    end
  end
  return by, order
end

-- A .json file may hold one list in the place of a value a line.
local function holds_list(path)
  local file <close> = require "accel.file.core".open_stream(path)
  local first = file and file:read(64)
  return first ~= nil and first:find "^[\xEF\xBB\xBF%s]*%[" ~= nil
end

local function open(paths, limit)
  local opts = { limit = limit }
  local kind = extension_of(paths[1])
  for _, path in ipairs(paths) do
    if CLASSES[extension_of(path)] ~= CLASSES[kind] then raise("%s: %s and %s are of two formats", WHO, paths[1], path) end
  end
  local class = accel.data[CLASSES[kind]]
  if kind == "json" and holds_list(paths[1]) then class = accel.data.JSON
  elseif CLASSES[kind] ~= "CSV" then return class(paths, opts) end
  local sets = {}
  for i, path in ipairs(paths) do sets[i] = class(path, opts) end
  return #sets == 1 and sets[1] or accel.data.ConcatDataset(sets)
end

local M = {}

--- The data sets of a folder by split.
--- example: return (pcall(accel.data.load_dataset, "no such folder")) --> false
---@param folder string
---@param opts? table
---  name string: the configuration
---  split string: only this split, without a table around it
---  limit integer = 0: bytes of content in memory, as the data set of the format has it (data.Parquet, data.JSONL, ...)
---@return table<string, accel.data.Dataset>|accel.data.Dataset
function M.load_dataset(folder, opts, ...)
  check.surplus(WHO, ...)
  local o = options(WHO, opts, { name = options.none, split = options.none, limit = 0 })
  if lfs.attributes(folder, "mode") ~= "directory" then raise("%s: %s is not a folder", WHO, check.shown(folder)) end
  local files = files_of(folder, "", {})
  local by, order = splits_of(folder, files, config_of(folder, o.name))
  if #order == 0 then raise("%s: %s has no Parquet, Arrow, JSON Lines or CSV files", WHO, folder) end
  if o.split then
    if not by[o.split] then raise("%s: %s has no split '%s'; it has %s", WHO, folder, o.split, table.concat(order, ", ")) end
    return open(by[o.split], o.limit)
  end
  local out = {}
  for _, split in ipairs(order) do out[split] = open(by[split], o.limit) end
  return out
end

return M
