--- Transforms made of transforms: Compose, RandomApply, RandomChoice, RandomOrder, Lambda.
local Transform = require "accel.vision.transforms.transform"
local draws = require "accel.vision.transforms.draws"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

local function list_of(who, list)
  if type(list) ~= "table" or #list == 0 then raise("%s: expected a list of transforms, got %s", who, check.shown(list)) end
  for i, t in ipairs(list) do check.callable(who, ("transform %d"):format(i), t) end
  return list
end

--- Transforms one after the other.
--- example: local T = accel.vision.transforms
---   return T.Compose({ T.ToTensor(), T.Normalize({ 0.5 }, { 0.5 }) })(accel.full({ 1, 1, 1 }, 255, { dtype = "u8" })) --> { { { 1 } } }
---@class accel.vision.transforms.Compose : accel.vision.transforms.Transform
M.Compose = Transform:extend "accel.vision.transforms.Compose"

---@param transforms function[]
function M.Compose:init(transforms) self.transforms, self.args = list_of("Compose", transforms), { transforms } end

function M.Compose.__call(self, sample)
  for _, t in ipairs(self.transforms) do sample = t(sample) end
  return sample
end

--- All transforms with probability p, otherwise none.
--- example: local T = accel.vision.transforms return T.RandomApply({ T.Pad(1) }, 1)(accel.ones(1, 1, 1)).shape --> {1, 3, 3}
---@class accel.vision.transforms.RandomApply : accel.vision.transforms.Transform
M.RandomApply = Transform:extend "accel.vision.transforms.RandomApply"

---@param transforms function[]
---@param p? number Default: 0.5
function M.RandomApply:init(transforms, p)
  self.transforms, self.p, self.args = list_of("RandomApply", transforms), draws.probability("RandomApply", p or 0.5), { transforms, p }
end

function M.RandomApply.__call(self, sample)
  if not draws.chance(self.p) then return sample end
  for _, t in ipairs(self.transforms) do sample = t(sample) end
  return sample
end

--- One of the transforms.
--- example: local T = accel.vision.transforms
---   return T.RandomChoice({ T.Pad(1), T.Pad(2) }, { 0, 1 })(accel.ones(1, 1, 1)).shape --> {1, 5, 5}
---@class accel.vision.transforms.RandomChoice : accel.vision.transforms.Transform
M.RandomChoice = Transform:extend "accel.vision.transforms.RandomChoice"

---@param transforms function[]
---@param p? number[] weights, equal by default
function M.RandomChoice:init(transforms, p)
  self.transforms, self.args = list_of("RandomChoice", transforms), { transforms, p }
  if p and #p ~= #transforms then raise("RandomChoice: %d weights for %d transforms", #p, #transforms) end
  self.sum, self.p = 0, p
  for _, w in ipairs(p or {}) do self.sum = self.sum + check.number("RandomChoice", "p", w, 0) end
end

function M.RandomChoice.__call(self, sample)
  local n = #self.transforms
  if not self.p then return self.transforms[math.random(n)](sample) end
  local left = math.random() * self.sum
  for i = 1, n - 1 do
    left = left - self.p[i]
    if left < 0 then return self.transforms[i](sample) end
  end
  return self.transforms[n](sample)
end

--- All transforms in random order.
--- example: local T = accel.vision.transforms return T.RandomOrder({ T.Pad(1), T.Pad(2) })(accel.ones(1, 1, 1)).shape --> {1, 7, 7}
---@class accel.vision.transforms.RandomOrder : accel.vision.transforms.Transform
M.RandomOrder = Transform:extend "accel.vision.transforms.RandomOrder"

---@param transforms function[]
function M.RandomOrder:init(transforms) self.transforms, self.args = list_of("RandomOrder", transforms), { transforms } end

function M.RandomOrder.__call(self, sample)
  for _, i in ipairs(require("accel.vision.transforms.colours").order_of(#self.transforms)) do sample = self.transforms[i](sample) end
  return sample
end

--- A function as a transform. Workers of a loader need it by its name: use a module of your own there.
--- example: accel.vision.transforms.Lambda(function(x) return x * 2 end)(accel.ones(1)) --> { 2 }
---@class accel.vision.transforms.Lambda : accel.vision.transforms.Transform
M.Lambda = Transform:extend "accel.vision.transforms.Lambda"

---@param fn fun(sample: any): any
function M.Lambda:init(fn) self.fn, self.args = check.callable("Lambda", "fn", fn), { fn } end

function M.Lambda.__call(self, sample) return self.fn(sample) end

return M
