--- text.TextStreamer: the option `streamer` of model:generate that writes text as it comes, in whole characters.
local DecodeStream = require "accel.text.decode_stream"
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- example: local out, tok = {}, accel.text.train_bpe({ "" }, { vocab_size = 256 })
---   local s = accel.text.TextStreamer(tok, { on_text = function(t) out[#out + 1] = t end })
---   s:put { 39, 72 } s:put { 0 } s:finish() return table.concat(out) --> "!"
---@class accel.text.TextStreamer
local TextStreamer = class("accel.text.TextStreamer")

---@param tokenizer accel.text.Tokenizer
---@param opts? table
---  skip_prompt boolean = true: do not write the first ids, the prompt
---  skip_special_tokens boolean = true: they are not written
---  on_text function: gets each piece of text (default: to stdout, at once)
function TextStreamer:init(tokenizer, opts)
  if type(tokenizer) ~= "table" or not tokenizer.decode_stream then
    raise("TextStreamer: tokenizer must be a Tokenizer, got %s", check.shown(tokenizer))
  end
  local o = options("TextStreamer", opts, { skip_prompt = true, skip_special_tokens = true, on_text = options.none })
  self.tokenizer, self.o, self.waiting = tokenizer, o, o.skip_prompt
  self.on_text = o.on_text or function(text)
    io.stdout:write(text)
    io.stdout:flush()
  end
  self.stream = tokenizer:decode_stream { skip_special_tokens = o.skip_special_tokens }
  self.ids = {}
end

--- Takes ids of one row.
---@param ids integer[]
function TextStreamer:put(ids)
  if self.waiting then
    self.waiting = false
    return
  end
  for _, id in ipairs(ids) do
    local text = self.stream:step(id)
    if text then
      self.ids = {}
      self.on_text(text)
    else
      self.ids[#self.ids + 1] = id
    end
  end
end

--- Writes the rest, including an incomplete character. The next prompt may follow.
function TextStreamer:finish()
  if #self.ids > 0 then
    local text = self.tokenizer:decode(self.ids, { skip_special_tokens = self.o.skip_special_tokens })
    if text ~= "" then self.on_text(text) end
  end
  self.ids, self.waiting = {}, self.o.skip_prompt
  self.stream = DecodeStream(self.tokenizer, self.o.skip_special_tokens)
end

return TextStreamer
