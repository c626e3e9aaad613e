--- text.Encoding: a tokenizer's result for a text: one entry per token in each of its fields, which are computed on first
--- use.
---
---   local enc = tok:encode("To be")
---   for i, token in ipairs(enc.tokens) do print(enc.ids[i], token, enc.offsets[i][1], enc.offsets[i][2]) end
---
--- Offsets are in characters of the text, half open and 0-based. They are {0, 0} for tokens added by the tokenizer, and
--- word_ids and sequence_ids (0: the text, 1: its pair) are false there.
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- example: local text = accel.text local e = text.train_bpe({ "abab" }, { vocab_size = 257 }):encode("abba")
---  return e.tokens, e.offsets[1], #e --> { "ab", "b", "a" }, { 0, 2 }, 3
---@class accel.text.Encoding
---@field ids integer[]
---@field type_ids integer[]
---@field tokens string[]
---@field offsets integer[][]
---@field attention_mask integer[]
---@field special_tokens_mask integer[]
---@field word_ids (integer|false)[]
---@field sequence_ids (integer|false)[]
---@field overflowing accel.text.Encoding[] the truncated rest, in parts of the same length
local Encoding = class("accel.text.Encoding")

local in_arguments = arguments("Encoding", { "sequence", 0 })

local fields = {
  ids = true, type_ids = true, attention_mask = true, special_tokens_mask = true, word_ids = true, sequence_ids = true,
}

---@param native userdata the object of C
function Encoding:init(native)
  if type(native) ~= "userdata" then raise("Encoding: got %s; only tokenizer:encode makes Encodings", check.shown(native)) end
  self.native = native
end

Encoding.__index = function(self, key)
  local value = Encoding[key]
  if value ~= nil then return value end
  local native = rawget(self, "native")
  if fields[key] then
    value = native:field(key)
  elseif key == "tokens" then
    value = native:tokens()
  elseif key == "offsets" then
    value = native:offsets()
    if not value then raise "Encoding: offsets were not computed; leave out offsets = false" end
  elseif key == "overflowing" then
    value = native:overflowing()
    for i, part in ipairs(value) do value[i] = Encoding(part) end
  end
  rawset(self, key, value)
  return value
end

--- Tokens.
function Encoding:len() return self.native:len() end

function Encoding.__len(self) return self.native:len() end

function Encoding.__tostring(self) return ("Encoding(%d tokens)"):format(#self) end

--- The position of the token that holds a character (0-based, of the text, or of its pair), or nil.
---@param char integer
---@param ... any sequence = 0, by position or in a table: 0, the text, or 1, its pair
---@return integer?
function Encoding:char_to_token(char, ...)
  local sequence = in_arguments(...).sequence
  local sequences, offsets = self.sequence_ids, self.offsets
  for i, o in ipairs(offsets) do
    if sequences[i] == sequence and o[1] <= char and char < o[2] then return i end
  end
end

--- First and last position of the tokens of a word (0-based, as in word_ids). nil: it has none.
---@param word integer
---@param ... any sequence = 0, as above
---@return integer? first
---@return integer? last
function Encoding:word_to_tokens(word, ...)
  local sequence = in_arguments(...).sequence
  local sequences, first, last = self.sequence_ids, nil, nil
  for i, w in ipairs(self.word_ids) do
    if w == word and sequences[i] == sequence then first, last = first or i, i end
  end
  return first, last
end

return Encoding
