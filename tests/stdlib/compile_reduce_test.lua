--- accel.compile where chains have reductions: bits of single calls, and float64's values, whatever the reduction, its dims, dtypes, layouts
--- and sizes; how many passes; gradients; NaN and infinities; programs by chance.
-- tier: every change, memory
local accel = require "accel"
local core = require "accel.fuse.core"

local function counted(f, ...)
  local waited, passes, written = core.counts()
  local r = table.pack(f(...))
  local w, p, n, waiting = core.counts()
  return { waited = w - waited, passes = p - passes, written = n - written, waiting = waiting }, table.unpack(r, 1, r.n)
end
local function same(a, b) return accel.equal(a, b) or accel.equal(a:nan_to_num(7, 8, 9), b:nan_to_num(7, 8, 9)) end

-- ---- what takes one pass ----
local function softmax(x)
  local e = (x - x:amax(-1, true)):exp()
  return e / e:sum(-1, true)
end
local chains = {
  softmax = { softmax, 5 },
  masked = { function(x, y) return softmax(x * 0.125 + y) end, 7 },
  layer_norm = { function(x, _, w, b)
    local d = x - x:mean(-1, true)
    return d * ((d * d):mean(-1, true) + 1e-5):rsqrt() * w + b
  end, 9 },
  rms_norm = { function(x, _, w) return x * (x:square():mean(-1, true) + 1e-6):rsqrt() * w end, 6 },
  moments = { function(x, y)
    local s = x + y
    return (s - s:mean(-1, true)) / (s:var(-1, true, 1) + 1e-5):sqrt()
  end, 7 },
  log_softmax = { function(x, y)
    local s = x * y
    return s - s:logsumexp(-1, true)
  end, 3 },
  unit = { function(x, y) return (x - y) / (x - y):norm(2, -1, true) end, 4 },
  squeezed = { function(x, y) return (x * y):sum(-1):tanh():unsqueeze(-1) * x end, 4 },
  least = { function(x, y) return (x - y):abs() - (x - y):abs():amin(-1, true) end, 6 },
  mse = { function(x, y) return (x - y):square():mean() end, 3 },
  total = { function(x, y) return ((x + y) * 0.5 - x):abs():sum() end, 5 },
  largest = { function(x, y) return (x * 2 + y):amax() end, 3 },
  length = { function(x, y) return (x * y):norm() end, 2 },
  columns = { function(x, y) return (x * y):sum(1) end, 2 },
  column_max = { function(x, y) return (x - y):amax(1) end, 2 },
  column_var = { function(x, y) return (x - y):var(1) end, 2 },
  two = { function(x, y)
    local h = (x + y):tanh()
    return h, h:mean(-1), h:sum()
  end, 4 },
}
-- rows that a pass takes, short ones, long ones, more than two dims; blocks and lanes that are not whole
local shapes <const> = { { 300, 500 }, { 64, 4099 }, { 5000, 33 }, { 20, 9000 }, { 3, 70, 800 }, { 2048, 64 } }
for _, shape in ipairs(shapes) do
  for _, dtype in ipairs { "f32", "bf16", "f16" } do
    accel.manual_seed(shape[1])
    local n = shape[#shape]
    local x, y = accel.randn(shape):to(dtype), accel.randn(shape):to(dtype)
    local w, b = accel.randn(n):to(dtype), accel.randn(n):to(dtype)
    for name, chain in accel.pairs(chains) do
      local f, calls = table.unpack(chain)
      local want = table.pack(f(x, y, w, b))
      local n1 = table.pack(counted(accel.compile(f), x, y, w, b))
      local what = ("%s of %s in %s"):format(name, accel.inspect(shape), dtype)
      for i = 1, want.n do assert(same(want[i], n1[i + 1]), what) end
      if #shape == 2 and n >= 64 and n <= 8192 then
        assert(n1[1].waited == calls and n1[1].passes == (name == "two" and 2 or 1) and n1[1].waiting == 0,
          what .. accel.inspect(n1[1]))
      end
      if dtype == "f32" then -- those of 16 bits are rounded after every call, as single calls are
        local exact = f(x:to "f64", y:to "f64", w:to "f64", b:to "f64")
        local off = ((n1[2]:to "f64" - exact):abs() / (exact:abs() + 1)):amax():item()
        assert(off < 1e-4, ("%s: off by %g"):format(what, off))
      end
    end
  end
end

-- ---- layouts, sizes, and dims in which nothing waits or elements lie apart ----
local layouts = {
  turned = function() return accel.randn(500, 300):t(), accel.randn(300, 500) end,
  both_turned = function() return accel.randn(500, 300):t(), accel.randn(500, 300):t() end,
  part = function() return accel.randn(300, 700):narrow(2, 100, 500), accel.randn(301, 500):narrow(1, 2, 300) end,
  spread = function() return accel.randn(300, 1):expand(300, 500), accel.randn(1, 500) end,
  row = function() return accel.randn(300, 500), accel.randn(500) end,
  column = function() return accel.randn(300, 500), accel.randn(300, 1) end,
  one_row = function() return accel.randn(1, 200000), accel.randn(1, 200000) end,
  one_column = function() return accel.randn(200000, 1), accel.randn(200000, 1) end,
  one = function() return accel.randn(1, 1), accel.randn(1, 1) end,
  no_rows = function() return accel.randn(0, 500), accel.randn(0, 500) end,
  mixed = function() return accel.randn(300, 500):to "bf16", accel.randn(300, 500) end,
  f64 = function() return accel.randn(300, 500):to "f64", accel.randn(300, 500):to "f64" end,
  whole = function() return accel.randint(-5, 5, { 300, 500 }), accel.randn(300, 500) end,
}
local function odd(x)
  x[2][3], x[2][4], x[7][1], x[9][9], x[11] = 0 / 0, 1 / 0, -1 / 0, -0.0, 0.0
  return x
end
layouts.odd = function() return odd(accel.randn(300, 500)), accel.randn(300, 500) end
layouts.odd_bf16 = function() return odd(accel.randn(300, 500)):to "bf16", odd(accel.randn(300, 500)):to "bf16" end
for layout, make in accel.pairs(layouts) do
  accel.manual_seed(4)
  local x, y = make()
  local n = x:size(2)
  local w, b = accel.randn(n), accel.randn(n)
  for name, chain in accel.pairs(chains) do
    local f = chain[1]
    local ok, want = pcall(f, x, y, w, b)
    local fine, got = pcall(accel.compile(f), x, y, w, b)
    assert(ok == fine and (not ok or same(want, got)), ("%s of %s: %s"):format(name, layout, ok and "differs" or tostring(got)))
  end
end

-- ---- gradients ----
for name, chain in accel.pairs(chains) do
  local f = chain[1]
  local function gradients(g, inside)
    accel.manual_seed(6)
    local t = { accel.randn(300, 500), accel.randn(300, 500), accel.randn(500), accel.randn(500) }
    for _, each in ipairs(t) do each.requires_grad = true end
    local function step(...)
      local loss = (g(...) * 0.5):sum()
      loss:backward()
      return loss
    end
    local list = { (inside and accel.compile(step) or step)(table.unpack(t)):detach() }
    for _, each in ipairs(t) do list[#list + 1] = each.grad end
    return list
  end
  local want = gradients(f)
  for _, got in ipairs { gradients(accel.compile(f)), gradients(f, true) } do
    assert(#got == #want)
    for i, each in ipairs(want) do assert(accel.equal(each, got[i]), ("%s: gradient %d"):format(name, i - 1)) end
  end
end
-- a function called again before the backward of the first; what is saved is all that is written
do
  local x = accel.randn(300, 500)
  x.requires_grad = true
  local f = accel.compile(chains.layer_norm[1])
  local w, b = accel.ones(500), accel.zeros(500)
  local n, one = counted(f, x, x, w, b)
  local other = f(x * 2, x, w, b)
  assert(n.passes == 1 and n.written <= 5, accel.inspect(n)) -- d, rsqrt's result, d * rsqrt and w's product at most
  one:sum():backward()
  other:sum():backward()
end

-- ---- programs by chance ----
local reductions = { "sum", "mean", "amax", "amin", "norm", "logsumexp", "var", "prod" }
local maps = {
  function(a, b) return a + b end, function(a, b) return a - b * 0.5 end, function(a, b) return a * b:sigmoid() end, function(a) return a:tanh() end,
  function(a, b) return accel.maximum(a, b) end, function(a) return a:abs():add(1):log() end, function(a) return a:gelu() * 2 end,
  function(a, b) return accel.where(a:gt(b), a, b) end, function(a, b) return a / (b:abs() + 1) end, function(a) return a:clamp(-2, 2) end,
}
local function program(seed)
  return function(x, y, rows, row)
    math.randomseed(seed)
    local full, narrow, kept = { x, y }, { rows, row }, {}
    for _ = 1, math.random(4, 22) do
      local a, b = full[math.random(#full)], full[math.random(#full)]
      local c = narrow[math.random(#narrow)]
      local kind = math.random(7)
      local what = reductions[math.random(#reductions)]
      if kind <= 3 then full[#full + 1] = maps[math.random(#maps)](a, b)
      elseif kind == 4 then full[#full + 1] = maps[math.random(#maps)](a, c)
      elseif kind == 5 then narrow[#narrow + 1] = (a * 0.01 + 1)[what](a * 0.01 + 1, { dim = -1, keepdim = true })
      elseif kind == 6 then narrow[#narrow + 1] = maps[math.random(#maps)](c, narrow[math.random(#narrow)])
      elseif what ~= "logsumexp" then
        local dim = math.random(3)
        kept[#kept + 1] = dim == 1 and (a * 0.01 + 1)[what](a * 0.01 + 1, { dim = 1 })
          or dim == 2 and (a * 0.01 + 1)[what](a * 0.01 + 1) or (a * 0.01 + 1)[what](a * 0.01 + 1, { dim = -1 })
      end
      if math.random(9) == 1 then full[math.random(#full)]:add_(0.125) end
      if math.random(9) == 1 then kept[#kept + 1] = narrow[math.random(#narrow)] end
    end
    kept[#kept + 1] = full[#full]
    return table.unpack(kept)
  end
end
for seed = 1, tonumber(os.getenv "ACCEL_TEST_FULL") and 400 or 60 do
  math.randomseed(seed)
  local R, C = math.random(2, 900), math.random(60, 1500)
  if R * C < 140000 then R = 140000 // C + 1 end
  local dtype = ({ "f32", "f32", "bf16", "f16" })[seed % 4 + 1]
  accel.manual_seed(seed)
  local t = { accel.randn(R, C):to(dtype), accel.randn(R, C), accel.randn(R, 1):to(dtype), accel.randn(1, C) }
  local function copies() return t[1]:clone(), t[2]:clone(), t[3], t[4] end
  local want = table.pack(program(seed)(copies()))
  local f = accel.compile(program(seed))
  for call = 1, seed % 10 == 0 and 4 or 1 do -- the fourth call has kernels of its own
    local got = table.pack(f(copies()))
    assert(got.n == want.n)
    for i = 1, want.n do
      assert(same(want[i], got[i]), ("program %d of %d x %d in %s, call %d: result %d"):format(seed, R, C, dtype, call, i))
    end
  end
  local _, _, _, waiting = core.counts()
  assert(waiting == 0)
end
