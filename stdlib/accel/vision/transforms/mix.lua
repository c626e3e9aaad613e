--- MixUp and CutMix of batches.
local accel = require "accel"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Labels as rows of probabilities.
local function rows(who, labels, num_classes, batch)
  local n = batch:size(1)
  if not tensors.is_tensor(labels) or labels:size(1) ~= n then raise("%s: expected a label for each of %d pictures", who, n) end
  if #labels.shape == 2 then return labels:to "f32" end
  if not num_classes then raise("%s: labels of class numbers need num_classes", who) end
  return accel.one_hot(labels:to "i64", num_classes):to "f32"
end

local function mixed(x, lam) return x:roll(1, 1) * (1 - lam) + x * lam end

local function pictures_of(who, images)
  if not tensors.is_tensor(images) or #images.shape ~= 4 then raise("%s: expected a batch of pictures [batch, channels, height, width]", who) end
  if images.dtype:sub(1, 1) ~= "f" and images.dtype ~= "bf16" then raise("%s: expected floats, got %s", who, images.dtype) end
end

--- lam times each picture of a batch plus (1 - lam) times the one before it, and the same of the labels.
---@param images accel.Tensor floats [batch, channels, height, width]
---@param labels accel.Tensor class numbers [batch] or probabilities [batch, classes]
---@param opts {lam: number, num_classes: integer?}
---@return accel.Tensor images
---@return accel.Tensor labels f32 [batch, classes]
function M.mixup(images, labels, opts, ...)
  local o = options("mixup", opts, { lam = options.none, num_classes = options.none }, ...)
  pictures_of("mixup", images)
  local lam = check.number("mixup", "lam", o.lam, 0, 1)
  return mixed(images, lam), mixed(rows("mixup", labels, o.num_classes, images), lam)
end

--- A box of each picture of a batch replaced by that of the one before it, and the labels mixed by area.
---@param images accel.Tensor floats [batch, channels, height, width]
---@param labels accel.Tensor class numbers [batch] or probabilities [batch, classes]
---@param opts {box: integer[], num_classes: integer?} box: {left, upper, right, lower}, 0-based
---@return accel.Tensor images
---@return accel.Tensor labels f32 [batch, classes]
function M.cutmix(images, labels, opts, ...)
  local o = options("cutmix", opts, { box = options.none, num_classes = options.none }, ...)
  pictures_of("cutmix", images)
  if type(o.box) ~= "table" or #o.box ~= 4 then raise("cutmix: box must be {left, upper, right, lower}, got %s", check.shown(o.box)) end
  local x1, y1, x2, y2 = table.unpack(o.box)
  local h, w = images:size(3), images:size(4)
  if not (0 <= x1 and x1 <= x2 and x2 <= w and 0 <= y1 and y1 <= y2 and y2 <= h) then raise "cutmix: box must lie in the pictures" end
  local out = images:clone()
  if x2 > x1 and y2 > y1 then
    local function part(t) return t:narrow(3, y1 + 1, y2 - y1):narrow(4, x1 + 1, x2 - x1) end
    part(out):copy_(part(images:roll(1, 1)))
  end
  local lam = 1 - (x2 - x1) * (y2 - y1) / (h * w)
  return out, mixed(rows("cutmix", labels, o.num_classes, images), lam)
end

return M
