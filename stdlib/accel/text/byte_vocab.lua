--- text.ByteVocab: ids are bytes, 0 to 255: any text or data, without a training step.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- example: accel.text.ByteVocab():encode("Hi") --> { 72, 105 }
--- example: accel.text.ByteVocab():decode { 72, 105 } --> "Hi"
---@class accel.text.ByteVocab
local ByteVocab = class("accel.text.ByteVocab")

--- How many ids there are: 256.
function ByteVocab:len() return 256 end -- luacheck: ignore self

ByteVocab.__len = ByteVocab.len

--- The bytes of a text as an i64 tensor.
---@param text string
---@return accel.Tensor i64 [#text]
function ByteVocab:encode(text) -- luacheck: ignore self
  return accel.from_bytes(text, "u8", { #text }):to("i64")
end

--- The bytes of a text as a list of numbers.
---@param text string
function ByteVocab:encode_list(text) -- luacheck: ignore self
  local out = {}
  for at = 1, #text, 4096 do
    table.move({ text:byte(at, at + 4095) }, 1, 4096, at, out)
  end
  return out
end

--- Text of ids (tensor or list).
---@param ids accel.Tensor|integer[]
function ByteVocab:decode(ids) -- luacheck: ignore self
  if tensors.is_tensor(ids) then ids = ids:tolist() end
  local out = {}
  for i, id in ipairs(ids) do
    if math.type(id) ~= "integer" or id < 0 or id > 255 then
      raise("ByteVocab: id %s is outside of 0 .. 255", tostring(id))
    end
    out[i] = string.char(id)
  end
  return table.concat(out)
end

return ByteVocab
