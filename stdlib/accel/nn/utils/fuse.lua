--- fuse_conv_bn_eval and its companions: a batch norm in eval mode as part of the layer before it. skip_init. Norms of
--- gradients without clipping.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local deepcopy = require "accel.nn.deepcopy"
local raise = require "accel.util.raise"

local M = {}

--- weight and bias of a convolution with a batch norm's statistics and parameters after it. Weights of transposed convolutions have
--- their outputs in dimension 2.
--- example: local one, zero = accel.ones(1), accel.zeros(1)
---   return accel.nn.utils.fuse_conv_bn_weights(accel.ones(1, 1, 1), nil, zero, one, 0, accel.tensor { 2.0 }, one) --> { { { 2 } } }, { 1 }
---@param weight accel.Tensor
---@param bias accel.Tensor?
---@param running_mean accel.Tensor
---@param running_var accel.Tensor
---@param eps number
---@param bn_weight accel.Tensor?
---@param bn_bias accel.Tensor?
---@param transpose? boolean [false]
---@return accel.Tensor weight
---@return accel.Tensor bias
function M.fuse_conv_bn_weights(weight, bias, running_mean, running_var, eps, bn_weight, bn_bias, transpose, ...)
  check.surplus("fuse_conv_bn_weights", ...)
  local _ <close> = accel.no_grad()
  local scale = (running_var + eps):rsqrt()
  if bn_weight then scale = scale * bn_weight end
  local shape = {}
  for i = 1, weight.ndim do shape[i] = i == (transpose and 2 or 1) and -1 or 1 end
  local shift = bias and bias - running_mean or -running_mean
  shift = shift * scale
  if bn_bias then shift = shift + bn_bias end
  return Parameter((weight * scale:reshape(shape)):to(weight.dtype), weight.requires_grad),
    Parameter(shift:to(weight.dtype), bias == nil or bias.requires_grad)
end

local function fuse(who, layer, bn, transpose)
  for i, m in ipairs { layer, bn } do
    if not Module.is_module(m) then raise("%s: argument %d: %s", who, i, Module.not_a_module(m)) end
    if m.training then raise("%s: both layers must be in eval mode; call eval() first", who) end
  end
  if not bn.running_mean then raise("%s: the batch norm has no running statistics", who) end
  local new = deepcopy(layer)
  local weight, bias = M.fuse_conv_bn_weights(layer.weight, layer.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose)
  new.weight, new.bias = weight, bias
  return new
end

--- A copy of a convolution that computes what it and the batch norm after it do, both in eval mode.
--- example: local c, b = accel.nn.Conv2d(1, 2, 3):eval(), accel.nn.BatchNorm2d(2):eval() local x = accel.ones(1, 1, 3, 3)
---   return (accel.nn.utils.fuse_conv_bn_eval(c, b)(x) - b(c(x))):abs():max():lt(1e-5) --> true
---@param conv accel.nn.Module
---@param bn accel.nn.Module
---@param transpose? boolean [false] the convolution is a transposed one
---@return accel.nn.Module
function M.fuse_conv_bn_eval(conv, bn, transpose, ...)
  check.surplus("fuse_conv_bn_eval", ...)
  return fuse("fuse_conv_bn_eval", conv, bn, transpose)
end

--- The same for a linear layer and a BatchNorm1d.
--- example: local l, b = accel.nn.Linear(3, 2):eval(), accel.nn.BatchNorm1d(2):eval() local x = accel.ones(1, 3)
---   return (accel.nn.utils.fuse_linear_bn_eval(l, b)(x) - b(l(x))):abs():max():lt(1e-5) --> true
---@param linear accel.nn.Module
---@param bn accel.nn.Module
---@return accel.nn.Module
function M.fuse_linear_bn_eval(linear, bn, ...)
  check.surplus("fuse_linear_bn_eval", ...)
  return fuse("fuse_linear_bn_eval", linear, bn)
end

--- A module whose parameters are not initialised: its class, then the constructor's arguments. Their values are anything until they are
--- loaded or set.
--- example: accel.nn.utils.skip_init(accel.nn.Linear, 3, 2).weight.shape --> { 2, 3 }
---@param class table a class of modules
---@param ... any its arguments
---@return accel.nn.Module
function M.skip_init(class, ...)
  if not require("accel.util.class").isclass(class) then raise("skip_init: expected a class of modules, got %s", check.shown(class)) end
  local args = table.pack(...)
  local last = args[args.n]
  local options = {}
  if type(last) == "table" and getmetatable(last) == nil and rawlen(last) == 0 then
    for key, value in next, last do options[key] = value end
  else
    args.n = args.n + 1
  end
  local device = options.device or accel.get_default_device and accel.get_default_device() or "cpu"
  options.device = "meta"
  args[args.n] = options
  local module = class(table.unpack(args, 1, args.n))
  return module:_map_tensors(function(t) return accel.empty(t.shape, { dtype = t.dtype, device = device }) end)
end

return M
