-- qr and solve_triangular: factors of every shape multiply to what they came from, at sizes that are worked on in
-- panels; LAPACK's signs; extremes; what has no gradient.
local accel = require "accel"
package.path = arg[0]:match("^(.*)/host/ops/linalg/[^/]*$") .. "/support/?.lua;" .. package.path
local numbers = require "numbers"

local function close(got, want, bar, what, floor)
  local e, why = numbers.distance(numbers.flat(got), numbers.flat(want), floor)
  assert(e <= bar, ("%s: error %.3g, bar %.3g%s"):format(what, e, bar, why and " (" .. why .. ")" or ""))
end
local function make(seed, shape, dtype)
  local u, v = numbers.uniform(seed), {}
  for i = 1, numbers.numel(shape) do v[i] = 4 * u() - 2 end
  return numbers.tensor(v, shape, dtype or "f64")
end
local function says(code, parts, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code, tostring(err))
  for _, part in ipairs(parts) do
    assert(tostring(err):find(part, 1, true), ("'%s' is not in: %s"):format(part, tostring(err)))
  end
end

local EPS = { f64 = 1e-14, f32 = 1e-6 }
local shapes = { { 1, 1 }, { 5, 3 }, { 3, 5 }, { 32, 32 }, { 33, 65 }, { 130, 70 }, { 70, 130 }, { 2, 3, 40, 33 } }
for _, shape in ipairs(shapes) do
  for _, mode in ipairs { "reduced", "complete" } do
    for dtype, bar in pairs(EPS) do
      local label = ("qr (%s), %s, %s"):format(table.concat(shape, ", "), mode, dtype)
      local x, n = make(3, shape, dtype), #shape
      local q, r = x:qr(mode)
      local m, k = shape[n - 1], mode == "complete" and shape[n - 1] or math.min(shape[n - 1], shape[n])
      assert(q.shape[n - 1] == m and q.shape[n] == k and r.shape[n - 1] == k and r.shape[n] == shape[n], label)
      close(q:matmul(r), x, 20 * bar, label .. ": product")
      local products = q:transpose(-1, -2):matmul(q)
      close(products, accel.eye(k, { dtype = dtype }):expand(products.shape), 20 * bar, label .. ": orthonormal columns")
      close(r:tril(-1), accel.zeros_like(r), 0, label .. ": triangular")
      close(select(2, x:qr("r")), r:narrow(-2, 1, math.min(m, shape[n])), 0, label .. ": r alone")
    end
  end
end

-- A matrix of a batch has the bits that it has alone, for any number of threads that share the batch.
do
  local x = make(4, { 5, 60, 50 })
  local q = x:qr()
  for i = 1, 5 do close(q[i], (x[i]:qr()), 0, "one of a batch") end
end

-- Signs: the first element changes its own, a last column of one element keeps its own.
do
  local q, r = accel.tensor({ { 3.0, 1.0 }, { 4.0, 2.0 } }):qr()
  close(q, accel.tensor { { -0.6, -0.8 }, { -0.8, 0.6 } }, 1e-6, "q")
  close(r, accel.tensor { { -5.0, -2.2 }, { 0.0, 0.4 } }, 1e-6, "r")
  q, r = accel.tensor({ { -2.0 } }):qr()
  assert(q:item() == 1 and r:item() == -2)
  q, r = accel.zeros(3, 2):qr()
  close(r, accel.zeros(2, 2), 0, "r of zeros")
  close(q, accel.eye(3):narrow(2, 1, 2), 0, "q of zeros")
end

-- Lengths whose squares leave the range of doubles.
for _, scale in ipairs { 1e-200, 1e200, 1e-320 } do
  local x = accel.tensor({ { 3.0 }, { 4.0 } }, { dtype = "f64" }) * scale
  local q, r = x:qr()
  close(q, accel.tensor { { -0.6 }, { -0.8 } }, scale < 1e-300 and 1e-3 or 1e-7, "q of scale " .. scale)
  assert(math.abs(r:item() / scale + 5) < (scale < 1e-300 and 1e-3 or 1e-12))
end
assert(accel.full({ 2, 2 }, 0 / 0):qr():isnan():any():item(), "NaN stays")

-- Triangular systems: what lies outside of the triangle is not read.
do
  local a, b = make(5, { 90, 90 }) * 0.05 + accel.eye(90, { dtype = "f64" }), make(6, { 90, 130 })
  for _, upper in ipairs { true, false } do
    local t = upper and a:triu() or a:tril()
    close(t:matmul(accel.solve_triangular(a, b, upper)), b, 1e-12, "A x = B")
    close(accel.solve_triangular(a, b:t(), upper, false):matmul(t), b:t(), 1e-12, "x A = B")
  end
end

-- ---- errors ----
local tall = make(1, { 4, 2 })
tall.requires_grad = true
says("autograd", { "qr in mode complete", "reduced" }, function() tall:qr("complete"):sum():backward() end)
says("autograd", { "qr in mode r", "reduced" }, function() select(2, tall:qr("r")):sum():backward() end)
says("shape", { "qr", "(3)" }, accel.qr, accel.ones(3))
says("dtype", { "qr", "i64" }, accel.qr, accel.tensor { { 1 } })
says("shape", { "solve_triangular", "square", "(2, 3)" }, accel.solve_triangular, accel.ones(2, 3), accel.ones(2, 3),
  true)
says("shape", { "does not fit", "x A = B" }, accel.solve_triangular, accel.ones(2, 2), accel.ones(2, 3), true, false)
says("dtype", { "f32 and f64" }, accel.solve_triangular, accel.ones(2, 2), make(1, { 2, 2 }), true)
