--- What the functions of accel.vision.transforms share: checks of pictures, u8 pictures as rows of pixels for the kernels in C, batches.
local accel = require "accel"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Pillow's numbers of filters, by torchvision's names of interpolations.
M.FILTERS = { nearest = 0, ["nearest-exact"] = 0, lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 }

--- A tensor of shape [..., channels, height, width], or raises.
function M.picture(who, t)
  if not tensors.is_tensor(t) then raise("%s: expected a tensor of shape [..., channels, height, width], got %s", who, check.shown(t)) end
  if #t.shape < 3 then raise("%s: expected shape [..., channels, height, width], got %s", who, tensors.shape_string(t)) end
  return t
end

--- Height and width.
function M.size(t) return t:size(-2), t:size(-1) end

function M.is_u8(t) return t.dtype == "u8" end
function M.is_float(t) return t.dtype == "f32" or t.dtype == "f64" or t.dtype == "f16" or t.dtype == "bf16" end

--- The largest value of a picture: 1 for floats, that of the dtype for integers.
function M.bound(t)
  local bounds = { u8 = 255, u16 = 65535, i8 = 127, i16 = 32767, i32 = 2147483647, i64 = math.maxinteger }
  return bounds[t.dtype] or 1
end

local function rows(t) return t:permute { 2, 3, 1 }:contiguous() end
local function planes(t) return t:permute { 3, 1, 2 } end
M.rows, M.planes = rows, planes

--- Applies a function of one picture [channels, height, width] to each of a batch.
function M.each(t, f)
  if #t.shape == 3 then return f(t) end
  local shape = {}
  for i = 1, #t.shape do shape[i] = t:size(i) end
  local flat = t:reshape { -1, shape[#shape - 2], shape[#shape - 1], shape[#shape] }
  local out = {}
  for i = 1, flat:size(1) do out[i] = f(flat:select(1, i)) end
  local all = accel.stack(out, 1)
  for i = 1, 3 do shape[#shape - 3 + i] = all:size(1 + i) end
  return all:reshape(shape)
end

--- Applies a kernel of accel.vision.core to u8 pictures: kernel(rows, ...) -> rows.
function M.kernel(t, kernel, ...)
  local args = table.pack(...)
  return M.each(t, function(x) return planes(kernel(rows(x), table.unpack(args, 1, args.n))) end)
end

--- Two numbers from one or a list of one or two: {height, width}.
function M.pair(who, name, v)
  if type(v) == "number" then v = { v, v } end
  if type(v) ~= "table" or (#v ~= 1 and #v ~= 2) then raise("%s: %s must be a number or {height, width}, got %s", who, name, check.shown(v)) end
  return check.positive(who, name, v[1]), check.positive(who, name, v[2] or v[1])
end

--- Rounds as Python does: halves to the even number.
function M.round(x)
  local f = math.floor(x)
  local d = x - f
  if d > 0.5 or d == 0.5 and f % 2 ~= 0 then f = f + 1 end
  return math.tointeger(f)
end

--- Fill values, or others of that form (name), one a channel. nil stays.
function M.fill(who, fill, channels, name)
  name = name or "fill"
  if fill == nil then return nil end
  if type(fill) == "number" then fill = { fill } end
  if type(fill) ~= "table" or (#fill ~= 1 and #fill ~= channels) then
    raise("%s: %s must be one number, or a list of %d for %d channels, got %s", who, name, channels, channels,
      type(fill) == "table" and ("a list of %d"):format(#fill) or check.shown(fill))
  end
  local out = {}
  for c = 1, channels do out[c] = check.number(who, name, fill[#fill == 1 and 1 or c]) end
  return out
end

return M
