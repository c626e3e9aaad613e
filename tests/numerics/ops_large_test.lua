-- Ops at sizes where they cut their work into blocks, chunks and tiles: reductions and products against
-- sums written out in Lua, fused ops against the plain ops they stand for, gradients included. Lengths are
-- awkward on purpose.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local numbers = require "numbers"

local failed = 0
local function check(what, got, want, bar, floor)
  local e, why = numbers.distance(got, want, floor)
  if e <= bar then return end
  failed = failed + 1
  print(("FAIL %s: error %.3g, bar %.3g%s"):format(what, e, bar, why and " (" .. why .. ")" or ""))
end

local function values(seed, n)
  local u, v = numbers.uniform(seed), {}
  for i = 1, n do v[i] = 4 * u() - 2 end
  return v
end
local function make(v, shape, dtype) return numbers.tensor(v, shape, dtype or "f64") end

-- ---- reductions over every kind of dim: (outer, n, inner) ----
local shapes = {
  { 1, 70001, 1 }, { 3, 5003, 1 }, { 1, 4099, 7 }, { 5, 2051, 3 }, { 2049, 3, 1 }, { 40, 33, 65 },
  { 1, 131, 1030 },
}
for _, shape in ipairs(shapes) do
  local O, N, I = table.unpack(shape)
  local v = values(O + N, O * N * I)
  local sum, high, low, where = {}, {}, {}, {}
  for o = 0, O - 1 do
    for i = 0, I - 1 do
      local s, c, h, l, at = 0.0, 0.0, -math.huge, math.huge, 0 -- compensated: as good as exact
      for k = 0, N - 1 do
        local x = v[(o * N + k) * I + i + 1]
        local y = x - c
        local t = s + y
        c = (t - s) - y
        s = t
        if x > h then h, at = x, k end
        if x < l then l = x end
      end
      local j = o * I + i + 1
      sum[j], high[j], low[j], where[j] = s, h, l, at
    end
  end
  for _, dtype in ipairs { "f64", "f32" } do
    local x = make(v, shape, dtype)
    local eps = numbers.EPS[dtype]
    local label = ("(%d, %d, %d) %s"):format(O, N, I, dtype)
    check("sum " .. label, numbers.flat(x:sum(2)), sum, 16 * eps, math.sqrt(N))
    if dtype == "f64" then
      check("amax " .. label, numbers.flat(x:amax(2)), high, 0)
      check("amin " .. label, numbers.flat(x:amin(2)), low, 0)
      check("argmax " .. label, numbers.flat(x:argmax(2)), where, 0)
      local m, at = x:max(2)
      check("max " .. label, numbers.flat(m), high, 0)
      check("max's places " .. label, numbers.flat(at), where, 0)
      local all = 0.0
      for _, s in ipairs(sum) do all = all + s end
      check("sum of all " .. label, { x:sum():item() }, { all }, 1e-12, math.sqrt(#v))
      check("mean of all " .. label, { x:mean():item() }, { all / #v }, 1e-12, 1e-3)
    end
  end
end

-- ---- products ----
local function product(a, b, m, k, n) -- row-major
  local c = {}
  for i = 0, m - 1 do
    for j = 0, n - 1 do
      local s = 0.0
      for p = 0, k - 1 do s = s + a[i * k + p + 1] * b[p * n + j + 1] end
      c[#c + 1] = s
    end
  end
  return c
end

for _, s in ipairs { { 67, 131, 97 }, { 1, 1025, 33 }, { 129, 1, 65 }, { 33, 260, 1 }, { 5, 600, 200 } } do
  local m, k, n = table.unpack(s)
  local a, b = values(1, m * k), values(2, k * n)
  local want = product(a, b, m, k, n)
  for _, dtype in ipairs { "f64", "f32" } do
    local bar = (dtype == "f64" and 64 or 8) * numbers.EPS[dtype]
    local label = ("(%d, %d, %d) %s"):format(m, k, n, dtype)
    local x, y = make(a, { m, k }, dtype), make(b, { k, n }, dtype)
    check("matmul " .. label, numbers.flat(x:matmul(y)), want, bar)
    local xt, yt = x:t():contiguous():t(), y:t():contiguous():t()
    check("matmul of transposed " .. label, numbers.flat(xt:matmul(yt)), want, bar)
    check("linear " .. label, numbers.flat(accel.linear(x, y:t():contiguous())), want, bar)
  end
  local ints = {}
  for i, x in ipairs(a) do ints[i] = math.floor(x * 10) end
  local other = {}
  for i, x in ipairs(b) do other[i] = math.floor(x * 10) end
  want = product(ints, other, m, k, n)
  local x, y = make(ints, { m, k }, "i64"), make(other, { k, n }, "i64")
  check("matmul of integers", numbers.flat(x:matmul(y)), want, 0)
end

-- ---- fused ops against the plain ones: results and gradients ----
local function compare(what, inputs, fused, plain, bar)
  local function run(f)
    local t = {}
    for i, x in ipairs(inputs) do
      t[i] = x:detach()
      if x:is_floating_point() then t[i].requires_grad = true end
    end
    local y = f(table.unpack(t))
    local w = make(values(99, y:numel()), y.shape)
    local leaves = {}
    for _, x in ipairs(t) do
      if x.requires_grad then leaves[#leaves + 1] = x end
    end
    return y, accel.grad(y, leaves, { grad_outputs = w })
  end
  local y, g = run(fused)
  local z, h = run(plain)
  check(what, numbers.flat(y), numbers.flat(z), bar)
  for i = 1, #h do check(what .. ", gradient " .. i, numbers.flat(g[i]), numbers.flat(h[i]), bar, 1e-2) end
end

for _, shape in ipairs { { 37, 1029 }, { 3, 5001 }, { 700, 33 }, { 2100, 2 } } do
  local rows, width = table.unpack(shape)
  local x = make(values(5, rows * width), shape)
  local w, b = make(values(6, width), { width }), make(values(7, width), { width })
  local kept = { keepdim = true }
  compare(("layer_norm (%d, %d)"):format(rows, width), { x, w, b },
    function(a, u, v) return a:layer_norm({ width }, u, v) end,
    function(a, u, v)
      local c = a - a:mean(2, kept)
      return c * ((c * c):mean(2, kept) + 1e-5):rsqrt() * u + v
    end, 1e-11)
  compare(("rms_norm (%d, %d)"):format(rows, width), { x, w },
    function(a, u) return a:rms_norm({ width }, u, 1e-6) end,
    function(a, u) return a * ((a * a):mean(2, kept) + 1e-6):rsqrt() * u end, 1e-11)
  compare(("softmax (%d, %d)"):format(rows, width), { x }, function(a) return a:softmax(2) end, function(a)
    local e = (a - a:amax(2, true):detach()):exp()
    return e / e:sum(2, kept)
  end, 1e-11)
  compare(("log_softmax over columns (%d, %d)"):format(rows, width), { x },
    function(a) return a:log_softmax(1) end,
    function(a) return a - a:exp():sum(1, kept):log() end, 1e-11)
  local u, classes = numbers.uniform(8), {}
  for i = 1, rows do classes[i] = math.floor(u() * width) end
  local target = make(classes, { rows }, "i64")
  for _, smooth in ipairs { 0, 0.1 } do
    compare(("cross_entropy (%d, %d), smoothing %g"):format(rows, width, smooth), { x },
      function(a) return accel.cross_entropy(a, target, { label_smoothing = smooth }) end,
      function(a)
        local l = a:log_softmax(2)
        return l:gather(2, target:unsqueeze(2)):mean() * (smooth - 1) - l:mean() * smooth
      end, 1e-11)
  end
end

-- Attention: tiles of keys and of queries, awkward lengths, grouped heads, masks.
local attentions = {
  { 2, 3, 131, 131, 24, "causal" }, { 1, 2, 70, 259, 16, "causal" }, { 2, 2, 97, 200, 33, "mask" },
  { 1, 4, 65, 129, 8, "added" }, { 1, 1, 1, 515, 64, "none" },
}
local function sees(kind, i, j, chance)
  if kind == "causal" then return j <= i end
  return kind ~= "mask" or chance < 0.6 or j == 0
end
for _, s in ipairs(attentions) do
  local B, Hd, Tq, Tk, D, kind = table.unpack(s)
  local q = make(values(1, B * Hd * Tq * D), { B, Hd, Tq, D })
  local k = make(values(2, B * Hd * Tk * D), { B, Hd, Tk, D })
  local v = make(values(3, B * Hd * Tk * D), { B, Hd, Tk, D })
  local u, seen = numbers.uniform(4), {}
  for i = 0, Tq - 1 do
    for j = 0, Tk - 1 do
      seen[#seen + 1] = sees(kind, i, j, u()) and 1 or 0
    end
  end
  local mask = make(seen, { Tq, Tk }, "bool")
  local bias = kind == "added" and make(values(5, Tq * Tk), { Tq, Tk }) or nil
  local options = { is_causal = kind == "causal", attn_mask = kind == "mask" and mask or bias }
  compare(("attention %s (%d, %d, %d, %d, %d)"):format(kind, B, Hd, Tq, Tk, D), { q, k, v },
    function(a, b, c) return accel.scaled_dot_product_attention(a, b, c, options) end,
    function(a, b, c)
      local scores = a:matmul(b:transpose(3, 4)) * (1 / math.sqrt(D))
      if bias then scores = scores + bias end
      return accel.where(mask, scores, -math.huge):softmax(-1):matmul(c)
    end, 1e-10)
end

-- ---- rows picked and added: repeated places, in the order of the index ----
do
  local rows, width, n = 211, 67, 3001
  local u, places = numbers.uniform(12), {}
  for i = 1, n do places[i] = math.floor(u() * rows) end
  local src = values(13, n * width)
  local want = {}
  for i = 1, rows * width do want[i] = 0.0 end
  for i = 1, n do
    for j = 1, width do
      local at = places[i] * width + j
      want[at] = want[at] + src[(i - 1) * width + j]
    end
  end
  local index, source = make(places, { n }, "i64"), make(src, { n, width })
  local zeros = accel.zeros({ rows, width }, { dtype = "f64" })
  check("index_add", numbers.flat(zeros:index_add(1, index, source)), want, 1e-13)
  local weight = make(values(14, rows * width), { rows, width })
  weight.requires_grad = true
  local y = accel.embedding(index, weight)
  local g = accel.grad(y, weight, { grad_outputs = source })
  check("embedding's gradient", numbers.flat(g), want, 1e-13)
  local wide = index:unsqueeze(2):expand(n, width)
  check("scatter_add", numbers.flat(zeros:scatter_add(1, wide, source)), want, 1e-13)
end

print(failed .. " failed")
if failed > 0 then os.exit(1, true) end
