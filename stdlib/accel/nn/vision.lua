--- Layers that resample or rearrange: Upsample, PixelShuffle, PixelUnshuffle, ChannelShuffle, Unfold, Fold.
local accel = require "accel"
local F = require "accel.nn.functional"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

local modes = { "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area" }

--- Resamples the spatial dimensions of (N, C, ...) to size, or by scale_factor: a number, or a list with one per
--- dimension. mode "nearest" (default), "nearest-exact", "linear" (one dimension), "bilinear" or "bicubic" (two), "trilinear" (three) or
--- "area". For the linear and cubic ones, align_corners (false) sets whether the corners' centres are kept. recompute_scale_factor (false):
--- positions follow from the sizes, also with scale_factor. See accel.interpolate.
--- example: accel.nn.Upsample({ scale_factor = 2 })(accel.tensor { { { 1.0, 2.0 } } }) --> { { { 1, 1, 2, 2 } } }
--- example: accel.nn.Upsample({ size = 4, mode = "bilinear" })(accel.ones(1, 3, 2, 2)).shape --> { 1, 3, 4, 4 }
---@class accel.nn.Upsample : accel.nn.Module
M.Upsample = Module:extend("accel.nn.Upsample")

local upsample_arguments = arguments("Upsample", { "size", list = true }, { "scale_factor", list = true },
  { "mode", "nearest" }, { "align_corners" }, { "recompute_scale_factor" })

---@param ... any size, scale_factor, mode, align_corners, recompute_scale_factor by position or in one table
function M.Upsample:init(...)
  local o = upsample_arguments(...)
  if (o.size == nil) == (o.scale_factor == nil) then
    raise "Upsample: give either size or scale_factor"
  end
  self.size, self.scale_factor, self.align_corners = o.size, o.scale_factor, o.align_corners
  self.recompute_scale_factor = o.recompute_scale_factor
  self.mode = check.word("Upsample", "mode", o.mode, modes)
end

function M.Upsample:forward(x)
  return F.interpolate(x, {
    size = self.size, scale_factor = self.scale_factor, mode = self.mode,
    align_corners = self.align_corners, recompute_scale_factor = self.recompute_scale_factor,
  })
end

function M.Upsample:extra_repr()
  local what = self.size and "size" or "scale_factor"
  local value = self[what]
  return ("%s=%s, mode='%s'"):format(what, type(value) == "table" and arguments.text(value) or tostring(value),
    self.mode)
end

local function older(who, mode, corners)
  local Class = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "size", list = true }, { "scale_factor", list = true })
  function Class:init(...)
    local o = parse(...)
    M.Upsample.init(self, { size = o.size, scale_factor = o.scale_factor, mode = mode, align_corners = corners })
  end
  Class.forward, Class.extra_repr = M.Upsample.forward, M.Upsample.extra_repr
  return Class
end

--- Upsample with mode "bilinear" and align_corners = true, as older versions of PyTorch call it.
--- example: accel.nn.UpsamplingBilinear2d({ scale_factor = 2 })(accel.ones(1, 1, 2, 2)).shape --> { 1, 1, 4, 4 }
---@class accel.nn.UpsamplingBilinear2d : accel.nn.Module
---@overload fun(size: accel.nn.sizes?, scale_factor: number?): accel.nn.UpsamplingBilinear2d
M.UpsamplingBilinear2d = older("UpsamplingBilinear2d", "bilinear", true)

--- Upsample with mode "nearest", as older versions of PyTorch call it.
--- example: accel.nn.UpsamplingNearest2d({ scale_factor = 2 })(accel.ones(1, 1, 2, 2)).shape --> { 1, 1, 4, 4 }
---@class accel.nn.UpsamplingNearest2d : accel.nn.Module
---@overload fun(size: accel.nn.sizes?, scale_factor: number?): accel.nn.UpsamplingNearest2d
M.UpsamplingNearest2d = older("UpsamplingNearest2d", "nearest")

