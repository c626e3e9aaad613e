--- Convolutions: Conv1d, Conv2d, Conv3d and their transposes.
---
--- Arguments are PyTorch's, by position or by name: in_channels, out_channels, kernel_size, then stride = 1,
--- padding = 0, dilation = 1, groups = 1, bias = true, padding_mode = "zeros". Sizes are a number or a list
--- with one per spatial dimension. Input is (N, C, spatial ...) or, without a batch, (C, spatial ...).
local accel = require "accel"
local F = require "accel.nn.functional"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local same = require "accel.nn.same_padding"

local tuple, text = arguments.tuple, arguments.text

---@alias accel.nn.sizes integer|integer[] one number, or one per spatial dimension

local M = {}

local modes = { "zeros", "reflect", "replicate", "circular" }

--- Weight and bias as PyTorch draws them.
local function reset(self)
  local init = require "accel.nn.initialization"
  local fan_in = init.fans(self.weight)
  if fan_in == 0 then return end
  local bound = 1 / math.sqrt(fan_in)
  init.uniform_(self.weight, -bound, bound)
  if self.bias then init.uniform_(self.bias, -bound, bound) end
end

--- Constructor arguments that both kinds of layer store.
local function setup(self, who, o, n)
  local channels = { "in_channels", "out_channels" }
  for _, name in ipairs(channels) do self[name] = check.positive(who, name, o[name]) end
  self.groups = check.positive(who, "groups", o.groups)
  for _, name in ipairs(channels) do
    if self[name] % self.groups ~= 0 then
      raise("%s: %s (%d) must be a multiple of groups (%d)", who, name, self[name], self.groups)
    end
  end
  self.kernel_size = tuple(who, "kernel_size", o.kernel_size, n, 1)
  self.stride = tuple(who, "stride", o.stride, n, 1)
  self.dilation = tuple(who, "dilation", o.dilation, n, 1)
end

