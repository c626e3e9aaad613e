--- Folders as Hugging Face's save_pretrained writes them: config.json beside model.safetensors, or several
--- files with an index. What they hold is checked before it is used; a folder that cannot be read or written
--- gives nil, message, code.
local accel = require "accel"
local model_folder = require "accel.util.model_folder"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

local M = {}

local MOST_JSON = 64 * 1024 * 1024
local CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"

--- PyTorch's names of dtypes, as config.json has them.
M.dtype_names = { f64 = "float64", f32 = "float32", f16 = "float16", bf16 = "bfloat16" }

local function read(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message, "not_found" end
  local text, why = file:read(MOST_JSON + 1)
  file:close()
  if not text then return nil, ("%s: %s"):format(path, why or "is empty"), "format" end
  if #text > MOST_JSON then return nil, path .. ": more than 64 MiB of JSON", "format" end
  return text
end

local function read_json(path)
  local text, message, code = read(path)
  if not text then return nil, message, code end
  local ok, value = pcall(accel.json.decode, text)
  if not ok then -- without the script's line, which is not to blame
    return nil, ("%s: %s"):format(path, tostring(value):match "JSON: .*" or tostring(value)), "format"
  end
  if not text:find "^%s*{" then return nil, path .. ": not a JSON object", "format" end
  return value
end

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

--- The configuration as it is written; nil, message, code.
---@param dir string
---@return table?, string?, string?
function M.read_config(dir)
  local config, message, code = read_json(dir .. "/" .. CONFIG)
  if config then return config end
  return nil, code == "not_found" and model_folder.missing(dir, message) or message, code
end

--- File names of an index, each once and in the order of the names; nil, message, code.
local function shards(dir)
  local path = dir .. "/" .. INDEX
  local index, message, code = read_json(path)
  if not index then return nil, message, code end
  local map = index.weight_map
  if type(map) ~= "table" or next(map) == nil then return nil, path .. ": has no weight_map", "format" end
  local files, seen = {}, {}
  for name, file in ordered.iterate(map) do
    if type(name) ~= "string" or type(file) ~= "string" or file:find "[/\\%c]" or file:find "^%."
      or not file:find "%.safetensors$" then
      return nil, ("%s: '%s' is not the name of a safetensors file"):format(path, tostring(file)), "format"
    end
    if not seen[file] then
      seen[file] = true
      files[#files + 1] = file
    end
  end
  return files, map
end

--- The paths of a folder's weights, and with an index the file name of each tensor; nil, message, code.
---@param dir string
---@return string[]?, table<string, string>|string|nil, string?
function M.files(dir)
  if exists(dir .. "/" .. SINGLE) then return { SINGLE } end
  if exists(dir .. "/" .. INDEX) then return shards(dir) end
  local other = exists(dir .. "/pytorch_model.bin") and " (pytorch_model.bin is not read: it needs converting)" or ""
  return nil, ("%s: neither %s nor %s is there%s"):format(dir, SINGLE, INDEX, other), "not_found"
end

local units = { B = 1, KB = 1e3, MB = 1e6, GB = 1e9, TB = 1e12, KIB = 2 ^ 10, MIB = 2 ^ 20, GIB = 2 ^ 30, TIB = 2 ^ 40 }

--- "5GB", "20KiB" or a number of bytes, as bytes.
---@param size integer|string
---@return integer
function M.parse_size(size)
  local n = type(size) == "number" and size or nil
  if type(size) == "string" then
    local digits, unit = size:match "^%s*(%d+%.?%d*)%s*(%a*)%s*$"
    local factor = digits and units[unit == "" and "B" or unit:upper()]
    n = factor and tonumber(digits) * factor
  end
  if not n or n ~= n or n < 1 or n > 2 ^ 62 then
    raise("max_shard_size must be bytes or a size such as \"5GB\", got %s", tostring(size))
  end
  return math.floor(n)
end

local widths = { f64 = 8, i64 = 8, f32 = 4, i32 = 4, u32 = 4, f16 = 2, bf16 = 2, i16 = 2, u16 = 2 }

local function bytes_of(t) return t:numel() * (widths[t.dtype] or 1) end

--- Tensors by file: each file as full as max_bytes allows, in order; a tensor above that has its own.
local function partition(state, max_bytes)
  local parts, filled = { ordered() }, 0
  for name, t in pairs(state) do
    local n = bytes_of(t)
    if filled > 0 and filled + n > max_bytes then
      parts[#parts + 1], filled = ordered(), 0
    end
    parts[#parts][name], filled = t, filled + n
  end
  return parts
end

--- Removes what an earlier save left: files that an index names and this save did not write.
local function sweep(dir, written)
  local files = exists(dir .. "/" .. INDEX) and shards(dir) or {}
  files[#files + 1] = SINGLE
  files[#files + 1] = INDEX
  for _, file in ipairs(files) do
    if not written[file] and (file == SINGLE or file == INDEX or file:find "^model%-%d+%-of%-%d+%.safetensors$") then
      os.remove(dir .. "/" .. file)
    end
  end
end

--- Writes config.json and the weights into a folder, which is made. Each file is there whole or not at all;
--- the configuration comes last.
---@param dir string
---@param config table plain data
---@param state table<string, accel.Tensor> ordered
---@param max_shard_size? integer|string default: one file
function M.save(dir, config, state, max_shard_size)
  if type(dir) ~= "string" then raise("save_pretrained: dir must be a string, got %s", type(dir)) end
  local parts = partition(state, max_shard_size and M.parse_size(max_shard_size) or math.maxinteger)
  local text = accel.json.encode(config, { pretty = true }) .. "\n"
  local ok, message, code = accel.makedirs(dir)
  if not ok then return nil, message, code end
  local written, map, total, parameters = {}, {}, 0, 0
  for i, part in ipairs(parts) do
    local file = #parts == 1 and SINGLE or ("model-%05d-of-%05d.safetensors"):format(i, #parts)
    written[file] = true
    for name, t in pairs(part) do
      map[name], total, parameters = file, total + bytes_of(t), parameters + t:numel()
    end
    ok, message, code = accel.save(dir .. "/" .. file, part, { format = "pt" })
    if not ok then return nil, message, code end
  end
  sweep(dir, written)
  if #parts > 1 then
    local index = { metadata = { total_size = total, total_parameters = parameters }, weight_map = map }
    ok, message, code = accel.write_file(dir .. "/" .. INDEX, accel.json.encode(index, { pretty = true }) .. "\n")
    if not ok then return nil, message, code end
  end
  return accel.write_file(dir .. "/" .. CONFIG, text)
end

return M
