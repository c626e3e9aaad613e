--- Types and scales of pictures for accel.vision.transforms.functional.
local accel = require "accel"
local check = require "accel.util.check"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local raise = require "accel.util.raise"

local M = {}

--- A picture in another dtype. With scale the values keep their meaning: u8 from 0 to 255 becomes floats from 0 to 1.
--- example: accel.vision.transforms.functional.to_dtype(accel.tensor({ { { 255 } } }, { dtype = "u8" }), "f32", { scale = true }) --> { { { 1 } } }
---@param img accel.Tensor
---@param dtype string
---@param opts? {scale: boolean?}
---@return accel.Tensor
function M.to_dtype(img, dtype, opts, ...)
  local o = options("to_dtype", opts, { scale = false }, ...)
  if not o.scale then return img:to(dtype) end
  local to = accel.empty(0, { dtype = dtype }).dtype
  local from_float, to_float = pictures.is_float(img), to == "f32" or to == "f64" or to == "f16" or to == "bf16"
  if img.dtype == to or from_float and to_float then return img:to(to) end
  local bound = pictures.bound(img)
  if to_float then return (img:to(to == "f64" and to or "f32") / bound):to(to) end
  local most = pictures.bound(accel.empty(0, { dtype = to }))
  if from_float then
    if most > 255 and img.dtype ~= "f64" and most > 65535 then raise("to_dtype: %s cannot hold the values of %s exactly; use f64", img.dtype, to) end
    return (img * (most + 1 - 1e-3)):to(to)
  end
  if most > bound then return img:to(to) * ((most + 1) // (bound + 1)) end
  return (img // ((bound + 1) // (most + 1))):to(to)
end

--- to_dtype with scale = true, torchvision's older name.
---@param image accel.Tensor
---@param dtype? string Default: "f32"
---@return accel.Tensor
function M.convert_image_dtype(image, dtype) return M.to_dtype(image, dtype or "f32", { scale = true }) end

--- A u8 picture as f32 from 0 to 1. Floats stay.
---@param pic accel.Tensor
---@return accel.Tensor
function M.to_tensor(pic)
  pictures.picture("to_tensor", pic)
  return pictures.is_float(pic) and pic or M.to_dtype(pic, "f32", { scale = true })
end

--- Subtracts a mean and divides by a deviation, for each channel.
--- example: accel.vision.transforms.functional.normalize(accel.ones(1, 1, 1), { 0.5 }, { 0.25 }) --> { { { 2 } } }
---@param tensor accel.Tensor floats [..., channels, height, width]
---@param mean number|number[]
---@param std number|number[]
---@param opts? {inplace: boolean?}
---@return accel.Tensor
function M.normalize(tensor, mean, std, opts, ...)
  local o = options("normalize", opts, { inplace = false }, ...)
  pictures.picture("normalize", tensor)
  if not pictures.is_float(tensor) then raise("normalize: expected floats, got %s; use to_dtype with scale first", tensor.dtype) end
  local n = tensor:size(-3)
  local function column(name, v)
    local list = pictures.fill("normalize", v, n, name) or raise("normalize: %s is missing", name)
    return accel.tensor(list, { dtype = tensor.dtype, device = tensor.device }):view { -1, 1, 1 }
  end
  for _, s in ipairs(type(std) == "table" and std or { std }) do
    if s == 0 then raise("normalize: std must not be 0, got %s", check.shown(s)) end
  end
  local x = o.inplace and tensor or tensor:clone()
  return x:sub_(column("mean", mean)):div_(column("std", std))
end

return M
