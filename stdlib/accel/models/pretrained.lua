--- Folders as Hugging Face's save_pretrained writes them: config.json beside model.safetensors, or several
--- files with an index. Used by from_pretrained and save_pretrained of the models.
local accel = require "accel"
local ordered = require "accel.util.ordered"

local M = {}

local function read(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message, "not_found" end
  local text = file:read "a"
  file:close()
  return text
end

local function read_json(path)
  local text, message, code = read(path)
  if not text then return nil, message, code end
  local ok, value = pcall(accel.json.decode, text)
  if not ok then return nil, ("%s: %s"):format(path, tostring(value)), "format" end
  if type(value) ~= "table" then return nil, path .. ": not a JSON object", "format" end
  return value
end

--- Returns the folder's configuration and tensors by name; nil, message, code when a file is missing or
--- malformed.
---@param dir string
function M.load(dir)
  local config, message, code = read_json(dir .. "/config.json")
  if not config then return nil, message, code end
  local files = { "model.safetensors" }
  local index = read(dir .. "/model.safetensors.index.json")
  if index then
    index, message, code = read_json(dir .. "/model.safetensors.index.json")
    if not index then return nil, message, code end
    local seen = {}
    files = {}
    for _, file in ordered.iterate(index.weight_map or {}) do
      if type(file) ~= "string" or file:find("/", 1, true) then
        return nil, ("%s/model.safetensors.index.json: '%s' is not a file name"):format(dir,
          tostring(file)), "format"
      end
      if not seen[file] then
        seen[file] = true
        files[#files + 1] = file
      end
    end
  end
  local all = {}
  for _, file in ipairs(files) do
    local part
    part, message, code = accel.load(dir .. "/" .. file)
    if not part then return nil, message, code end
    for name, t in pairs(part) do all[name] = t end
  end
  return config, all
end

--- Writes config.json and model.safetensors into an existing folder.
---@param dir string
---@param config table plain data
---@param state table<string, accel.Tensor>
function M.save(dir, config, state)
  local ok, message, code = accel.save(dir .. "/model.safetensors", state, { format = "pt" })
  if not ok then return nil, message, code end
  local file
  file, message = io.open(dir .. "/config.json", "wb")
  if not file then return nil, message, "io" end
  file:write(accel.json.encode(config), "\n")
  file:close()
  return true
end

--- The given configuration completed with defaults. Keys that a model does not know are kept: config.json
--- has many.
function M.config(given, defaults)
  local config = {}
  for key, value in next, defaults do config[key] = value end
  for key, value in next, given or {} do
    if value ~= accel.json.null then config[key] = value end
  end
  return config
end

return M
