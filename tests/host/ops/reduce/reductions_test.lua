-- prod, norm, var, std, logsumexp, any, all, count_nonzero, cumsum and cumprod where they are hard: offsets that cancel,
-- zeros among factors, infinities, lists long enough for every way through the kernels. Expected values are closed
-- forms, or PyTorch's where it has a convention.
local accel = require "accel"
local inf, nan = math.huge, 0 / 0

local function flat(t)
  t = t:detach():to("f64")
  return #t.shape == 0 and { t:item() } or t:reshape(-1):tolist()
end
local function close(what, got, want, rtol)
  local g = accel.is_tensor(got) and flat(got) or { got }
  local w = type(want) == "table" and want or { want }
  assert(#g == #w, ("%s: %d values instead of %d"):format(what, #g, #w))
  for i, y in ipairs(w) do
    local x, ok = g[i], nil
    if y ~= y then ok = x ~= x
    elseif math.abs(y) == inf then ok = x == y
    else ok = math.abs(x - y) <= (rtol or 1e-12) * math.abs(y) + (y == 0 and 1e-300 or 0) end
    assert(ok, ("%s: element %d is %.17g instead of %.17g"):format(what, i, x, y))
  end
end
local function f64(v) return accel.tensor(v, { dtype = "f64" }) end
-- Value and gradient of fn at a tensor of v; the cotangent is 1.
local function slope(fn, v)
  local x = f64(v)
  x.requires_grad = true
  local y = fn(x)
  return y, accel.grad(y, x, { grad_outputs = accel.ones_like(y) })
end
-- The ways lists lie: rows, columns, one long list, a list in pieces.
local shapes = {
  rows = { { 40, 70 }, 2 }, columns = { { 70, 40 }, 1 }, long = { { 200000 }, 1 }, ["long rows"] = { { 3, 150000 }, 2 },
  ["long columns"] = { { 20000, 20 }, 1 }, middle = { { 6, 50, 30 }, 2 }, outer = { { 5, 8, 6 }, { 1, 3 } },
  short = { { 3000, 3 }, 2 }, ["wide columns"] = { { 5, 700 }, 1 }, pairs = { { 1000, 2 }, 1 },
}

-- ---- var and std: +-1 around an offset that drowns a sum of squares ----
for label, s in pairs(shapes) do
  for dtype, offset in pairs { f32 = 1048576, f64 = 2.0 ^ 30, bf16 = 64 } do
    local x = accel.arange(accel.zeros(s[1]):numel()):remainder(2):view(s[1]):to("f64") * 2 - 1
    local n = x:numel() / x:sum(s[2]):numel()
    local mean = x:mean(s[2], true)
    local want = ((x - mean) ^ 2):sum(s[2])
    x = (x + offset):to(dtype)
    local what = ("%s, %s"):format(label, dtype)
    local rtol = dtype == "f64" and 1e-12 or dtype == "f32" and 1e-6 or 8e-3
    close("var " .. what, x:var(s[2]), flat(want / (n - 1)), rtol)
    close("var, no correction " .. what, x:var(s[2], { correction = 0 }), flat(want / n), rtol)
    close("std " .. what, x:std(s[2], { correction = 0 }), flat((want / n):sqrt()), rtol)
  end
end
do
  local y, dx = slope(function(x) return x:std(2) end, { { 1, 1, 1 }, { 1, 2, 3 } })
  close("std of equals", y, { 0, 1 })
  close("std's gradient", dx, { 0, 0, 0, -0.5, 0, 0.5 })
  close("var of one", f64 { 3 }:var(), nan)
  close("var of nothing", accel.zeros({ 2, 0 }):var(2), { nan, nan })
  close("var, nothing left", f64 { { 1, 1, 1 }, { 1, 2, 3 } }:var(2, { correction = 5 }), { nan, inf })
  close("var with infinity", f64 { 1, inf, 2 }:var(), nan)
  close("var of a number", f64(3):var { correction = 0 }, 0)
end

-- ---- norm ----
for label, s in pairs(shapes) do
  local x = accel.arange(accel.zeros(s[1]):numel()):view(s[1]):to("f64") % 7 - 3
  local size = x:abs()
  for p, want in pairs {
    [0] = size:gt(0):sum(s[2]), [1] = size:sum(s[2]), [2] = (x * x):sum(s[2]):sqrt(),
    [3] = (size ^ 3):sum(s[2]) ^ (1 / 3), [inf] = size:amax(s[2]), [-inf] = size:amin(s[2]),
    [0.5] = size:sqrt():sum(s[2]) ^ 2,
  } do
    close(("norm %g %s"):format(p, label), x:norm(p, { dim = s[2] }), flat(want), 1e-12)
    close(("norm %g %s, f32"):format(p, label), x:to("f32"):norm(p, { dim = s[2] }), flat(want), 2e-6)
  end
end
do
  local big = accel.full({ 100000 }, 1e30, { dtype = "f32" })
  close("norm without overflow", big:norm(), 1e30 * 100000 ^ 0.5, 1e-6)
  close("norm of infinity", accel.tensor { -inf, 1 }:norm(), inf)
  close("norm of NaN", f64 { nan, 1 }:norm(inf), nan)
  close("norm of NaN, smallest", f64 { 1, nan }:norm(-inf), nan)
  close("norm of nothing", accel.zeros({ 2, 0 }):norm { dim = 2 }, { 0, 0 })
  for p, want in pairs {
    [1] = { 0, -1, 1 }, [2] = { 0, -0.7071067811865475, 0.7071067811865475 },
    [3] = { 0, -0.6299605249474365, 0.6299605249474365 }, [0.5] = { 0, -2, 2 },
    [1.5] = { 0, -0.7937005259840998, 0.7937005259840998 }, [inf] = { 0, -0.5, 0.5 },
    [-inf] = { 0, 0, 0 }, [-1] = { 0, 0, 0 }, [0] = { 0, 0, 0 },
  } do
    local function norm(x) return x:norm(p) end
    local _, dx = slope(norm, { 0, -2, 2 })
    close(("gradient of norm %g"):format(p), dx, want)
    _, dx = slope(norm, { 0, 0, 0 })
    close(("gradient of norm %g at 0"):format(p), dx, { 0, 0, 0 })
  end
end

-- ---- prod: one factor apart from 1, and zeros ----
for label, s in pairs(shapes) do
  local n = accel.zeros(s[1]):numel()
  local x = accel.ones(s[1], { dtype = "f64" })
  x:view(-1)[n] = 3
  x:view(-1)[1] = 0.5
  local last = accel.ones(x:sum(s[2]).shape, { dtype = "f64" })
  local m = last:numel()
  last:view(-1)[m] = last:view(-1)[m] * 3
  last:view(-1)[1] = last:view(-1)[1] * 0.5
  close("prod " .. label, x:prod(s[2]), flat(last))
  close("prod of f32 " .. label, x:to("f32"):prod(s[2]), flat(last))
  close("prod of integers " .. label, (x * 2):to("i32"):prod { dim = s[2], dtype = "i64" },
    flat((x * 2):to("i32"):to("i64"):prod(s[2])))
  x:view(-1)[n // 2] = 0
  local hit = x:eq(0):sum(s[2], true)
  x.requires_grad = true
  local dx = accel.grad(x:prod(s[2]):sum(), x)
  local others = accel.where(x:detach():eq(0), 1, x:detach()):prod(s[2], true)
  close("gradient of prod with one 0, " .. label, dx,
    flat(accel.where(hit:eq(0), others / x:detach(), others * x:detach():eq(0):to("f64"))))
end
do
  local y, dx = slope(function(x) return x:prod(2) end, { { 0, 0, 2 }, { 0, 3, 2 }, { 1, 2, 3 } })
  close("prod", y, { 0, 0, 6 })
  close("prod's gradient", dx, { 0, 0, 0, 6, 0, 0, 6, 3, 2 })
  close("prod of nothing", accel.zeros({ 2, 0 }):prod(2), { 1, 1 })
  close("prod in double", accel.tensor({ 1e30, 1e30, 1e-30, 1e-30 }, { dtype = "f32" }):prod(), 1, 1e-6)
  assert(accel.tensor({ 2, 3 }, { dtype = "i32" }):prod().dtype == "i64")
  close("prod wraps", accel.full({ 65 }, 2):to("i64"):prod(), 0)
end

-- ---- logsumexp ----
for label, s in pairs(shapes) do
  local x = accel.arange(accel.zeros(s[1]):numel()):view(s[1]):to("f64") % 11 * 100 - 3
  local top = x:amax(s[2], true)
  local want = flat((x - top):exp():sum(s[2]):log() + top:reshape(x:sum(s[2]).shape))
  close("logsumexp " .. label, x:logsumexp(s[2]), want)
  close("logsumexp of f32 " .. label, x:to("f32"):logsumexp(s[2]), want, 1e-6)
end
do
  local function lse(x) return x:logsumexp(-1) end
  local y, dx = slope(lse, { { -inf, -inf }, { -inf, 1 }, { nan, 1 } })
  close("logsumexp at the edges", y, { -inf, 1, nan })
  close("its gradient", dx, { 0, 0, 0, 1, nan, nan })
  close("logsumexp of infinity", f64 { { inf, 1 }, { inf, -inf }, { inf, inf } }:logsumexp(2), { inf, inf, inf })
  close("logsumexp of nothing", accel.zeros({ 2, 0 }):logsumexp(2), { -inf, -inf })
  local x = accel.zeros({ 100, 3000 }, { dtype = "f32" }) -- an infinity in another block than the largest number
  x:select(2, 1):fill_(inf)
  x:select(2, 2999):fill_(2000)
  close("logsumexp of infinity, blocks", x:logsumexp(2):amin(), inf)
  close("logsumexp of infinity, columns", x:t():contiguous():logsumexp(1):amin(), inf)
  close("logsumexp of integers", accel.tensor { 1, 1 }:logsumexp(1), 1.693147180559945, 1e-7)
end

-- ---- any, all, count_nonzero ----
for label, s in pairs(shapes) do
  local n = accel.zeros(s[1]):numel()
  for _, dtype in ipairs { "bool", "u8", "i8", "i32", "f32", "bf16", "f64" } do
    local x = accel.zeros(s[1], { dtype = dtype })
    x:view(-1)[n] = dtype == "bool" and true or 3
    local hits = flat(accel.ones(x:to("f64"):sum(s[2]).shape) * 0)
    hits[#hits] = 1
    local what = label .. " " .. dtype
    close("count_nonzero " .. what, x:count_nonzero(s[2]), hits)
    close("any " .. what, x:any(s[2]), hits)
    local inverse = x:eq(0)
    for i, v in ipairs(hits) do hits[i] = 1 - v end
    close("all " .. what, inverse:to(dtype):all(s[2]), hits)
  end
end
assert(f64 { nan }:any():item() == true and f64 { nan }:all():item() == true)
assert(f64 { nan }:count_nonzero():item() == 1)
assert(accel.zeros(0):any():item() == false and accel.zeros(0):all():item() == true)
assert(accel.tensor { true, false }:any().dtype == "bool" and accel.tensor { 256 }:to("i64"):all():item() == true)

-- ---- cumsum and cumprod ----
for label, shape in pairs {
  long = { 200000 }, ["two long"] = { 2, 100000 }, rows = { 70, 50 }, ["three rows"] = { 3, 50 },
  tiny = { 5, 1 },
} do
  local n = shape[#shape]
  local x = accel.ones(shape, { dtype = "f64" })
  x.requires_grad = true
  local ramp = (accel.arange(n):to("f64") + 1):expand(shape)
  for d, y in pairs { [#shape] = x, [1] = x:transpose(1, #shape):contiguous() } do
    local way = d == #shape and "last" or "first"
    local want = d == #shape and ramp or ramp:transpose(1, #shape)
    close(("cumsum %s, %s"):format(label, way), y:cumsum(d), flat(want))
    close(("cumsum of i32 %s, %s"):format(label, way), y:to("i32"):cumsum(d), flat(want))
    close(("cumsum of f32 %s, %s"):format(label, way), y:to("f32"):cumsum(d), flat(want))
    close(("cumprod of -1 %s, %s"):format(label, way), (-y):cumprod(d), flat(1 - (want % 2) * 2))
    local z = y:detach():clone()
    z.requires_grad = true
    local dx = accel.grad(z:cumsum(d), z, { grad_outputs = want:contiguous() })
    close(("gradient of cumsum %s, %s"):format(label, way), dx, flat((n * (n + 1) - want * (want - 1)) / 2))
  end
  -- through strides: every other element, and backwards in memory as an expanded one
  local wide = accel.stack({ x:detach() * 100, x:detach() }, -1):select(-1, 2)
  close("cumsum of every other, " .. label, wide:cumsum(-1), flat(ramp))
  close("cumsum of one repeated, " .. label, accel.ones(1, { dtype = "f32" }):expand(shape):cumsum(-1), flat(ramp))
end
do
  local y, dx = slope(function(x) return x:cumprod(2) end, { { 0, 0, 2 }, { 0, 3, 2 }, { 1, 2, 3 }, { 2, 0, 3 } })
  close("cumprod", y, { 0, 0, 0, 0, 0, 0, 1, 2, 6, 2, 0, 0 })
  close("cumprod's gradient", dx, { 1, 0, 0, 10, 0, 0, 9, 4, 2, 1, 8, 0 })
  close("sums of small numbers do not stand still", accel.full({ 40000 }, 1e-4, { dtype = "f32" }):cumsum(1)[40000],
    4, 1e-6)
  assert(accel.tensor({ 1, 2 }, { dtype = "i8" }):cumsum(1).dtype == "i64")
  close("cumsum with dtype", accel.tensor { 1.7, 1.7 }:cumsum(1, { dtype = "i32" }), { 1, 2 })
  close("cumsum of a number", f64(3):cumsum(1), 3)
end

-- ---- gradients of gradients where factors, or everything, are 0 ----
local function second(fn, v)
  local x = f64(v)
  x.requires_grad = true
  local g = accel.grad(fn(x):sum(), x, { create_graph = true })
  return accel.grad(g:sum(), x)
end
close("second derivative of prod", second(function(x) return x:prod() end, { 0, 3, 2 }), { 5, 2, 3 })
close("second derivative of cumprod", second(function(x) return x:cumprod(1) end, { 0, 3, 2 }), { 6, 3, 3 })
for _, p in ipairs { 1, 2, 3 } do
  close("second derivative of norm at 0", second(function(x) return x:norm(p) end, { 0, 0 }), { 0, 0 })
end
close("second derivative of std of equals", second(function(x) return x:std() end, { 2, 2 }), { 0, 0 })

-- ---- what bad arguments say ----
local function refused(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), tostring(err) .. " does not say " .. pattern)
end
refused("var.*floating point, not i64", accel.var, accel.tensor { 1, 2 })
refused("norm.*floating point, not bool", accel.norm, accel.tensor { true })
refused("nothing to choose from.*%(2, 0%)", accel.norm, accel.zeros({ 2, 0 }), inf, { dim = 2 })
refused("twice", accel.prod, accel.zeros({ 2, 2 }), { 1, -2 })
refused("cumsum.*dim 3", accel.cumsum, accel.zeros({ 2, 2 }), 3)
refused("logsumexp.*dim", accel.logsumexp, accel.zeros(2))
