--- AutoAugment (Cubuk et al., 2018), RandAugment (Cubuk et al., 2019) and TrivialAugmentWide (Mueller and Hutter, 2021).
local Transform = require "accel.vision.transforms.transform"
local apply = require "accel.vision.transforms.auto_ops"
local check = require "accel.util.check"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local policies = require "accel.vision.transforms.auto_policies"

local M = {}

--- Magnitude k of n, from low to high.
local function line(low, high) return function(k, n) return n == 1 and low or low + (high - low) * k / (n - 1) end end

--- Bits that stay, fewer by up to `most`.
local function bits(most) return function(k, n) return 8 - pictures.round(n == 1 and 0 or k / ((n - 1) / most)) end end

--- name, magnitudes of (k, n, height, width), whether the sign is random
local RAND <const> = {
  { "Identity" }, { "ShearX", line(0, 0.3), true }, { "ShearY", line(0, 0.3), true },
  { "TranslateX", function(k, n, _, w) return line(0, 150 / 331 * w)(k, n) end, true },
  { "TranslateY", function(k, n, h) return line(0, 150 / 331 * h)(k, n) end, true },
  { "Rotate", line(0, 30), true }, { "Brightness", line(0, 0.9), true }, { "Color", line(0, 0.9), true }, { "Contrast", line(0, 0.9), true },
  { "Sharpness", line(0, 0.9), true }, { "Posterize", bits(4) }, { "Solarize", line(255, 0) }, { "AutoContrast" }, { "Equalize" },
}
local WIDE <const> = {
  { "Identity" }, { "ShearX", line(0, 0.99), true }, { "ShearY", line(0, 0.99), true }, { "TranslateX", line(0, 32), true },
  { "TranslateY", line(0, 32), true }, { "Rotate", line(0, 135), true }, { "Brightness", line(0, 0.99), true },
  { "Color", line(0, 0.99), true }, { "Contrast", line(0, 0.99), true }, { "Sharpness", line(0, 0.99), true }, { "Posterize", bits(6) },
  { "Solarize", line(255, 0) }, { "AutoContrast" }, { "Equalize" },
}

local AUTO <const> = { Invert = { "Invert" } } -- by name, with RandAugment's magnitudes
for _, row in ipairs(RAND) do AUTO[row[1]] = row end
local BINS <const> = 10

local function step(img, row, k, n, o)
  local name, magnitudes, signed = table.unpack(row)
  local h, w = pictures.size(img)
  local m = magnitudes and magnitudes(k, n, h, w) or 0
  if signed and math.random() < 0.5 then m = -m end
  return apply(img, name, m, o)
end

local DECLARED <const> = { interpolation = "nearest", fill = options.none, backend = "torchvision" }

local function settings(who, opts, more)
  for key, value in next, DECLARED do more[key] = value end
  local o = options(who, opts, more)
  return o, { interpolation = o.interpolation, fill = o.fill, backend = o.backend }
end

--- Two operations of a policy that was learned for a data set, each with its probability and magnitude, on u8 pictures. The options
--- interpolation, fill and backend are those of RandAugment.
--- - policy: "imagenet", "cifar10" or "svhn"
--- example: accel.vision.transforms.AutoAugment()(accel.zeros({ 3, 8, 8 }, { dtype = "u8" })).shape --> {3, 8, 8}
---@class accel.vision.transforms.AutoAugment : accel.vision.transforms.Transform
M.AutoAugment = Transform:extend "accel.vision.transforms.AutoAugment"

---@param opts? {policy: string?, interpolation: string?, fill: (number|number[])?, backend: string?}
function M.AutoAugment:init(opts)
  local o
  o, self.o = settings("AutoAugment", opts, { policy = "imagenet" })
  check.word("AutoAugment", "policy", o.policy, { "imagenet", "cifar10", "svhn" })
  self.policy, self.args = policies[o.policy], { opts }
end

function M.AutoAugment:transform(img)
  for _, op in ipairs(self.policy[math.random(#self.policy)]) do
    local name, p, magnitude = table.unpack(op)
    if math.random() < p then img = step(img, AUTO[name], magnitude, BINS, self.o) end
  end
  return img
end

--- num_ops random operations of one magnitude, on u8 pictures.
--- - num_ops: 2 by default
--- - magnitude: of 0 to num_magnitude_bins - 1. The default is 9 of 31
--- - interpolation, fill, backend: of shears, shifts and rotations, as functional.affine has them
--- example: accel.vision.transforms.RandAugment()(accel.zeros({ 3, 8, 8 }, { dtype = "u8" })).shape --> {3, 8, 8}
---@class accel.vision.transforms.RandAugment : accel.vision.transforms.Transform
M.RandAugment = Transform:extend "accel.vision.transforms.RandAugment"

---@param opts? {num_ops: integer?, magnitude: integer?, num_magnitude_bins: integer?, interpolation: string?, fill: (number|number[])?,
--- backend: string?}
function M.RandAugment:init(opts)
  local o
  o, self.o = settings("RandAugment", opts, { num_ops = 2, magnitude = 9, num_magnitude_bins = 31 })
  self.num_ops = check.count("RandAugment", "num_ops", o.num_ops)
  self.bins = check.positive("RandAugment", "num_magnitude_bins", o.num_magnitude_bins)
  self.magnitude, self.args = check.integer("RandAugment", "magnitude", o.magnitude, 0, self.bins - 1), { opts }
end

function M.RandAugment:transform(img)
  for _ = 1, self.num_ops do img = step(img, RAND[math.random(#RAND)], self.magnitude, self.bins, self.o) end
  return img
end

--- One random operation of random magnitude, on u8 pictures. The options are those of RandAugment.
--- example: accel.vision.transforms.TrivialAugmentWide()(accel.zeros({ 3, 8, 8 }, { dtype = "u8" })).shape --> {3, 8, 8}
---@class accel.vision.transforms.TrivialAugmentWide : accel.vision.transforms.Transform
M.TrivialAugmentWide = Transform:extend "accel.vision.transforms.TrivialAugmentWide"

---@param opts? {num_magnitude_bins: integer?, interpolation: string?, fill: (number|number[])?, backend: string?}
function M.TrivialAugmentWide:init(opts)
  local o
  o, self.o = settings("TrivialAugmentWide", opts, { num_magnitude_bins = 31 })
  self.bins, self.args = check.positive("TrivialAugmentWide", "num_magnitude_bins", o.num_magnitude_bins), { opts }
end

function M.TrivialAugmentWide:transform(img)
  local row = WIDE[math.random(#WIDE)]
  return step(img, row, math.random(0, self.bins - 1), self.bins, self.o)
end

return M
