--- Images as files: tensors of pixels become PNG. Bytes of a PNG or JPEG file are unchanged. Used by run.lua, tensorboard.lua and
--- other trackers that take images.
local accel = require "accel"
local core = require "accel.track.core"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local orders <const> = { HW = true, CHW = true, HWC = true, NCHW = true, NHWC = true, NHW = true }

--- Bytes of pixels, 0 to 255: floats are 0 to 1, as torch.utils.tensorboard has it.
local function bytes_of(x)
  return accel.no_grad(function()
    x = x:detach():to "cpu"
    if x.dtype ~= "u8" then
      x = x.dtype == "bool" and x:to "f32" * 255 or tensors.is_floating(x.dtype) and x:to "f32" * 255 or x:to "f32"
      x = x:clamp(0, 255):to "u8"
    end
    return accel.to_bytes(x:contiguous())
  end)
end

local function one(who, x, order)
  if order == "CHW" then x = x:permute(2, 3, 1) end
  local shape = x.shape
  local channels = shape[3] or 1
  if channels > 4 then
    raise("%s: an image of shape %s has %d channels; expected 1 to 4 (dataformats sets the order, now '%s')", who,
      tensors.shape_string(x), channels, order)
  end
  return { data = core.png(bytes_of(x), shape[2], shape[1], channels), width = shape[2], height = shape[1], channels = channels,
    mime = "image/png" }
end

--- Width and height of a PNG file's bytes, or of a JPEG's.
local function of_bytes(who, s)
  if s:sub(1, 8) == "\137PNG\r\n\26\n" and #s > 26 then
    local width, height = (">I4I4"):unpack(s, 17)
    local channels = ({ [0] = 1, [2] = 3, [3] = 3, [4] = 2, [6] = 4 })[s:byte(26)]
    return { data = s, width = width, height = height, channels = channels, mime = "image/png" }
  end
  local at = s:sub(1, 2) == "\255\216" and 3 or nil
  while at and at + 9 <= #s and s:byte(at) == 0xff do
    local kind, size = s:byte(at + 1), (">I2"):unpack(s, at + 2)
    if kind >= 0xc0 and kind <= 0xcf and kind ~= 0xc4 and kind ~= 0xc8 and kind ~= 0xcc then
      local height, width = (">I2I2"):unpack(s, at + 5)
      return { data = s, width = width, height = height, channels = s:byte(at + 9), mime = "image/jpeg" }
    end
    at = at + 2 + size
  end
  raise("%s: a string must be the bytes of a PNG or JPEG file", who)
end

--- The images in a value: a tensor of one (2 or 3 dims) or several (4, or a list of tensors), or strings with a file's bytes.
---@param who string for messages
---@param value accel.Tensor|string|(accel.Tensor|string)[]
---@param dataformats? string "HW", "CHW", "HWC", "NHW", "NCHW" or "NHWC". By the number of dims HW, CHW and NCHW
---@return {data: string, width: integer, height: integer, channels: integer, mime: string}[]
function M.images(who, value, dataformats)
  if dataformats and not orders[dataformats] then
    raise("%s: dataformats must be HW, CHW, HWC, NHW, NCHW or NHWC, got '%s'", who, tostring(dataformats))
  end
  if type(value) == "string" then return { of_bytes(who, value) } end
  local out = {}
  if type(value) == "table" and getmetatable(value) == nil then
    local each = dataformats and dataformats:gsub("^N", "")
    for _, x in ipairs(value) do table.move(M.images(who, x, each), 1, 1, #out + 1, out) end
    return out
  end
  if not tensors.is_tensor(value) then
    raise("%s: an image must be a tensor or the bytes of a file, got %s", who, require("accel.util.check").shown(value))
  end
  local n = #value.shape
  local order = dataformats or ({ [2] = "HW", [3] = "CHW", [4] = "NCHW" })[n]
  if not order or #order ~= n then
    raise("%s: a tensor of shape %s does not fit '%s'", who, tensors.shape_string(value), order or "HW, CHW or NCHW")
  end
  if order:sub(1, 1) ~= "N" then return { one(who, value, order) } end
  for i = 1, value.shape[1] do out[i] = one(who, value:select(1, i), order:sub(2)) end
  return out
end

return M
