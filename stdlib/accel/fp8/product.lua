--- The products of a linear layer in fp8: y = x W^T + b forward, dx = dy W and dW = dy^T x backward, each in fp8 or, by the recipe, in
--- the precision of the region. The operands are kept for backward as multiplied: 1 byte an element.
local accel = require "accel"

local fp8_cast, scaled_mm = accel.fp8_cast, accel.scaled_mm

--- How one layer casts: made by a scaling, used here.
---@class accel.fp8.Layer
---@field input fun(self, x: accel.Tensor): accel.Tensor, accel.Tensor values and the factor that brings them back
---@field weight fun(self, w: accel.Tensor): accel.Tensor, accel.Tensor
---@field gradient fun(self, dy: accel.Tensor): accel.Tensor, accel.Tensor
---@field fprop boolean whether the forward product is in fp8
---@field dgrad boolean whether the input gradient's product is
---@field wgrad boolean whether the weight gradient's product is
---@field transposed boolean the weight is (in, out)

local function lower(dtype) return accel.is_autocast_enabled() and accel.get_autocast_dtype() or dtype end

local Linear = accel.Function {
  name = "Fp8Linear",
  forward = function(ctx, x, weight, bias, layer)
    local shape, turned = x.shape, layer.transposed
    local flat, dtype = x:reshape(-1, shape[#shape]), lower(x.dtype)
    local x8, x_inv, w8, w_inv
    if layer.fprop or layer.wgrad then x8, x_inv = layer:input(flat) end
    if layer.fprop or layer.dgrad then w8, w_inv = layer:weight(weight) end
    local y
    if layer.fprop then
      y = scaled_mm(x8, turned and w8 or w8:t(), x_inv, w_inv, bias, dtype)
    else
      y = flat:to(dtype):matmul((turned and weight or weight:t()):to(dtype))
      if bias then y = y + bias:to(dtype) end
    end
    ctx.layer, ctx.shape, ctx.x_dtype, ctx.w_dtype, ctx.b_dtype = layer, shape, x.dtype, weight.dtype, bias and bias.dtype
    ctx.wide = dtype
    ctx:save_for_backward(layer.wgrad and x8 or flat, layer.wgrad and x_inv or nil, layer.dgrad and w8 or weight,
      layer.dgrad and w_inv or nil)
    local out = { table.unpack(shape, 1, #shape - 1) }
    out[#out + 1] = y.shape[2]
    return y:reshape(out)
  end,
  backward = accel.autograd.once_differentiable(function(ctx, dy)
    local x, x_inv, w, w_inv = ctx:saved_tensors()
    local layer, needs, turned = ctx.layer, ctx.needs_input_grad, ctx.layer.transposed
    dy = dy:reshape(-1, dy.shape[#dy.shape])
    local dx, dw, db, dy8, dy_inv
    if layer.dgrad and needs[1] or layer.wgrad and needs[2] then dy8, dy_inv = layer:gradient(dy) end
    if needs[1] then
      if layer.dgrad then dx = scaled_mm(dy8, turned and w:t() or w, dy_inv, w_inv, nil, ctx.x_dtype)
      else dx = dy:to(ctx.wide):matmul((turned and w:t() or w):to(ctx.wide)):to(ctx.x_dtype) end
      dx = dx:reshape(ctx.shape)
    end
    if needs[2] then -- in f32 if the weight is, without rounding
      if layer.wgrad then
        if turned then dw = scaled_mm(x:t(), dy8, x_inv, dy_inv, nil, ctx.w_dtype)
        else dw = scaled_mm(dy8:t(), x, dy_inv, x_inv, nil, ctx.w_dtype) end
      else
        local a, b = dy:to(ctx.wide), x:to(ctx.wide)
        dw = (turned and b:t():matmul(a) or a:t():matmul(b)):to(ctx.w_dtype)
      end
    end
    if needs[3] then db = dy:sum(1, { dtype = "f32" }):to(ctx.b_dtype) end
    return dx, dw, db
  end),
}

local M = { cast = fp8_cast }

--- A layer's output: its fp8 forward while fp8 is enabled.
---@param x accel.Tensor (..., in)
---@param module {weight: accel.Tensor, bias: accel.Tensor?}
---@param layer accel.fp8.Layer
---@return accel.Tensor (..., out), in the dtype of the autocast region, else x's
function M.linear(x, module, layer) return Linear(x, module.weight, module.bias, layer) end

return M
