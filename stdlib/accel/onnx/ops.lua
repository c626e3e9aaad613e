--- Ops of accel in ONNX's words, opset 20: name -> function(g, c), which adds nodes to the graph and returns the names of the results. Used by
--- export.lua. c is a recorded call (bindings/ops/lac_calls.c) with these functions:
---   c.x(key)          the name of a tensor argument. nil: it was not given
---   c.like(key, dtype)  the same as this dtype; a number becomes a constant of it
---   c.shape(i)        the shape of result i, a list of integers or, of a free batch, a name
local accel = require "accel"
local raise = require "accel.util.raise"

local M = {}

--- A dim from 0 of an argument's tensor.
local function axis(c, key, of)
  local n = of or #c.args.x.shape
  return (c.args[key] or 0) % n
end

local function dtype_of(c) return c.results[1].dtype end

--- Nodes with one input.
for name, op in accel.pairs {
  relu = "Relu", tanh = "Tanh", sigmoid = "Sigmoid", exp = "Exp", log = "Log", sqrt = "Sqrt", neg = "Neg", abs = "Abs", erf = "Erf", sin = "Sin",
  cos = "Cos", reciprocal = "Reciprocal", floor = "Floor", ceil = "Ceil", clone = "Identity", contiguous = "Identity", alias = "Identity",
  detach = "Identity", softplus = "Softplus", logical_not = "Not", hardswish = "HardSwish", mish = "Mish",
} do
  M[name] = function(g, c) return g:node(op, { c.x "x" }) end
end
function M.gelu(g, c) return g:node("Gelu", { c.x "x" }, { approximate = c.args.approximate or "none" }) end
function M.silu(g, c) return g:node("Mul", { c.x "x", g:node("Sigmoid", { c.x "x" }) }) end
function M.swiglu(g, c) return g:node("Mul", { M.silu(g, c), c.x "y" }) end
function M.square(g, c) return g:node("Mul", { c.x "x", c.x "x" }) end
function M.rsqrt(g, c) return g:node("Reciprocal", { g:node("Sqrt", { c.x "x" }) }) end
function M.leaky_relu(g, c) return g:node("LeakyRelu", { c.x "x" }, { alpha = (c.args.negative_slope or 0.01) + 0.0 }) end
function M.to(g, c) return g:node("Cast", { c.x "x" }, { to = g.type_of(dtype_of(c)) }) end
M.cast = M.to

--- Nodes with two inputs of one type.
for name, op in accel.pairs { mul = "Mul", div = "Div", pow = "Pow", maximum = "Max", minimum = "Min" } do
  M[name] = function(g, c)
    local dtype = dtype_of(c)
    if c.args.rounding_mode and c.args.rounding_mode ~= "none" then raise("onnx.export: div with rounding_mode has no mapping") end
    if dtype == "bool" then return g:node("And", { c.like("x", dtype), c.like("other", dtype) }) end
    local second = c.args.other ~= nil and "other" or c.args.exponent ~= nil and "exponent" or "y"
    return g:node(op, { c.like("x", dtype), c.like(second, dtype) })
  end
end
for name, op in accel.pairs { add = "Add", sub = "Sub" } do
  M[name] = function(g, c)
    local dtype, alpha = dtype_of(c), c.args.alpha or 1
    local other = c.like("other", dtype)
    if dtype == "bool" then return g:node("Or", { c.like("x", dtype), other }) end
    if alpha ~= 1 then other = g:node("Mul", { other, g:number(alpha, dtype) }) end
    return g:node(op, { c.like("x", dtype), other })
  end
end
for name, op in accel.pairs { eq = "Equal", ne = "Equal", lt = "Less", le = "LessOrEqual", gt = "Greater", ge = "GreaterOrEqual" } do
  M[name] = function(g, c)
    local x, y = c.args.x, c.args.other
    local dtype = type(x) == "userdata" and x.dtype or type(y) == "userdata" and y.dtype
    if type(y) == "userdata" and y:is_floating_point() then dtype = y.dtype end
    if math.type(y) == "float" and not dtype:find "^b?f%d" then dtype = "f32" end
    local out = g:node(op, { c.like("x", dtype), c.like("other", dtype) })
    return name == "ne" and g:node("Not", { out }) or out
  end
end
for name, op in accel.pairs { logical_and = "And", logical_or = "Or", logical_xor = "Xor" } do
  M[name] = function(g, c) return g:node(op, { c.like("x", "bool"), c.like("other", "bool") }) end
end
function M.where(g, c)
  local dtype = dtype_of(c)
  return g:node("Where", { c.like("cond", "bool"), c.like("a", dtype), c.like("b", dtype) })
end
function M.masked_fill(g, c)
  local dtype = dtype_of(c)
  return g:node("Where", { c.like("mask", "bool"), c.like("value", dtype), c.like("x", dtype) })
