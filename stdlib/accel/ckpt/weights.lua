--- Tensors by name from whatever holds a model's weights: a safetensors file, a .pt or .bin file of PyTorch, an index of
--- several, or a folder with one of these. Headers are read first and checked against each other, bytes when they are
--- asked for. Used by load_checkpoint_in_model and accel-run merge-weights.
local accel = require "accel"
local class = require "accel.util.class"
local model_files = require "accel.ckpt.model_files"
local ordered = require "accel.util.ordered"
local read_json = require "accel.util.read_json"
local writer = require "accel.util.writer"
local lfs = require "lfs"

local TORCH <const> = "pytorch_model.bin"

---@class accel.ckpt.Weights
---@field path string the opened path
---@field entries table<string, {file: string, shape: integer[], dtype: string}> in the order of files and their content
local Weights = class("accel.ckpt.Weights")

local M = { Weights = Weights }

-- Anything other than a folder is read as a file, and the reader reports its faults.
local function is_file(path)
  local mode = lfs.attributes(path, "mode")
  return mode ~= nil and mode ~= "directory"
end

--- The files that an index names, each once and in the order of the names, and the file of each tensor. On failure returns
--- nil, message, code.
---@param path string
---@return string[]?, table<string, string>|string, string?
function M.read_index(path)
  local value, message, code = read_json(path)
  if not value then return nil, message, code end
  local map, _, first = value.weight_map, next(value)
  if map == nil and type(first) == "string" then map = value end -- Accelerate also reads a plain map of files
  if type(map) ~= "table" or next(map) == nil then return nil, path .. ": has no weight_map", "format" end
  local files, seen = {}, {}
  for name, part in ordered.iterate(map) do
    if type(name) ~= "string" or type(part) ~= "string" or part:find "[/\\%c]" or part:find "^%."
      or not (part:find "%.safetensors$" or part:find "%.bin$") then
      return nil, ("%s: '%s' is not the name of a weights file in its folder"):format(path, tostring(part)), "format"
    end
    if not seen[part] then files[#files + 1], seen[part] = part, true end
  end
  return files, map
end

--- The index of a folder: the only *.index.json. nil without one. nil, message, code with several.
local function find_index(dir)
  local found = {}
  for _, name in ipairs(accel.listdir(dir) or {}) do
    if name:find "%.index%.json$" then found[#found + 1] = name end
  end
  if #found < 2 then return found[1] end
  return nil, ("%s: holds several indexes (%s); name one"):format(dir, table.concat(found, ", ")), "format"
end

--- The parts of a path: folder, file names in it, and with an index the file of each tensor.
local function resolve(path)
  local dir, name = path:match "^(.*)/([^/]*)$"
  if not dir then dir, name = ".", path end
  if dir == "" then dir = "/" end
  local listed, message, code = accel.listdir(path)
  local whole, fault, kind = writer.recover(listed and path or dir)
  if not whole then return nil, fault, kind end
  if listed then
    dir, name = path, nil
    for _, single in ipairs { TORCH, model_files.SINGLE } do
      if is_file(dir .. "/" .. single) then name = single break end
    end
    if not name then
      name, message, code = find_index(dir)
      if message then return nil, message, code end
    end
    if not name then
      return nil, ("%s: neither %s nor %s nor an index (*.index.json) is there"):format(dir, model_files.SINGLE, TORCH),
        "not_found"
    end
  elseif code == "not_found" then
    return nil, ("%s: no such file or folder"):format(path), code
  end
  if not name:find "%.json$" then return dir, { name } end
  local files, map, why = M.read_index(dir .. "/" .. name)
  if not files then return nil, map, why end
  return dir, files, map
end

--- The reader of a file: keys, info, get, read, verify, close. A file of PyTorch may hold the table itself or below
--- "state_dict". nil, message, code.
---@param path string
---@return table?, string?, string?
function M.open_reader(path)
  if path:find "%.safetensors$" then return accel.open_safetensors(path) end
  return require("accel.file.core").open_pt(path)
end

--- Opens a path. Returns nil, message, code if there is none or the files contradict each other. Of a folder the first of
--- pytorch_model.bin, model.safetensors and the only *.index.json is taken, as in the reference.
---@param path string
---@return accel.ckpt.Weights?, string?, string?
function M.open(path)
  local dir, files, map = resolve(path)
  if not dir then return nil, files, map end
  local self = Weights()
  self.path, self.dir, self.entries, self._readers = path, dir, ordered(), {}
  for _, file in ipairs(files) do
    local reader, message, code = M.open_reader(dir .. "/" .. file)
    if not reader then
      self:close()
      return nil, message, code
    end
    self._readers[file] = reader
    for _, name in ipairs(reader:keys()) do
      local before = rawget(self.entries, name)
      if before then
        self:close()
        return nil, ("%s: '%s' is in %s and in %s"):format(dir, name, before.file, file), "format"
      end
      local info = reader:info(name)
      self.entries[name] = { file = file, shape = info.shape, dtype = info.dtype }
    end
  end
  for name, file in ordered.iterate(map or {}) do
    local entry = rawget(self.entries, name)
    if not entry or entry.file ~= file then
      self:close()
      return nil, ("%s: the index places '%s' in %s, which lacks it"):format(dir, name, file), "format"
    end
  end
  return self
end

--- Compares every checksum in the files. On failure returns nil, message, code.
---@return true?, string?, string?
function Weights:verify()
  for _, reader in next, self._readers do
    local ok, message, code = reader:verify()
    if not ok then return nil, message, code end
  end
  return true
end

--- Reads a tensor into t, which has its shape. It reads straight into t's memory if dtype and device allow it. Returns
--- true. On failure returns nil, message, code.
---@param name string
---@param t accel.Tensor
---@return true?, string?, string?
function Weights:read(name, t)
  local entry = self.entries[name]
  local reader = self._readers[entry.file]
  local _ <close> = accel.no_grad()
  if t.device == "cpu" and t.dtype == entry.dtype and t:is_contiguous() then return reader:read(name, t:detach()) end
  local value, message, code = self:get(name)
  if not value then return nil, message, code end
  t:detach():copy_(value)
  return true
end

--- A new tensor on the host. On failure returns nil, message, code.
---@param name string
---@return accel.Tensor?, string?, string?
function Weights:get(name)
  local reader = self._readers[self.entries[name].file]
  return accel.device("cpu", reader.get, reader, name)
end

function Weights:close()
  for _, reader in next, self._readers do reader:close() end
  self._readers = {}
end

Weights.__close = Weights.close

return M
