--- The base of the classes of accel.vision.transforms. A transform is called with a picture, a batch of pictures, or a sample that holds one:
--- of a table, the first tensor of three dims or more is the picture, and everything else passes.
---
--- Draws come from math.random. While a loader reads, it is seeded by (seed, epoch, position of the sample), so that augmentation is the same
--- on any number of ranks and workers.
local class = require "accel.util.class"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

---@class accel.vision.transforms.Transform
---@field args any[] of the constructor, for workers of a loader
local Transform = class("accel.vision.transforms.Transform")

--- The transform of one picture or batch. Subclasses define it.
---@param img accel.Tensor
---@return any
function Transform:transform(img) -- luacheck: ignore
  raise("%s does not define transform", getmetatable(self).__name)
end

local function is_picture(v) return tensors.is_tensor(v) and #v.shape >= 3 end

local function apply(self, sample)
  if tensors.is_tensor(sample) then return self:transform(sample) end
  local name = getmetatable(self).__name:match "[^.]*$"
  if type(sample) ~= "table" then raise("%s: expected a picture or a sample that holds one, got %s", name, check.shown(sample)) end
  local at
  for key, value in require("accel").pairs(sample) do
    if is_picture(value) then
      at = key
      break
    end
  end
  if at == nil then raise("%s: the sample holds no picture, a tensor of three dims or more", name) end
  local out = setmetatable({}, getmetatable(sample))
  for key, value in next, sample do out[key] = value end
  out[at] = self:transform(sample[at])
  return out
end

function Transform.__call(self, sample) return apply(self, sample) end

--- For workers of a loader: the class by its name, and the constructor's arguments.
function Transform:worker_spec()
  return { module = "accel.vision.transforms:" .. getmetatable(self).__name:match "[^.]*$", args = self.args }
end

function Transform:__tostring() return getmetatable(self).__name:match "[^.]*$" .. "()" end

--- A number from a range, or one of +- v.
function Transform.uniform(low, high) return low + (high - low) * math.random() end

--- True with probability p.
function Transform.chance(p) return math.random() < p end

--- {low, high} of a symmetric option: a number v is {center - v, center + v}, not below `least`.
function Transform.range(who, name, v, center, least)
  if type(v) == "number" then
    if v < 0 then raise("%s: %s must not be negative, got %s", who, name, v) end
    v = { math.max(center - v, least or -math.huge), center + v }
  end
  if type(v) ~= "table" or #v ~= 2 or type(v[1]) ~= "number" or type(v[2]) ~= "number" or v[1] > v[2] then
    raise("%s: %s must be a number or {low, high}, got %s", who, name, check.shown(v))
  end
  return v
end

function Transform.probability(who, p) return check.number(who, "p", p, 0, 1) end

return Transform