end
function M.clamp(g, c)
  local dtype = dtype_of(c)
  return g:node("Clip", { c.like("x", dtype), c.args.min and c.like("min", dtype) or "", c.args.max and c.like("max", dtype) or "" })
end

-- ---- products ----
local function biased(g, y, bias) return bias and g:node("Add", { y, bias }) or y end
function M.linear(g, c) return biased(g, g:node("MatMul", { c.x "x", g:node("Transpose", { c.x "weight" }, { perm = { 1, 0 } }) }), c.x "bias") end
function M.matmul(g, c) return g:node("MatMul", { c.x "x", c.x "other" }) end
function M.addmm(g, c)
  local dtype, a = dtype_of(c), c.args
  local function times(name, by) return by ~= nil and by ~= 1 and g:node("Mul", { name, g:number(by, dtype) }) or name end
  return g:node("Add", { times(c.x "input", a.beta), times(g:node("MatMul", { c.x "mat1", c.x "mat2" }), a.alpha) })
end
function M.mlp_parts(g, c)
  local a = c.args
  local function product(x, key, bias)
    local w = c.x(key)
    return biased(g, g:node("MatMul", { x, a.transposed and w or g:node("Transpose", { w }, { perm = { 1, 0 } }) }), bias)
  end
  local h = product(c.x "x", "weight1", c.x "bias1")
  if a.activation == "relu" then h = g:node("Relu", { h })
  elseif a.activation == "silu" then h = g:node("Mul", { h, g:node("Sigmoid", { h }) })
  else h = g:node("Gelu", { h }, { approximate = a.activation == "gelu_tanh" and "tanh" or "none" }) end
  return product(h, "weight2", c.x "bias2")
end
function M.embedding(g, c) return g:node("Gather", { c.x "weight", c.x "ids" }) end

-- ---- norms ----
local function layer_norm(g, c, x)
  local n = #c.args.normalized_shape
  local scale = c.x "weight" or g:constant(accel.ones(c.args.normalized_shape, { dtype = dtype_of(c) }))
  return (g:node("LayerNormalization", { x, scale, c.x "bias" }, { axis = -n, epsilon = (c.args.eps or 1e-5) + 0.0 }))
end
local function rms_norm(g, c, x)
  local dtype, axes = dtype_of(c), {}
  for i = 1, #c.args.normalized_shape do axes[i] = -i end
  local eps = c.args.eps or dtype == "f64" and 0x1p-52 or 0x1p-23
  local mean = g:node("ReduceMean", { g:node("Mul", { x, x }), g:ints(axes) }, { keepdims = 1 })
  local y = g:node("Div", { x, g:node("Sqrt", { g:node("Add", { mean, g:number(eps, dtype) }) }) })
  return c.x "weight" and g:node("Mul", { y, c.x "weight" }) or y
end
function M.layer_norm(g, c) return layer_norm(g, c, c.x "x") end
function M.rms_norm(g, c) return rms_norm(g, c, c.x "x") end
function M.add_layer_norm(g, c)
  local sum = g:node("Add", { c.x "x", c.x "residual" })
  return layer_norm(g, c, sum), sum
end
function M.add_rms_norm(g, c)
  local sum = g:node("Add", { c.x "x", c.x "residual" })
  return rms_norm(g, c, sum), sum
end
function M.batch_norm_infer(g, c)
  local n, dtype = c.args.mean.shape, dtype_of(c)
  local weight, bias = c.x "weight" or g:constant(accel.ones(n, { dtype = dtype })), c.x "bias" or g:constant(accel.zeros(n, { dtype = dtype }))
  return g:node("BatchNormalization", { c.x "x", weight, bias, c.x "mean", c.x "var" }, { epsilon = c.args.eps + 0.0 })
end
function M.softmax(g, c) return g:node("Softmax", { c.x "x" }, { axis = axis(c, "dim") }) end
function M.log_softmax(g, c) return g:node("LogSoftmax", { c.x "x" }, { axis = axis(c, "dim") }) end

