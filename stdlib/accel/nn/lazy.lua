--- Lazy layers: their number of inputs follows from the first batch. Until then they have no tensors, and whoever asks for the
--- parameters or the state of a model with one gets an error. The first call, or load_state_dict, turns the layer into the
--- class without "Lazy" in its name.
---
---   local net = nn.Sequential(nn.LazyLinear(64), nn.ReLU(), nn.LazyLinear(10))
---   net(batch)                                  -- sizes are known from here on
---   local optimizer = accel.optim.SGD(net:parameters(), { lr = 0.1 })
local BatchNorm = require "accel.nn.batch_norm"
local InstanceNorm = require "accel.nn.instance_norm"
local Linear = require "accel.nn.linear"
local Module = require "accel.nn.module"
local conv = require "accel.nn.conv"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function is_options(value)
  return type(value) == "table" and getmetatable(value) == nil and rawlen(value) == 0 and next(value) ~= nil
end

--- The arguments with options, which are a copy: device and dtype, if the caller gave none, and other defaults than the class has.
local function with(args, device, dtype, defaults)
  local out, n = table.move(args, 1, args.n, 1, {}), args.n
  local options = {}
  if is_options(out[n]) then
    for key, value in next, out[n] do options[key] = value end
  else
    n = n + 1
  end
  options.device = options.device or device
  options.dtype = options.dtype or dtype
  for name, default in next, defaults or {} do
    local positional = default.at < n and args[default.at] ~= nil
    if options[name] == nil and not positional then options[name] = default.value end
  end
  out[n] = next(options) and options or nil
  return table.unpack(out, 1, n)
end

--- The layer becomes one of n inputs.
local function become(self, n, device)
  local lazy = rawget(self, "_lazy")
  rawset(self, "_lazy", nil)
  setmetatable(self, lazy.class)
  lazy.class.init(self, n, with(lazy.args, lazy.device or device, lazy.dtype, lazy.defaults))
end

--- spec: class, inputs(x, groups) -> the number of inputs of a batch (nil: another rank than the class takes), of_state(state, groups) ->
--- that of saved tensors, which state(name) returns (nil: there are none). defaults: by
--- name, with their places.
local function class(who, spec)
  local Lazy = Module:extend("accel.nn." .. who)

  function Lazy:init(...)
    local args = table.pack(...)
    local groups = spec.grouped and (is_options(args[args.n]) and args[args.n].groups or args[6]) or 1
    if math.type(groups) ~= "integer" or groups < 1 then groups = 1 end
    spec.class(groups, with(args, "meta", nil, spec.defaults)) -- raises for wrong arguments
    rawset(self, "_lazy", { class = spec.class, args = args, groups = groups, who = who, defaults = spec.defaults })
  end

  function Lazy:forward(x, ...)
    local n = tensors.is_tensor(x) and spec.inputs(x)
    if not n then
      raise("%s: the first batch has %s, from which the number of inputs does not follow", who,
        tensors.is_tensor(x) and "shape " .. tensors.shape_string(x) or "no tensor")
    end
    become(self, n, x.device)
    return self:forward(x, ...)
  end

  function Lazy:_collect_state(state, prefix)
    local n = spec.of_state(function(name) return state[prefix .. name] end, self._lazy.groups)
    local any = state[prefix .. "weight"] or state[prefix .. "running_mean"]
    if n then become(self, n, any.device) end
  end

  function Lazy.extra_repr() return "no inputs yet" end

  return Lazy
end

--- Of layers with n dimensions after the channels.
local function convolution(name, n)
  local transposed = name:find "Transpose"
  return class("Lazy" .. name, {
    class = conv[name], grouped = true,
    inputs = function(x) return (x.ndim == n + 1 or x.ndim == n + 2) and x.shape[x.ndim - n] end,
    of_state = function(state, groups)
      local w = state "weight"
      return w and (transposed and w.shape[1] or w.shape[2] * groups)
    end,
  })
end

local function normalisation(name, from, ranks)
  return class("Lazy" .. name, {
    class = from[name],
    defaults = from == InstanceNorm and { affine = { at = 3, value = true }, track_running_stats = { at = 4, value = true } } or nil,
    inputs = function(x) return ranks[x.ndim] and x.shape[ranks[x.ndim]] end,
    of_state = function(state)
      local t = state "weight" or state "running_mean"
      return t and t.shape[1]
    end,
  })
end

--- Linear whose in_features follow from the first batch.
--- example: local m = accel.nn.LazyLinear(2) m(accel.ones(4, 3)) return m.weight.shape --> { 2, 3 }
---@class accel.nn.LazyLinear : accel.nn.Module
---@overload fun(out_features: integer, opts: table?): accel.nn.LazyLinear
M.LazyLinear = class("LazyLinear", {
  class = Linear,
  inputs = function(x) return x.ndim > 0 and x.shape[x.ndim] end,
  of_state = function(state) return state "weight" and state("weight").shape[2] end,
})

--- Conv1d whose in_channels follow from the first batch.
--- example: accel.nn.LazyConv1d(2, 1)(accel.ones(1, 3, 4)).shape --> { 1, 2, 4 }
---@class accel.nn.LazyConv1d : accel.nn.Module
---@overload fun(out_channels: integer, kernel_size: accel.nn.sizes, opts: table?): accel.nn.LazyConv1d
M.LazyConv1d = convolution("Conv1d", 1)

