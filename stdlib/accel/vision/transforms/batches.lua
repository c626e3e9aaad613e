--- MixUp (Zhang et al., 2017) and CutMix (Yun et al., 2019) of batches. As a collate_fn, or on batches of a loader.
local Transform = require "accel.vision.transforms.transform"
local F = require "accel.vision.transforms.functional"
local check = require "accel.util.check"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local raise = require "accel.util.raise"

local M = {}

local function normal() return math.sqrt(-2 * math.log(1 - math.random())) * math.cos(2 * math.pi * math.random()) end

--- A draw of the gamma distribution (G. Marsaglia and W. W. Tsang, 2000).
local function gamma(a)
  if a < 1 then return gamma(a + 1) * (1 - math.random()) ^ (1 / a) end
  local d = a - 1 / 3
  local c = 1 / math.sqrt(9 * d)
  while true do
    local x = normal()
    local v = (1 + c * x) ^ 3
    if v > 0 and math.log(1 - math.random()) < 0.5 * x * x + d - d * v + d * math.log(v) then return d * v end
  end
end

local function beta(alpha)
  local a, b = gamma(alpha), gamma(alpha)
  return a + b > 0 and a / (a + b) or 0.5
end

local function init(self, who, opts)
  local o = options(who, opts, { alpha = 1.0, num_classes = options.none })
  if not (o.alpha > 0) then raise("%s: alpha must be positive, got %s", who, check.shown(o.alpha)) end
  self.alpha, self.num_classes, self.args = o.alpha, o.num_classes, { opts }
end

local function pair(who, images, labels)
  if labels ~= nil then return images, labels end
  if type(images) == "table" and images[1] and images[2] then return images[1], images[2] end
  raise("%s: call it with pictures and labels, or with a batch {pictures, labels}", who)
end

--- Mixes each picture of a batch with the one before it, by a share from the beta distribution.
--- - alpha: both parameters of the distribution. 1 is uniform
--- - num_classes: for labels that are class numbers
--- example: accel.vision.transforms.MixUp({ num_classes = 3 })
---   (accel.ones(2, 1, 4, 4), accel.tensor({ 0, 2 }, { dtype = "i64" }))[2].shape --> {2, 3}
---@class accel.vision.transforms.MixUp : accel.vision.transforms.Transform
M.MixUp = Transform:extend "accel.vision.transforms.MixUp"

---@param opts? {alpha: number?, num_classes: integer?}
function M.MixUp:init(opts) init(self, "MixUp", opts) end

function M.MixUp.__call(self, images, labels)
  images, labels = pair("MixUp", images, labels)
  local x, y = F.mixup(images, labels, { lam = beta(self.alpha), num_classes = self.num_classes })
  return { x, y }
end

--- Replaces a random box of each picture of a batch by that of the one before it. The options are those of MixUp.
--- example: accel.vision.transforms.CutMix({ num_classes = 3 })
---   (accel.ones(2, 1, 4, 4), accel.tensor({ 0, 2 }, { dtype = "i64" }))[2].shape --> {2, 3}
---@class accel.vision.transforms.CutMix : accel.vision.transforms.Transform
M.CutMix = Transform:extend "accel.vision.transforms.CutMix"

---@param opts? {alpha: number?, num_classes: integer?}
function M.CutMix:init(opts) init(self, "CutMix", opts) end

function M.CutMix.__call(self, images, labels)
  images, labels = pair("CutMix", images, labels)
  local h, w = pictures.size(images)
  local half = 0.5 * math.sqrt(1 - beta(self.alpha))
  local x, y = math.random(0, w - 1), math.random(0, h - 1)
  local dx, dy = half * w // 1 | 0, half * h // 1 | 0
  local box = { math.max(x - dx, 0), math.max(y - dy, 0), math.min(x + dx, w), math.min(y + dy, h) }
  local out, mixed = F.cutmix(images, labels, { box = box, num_classes = self.num_classes })
  return { out, mixed }
end

return M
