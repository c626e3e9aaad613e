--- text.CharVocab: one id per character (code point) that occurs in a text, in the order of code points,
--- from 0.
---
---   local vocab = CharVocab.from_text(text)
---   local ids = vocab:encode("To be")        -- i64 tensor [5]
---   print(vocab:decode(ids))
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- example: local v = accel.text.CharVocab.from_text("banana") return v:encode("nab"), #v --> { 2, 0, 1 }, 3
---@class accel.text.CharVocab
---@field chars string[] chars[id + 1]
local CharVocab = class("accel.text.CharVocab")

---@param chars string[] each one character, without repetition
function CharVocab:init(chars)
  self.chars, self.ids = {}, {}
  for i, c in ipairs(chars) do
    if type(c) ~= "string" or utf8.len(c) ~= 1 then raise("CharVocab: entry %d is not one character", i) end
    if self.ids[c] then raise("CharVocab: '%s' appears twice", c) end
    self.chars[i], self.ids[c] = c, i - 1
  end
end

--- Raises if a text is not UTF-8, and names the byte.
local function check_utf8(text)
  local n, at = utf8.len(text)
  if not n then raise("text is not valid UTF-8 at byte %d (value 0x%02x)", at, text:byte(at)) end
end

--- The characters of a text.
---@param text string
---@return accel.text.CharVocab
function CharVocab.from_text(text)
  check_utf8(text)
  local seen, codes, chars = {}, {}, {}
  for c in text:gmatch(utf8.charpattern) do seen[c] = true end
  for c in next, seen do codes[#codes + 1] = utf8.codepoint(c) end
  table.sort(codes)
  for i, code in ipairs(codes) do chars[i] = utf8.char(code) end
  return CharVocab(chars)
end

--- The number of characters. #vocab is the same.
function CharVocab:len() return #self.chars end

CharVocab.__len = function(self) return #self.chars end

--- Ids of a text as an i64 tensor. A character outside of the vocabulary raises.
---@param text string
---@return accel.Tensor
function CharVocab:encode(text)
  check_utf8(text)
  local packed = self.packed
  if not packed then
    packed = setmetatable({}, {
      __index = function(_, c) raise("CharVocab: character '%s' is not in the vocabulary", c) end,
    })
    for c, id in next, self.ids do packed[c] = string.pack("<i4", id) end
    self.packed = packed
  end
  local bytes = text:gsub(utf8.charpattern, packed)
  return accel.from_bytes(bytes, "i32", { #bytes // 4 }):to("i64")
end

--- Ids of a text as a list of numbers.
---@param text string
function CharVocab:encode_list(text)
  check_utf8(text)
  local out = {}
  for c in text:gmatch(utf8.charpattern) do
    local id = self.ids[c]
    if not id then raise("CharVocab: character '%s' is not in the vocabulary", c) end
    out[#out + 1] = id
  end
  return out
end

--- Text of ids (tensor or list).
---@param ids accel.Tensor|integer[]
---@return string
function CharVocab:decode(ids)
  if tensors.is_tensor(ids) then ids = ids:tolist() end
  local out = {}
  for i, id in ipairs(ids) do
    out[i] = self.chars[id + 1] or raise("CharVocab: id %d is outside of 0 .. %d", id, #self.chars - 1)
  end
  return table.concat(out)
end

--- A tokenizer with the same ids, whose tokenizer.json belongs to the folder of a model of characters. It leaves out characters that the
--- vocabulary lacks.
--- example: local v = accel.text.CharVocab.from_text("banana") return v:tokenizer():encode("nab").ids --> { 2, 0, 1 }
---@return accel.text.Tokenizer
function CharVocab:tokenizer()
  return require "accel.text.tokenizer".from_str(accel.json.encode {
    version = "1.0", added_tokens = accel.json.array {}, decoder = { type = "Fuse" },
    model = { type = "BPE", vocab = self.ids, merges = accel.json.array {} },
  })
end

return CharVocab
