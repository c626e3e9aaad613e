--- Scales finer than a tensor's, along the dim that a product sums over, so that each of a layer's three products casts its own operands: of
--- rows (torchao's rowwise recipes) and of blocks of 32 (MXFP8, the microscaling format of OCP, as TransformerEngine has it).
---
--- A scale of rows leaves the sum as a factor of its row or column: the product is scaled_mm, which cuBLASLt has. With one of blocks, the
--- scales stay inside the sum: here the values are cast, converted back and multiplied in f32, which holds them exactly, as do bf16 and
--- TF32. The numbers equal those on hardware with MXFP8, but the speed does not.
local accel = require "accel"
local absent = require "accel.parallel.absent"
local class = require "accel.util.class"
local product = require "accel.fp8.product"
local recompute = require "accel.autograd.recompute"

local cast, scaled_mm = product.cast, accel.scaled_mm

local M = {}

local MOST <const> = { e4m3 = 448.0, e5m2 = 57344.0 }
local BLOCK <const> = 32

local function one(device) return accel.ones({}, { device = device }) end

--- Values in 8 bits (f8) and scales (rows, 1) that they were multiplied by: 448 / amax of the row, rounded down to a power of two with pow2.
---@param x accel.Tensor (rows, k)
---@param format "e4m3"|"e5m2"
---@param pow2 boolean
---@return accel.Tensor values
---@return accel.Tensor scales f32
function M.rowwise(x, format, pow2)
  local wide = x:to "f32"
  local amax = wide:abs():amax(2, true):clamp(1e-12)
  local scale = accel.full(amax.shape, MOST[format], { dtype = "f32", device = x.device }) / amax
  if pow2 then scale = scale:log2():floor():exp2() end
  return (cast(wide * scale, one(x.device), nil, format)), scale
end

--- A matrix as MXFP8 holds it, in f32: blocks of 32 values of a row have one power of two, amax / 448 (57344 of e5m2) rounded up, so that no
--- value leaves the range. The last block of a row may be shorter.
---@param x accel.Tensor (rows, k)
---@param format "e4m3"|"e5m2"
---@return accel.Tensor values (rows, k), f32
function M.mx(x, format)
  local rows, k, most = x.shape[1], x.shape[2], MOST[format]
  local padded = (k + BLOCK - 1) // BLOCK * BLOCK
  local wide = x:to "f32"
  if padded > k then wide = accel.cat({ wide, accel.zeros(rows, padded - k, { device = x.device }) }, 2) end
  wide = wide:reshape(rows, padded // BLOCK, BLOCK)
  local amax = wide:abs():amax(3, true):clamp(most * 2.0 ^ -126)
  local unit = (amax / most):log2():ceil():exp2() -- and exactly, if the logarithm was rounded across a whole number
  unit = accel.where(amax:gt(unit * most), unit * 2, unit)
  unit = accel.where(amax:le(unit * (most / 2)), unit / 2, unit)
  local values = cast(wide / unit, one(x.device), nil, format):to "f32" * unit
  return values:reshape(rows, padded):narrow(2, 1, k)
end

-- How operands (m, k) and (n, k) are multiplied: a b^T, in f32.
local ways = {}
function ways.rowwise(a, b, formats)
  local x, sx = M.rowwise(a, formats[1], true)
  local y, sy = M.rowwise(b, formats[2], true)
  local unit = one(a.device)
  return scaled_mm(x, y:t(), unit, unit, nil, "f32") / sx / sy:t()
end
function ways.row_by_tensor(a, b, formats)
  local x, sx = M.rowwise(a, formats[1], true)
  local y, inv = cast(b, nil, nil, formats[2], true)
  return scaled_mm(x, y:t(), one(a.device), inv, nil, "f32") / sx
end
function ways.mx(a, b, formats)
  local _ <close> = accel.autocast { enabled = false }
  return M.mx(a, formats[1]):matmul(M.mx(b, formats[2]):t())
end

--- a b^T: the sum in 8 bits with one kind of scaling, or in the precision `wide` if it is nil.
local function multiply(way, a, b, formats, wide)
  if way then return ways[way](a, b, formats) end
  return a:to(wide):matmul(b:t():to(wide))
end

local Linear = accel.Function {
  name = "Fp8GranularLinear",
  forward = function(ctx, x, weight, bias, layer)
    local shape = x.shape
    local dtype = accel.is_autocast_enabled() and accel.get_autocast_dtype() or x.dtype
    local flat = x:reshape(-1, shape[#shape]):to(dtype)
    local w = layer.transposed and weight:t() or weight
    local y = multiply(layer.fprop, flat, w, { "e4m3", "e4m3" }, dtype)
    if bias then y = y + bias:to(y.dtype) end
    ctx.layer, ctx.shape, ctx.x_dtype, ctx.w_dtype, ctx.b_dtype, ctx.wide = layer, shape, x.dtype, weight.dtype, bias and bias.dtype, dtype
    ctx:save_for_backward(flat, weight)
    local out = { table.unpack(shape, 1, #shape - 1) }
    out[#out + 1] = y.shape[2]
    return y:to(dtype):reshape(out)
  end,
  backward = accel.autograd.once_differentiable(function(ctx, dy)
    local x, weight = ctx:saved_tensors()
    local layer, needs = ctx.layer, ctx.needs_input_grad
    local w = layer.transposed and weight:t() or weight
    dy = dy:reshape(-1, dy.shape[#dy.shape])
    local dx, dw, db
    if needs[1] then
      dx = multiply(layer.dgrad, dy, w:t(), { layer.gradient, "e4m3" }, ctx.wide):to(ctx.x_dtype):reshape(ctx.shape)
    end
    if needs[2] then
      dw = multiply(layer.wgrad, dy:t(), x:t(), { layer.gradient, "e4m3" }, ctx.wide):to(ctx.w_dtype)
      if layer.transposed then dw = dw:t():contiguous() end
    end
    if needs[3] then db = dy:sum(1, { dtype = "f32" }):to(ctx.b_dtype) end
    return dx, dw, db
  end),
}

--- Scaling with a kind for each product. Nothing is kept from step to step.
--- example: local s = accel.fp8.convert_model(accel.nn.Linear(16, 32), accel.AORecipeKwargs { config = { recipe_name = "rowwise" },
---   module_filter_func = function() return true end }) return s.products.wgrad, s.gradient --> "rowwise", "e4m3"
---@class accel.fp8.GranularScaling : accel.fp8.Scaling
---@field products {fprop: string?, dgrad: string?, wgrad: string?} "rowwise", "row_by_tensor", "mx". nil: not in fp8
---@field gradient "e4m3"|"e5m2" format of gradients of outputs
local GranularScaling = class "accel.fp8.GranularScaling"
M.GranularScaling = GranularScaling

---@param opts {products: table, gradient: string?, always: boolean?, use_autocast_during_eval: boolean?}
---  always: also outside a forward of the model and in evaluation, as torchao's layers are
function GranularScaling:init(opts)
  self.products, self.gradient, self.always = opts.products, opts.gradient or "e4m3", opts.always or false
  self.during_eval, self.depth, self.on, self.trained = opts.use_autocast_during_eval or false, 0, false, false
end

--- A layer that takes part, with the way of each of its products.
---@param transposed boolean
---@return table
function GranularScaling:layer(_, transposed)
  local p = self.products
  return { fprop = p.fprop, dgrad = p.dgrad, wgrad = p.wgrad, gradient = self.gradient, transposed = transposed,
    linear = function(own, x, module) return Linear(x, module.weight, module.bias, own) end }
end

--- Whether a layer that is called now with x multiplies in fp8. Of other stages of a pipeline there are shapes alone.
---@param x accel.Tensor
---@return boolean
function GranularScaling:active(_, x)
  if absent.is(x) then return false end
  if self.always then return true end
  if recompute.depth > 0 then return self.trained end
  return self.depth > 0 and self.on
end

--- Before a forward of the model.
---@param training boolean
function GranularScaling:enter(training)
  if self.depth == 0 and recompute.depth == 0 then
    self.on = training or self.during_eval
    if accel.is_grad_enabled() then self.trained = self.on end
  end
  self.depth = self.depth + 1
end

--- Behind it.
function GranularScaling:leave() self.depth = self.depth - 1 end

--- Nothing outlives a step.
function GranularScaling:state_dict() return nil end -- luacheck: ignore self

return M
