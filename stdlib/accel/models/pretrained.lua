--- Folders as Hugging Face's save_pretrained writes them: config.json with model.safetensors, or several files with an
--- index. Older ones have pytorch_model.bin, which is read if there is no safetensors file. Content is checked before
--- use. A folder that cannot be read or written gives nil, message, code.
local accel = require "accel"
local check = require "accel.util.check"
local model_files = require "accel.ckpt.model_files"
local model_folder = require "accel.util.model_folder"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"
local weights = require "accel.ckpt.weights"
local lfs = require "lfs"

local M = {}

local CONFIG, SINGLE, INDEX = "config.json", model_files.SINGLE, model_files.INDEX
local BIN, BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"

--- PyTorch's names of dtypes, as config.json has them.
M.dtype_names = { f64 = "float64", f32 = "float32", f16 = "float16", bf16 = "bfloat16" }

local function exists(path) return lfs.attributes(path, "mode") ~= nil end

--- The configuration in its written form, with accel.json.null for null, which can differ from an absent key. On failure returns nil,
--- message, code.
---@param dir string
---@return table?, string?, string?
function M.read_config(dir)
  local config, message, code = read_json(dir .. "/" .. CONFIG, { nulls = true, ordered = true })
  if config then
    for _, key in ipairs { "architectures", "model_type", "quantization_config" } do -- which mean the same there
      if config[key] == accel.json.null then config[key] = nil end
    end
    return config
  end
  return nil, model_folder.missing(dir, message), code
end

--- The paths of a folder's weights, and with an index the file name of each tensor. On failure returns nil, message,
--- code.
---@param dir string
---@return string[]?, table<string, string>|string|nil, string?
function M.files(dir)
  if exists(dir .. "/" .. SINGLE) then return { SINGLE } end
  if exists(dir .. "/" .. INDEX) then return weights.read_index(dir .. "/" .. INDEX) end
  if exists(dir .. "/" .. BIN) then return { BIN } end
  if exists(dir .. "/" .. BIN_INDEX) then return weights.read_index(dir .. "/" .. BIN_INDEX) end
  return nil, ("%s: neither %s nor %s is there, nor %s"):format(dir, SINGLE, INDEX, BIN), "not_found"
end

--- Writes config.json, other files of text and the weights into a folder, which is made. All switch together.
---@param dir string
---@param config table plain data
---@param state table<string, accel.Tensor> ordered
---@param max_shard_size? integer|string default: one file
---@param beside? table<string, string> texts of further files by name
---@param safe_serialization? boolean false: PyTorch's files, pytorch_model.bin
function M.save(dir, config, state, max_shard_size, beside, safe_serialization, ...)
  check.surplus("pretrained.save", ...)
  if type(dir) ~= "string" then raise("save_pretrained: dir must be a string, got %s", type(dir)) end
  local texts, parameters = { [CONFIG] = accel.json.encode(config, { pretty = true }) .. "\n" }, 0
  for name, text in next, beside or {} do texts[name] = text end
  for _, t in pairs(state) do parameters = parameters + t:numel() end
  local files, message, code = model_files.save(dir, state, {
    max_shard_size = max_shard_size, index_metadata = { total_parameters = parameters }, beside = texts,
    safe_serialization = safe_serialization,
  })
  if not files then return nil, message, code end
  return true
end

return M
