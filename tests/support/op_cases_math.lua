-- Cases of ops that compute, where they are not elementwise: see op_cases.lua. Shapes are small, since
-- every element is varied; `big` ones are large enough that threads share the work.
local c = require "op_cases"
local real, range, mask, index = c.real, c.range, c.mask, c.index
local case, args, big = c.case, c.args, c.big

local L = {}

-- ---- map, with parameters ----
L.masked_fill = {
  case("same", { real(3, 4), mask(3, 4) }, args(-1.5)),
  case("row mask", { real(3, 4), mask(4) }, args(2)),
  case("both wider", { real(3, 1), mask(1, 4) }, args(0)),
  case("rank 0", { real(), mask() }, args(7)),
  case("value of rank 0", { real(3, 4), mask(4), real() }),
  case("empty", { real(0, 3), mask(0, 3) }, args(1)),
  big(args(-1), real(200, 330), mask(330)),
}
L.where = {
  case("same", { mask(3, 4), real(3, 4), real(3, 4) }),
  case("broadcast", { mask(3, 1), real(4), real(2, 3, 4) }),
  case("number", { mask(3, 4), real(3, 4) }, { args = { -1 }, number = true }),
  case("rank 0", { mask(), real(), real(3) }),
  case("empty", { mask(0, 3), real(0, 3), real(3) }),
  big({}, mask(330), real(200, 330), real(200, 1)),
}
L.clamp = {
  case("both", { real(3, 4) }, args { min = -1.3, max = 0.7 }),
  case("min", { real(3, 4) }, args { min = -0.3 }),
  case("max", { real(3, 4) }, args { max = 0.3 }),
  case("rank 0", { real() }, args(-1, 1)),
  case("empty", { real(0, 2) }, args(-1, 1)),
  case("crossed", { real(5) }, args(1, -1)),
  case("tensors", { real(3, 4), range(-1.5, -0.2, 4), range(0.2, 1.5, 3, 1) }),
  case("tensors, crossed", { real(3, 4), range(-0.5, 0.9, 4), range(-0.9, 0.5, 3, 1) }),
  case("a tensor above", { real(3, 1), range(-1, 1, 2, 1, 4) }, { call = function(f, x, t) return f(x, { max = t }) end }),
  big(args(-1, 1), real(200, 330)),
}
L.threshold = {
  case("as it is", { range(0.6, 2, 3, 4) }, args(0.5, -1)),
  case("below", { range(-2, 0.4, 3, 4) }, args(0.5, -1)),
  case("named", { real(3, 4) }, args { threshold = -3, value = 7 }),
  case("rank 0", { range(1, 2) }, args(0.5, 2)),
  case("empty", { real(0, 2) }, args(1, 2)),
  big(args(3, 1), real(200, 330)),
}
L.cast = {
  case("f64", { real(3, 4) }, args("f64")),
  case("f32", { real(3, 4) }, { args = { "f32" }, fd = false }),
  case("bf16", { real(3, 4) }, { args = { "bf16" }, fd = false, exact_dtype = true }),
  case("f16", { real() }, { args = { "f16" }, fd = false, exact_dtype = true }),
  case("i64", { real(3, 4) }, { args = { "i64" }, grad = false }),
  case("bool", { real(2, 2) }, { args = { "bool" }, grad = false }),
  case("empty", { real(2, 0) }, args("f32")),
  big(args("bf16"), real(200, 330)),
}
L.to = {
  case("f64", { real(3, 4) }, args("f64")),
  case("named", { real(3, 4) }, { args = { { dtype = "f32" } }, fd = false }),
  case("empty", { real(0) }, args("f32")),
  case("rank 0", { real() }, args("f64")),
  big(args("f16"), real(200, 330)),
}
for _, name in ipairs { "zeros_like", "ones_like" } do
  L[name] = {
    case("plain", { real(3, 4) }, { grad = false, ints = false }),
    case("rank 0", { real() }, { args = { { dtype = "i32" } }, grad = false }),
    case("empty", { real(0, 2) }, { grad = false }),
  }