--- Conv2d whose in_channels follow from the first batch.
--- example: accel.nn.LazyConv2d(2, 1)(accel.ones(1, 3, 4, 4)).shape --> { 1, 2, 4, 4 }
---@class accel.nn.LazyConv2d : accel.nn.Module
---@overload fun(out_channels: integer, kernel_size: accel.nn.sizes, opts: table?): accel.nn.LazyConv2d
M.LazyConv2d = convolution("Conv2d", 2)

--- Conv3d whose in_channels follow from the first batch.
--- example: accel.nn.LazyConv3d(2, 1)(accel.ones(1, 3, 4, 4, 4)).shape --> { 1, 2, 4, 4, 4 }
---@class accel.nn.LazyConv3d : accel.nn.Module
---@overload fun(out_channels: integer, kernel_size: accel.nn.sizes, opts: table?): accel.nn.LazyConv3d
M.LazyConv3d = convolution("Conv3d", 3)

--- ConvTranspose1d whose in_channels follow from the first batch.
--- example: accel.nn.LazyConvTranspose1d(2, 1)(accel.ones(1, 3, 4)).shape --> { 1, 2, 4 }
---@class accel.nn.LazyConvTranspose1d : accel.nn.Module
---@overload fun(out_channels: integer, kernel_size: accel.nn.sizes, opts: table?): accel.nn.LazyConvTranspose1d
M.LazyConvTranspose1d = convolution("ConvTranspose1d", 1)

--- ConvTranspose2d whose in_channels follow from the first batch.
--- example: accel.nn.LazyConvTranspose2d(2, 1)(accel.ones(1, 3, 4, 4)).shape --> { 1, 2, 4, 4 }
---@class accel.nn.LazyConvTranspose2d : accel.nn.Module
---@overload fun(out_channels: integer, kernel_size: accel.nn.sizes, opts: table?): accel.nn.LazyConvTranspose2d
M.LazyConvTranspose2d = convolution("ConvTranspose2d", 2)

--- ConvTranspose3d whose in_channels follow from the first batch.
--- example: accel.nn.LazyConvTranspose3d(2, 1)(accel.ones(1, 3, 4, 4, 4)).shape --> { 1, 2, 4, 4, 4 }
---@class accel.nn.LazyConvTranspose3d : accel.nn.Module
---@overload fun(out_channels: integer, kernel_size: accel.nn.sizes, opts: table?): accel.nn.LazyConvTranspose3d
M.LazyConvTranspose3d = convolution("ConvTranspose3d", 3)

--- BatchNorm1d whose num_features follow from the first batch.
--- example: accel.nn.LazyBatchNorm1d()(accel.ones(2, 3, 4)).shape --> { 2, 3, 4 }
---@class accel.nn.LazyBatchNorm1d : accel.nn.Module
---@overload fun(opts: table?): accel.nn.LazyBatchNorm1d
M.LazyBatchNorm1d = normalisation("BatchNorm1d", BatchNorm, { [2] = 2, [3] = 2 })

--- BatchNorm2d whose num_features follow from the first batch.
--- example: accel.nn.LazyBatchNorm2d()(accel.ones(2, 3, 4, 4)).shape --> { 2, 3, 4, 4 }
---@class accel.nn.LazyBatchNorm2d : accel.nn.Module
---@overload fun(opts: table?): accel.nn.LazyBatchNorm2d
M.LazyBatchNorm2d = normalisation("BatchNorm2d", BatchNorm, { [4] = 2 })

--- BatchNorm3d whose num_features follow from the first batch.
--- example: accel.nn.LazyBatchNorm3d()(accel.ones(2, 3, 4, 4, 4)).shape --> { 2, 3, 4, 4, 4 }
---@class accel.nn.LazyBatchNorm3d : accel.nn.Module
---@overload fun(opts: table?): accel.nn.LazyBatchNorm3d
M.LazyBatchNorm3d = normalisation("BatchNorm3d", BatchNorm, { [5] = 2 })

--- InstanceNorm1d whose num_features follow from the first batch.
--- example: accel.nn.LazyInstanceNorm1d()(accel.ones(2, 3, 4)).shape --> { 2, 3, 4 }
---@class accel.nn.LazyInstanceNorm1d : accel.nn.Module
---@overload fun(opts: table?): accel.nn.LazyInstanceNorm1d
M.LazyInstanceNorm1d = normalisation("InstanceNorm1d", InstanceNorm, { [2] = 1, [3] = 2 })

--- InstanceNorm2d whose num_features follow from the first batch.
--- example: accel.nn.LazyInstanceNorm2d()(accel.ones(2, 3, 4, 4)).shape --> { 2, 3, 4, 4 }
---@class accel.nn.LazyInstanceNorm2d : accel.nn.Module
---@overload fun(opts: table?): accel.nn.LazyInstanceNorm2d
M.LazyInstanceNorm2d = normalisation("InstanceNorm2d", InstanceNorm, { [3] = 1, [4] = 2 })

--- InstanceNorm3d whose num_features follow from the first batch.
--- example: accel.nn.LazyInstanceNorm3d()(accel.ones(2, 3, 4, 4, 4)).shape --> { 2, 3, 4, 4, 4 }
---@class accel.nn.LazyInstanceNorm3d : accel.nn.Module
---@overload fun(opts: table?): accel.nn.LazyInstanceNorm3d
M.LazyInstanceNorm3d = normalisation("InstanceNorm3d", InstanceNorm, { [4] = 1, [5] = 2 })

return M
