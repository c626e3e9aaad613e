--- How large a configuration makes a model, before anything of that size is built: config.json comes from anywhere. Used by
--- pretrained_model.lua, loading.lua and estimate.lua.
local accel = require "accel"
local config = require "accel.models.config"
local tensors = require "accel.util.tensors"

local M = {}

local MOST_BLOCKS <const> = 8192

local function number(c, key) return math.tointeger(config.get(c, key)) or 0 end

--- Layers times experts: how many parts are built one by one.
---@param c table a checked configuration
---@return integer
function M.blocks(c)
  local n = math.max(number(c, "num_hidden_layers"), number(c, "num_layers")) + number(c, "num_decoder_layers")
  for _, depth in ipairs(config.get(c, "depths") or {}) do n = n + depth end
  return n * math.max(1, number(c, "num_local_experts"))
end

--- The error in the number of blocks, or nil. held: the number of tensors in the files of the model, if there are files.
---@param c table a checked configuration
---@param held? integer
---@return string?
function M.too_many(c, held)
  local n = M.blocks(c)
  if held and n > held then
    return ("declares %d blocks (layers times experts), but the files of the model hold %d tensors; check the number of layers"):format(n, held)
  end
  if n > MOST_BLOCKS then return ("declares %d blocks (layers times experts); the maximum is %d"):format(n, MOST_BLOCKS) end
end

--- The error for that many bytes of new values on a device, or nil. Only the CPU's memory is known beforehand.
---@param bytes number
---@param device string
---@return string?
function M.too_large(bytes, device)
  local memory = accel.features().memory
  if device:sub(1, 3) ~= "cpu" or not memory or memory <= 0 or bytes <= memory then return nil end
  return ("declares %.1f GiB of parameters, more than the %.1f GiB of this machine; use device = \"meta\", a smaller dtype, or shard the model over "
    .. "ranks"):format(bytes / 2 ^ 30, memory / 2 ^ 30)
end

--- Bytes of a model that is built on meta, its floating tensors in dtype. Tied tensors count once.
---@param slots table<string, {tensor: accel.Tensor}>
---@param dtype string
---@param counts? fun(t: accel.Tensor): boolean which tensors count
---@return number
function M.bytes(slots, dtype, counts)
  local total, seen, width = 0.0, {}, accel.empty(0, { dtype = dtype, device = "meta" }):element_size()
  for _, slot in pairs(slots) do
    local t = slot.tensor
    if not seen[t] and (not counts or counts(t)) then
      seen[t] = true
      total = total + t:numel() * (tensors.is_floating(t.dtype) and width or t:element_size())
    end
  end
  return total
end

return M
