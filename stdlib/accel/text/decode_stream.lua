--- text.DecodeStream: the text of ids that come one at a time, as a model generates them. Each step returns the certain
--- part of the text, or nil while a character is not complete.
---
---   local stream = tok:decode_stream()
---   for id in generated do io.write(stream:step(id) or "") end
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local UNKNOWN = "\u{FFFD}"

--- example: local s = accel.text.train_bpe({ "" }, { vocab_size = 256 }):decode_stream() return s:step(127), s:step(102)
---  --> nil, "\u{e9}"
---@class accel.text.DecodeStream
local DecodeStream = class("accel.text.DecodeStream")

---@param tokenizer accel.text.Tokenizer
---@param skip_special_tokens boolean?
function DecodeStream:init(tokenizer, skip_special_tokens)
  self.tokenizer, self.skip = tokenizer, skip_special_tokens
  self.ids, self.prefix, self.prefix_index = {}, "", 0
end

local function complete(text) return text:sub(-#UNKNOWN) ~= UNKNOWN end

--- An id's addition to the text. It keeps the ids since the last complete character, and the ids emitted together before
--- them: decoders depend on preceding ids.
---@param id integer
---@return string?
function DecodeStream:step(id)
  local native, ids, skip = self.tokenizer.native, self.ids, self.skip
  if self.prefix == "" and #ids > 0 then
    local prefix = native:decode(ids, skip)
    if complete(prefix) then self.prefix, self.prefix_index = prefix, #ids end
  end
  ids[#ids + 1] = id
  local text, prefix = native:decode(ids, skip), self.prefix
  if #text <= #prefix or not complete(text) then return nil end
  if text:sub(1, #prefix) ~= prefix then
    raise("DecodeStream: token %d changes the text that was given out before: '%s' to '%s'", id, prefix, text)
  end
  local index = self.prefix_index
  self.prefix_index = #ids - index
  self.ids = table.move(ids, index + 1, #ids, 1, {})
  self.prefix = native:decode(self.ids, skip)
  return text:sub(#prefix + 1)
end

return DecodeStream
