--- Transforms of values that happen with a probability: RandomInvert, RandomEqualize, RandomAutocontrast, RandomPosterize, RandomSolarize,
--- RandomAdjustSharpness.
local Transform = require "accel.vision.transforms.transform"
local F = require "accel.vision.transforms.functional"
local check = require "accel.util.check"
local draws = require "accel.vision.transforms.draws"

local M = {}

--- The negative of pictures, with probability p.
--- example: accel.vision.transforms.RandomInvert(1)(accel.zeros(1, 1, 1)) --> { { { 1 } } }
---@class accel.vision.transforms.RandomInvert : accel.vision.transforms.Transform
M.RandomInvert = Transform:extend "accel.vision.transforms.RandomInvert"

---@param p? number Default: 0.5
function M.RandomInvert:init(p) self.p, self.args = draws.probability("RandomInvert", p or 0.5), { p } end

function M.RandomInvert:transform(img) return draws.chance(self.p) and F.invert(img) or img end

--- Flat histograms, with probability p.
--- example: accel.vision.transforms.RandomEqualize(1)(accel.zeros({ 1, 1, 1 }, { dtype = "u8" })) --> { { { 0 } } }
---@class accel.vision.transforms.RandomEqualize : accel.vision.transforms.Transform
M.RandomEqualize = Transform:extend "accel.vision.transforms.RandomEqualize"

---@param p? number Default: 0.5
function M.RandomEqualize:init(p) self.p, self.args = draws.probability("RandomEqualize", p or 0.5), { p } end

function M.RandomEqualize:transform(img) return draws.chance(self.p) and F.equalize(img) or img end

--- The whole range of values, with probability p.
--- example: accel.vision.transforms.RandomAutocontrast(1)(accel.tensor { { { 0.25, 0.5 } } }) --> { { { 0, 1 } } }
---@class accel.vision.transforms.RandomAutocontrast : accel.vision.transforms.Transform
M.RandomAutocontrast = Transform:extend "accel.vision.transforms.RandomAutocontrast"

---@param p? number Default: 0.5
function M.RandomAutocontrast:init(p) self.p, self.args = draws.probability("RandomAutocontrast", p or 0.5), { p } end

function M.RandomAutocontrast:transform(img) return draws.chance(self.p) and F.autocontrast(img) or img end

--- The upper bits of u8 pictures, with probability p.
--- example: accel.vision.transforms.RandomPosterize(1, 1)(accel.full({ 1, 1, 1 }, 200, { dtype = "u8" })) --> { { { 128 } } }
---@class accel.vision.transforms.RandomPosterize : accel.vision.transforms.Transform
M.RandomPosterize = Transform:extend "accel.vision.transforms.RandomPosterize"

---@param bits integer
---@param p? number Default: 0.5
function M.RandomPosterize:init(bits, p)
  self.bits, self.args = check.integer("RandomPosterize", "bits", bits), { bits, p }
  self.p = draws.probability("RandomPosterize", p or 0.5)
end

function M.RandomPosterize:transform(img) return draws.chance(self.p) and F.posterize(img, self.bits) or img end

--- The negative of values from a threshold on, with probability p.
--- example: accel.vision.transforms.RandomSolarize(0.5, 1)(accel.tensor { { { 0.25, 0.75 } } }) --> { { { 0.25, 0.25 } } }
---@class accel.vision.transforms.RandomSolarize : accel.vision.transforms.Transform
M.RandomSolarize = Transform:extend "accel.vision.transforms.RandomSolarize"

---@param threshold number
---@param p? number Default: 0.5
function M.RandomSolarize:init(threshold, p)
  self.threshold, self.args = check.number("RandomSolarize", "threshold", threshold), { threshold, p }
  self.p = draws.probability("RandomSolarize", p or 0.5)
end

function M.RandomSolarize:transform(img) return draws.chance(self.p) and F.solarize(img, self.threshold) or img end

--- Smoother or sharper pictures, with probability p.
--- example: accel.vision.transforms.RandomAdjustSharpness(2, 1)(accel.ones(1, 1, 1)) --> { { { 1 } } }
---@class accel.vision.transforms.RandomAdjustSharpness : accel.vision.transforms.Transform
M.RandomAdjustSharpness = Transform:extend "accel.vision.transforms.RandomAdjustSharpness"

---@param sharpness_factor number
---@param p? number Default: 0.5
function M.RandomAdjustSharpness:init(sharpness_factor, p)
  self.sharpness_factor, self.args = check.number("RandomAdjustSharpness", "sharpness_factor", sharpness_factor), { sharpness_factor, p }
  self.p = draws.probability("RandomAdjustSharpness", p or 0.5)
end

function M.RandomAdjustSharpness:transform(img) return draws.chance(self.p) and F.adjust_sharpness(img, self.sharpness_factor) or img end

return M