end
L.full_like = {
  case("plain", { real(3, 4) }, { args = { 2.5 }, grad = false, ints = false }),
  case("rank 0", { real() }, { args = { 3, { dtype = "i32" } }, grad = false }),
  case("empty", { real(0, 2) }, { args = { 1 }, grad = false }),
}

-- Written in place: on a clone, so that the input stays.
local function write(f, x, ...) return f(x:clone(), ...) end
L.fill_ = {
  case("number", { real(3, 4) }, { call = function(f, x) return write(f, x, 2.5) end, ints = false }),
  case("rank 0", { real() }, { call = function(f, x) return write(f, x, 2) end }),
  case("empty", { real(0, 2) }, { call = function(f, x) return write(f, x, 2) end }),
  big({ call = function(f, x) return write(f, x, 2) end }, real(200, 330)),
}
L.zero_ = {
  case("plain", { real(3, 4) }, { call = write }),
  case("rank 0", { real() }, { call = write }),
  case("empty", { real(0, 2) }, { call = write }),
}
L.copy_ = {
  case("same", { real(3, 4), real(3, 4) }, { call = write }),
  case("broadcast", { real(2, 3), real(3) }, { call = write }),
  case("rank 0", { real(), real() }, { call = write }),
  case("empty", { real(0, 2), real(2) }, { call = write }),
  big({ call = write }, real(200, 330), real(330)),
}

-- ---- random: the draw is repeated by reseeding ----
local function draws(...)
  local a = { ... }
  local function call(f, x) return write(f, x, table.unpack(a)) end
  return {
    case("plain", { real(3, 4) }, { call = call, ints = false, random = true }),
    case("rank 0", { real() }, { call = call, random = true, ints = false }),
    case("empty", { real(0, 2) }, { call = call, random = true, ints = false }),
    big({ call = call, random = true }, real(200, 330)),
  }
end
L.uniform_, L.normal_, L.bernoulli_ = draws(-1, 3), draws(0.5, 2), draws(0.3)
L.randint_ = draws(-3, 9)
L.randperm_ = {
  case("plain", { c.permutation(9) }, { call = write, grad = false, random = true }),
  case("empty", { index(1, 0) }, { call = write, grad = false, random = true }),
  big({ call = write, grad = false, random = true }, index(2, 50000)),
}
L.dropout = {
  case("train", { real(3, 4) }, { args = { 0.3 }, random = true }),
  case("eval", { real(3, 4) }, args(0.3, false)),
  case("all", { real(5) }, { args = { 1 }, random = true }),
  case("none", { real(5) }, args(0)),
  case("rank 0", { real() }, { args = { 0.5 }, random = true }),
  case("empty", { real(0, 3) }, { args = { 0.5 }, random = true }),
  big({ args = { 0.3 }, random = true }, real(200, 330)),
}

