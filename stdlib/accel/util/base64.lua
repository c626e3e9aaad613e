--- Base 64, as tokenizer.json holds SentencePiece's rules, tiktoken's files hold tokens, and debuggers send memory.
local M = {}

local DIGITS <const> = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local value = {}
for i = 1, 64 do value[DIGITS:byte(i)] = i - 1 end

---@param bytes string
---@return string
function M.encode(bytes)
  local out = {}
  for at = 1, #bytes, 3 do
    local a, b, c = bytes:byte(at, at + 2)
    local bits = a << 16 | (b or 0) << 8 | (c or 0)
    local function digit(shift)
      local i = bits >> shift & 63
      return DIGITS:sub(i + 1, i + 1)
    end
    out[#out + 1] = digit(18) .. digit(12) .. (b and digit(6) or "=") .. (c and digit(0) or "=")
  end
  return table.concat(out)
end

--- nil: other characters, or a wrong length.
---@param text string
---@return string?
function M.decode(text)
  local body = text:gsub("=?=$", "")
  if #text % 4 ~= 0 or #body % 4 == 1 then return nil end
  local out, bits, n = {}, 0, 0
  for i = 1, #body do
    local v = value[body:byte(i)]
    if not v then return nil end
    bits, n = (bits << 6 | v) & 0xFFFFFF, n + 6
    if n >= 8 then
      n = n - 8
      out[#out + 1] = string.char(bits >> n & 255)
    end
  end
  return table.concat(out)
end

return M
