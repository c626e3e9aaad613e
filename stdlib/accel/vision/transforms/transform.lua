--- The base of the classes of accel.vision.transforms. A transform is called with a picture, a batch of pictures, or a sample that holds one:
--- of a table, the first tensor of three dims or more is the picture, and everything else passes.
---
--- Draws come from math.random. While a loader reads, it is seeded by (seed, epoch, position of the sample), so that augmentation is the same
--- on any number of ranks and workers.
local class = require "accel.util.class"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- example: local Invert = accel.vision.transforms.Transform:extend "Invert" function Invert:transform(img) return 1 - img end
---   return Invert()({ accel.zeros(1, 1, 1), 3 })[1] --> { { { 1 } } }
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

return Transform
