--- Types of GGUF's tensors that accel writes, and which tensor of a file gets which: llama.cpp's rules (llama_tensor_get_type) for Q4_K_S,
--- Q4_K_M, Q5_K_S, Q5_K_M and Q6_K, whose name is that of most tensors. Used by models.gguf.
local M = {}

---@class accel.models.gguf.Type
---@field number integer in files
---@field bytes integer of an element or a block
---@field block integer elements of a block
---@field dtype string? of plain elements

---@type table<string, accel.models.gguf.Type>
M.types = {
  F32 = { number = 0, dtype = "f32", bytes = 4, block = 1 }, F16 = { number = 1, dtype = "f16", bytes = 2, block = 1 },
  BF16 = { number = 30, dtype = "bf16", bytes = 2, block = 1 }, Q4_0 = { number = 2, bytes = 18, block = 32 },
  Q4_1 = { number = 3, bytes = 20, block = 32 }, Q5_0 = { number = 6, bytes = 22, block = 32 }, Q5_1 = { number = 7, bytes = 24, block = 32 },
  Q8_0 = { number = 8, bytes = 34, block = 32 }, Q4_K = { number = 12, bytes = 144, block = 256 },
  Q5_K = { number = 13, bytes = 176, block = 256 }, Q6_K = { number = 14, bytes = 210, block = 256 },
}

--- Kinds of files: general.file_type, and the type of most matrices. mixed: K-quants, by the rules below.
M.files = {
  F32 = { number = 0, usual = "F32" }, F16 = { number = 1, usual = "F16" }, BF16 = { number = 32, usual = "BF16" },
  Q4_0 = { number = 2, usual = "Q4_0" }, Q4_1 = { number = 3, usual = "Q4_1" }, Q5_0 = { number = 8, usual = "Q5_0" },
  Q5_1 = { number = 9, usual = "Q5_1" }, Q8_0 = { number = 7, usual = "Q8_0" },
  Q4_K_S = { number = 14, usual = "Q4_K", mixed = "S" }, Q4_K_M = { number = 15, usual = "Q4_K", mixed = "M" },
  Q5_K_S = { number = 16, usual = "Q5_K", mixed = "S" }, Q5_K_M = { number = 17, usual = "Q5_K", mixed = "M" },
  Q6_K = { number = 18, usual = "Q6_K", mixed = "S" },
}

--- Their names in the order of their sizes, for messages.
M.names = { "F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0" }

-- Instead of a type with blocks of 256, if rows are not whole blocks.
local SHORT <const> = { Q4_K = "Q5_0", Q5_K = "Q5_1", Q6_K = "Q8_0" }

--- Layers that get more bits: the first and last eighth, and each third one between.
local function more_bits(i, n)
  return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2
end

--- The type of a matrix in a mixed file.
local function mixed(kind, name, layers, head)
  local part, i = name:match "^blk%.%d+%.(.*)%.weight$", math.tointeger(tonumber(name:match "^blk%.(%d+)%."))
  if name == head then return "Q6_K" end
  if kind.mixed == "M" then
    if part == "attn_qkv" then return kind.usual == "Q4_K" and "Q5_K" or "Q6_K" end
    if (part == "attn_v" or (part or ""):find "^ffn_down") and more_bits(i, layers) then return "Q6_K" end
  elseif kind.usual == "Q4_K" then
    if part == "attn_v" and i < 4 or (part or ""):find "^ffn_down" and i < layers // 8 then return "Q5_K" end
  elseif kind.usual == "Q5_K" and part == "attn_qkv" then
    return "Q5_K"
  end
  return kind.usual
end

--- How a file of this kind holds a tensor: its type and bytes. Vectors, norms and positions stay f32, as in llama.cpp. Rows that are not
--- whole blocks get a type with smaller blocks, at last f16.
---@param kind table of M.files
---@param entry {name: string, shape: integer[], keep: boolean?}
---@param layers integer
---@param head string name of the tensor that makes logits
---@return accel.models.gguf.Type, integer
function M.place(kind, entry, layers, head)
  local shape, n = entry.shape, 1
  local name = (#shape < 2 or entry.keep) and "F32" or kind.mixed and mixed(kind, entry.name, layers, head) or kind.usual
  local row = shape[#shape]
  if SHORT[name] and row % 256 ~= 0 then name = SHORT[name] end
  if name ~= "F32" and row % M.types[name].block ~= 0 then name = "F16" end
  for _, d in ipairs(shape) do n = n * d end
  local kind_of = M.types[name]
  return kind_of, n // kind_of.block * kind_of.bytes
end

return M