-- ---- reduce ----
local BIG = { 200, 330 }
local function reductions(more, rank0, empty_ok)
  local function with(a, extra)
    local t = { args = a }
    for k, v in pairs(more or {}) do t[k] = v end
    for k, v in pairs(extra or {}) do t[k] = v end
    return t
  end
  local list = {
    case("all", { real(3, 4) }, with {}),
    case("first", { real(3, 4) }, with { 1 }),
    case("last", { real(2, 3, 4) }, with { -1 }),
    case("middle, kept", { real(2, 3, 2) }, with { 2, true }),
    case("one row", { real(7) }, with { 1 }),
    case("rank 0", { real() }, with {}),
    case("empty outside", { real(0, 3) }, with { 2 }),
    big(with { 1 }, real(table.unpack(BIG))),
    big(with { 2 }, real(table.unpack(BIG))),
    big(with {}, real(table.unpack(BIG))),
  }
  if rank0 then list[#list + 1] = case("two dims", { real(2, 3, 4) }, with { { 1, 3 } }) end
  if empty_ok then list[#list + 1] = case("empty inside", { real(3, 0) }, with { 2 }) end
  return list
end
L.sum, L.mean = reductions({ floor = 2 }, true, true), reductions({ floor = 2 }, true, false)
L.sum[#L.sum + 1] = case("nothing in no rows", { real(0, 0) }, { args = {} })
L.sum[#L.sum + 1] = case("dtype", { real(3, 4) }, { args = { 1, { dtype = "f64" } } })
L.amax, L.amin = reductions({}, true), reductions({}, true)
L.max, L.min = reductions({}), reductions({})
L.argmax, L.argmin = reductions { grad = false }, reductions { grad = false }
for _, name in ipairs { "softmax", "log_softmax" } do
  L[name] = {
    case("last", { real(3, 4) }, args(-1)),
    case("first", { real(3, 4) }, args(1)),
    case("middle", { real(2, 3, 2) }, args(2)),
    case("rank 0", { real() }, args(1)),
    case("empty", { real(0, 3) }, args(2)),
    case("nothing to share", { real(3, 0) }, args(2)),
    case("dtype", { real(2, 3) }, args(2, { dtype = "f64" })),
    case("wide", { range(-40, 40, 2, 5) }, { args = { 2 }, floor = 1 }),
    big(args(-1), real(table.unpack(BIG))),
    big(args(1), real(table.unpack(BIG))),
  }
  for _, k in ipairs(L[name]) do k.ints = false end
end

-- ---- matmul ----
L.matmul = {
  case("matrices", { real(3, 4), real(4, 2) }),
  case("batched", { real(2, 3, 4), real(2, 4, 2) }),
  case("shared right", { real(2, 3, 4), real(4, 2) }),
  case("shared left", { real(3, 4), real(2, 4, 2) }),
  case("broadcast batches", { real(2, 1, 2, 3), real(3, 3, 2) }),
  case("row", { real(4), real(4, 2) }),
  case("column", { real(3, 4), real(4) }),
  case("dot", { real(5), real(5) }),
  case("batched column", { real(2, 3, 4), real(4) }),
  case("row and batches", { real(4), real(2, 4, 3) }),
  case("empty", { real(0, 4), real(4, 2) }),
  case("empty sum", { real(3, 0), real(0, 2) }),
  case("empty batch", { real(0, 2, 3), real(3, 2) }),
  case("one", { real(1, 1), real(1, 1) }),
  big({}, real(160, 200), real(200, 130)),
  big({}, real(6, 40, 64), real(6, 64, 50)),
  big({}, real(4, 70, 64), real(64, 100)),
}
L.linear = {
  case("bias", { real(3, 4), real(2, 4), real(2) }),
  case("no bias", { real(3, 4), real(2, 4) }),
  case("row", { real(4), real(2, 4), real(2) }),
  case("rank 3", { real(2, 2, 3), real(4, 3), real(4) }),
  case("empty", { real(0, 4), real(2, 4), real(2) }),
  case("no inputs", { real(3, 0), real(2, 0), real(2) }),
  big({}, real(160, 200), real(130, 200), real(130)),
}
L.addmm = {
  case("row", { real(2), real(3, 4), real(4, 2) }),
  case("matrix", { real(3, 2), real(3, 4), real(4, 2) }, args { beta = 0.5, alpha = 2 }),
  case("no input", { real(3, 2), real(3, 4), real(4, 2) }, args { beta = 0 }),
  case("rank 3", { real(2), real(2, 3, 4), real(4, 2) }),
  case("column", { real(3, 1), real(3, 4), real(4, 2) }, args { alpha = -1 }),
  case("number", { real(), real(3, 4), real(4, 2) }),
  case("empty", { real(2), real(0, 4), real(4, 2) }),
  case("empty sum", { real(2), real(3, 0), real(0, 2) }),
  big({}, real(130), real(160, 200), real(200, 130)),
}
for _, name in ipairs { "matmul", "linear", "addmm" } do
  for _, k in ipairs(L[name]) do k.loss = 2 end
end

-- ---- norm, loss ----
-- x, then the normalized shape, then weight and bias
local function over(shape, options)
  return { call = function(f, x, ...)
    local a = { shape, ... }
    a[#a + 1] = options
    return f(x, table.unpack(a))
  end }
end
L.layer_norm = {
  case("all", { real(3, 4), real(4), real(4) }, over({ 4 })),
  case("plain", { real(3, 5) }, over({ 5 })),
  case("weight", { real(2, 6), real(6) }, over({ 6 }, { eps = 0.1 })),
  case("two dims", { real(2, 2, 3), real(2, 3), real(2, 3) }, over({ 2, 3 })),
  case("empty", { real(0, 3), real(3), real(3) }, over({ 3 })),
  big(over({ 330 }), real(200, 330), real(330), real(330)),
}
L.rms_norm = {
  case("weight", { real(3, 4), real(4) }, over({ 4 })),
  case("plain", { real(3, 5) }, over({ 5 }, { eps = 1e-3 })),
  case("two dims", { real(2, 2, 3), real(2, 3) }, over({ 2, 3 }, { eps = 1e-5 })),
  case("empty", { real(0, 3), real(3) }, over({ 3 })),
  big(over({ 330 }), real(200, 330), real(330)),
}
-- x and residual, then as above
local function added(shape, options)
  return { loss = 2, call = function(f, x, residual, ...)
    local a = { shape, ... }
    a[#a + 1] = options
    return f(x, residual, table.unpack(a))
  end }
end
L.add_layer_norm = {
  case("all", { real(3, 4), real(3, 4), real(4), real(4) }, added({ 4 })),
  case("plain", { real(3, 5), real(3, 5) }, added({ 5 })),
  case("weight", { real(2, 6), real(2, 6), real(6) }, added({ 6 }, { eps = 0.1 })),
  case("two dims", { real(2, 2, 3), real(2, 2, 3), real(2, 3), real(2, 3) }, added({ 2, 3 })),
  case("empty", { real(0, 3), real(0, 3), real(3), real(3) }, added({ 3 })),
  big(added({ 330 }), real(200, 330), real(200, 330), real(330), real(330)),
}
L.add_rms_norm = {
  case("weight", { real(3, 4), real(3, 4), real(4) }, added({ 4 })),
  case("plain", { real(3, 5), real(3, 5) }, added({ 5 }, { eps = 1e-3 })),
  case("two dims", { real(2, 2, 3), real(2, 2, 3), real(2, 3) }, added({ 2, 3 }, { eps = 1e-5 })),
  case("empty", { real(0, 3), real(0, 3), real(3) }, added({ 3 })),
  big(added({ 330 }), real(200, 330), real(200, 330), real(330)),
}
local function entropy(options)
  return { loss = 4, call = function(f, x, t, w)
    local o = { weight = w }
    for k, v in pairs(options or {}) do o[k] = v end
    return f(x, t, o)
  end }
end
L.cross_entropy = {
  case("mean", { real(4, 3), index(3, 4) }, entropy()),
  case("sum", { real(4, 3), index(3, 4) }, entropy { reduction = "sum" }),
  case("none", { real(4, 3), index(3, 4) }, entropy { reduction = "none" }),
  case("ignored", { real(6, 3), index(3, 6) }, entropy { ignore_index = 1 }),
  case("weight", { real(4, 3), index(3, 4), c.constant(0.5, 1.5, 3) }, entropy()),
  case("smoothing", { real(4, 3), index(3, 4) }, entropy { label_smoothing = 0.2 }),
  case("one", { real(3), index(3) }, entropy()),
  case("spatial", { real(2, 3, 2), index(3, 2, 2) }, entropy()),
  case("empty sum", { real(0, 3), index(3, 0) }, entropy { reduction = "sum" }),
  big(entropy(), real(300, 257), index(257, 300)),
}

return L
