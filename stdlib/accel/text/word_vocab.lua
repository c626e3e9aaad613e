--- text.WordVocab: ids for the words and marks of texts, with the special ids of BERT: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3. Words
--- are runs of letters, digits and apostrophes (and of everything beyond ASCII), in lower case. Each other printing character is
--- a separate mark.
---
---   local vocab = WordVocab.from_texts({ "To be, or not to be", ... }, { min_count = 2 })
---   local ids, types = vocab:encode("To be", "or not")     -- [CLS] to be [SEP] or not [SEP], 0 0 0 0 1 1 1
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

---@class accel.text.WordVocab
---@field words string[] words[id + 1]
--- example: #accel.text.WordVocab.from_texts { "to be or not to be" } --> 8
local WordVocab = class("accel.text.WordVocab")

WordVocab.specials = { "[PAD]", "[UNK]", "[CLS]", "[SEP]" }
WordVocab.pad_id, WordVocab.unk_id, WordVocab.cls_id, WordVocab.sep_id = 0, 1, 2, 3

--- The words and marks of a text, in order.
---@param text string
---@return string[]
function WordVocab.split(text)
  local out = {}
  for blank_free in text:lower():gmatch "%S+" do
    local at = 1
    while at <= #blank_free do
      local from, to = blank_free:find("^[%w'\128-\255]+", at)
      if not from then from, to = at, at end
      out[#out + 1] = blank_free:sub(from, to)
      at = to + 1
    end
  end
  return out
end

---@param words string[] without the special ones
function WordVocab:init(words)
  self.words, self.ids = {}, {}
  for _, list in ipairs { self.specials, words } do
    for i, word in ipairs(list) do
      if type(word) ~= "string" or word == "" then raise("WordVocab: entry %d is not a word", i) end
      if self.ids[word] then raise("WordVocab: '%s' appears twice", word) end
      self.ids[word] = #self.words
      self.words[#self.words + 1] = word
    end
  end
end

--- The words of texts that occur at least min_count times, the most frequent first. At most max_size of them, including special
--- ids.
---@param texts string[]
---@param opts? {min_count: integer?, max_size: integer?}
---@return accel.text.WordVocab
function WordVocab.from_texts(texts, opts, ...)
  local o = options("WordVocab.from_texts", opts, { min_count = 1, max_size = 30000 }, ...)
  local count, words = {}, {}
  for i, text in ipairs(texts) do
    if type(text) ~= "string" then raise("WordVocab.from_texts: text %d is %s", i, check.shown(text)) end
    for _, word in ipairs(WordVocab.split(text)) do count[word] = (count[word] or 0) + 1 end
  end
  for word, n in ordered.iterate(count) do
    if n >= o.min_count then words[#words + 1] = word end
  end
  table.sort(words, function(a, b)
    if count[a] ~= count[b] then return count[a] > count[b] end
    return a < b
  end)
  for i = #words, math.max(0, o.max_size - #WordVocab.specials) + 1, -1 do words[i] = nil end
  return WordVocab(words)
end

--- The number of words, including special ones. #vocab is the same.
function WordVocab:len() return #self.words end

function WordVocab.__len(self) return #self.words end

--- Ids [CLS] text [SEP], or [CLS] text [SEP] pair [SEP], and a list of 0 for the first text and 1 for the second. Beyond max_length
--- words are taken off the longer of the two.
---@param text string
---@param pair? string|{max_length: integer?} the second text, or the options
---@param opts? {max_length: integer?}
---@return integer[] ids
---@return integer[] token_type_ids
function WordVocab:encode(text, pair, opts, ...)
  if type(pair) == "table" and opts == nil then pair, opts = nil, pair end
  local o = options("WordVocab.encode", opts, { max_length = math.maxinteger }, ...)
  if type(text) ~= "string" or (pair ~= nil and type(pair) ~= "string") then
    raise("WordVocab.encode: expected one text or two, got %s%s", check.shown(text),
      pair ~= nil and " and " .. check.shown(pair) or "")
  end
  local a, b = WordVocab.split(text), pair and WordVocab.split(pair) or {}
  local marks = pair and 3 or 2
  if o.max_length < marks then raise("WordVocab: max_length must be at least %d, got %d", marks, o.max_length) end
  while #a + #b + marks > o.max_length do table.remove(#a >= #b and a or b) end
  local ids, types = { self.cls_id }, { 0 }
  local function add(id, kind) ids[#ids + 1], types[#types + 1] = id, kind end
  for _, word in ipairs(a) do add(self.ids[word] or self.unk_id, 0) end
  add(self.sep_id, 0)
  if pair then
    for _, word in ipairs(b) do add(self.ids[word] or self.unk_id, 1) end
    add(self.sep_id, 1)
  end
  return ids, types
end

--- The words of ids, with blanks between them.
---@param ids integer[]
---@return string
function WordVocab:decode(ids)
  local out = {}
  for i, id in ipairs(ids) do
    out[i] = self.words[id + 1] or raise("WordVocab: id %s is outside of 0 .. %d", tostring(id), #self.words - 1)
  end
  return table.concat(out, " ")
end

return WordVocab