-- ---- pictures ----
local function spread(list, n)
  local out = {}
  for i = 1, n do out[i] = list[i] or list[#list] end
  return out
end
local function window(c, n)
  local pads, out = spread(c.args.padding or { 0 }, n), { dilations = c.args.dilation and spread(c.args.dilation, n) or nil }
  out.pads = { table.unpack(pads) }
  for i = 1, n do out.pads[n + i] = pads[i] end
  return out
end
for n = 1, 3 do
  M[("conv%dd"):format(n)] = function(g, c)
    local w = window(c, n)
    w.strides, w.group = spread(c.args.stride or { 1 }, n), c.args.groups or 1
    return g:node("Conv", { c.x "x", c.x "weight", c.x "bias" }, w)
  end
  for name, op in accel.pairs { max = "MaxPool", avg = "AveragePool" } do
    M[("%s_pool%dd"):format(name, n)] = function(g, c)
      local w, kernel = window(c, n), spread(c.args.kernel_size, n)
      w.kernel_shape, w.strides, w.ceil_mode = kernel, spread(c.args.stride or kernel, n), c.args.ceil_mode and 1 or 0
      if op == "AveragePool" then
        if c.args.divisor_override then raise "onnx.export: avg_pool with divisor_override has no mapping" end
        w.count_include_pad = c.args.count_include_pad == false and 0 or 1
      elseif c.args.return_indices then
        raise "onnx.export: max_pool with return_indices has no mapping"
      end
      return g:node(op, { c.x "x" }, w)
    end
  end
end
function M.adaptive_avg_pool2d(g, c)
  for _, n in ipairs(c.args.output_size) do
    if n ~= 1 then raise "onnx.export: adaptive_avg_pool2d has a mapping for output_size 1 only" end
  end
  return g:node("GlobalAveragePool", { c.x "x" })
end
for name, op in accel.pairs { mean = "ReduceMean", sum = "ReduceSum", amax = "ReduceMax", amin = "ReduceMin" } do
  M[name] = function(g, c)
    local dims = c.args.dim
    return g:node(op, { c.x "x", dims and #dims > 0 and g:ints(dims) or "" }, { keepdims = c.args.keepdim and 1 or 0 })
  end
end

-- ---- shapes ----
function M.view(g, c) return g:node("Reshape", { c.x "x", g:ints(c.extents(1)) }) end
M.reshape, M.unflatten, M.flatten, M.view_as = M.view, M.view, M.view, M.view
function M.expand(g, c)
  local target, shape, free = c.extents(1), c.args.x.shape, nil
  for i, d in ipairs(target) do
    local own = shape[i - #target + #shape] or 1
    if d == -1 and own == 1 then free = i
    elseif d == -1 then target[i] = 1 end -- 1: Expand keeps what x has
  end
  if not free then return g:node("Expand", { c.x "x", g:ints(target) }) end
  local before, after = { table.unpack(target, 1, free - 1) }, { table.unpack(target, free + 1) }
  return g:node("Expand", { c.x "x", g:node("Concat", { g:ints(before), c.batch(), g:ints(after) }, { axis = 0 }) })
end
function M.transpose(g, c)
  local perm = {}
  for i = 1, #c.args.x.shape do perm[i] = i - 1 end
  local i, j = axis(c, "dim0") + 1, axis(c, "dim1") + 1
  perm[i], perm[j] = perm[j], perm[i]
  return g:node("Transpose", { c.x "x" }, { perm = perm })
end
function M.permute(g, c) return g:node("Transpose", { c.x "x" }, { perm = c.args.dims }) end
function M.t(g, c) return g:node("Transpose", { c.x "x" }) end
M.mT = function(g, c)
  local n = #c.args.x.shape
  c.args.dim0, c.args.dim1 = n - 2, n - 1
  return M.transpose(g, c)
end
function M.unsqueeze(g, c) return g:node("Unsqueeze", { c.x "x", g:ints { axis(c, "dim", #c.args.x.shape + 1) } }) end
function M.squeeze(g, c) return M.view(g, c) end
function M.select(g, c) return g:node("Gather", { c.x "x", g:number(c.args.index, "i64") }, { axis = axis(c, "dim") }) end
local function cut(g, x, dim, from, to, step) return g:node("Slice", { x, g:ints { from }, g:ints { to }, g:ints { dim }, g:ints { step or 1 } }) end
function M.narrow(g, c) return cut(g, c.x "x", axis(c, "dim"), c.args.start, c.args.start + c.args.length) end
function M.slice(g, c) return cut(g, c.x "x", axis(c, "dim"), c.args.start or 0, c.args.stop or math.maxinteger, c.args.step) end
function M.split(g, c)
  local sizes, dim = {}, axis(c, "dim")
  for i, t in ipairs(c.results) do sizes[i] = t.shape[dim + 1] end
  return g:node("Split", { c.x "x", g:ints(sizes) }, { axis = dim }, #sizes)
end
M.chunk = M.split
function M.cat(g, c) return g:node("Concat", c.x "tensors", { axis = axis(c, "dim", #c.args.tensors[1].shape) }) end
function M.repeat_each(g, c)
  local extents = c.extents(1)
  local dim, times = axis(c, "dim"), {}
  local x = g:node("Unsqueeze", { c.x "x", g:ints { dim + 1 } })
  for i = 1, #extents + 1 do times[i] = i == dim + 2 and c.args.repeats or 1 end
  return g:node("Reshape", { g:node("Expand", { x, g:ints(times) }), g:ints(extents) })
end

return M