local function by_number(who, functional, name)
  local Class = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { name })
  function Class:init(...) self[name] = check.positive(who, name, parse(...)[name]) end
  function Class:forward(x) return functional(x, self[name]) end
  function Class:extra_repr() return ("%s=%d"):format(name, self[name]) end
  return Class
end

--- Moves channels into space: (..., C r^2, H, W) -> (..., C, H r, W r), r = upscale_factor.
--- example: accel.nn.PixelShuffle(2)(accel.arange(4):view(4, 1, 1)) --> { { { 0, 1 }, { 2, 3 } } }
---@class accel.nn.PixelShuffle : accel.nn.Module
---@overload fun(upscale_factor: integer): accel.nn.PixelShuffle
M.PixelShuffle = by_number("PixelShuffle", F.pixel_shuffle, "upscale_factor")

--- Moves space into channels, the inverse of PixelShuffle.
--- example: accel.nn.PixelUnshuffle(2)(accel.ones(1, 2, 4, 6)).shape --> { 1, 8, 2, 3 }
---@class accel.nn.PixelUnshuffle : accel.nn.Module
---@overload fun(downscale_factor: integer): accel.nn.PixelUnshuffle
M.PixelUnshuffle = by_number("PixelUnshuffle", F.pixel_unshuffle, "downscale_factor")

--- Interleaves the channels of groups, so that grouped convolutions mix.
--- example: accel.nn.ChannelShuffle(2)(accel.arange(4):view(1, 4, 1)):flatten() --> { 0, 2, 1, 3 }
---@class accel.nn.ChannelShuffle : accel.nn.Module
---@overload fun(groups: integer): accel.nn.ChannelShuffle
M.ChannelShuffle = by_number("ChannelShuffle", F.channel_shuffle, "groups")

local window = { "kernel_size", "dilation", "padding", "stride" }

local function window_repr(self)
  local parts = {}
  for i, name in ipairs(window) do parts[i] = ("%s=%s"):format(name, arguments.text(self[name])) end
  return table.concat(parts, ", ")
end

local function take_window(self, who, o)
  for _, name in ipairs(window) do
    self[name] = arguments.tuple(who, name, o[name], 2, name == "padding" and 0 or 1)
  end
end

--- Cuts (N, C, H, W) into windows, one column each: (N, C K_h K_w, number of windows). kernel_size, then
--- dilation = 1, padding = 0, stride = 1.
--- example: accel.nn.Unfold(2)(accel.ones(1, 3, 4, 4)).shape --> { 1, 12, 9 }
---@class accel.nn.Unfold : accel.nn.Module
M.Unfold = Module:extend("accel.nn.Unfold")

local unfold_arguments = arguments("Unfold", { "kernel_size", list = true }, { "dilation", 1, list = true },
  { "padding", 0, list = true }, { "stride", 1, list = true })

---@param ... any kernel_size, dilation, padding, stride by position or in one table
function M.Unfold:init(...) take_window(self, "Unfold", unfold_arguments(...)) end

function M.Unfold:forward(x)
  return accel.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)
end

M.Unfold.extra_repr = window_repr

--- Adds up the windows of Unfold at their original positions: (N, C K_h K_w, number of windows) -> (N, C, output_size).
--- example: accel.nn.Fold({ 4, 4 }, 2)(accel.ones(1, 12, 9)).shape --> { 1, 3, 4, 4 }
---@class accel.nn.Fold : accel.nn.Module
M.Fold = Module:extend("accel.nn.Fold")

local fold_arguments = arguments("Fold", { "output_size", list = true }, { "kernel_size", list = true },
  { "dilation", 1, list = true }, { "padding", 0, list = true }, { "stride", 1, list = true })

---@param ... any output_size, kernel_size, dilation, padding, stride by position or in one table
function M.Fold:init(...)
  local o = fold_arguments(...)
  self.output_size = arguments.tuple("Fold", "output_size", o.output_size, 2, 1)
  take_window(self, "Fold", o)
end

function M.Fold:forward(x)
  return accel.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)
end

function M.Fold:extra_repr()
  return ("output_size=%s, %s"):format(arguments.text(self.output_size), window_repr(self))
end

return M