local function make_parameters(self, o, first, second)
  local make = { dtype = o.dtype, device = o.device }
  local shape = { first, second }
  table.move(self.kernel_size, 1, #self.kernel_size, 3, shape)
  self.weight = Parameter(accel.empty(shape, make))
  self:register_parameter("bias", o.bias and Parameter(accel.empty(self.out_channels, make)) or nil)
  self:reset_parameters()
end

local function all(list, value)
  for _, v in ipairs(list) do
    if v ~= value then return false end
  end
  return true
end

--- The parts of a printed layer that both kinds share, as PyTorch orders them.
local function repr(self)
  local parts = { tostring(self.in_channels), tostring(self.out_channels),
    "kernel_size=" .. text(self.kernel_size), "stride=" .. text(self.stride) }
  if type(self.padding) == "string" then
    parts[#parts + 1] = "padding=" .. self.padding
  elseif not all(self.padding, 0) then
    parts[#parts + 1] = "padding=" .. text(self.padding)
  end
  if not all(self.dilation, 1) then parts[#parts + 1] = "dilation=" .. text(self.dilation) end
  if self.output_padding and not all(self.output_padding, 0) then
    parts[#parts + 1] = "output_padding=" .. text(self.output_padding)
  end
  if self.groups ~= 1 then parts[#parts + 1] = ("groups=%d"):format(self.groups) end
  if not self.bias then parts[#parts + 1] = "bias=false" end
  if self.padding_mode ~= "zeros" then parts[#parts + 1] = "padding_mode=" .. self.padding_mode end
  return table.concat(parts, ", ")
end

--- A class of n spatial dimensions around conv, an op (x, weight, bias, stride, padding, dilation, groups).
local function conv_class(who, n, conv)
  local Conv = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "in_channels" }, { "out_channels" }, { "kernel_size", list = true },
    { "stride", 1, list = true }, { "padding", 0, list = true }, { "dilation", 1, list = true },
    { "groups", 1 }, { "bias", true }, { "padding_mode", "zeros" }, { "device" }, { "dtype", "f32" })

  function Conv:init(...)
    local o = parse(...)
    setup(self, who, o, n)
    self.padding_mode = check.word(who, "padding_mode", o.padding_mode, modes)
    if type(o.padding) == "string" then
      self.padding = check.word(who, "padding", o.padding, { "same", "valid" })
      if o.padding == "same" and not all(self.stride, 1) then
        raise("%s: padding 'same' needs stride 1, got %s", who, text(self.stride))
      end
    else
      self.padding = tuple(who, "padding", o.padding, n, 0)
    end
    -- The padding of the op, and the padding to add to the input before, or nil.
    local inside, before = self.padding, nil
    if self.padding == "valid" then
      inside = 0
    elseif self.padding == "same" then
      inside, before = same(self.kernel_size, self.dilation)
    end
    if self.padding_mode ~= "zeros" then
      before, inside = before or same.both_sides(inside, n), 0
    end
    self.op_padding, self.pad_before = inside, before
    make_parameters(self, o, self.out_channels, self.in_channels // self.groups)
  end

  --- Draws the initial values again.
  Conv.reset_parameters = reset

  function Conv:forward(x)
    if self.pad_before then
      local mode = self.padding_mode
      x = F.pad(x, self.pad_before, mode == "zeros" and "constant" or mode)
    end
    return conv(x, self.weight, self.bias, self.stride, self.op_padding, self.dilation, self.groups)
  end

  Conv.extra_repr = repr
  return Conv
end

--- A class around conv, an op (x, weight, bias, stride, padding, output_padding, groups, dilation).
local function transposed_class(who, n, conv)
  local Conv = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "in_channels" }, { "out_channels" }, { "kernel_size", list = true },
    { "stride", 1, list = true }, { "padding", 0, list = true }, { "output_padding", 0, list = true },
    { "groups", 1 }, { "bias", true }, { "dilation", 1, list = true }, { "padding_mode", "zeros" },
    { "device" }, { "dtype", "f32" })

  function Conv:init(...)
    local o = parse(...)
    setup(self, who, o, n)
    self.padding = tuple(who, "padding", o.padding, n, 0)
    self.output_padding = tuple(who, "output_padding", o.output_padding, n, 0)
    self.padding_mode = check.word(who, "padding_mode", o.padding_mode, { "zeros" })
    make_parameters(self, o, self.in_channels, self.out_channels // self.groups)
  end

  --- Draws the initial values again.
  Conv.reset_parameters = reset

  --- The output_padding that gives the spatial sizes wanted.
  local function padding_for(self, x, output_size)
    local shape = x.shape
    local first = #shape - n
    local want = {}
    if #output_size == n then
      want = output_size
    elseif #output_size == #shape then
      table.move(output_size, first + 1, #shape, 1, want)
    else
      raise("%s: output_size must have %d sizes, or %d as the input has, got %d", who, n, #shape, #output_size)
    end
    local extra = {}
    for i = 1, n do
      local low = (shape[first + i] - 1) * self.stride[i] - 2 * self.padding[i]
        + self.dilation[i] * (self.kernel_size[i] - 1) + 1
      local high = low + self.stride[i] - 1
      extra[i] = want[i] - low
      if want[i] < low or want[i] > high then
        raise("%s: output_size %s is out of reach: dimension %d can be %d .. %d", who, text(want), i, low, high)
      end
    end
    return extra
  end

  ---@param x accel.Tensor
  ---@param output_size? integer[] spatial sizes of the result, if the stride leaves a choice
  function Conv:forward(x, output_size)
    local extra = output_size and padding_for(self, x, output_size) or self.output_padding
    return conv(x, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)
  end

  Conv.extra_repr = repr
  return Conv
end

--- Convolution over one spatial dimension: (N, C_in, L) -> (N, C_out, L_out), L_out = floor((L + 2 padding - dilation
--- (kernel_size - 1) - 1) / stride) + 1. padding is a number, "valid" (none) or "same" (L_out = L). padding_mode is
--- "zeros", "reflect", "replicate" or "circular". Weight [C_out, C_in / groups, K]. Initial values: weight and bias
--- uniform in +-1 / sqrt(fan_in), fan_in = C_in / groups * K.
--- example: accel.nn.Conv1d(1, 2, 3)(accel.ones(4, 1, 10)).shape --> { 4, 2, 8 }
--- example: accel.nn.Conv1d(1, 2, 4, { padding = "same" })(accel.ones(4, 1, 10)).shape --> { 4, 2, 10 }
---@class accel.nn.Conv1d : accel.nn.Module
---@overload fun(in: integer, out: integer, kernel: accel.nn.sizes, opts: table?): accel.nn.Conv1d
M.Conv1d = conv_class("Conv1d", 1, accel.conv1d)

--- Convolution over two spatial dimensions: (N, C_in, H, W) -> (N, C_out, H_out, W_out). Sizes, padding and initial
--- values as in Conv1d, fan_in = C_in / groups * K_h * K_w.
--- example: accel.nn.Conv2d(1, 2, 3)(accel.ones(1, 1, 5, 5)).shape --> { 1, 2, 3, 3 }
--- example: accel.nn.Conv2d(4, 6, { 3, 5 }, 2, { 1, 2 })(accel.ones(1, 4, 8, 8)).shape --> { 1, 6, 4, 4 }
---@class accel.nn.Conv2d : accel.nn.Module
---@overload fun(in: integer, out: integer, kernel: accel.nn.sizes, opts: table?): accel.nn.Conv2d
M.Conv2d = conv_class("Conv2d", 2, accel.conv2d)

--- Convolution over three spatial dimensions: (N, C_in, D, H, W) -> (N, C_out, D_out, H_out, W_out). See Conv1d.
--- example: accel.nn.Conv3d(1, 2, 3, { padding = 1 })(accel.ones(1, 1, 4, 5, 6)).shape --> { 1, 2, 4, 5, 6 }
---@class accel.nn.Conv3d : accel.nn.Module
---@overload fun(in: integer, out: integer, kernel: accel.nn.sizes, opts: table?): accel.nn.Conv3d
M.Conv3d = conv_class("Conv3d", 3, accel.conv3d)

--- Transposed convolution over one spatial dimension, the gradient of Conv1d by its input: L_out = (L - 1) stride - 2
--- padding + dilation (kernel_size - 1) + output_padding + 1. Weight [C_in, C_out / groups, K]. Initial values: uniform
--- in +-1 / sqrt(C_out / groups * K), as in PyTorch. forward takes the size of the result as a second argument if the
--- stride leaves a choice.
--- example: accel.nn.ConvTranspose1d(1, 2, 3, { stride = 2 })(accel.ones(1, 1, 5)).shape --> { 1, 2, 11 }
---@class accel.nn.ConvTranspose1d : accel.nn.Module
---@overload fun(in: integer, out: integer, kernel: accel.nn.sizes, opts: table?): accel.nn.ConvTranspose1d
M.ConvTranspose1d = transposed_class("ConvTranspose1d", 1, accel.conv_transpose1d)

--- Transposed convolution over two spatial dimensions, the gradient of Conv2d by its input. See ConvTranspose1d.
--- example: accel.nn.ConvTranspose2d(1, 2, 2, { stride = 2 })(accel.ones(1, 1, 4, 4)).shape --> { 1, 2, 8, 8 }
--- example: accel.nn.ConvTranspose2d(1, 1, 3, 2, 1)(accel.ones(1, 1, 4, 4), { 8, 8 }).shape --> { 1, 1, 8, 8 }
---@class accel.nn.ConvTranspose2d : accel.nn.Module
---@overload fun(in: integer, out: integer, kernel: accel.nn.sizes, opts: table?): accel.nn.ConvTranspose2d
M.ConvTranspose2d = transposed_class("ConvTranspose2d", 2, accel.conv_transpose2d)

--- Transposed convolution over three spatial dimensions, the gradient of Conv3d by its input. See ConvTranspose1d.
--- example: accel.nn.ConvTranspose3d(2, 1, 2, 2)(accel.ones(1, 2, 2, 3, 4)).shape --> { 1, 1, 4, 6, 8 }
---@class accel.nn.ConvTranspose3d : accel.nn.Module
---@overload fun(in: integer, out: integer, kernel: accel.nn.sizes, opts: table?): accel.nn.ConvTranspose3d
M.ConvTranspose3d = transposed_class("ConvTranspose3d", 3, accel.conv_transpose3d)

return M
