--- conv1d, conv2d, conv3d and bilinear of nn.functional: the ops, with padding = "same" or "valid" besides.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local same = require "accel.nn.same_padding"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local F = {}

local function ints(value, n)
  if type(value) == "table" and #value == n then return value end
  local list = {}
  for i = 1, n do list[i] = type(value) == "table" and value[1] or value or 1 end
  return list
end

--- The op for padding that is a word.
local function with_word(who, n, op, word, x, weight, bias, stride, dilation, groups)
  if word ~= "same" and word ~= "valid" then
    raise("%s: padding must be a number, a list, 'same' or 'valid', got '%s'", who, word)
  end
  local padding, before = 0, nil
  if word == "same" then
    for _, s in ipairs(ints(stride, n)) do
      if s ~= 1 then raise("%s: padding 'same' needs stride 1, got %d", who, s) end
    end
    local kernel = weight.shape
    padding, before = same(table.move(kernel, 3, #kernel, 1, {}), ints(dilation, n))
    if before then x = accel.pad(x, before) end
  end
  return op(x, weight, bias, stride or 1, padding, dilation or 1, groups or 1)
end

--- op(x, weight, ...), or with_word if padding is a word, by position or in the options.
local function run(who, n, op, ...)
  local count = select("#", ...)
  local _, _, _, _, padding = ...
  local last = count > 0 and select(count, ...)
  if type(padding) ~= "string" and not (type(last) == "table" and type(last.padding) == "string") then
    return op(...)
  end
  local o = arguments(who, { "x" }, { "weight" }, { "bias" }, { "stride", list = true }, { "padding" }, { "dilation", list = true },
    { "groups" })(...)
  return with_word(who, n, op, o.padding, o.x, o.weight, o.bias, o.stride, o.dilation, o.groups)
end

--- Convolution over one spatial dimension. See accel.conv1d for the arguments: x, weight, bias, stride, padding,
--- dilation, groups. padding may also be "same" or "valid".
--- example: accel.nn.functional.conv1d(accel.ones(1, 3), accel.ones(1, 1, 3), { padding = "same" }) --> { { 2, 3, 2 } }
---@param ... any
---@return accel.Tensor
function F.conv1d(...) return run("conv1d", 1, accel.conv1d, ...) end

--- Convolution over two spatial dimensions. See accel.conv2d. padding may be "same" or "valid".
--- example: accel.nn.functional.conv2d(accel.ones(1, 1, 3, 3), accel.ones(1, 1, 3, 3)) --> { { { { 9 } } } }
---@param ... any
---@return accel.Tensor
function F.conv2d(...) return run("conv2d", 2, accel.conv2d, ...) end

--- Convolution over three spatial dimensions. See accel.conv3d. padding may be "same" or "valid".
--- example: accel.nn.functional.conv3d(accel.ones(1, 1, 2, 2, 2), accel.ones(1, 1, 2, 2, 2)):flatten() --> { 8 }
---@param ... any
---@return accel.Tensor
function F.conv3d(...) return run("conv3d", 3, accel.conv3d, ...) end

local bilinear_arguments = arguments("bilinear", { "x1" }, { "x2" }, { "weight" }, { "bias" })

--- y[o] = sum over i, j of x1[i] weight[o, i, j] x2[j], plus bias[o]. x1 (..., n1), x2 (..., n2),
--- weight (n, n1, n2) -> (..., n).
--- example: accel.nn.functional.bilinear(accel.ones(2), accel.ones(3), accel.ones(1, 2, 3)) --> { 6 }
---@param ... any x1, x2, weight, bias by position or in one table
---@return accel.Tensor
function F.bilinear(...)
  local o = bilinear_arguments(...)
  for _, name in ipairs { "x1", "x2", "weight" } do
    if not tensors.is_tensor(o[name]) then raise("bilinear: %s must be a tensor, got %s", name, check.shown(o[name])) end
  end
  local x1, x2, weight, bias = o.x1, o.x2, o.weight, o.bias
  local n, n1, n2 = table.unpack(weight.shape)
  local shape, other = x1.shape, x2.shape
  local fits = weight.ndim == 3 and #shape == #other and #shape > 0 and shape[#shape] == n1 and other[#other] == n2
  for i = 1, fits and #shape - 1 or 0 do fits = fits and shape[i] == other[i] end
  if not fits then
    raise("bilinear: x1 %s and x2 %s do not fit a weight of shape %s: they must be (..., %s) and (..., %s)",
      tensors.shape_string(x1), tensors.shape_string(x2), tensors.shape_string(weight), n1 or "n1", n2 or "n2")
  end
  shape[#shape], shape[#shape + 1] = n, n2
  -- (..., n1) times (n1, n * n2), then each of the n rows of (n, n2) times x2
  local rows = x1:matmul(weight:permute(2, 1, 3):reshape(n1, n * n2)):view(shape)
  local y = rows:matmul(x2:unsqueeze(-1)):squeeze(-1)
  return bias and y + bias or y
end

return F
