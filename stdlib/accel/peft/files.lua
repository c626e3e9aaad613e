--- An adapter's folder as PEFT has it: adapter_config.json and adapter_model.safetensors. Used by model.lua, and by save_model of the
--- Accelerator with adapter_only.
local accel = require "accel"
local configs = require "accel.peft.config"
local read_json = require "accel.util.read_json"
local unwritten = require "accel.util.unwritten"
local writer = require "accel.util.writer"

local M = {}

local CONFIG <const>, WEIGHTS <const>, TORCH <const> = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"

--- Writes an adapter into a folder, which is made.
---@param folder string
---@param config table
---@param state table<string, accel.Tensor> of get_peft_model_state_dict
---@param safe_serialization? boolean false: PyTorch's adapter_model.bin
---@return true?, string?, string?
function M.write(folder, config, state, safe_serialization)
  if unwritten.skips(folder) then return true end
  local made
  local set <close>, message, code = writer.set(folder)
  if not set then return nil, message, code end
  local dict = config:to_dict()
  dict.inference_mode = true
  dict.peft_version = config.file_version or nil -- of types whose meaning changed with it
  local torch = safe_serialization == false
  made, message, code = accel.save(torch and TORCH or WEIGHTS, state, { format = torch and "torch" or "pt" }, set)
  if made == nil and message then return nil, message, code end
  if torch then set:remove(WEIGHTS) end -- readers prefer it
  made, message, code = set:write(CONFIG, accel.json.encode(dict, { pretty = true }) .. "\n")
  if not made then return nil, message, code end
  return set:commit()
end

--- The configuration and the weights in an adapter's folder. On failure returns nil, message, code.
---@param dir string
---@return table? config
---@return table<string, accel.Tensor>|string state
---@return string? code
function M.read(dir)
  local given, message, code = read_json(dir .. "/" .. CONFIG, { ordered = true })
  if not given then return nil, message, code end
  local ok, config = pcall(configs.from_dict, given)
  if not ok then return nil, ("%s/%s: %s"):format(dir, CONFIG, type(config) == "table" and config.message or tostring(config)), "format" end
  local state
  state, message, code = accel.load(dir .. "/" .. WEIGHTS)
  if not state and code == "not_found" then
    local torch, why = accel.load(dir .. "/" .. TORCH)
    if torch then state = torch elseif why and not why:find(TORCH, 1, true) then message = why end
  end
  if not state then return nil, message, code end
  return config, state
end

return M
