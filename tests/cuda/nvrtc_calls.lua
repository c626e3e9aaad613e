--- Chains of maps on a device, by kernels that NVRTC makes: bits of single calls for the formula of every map, whatever operands are; found
--- again by another process; inside of recorded steps and around them; what happens without the library, and where it refuses.
--- texts to the test after it, which has the toolkit's own NVRTC, where it is, compile them for chips that it knows (nvrtc_real.c).
-- tier: every change
local accel = require "accel"
local core = require "accel.fuse.core"
local mode = arg[1]
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local cuda = accel.features().devices.cuda
if cuda.count == 0 then
  print("skipped: " .. cuda.state)
  os.exit(77, true)
end

local function sh(command)
  local p <close> = assert(io.popen(command .. " 2>&1"))
  return p:read "a"
end
local R, C <const> = 60, 50
accel.manual_seed(3)
local function random(dtype, ...) return accel.randn(...):to(dtype):to "cuda" end
local function same(a, b) return accel.equal(a, b) or accel.equal(a:nan_to_num(7, 8, 9), b:nan_to_num(7, 8, 9)) end

--- Calls f, compiled, four times; returns how many passes and how many of them by a kernel.
local function calls(what, f, ...)
  local compiled = accel.compile(f)
  local want = table.pack(f(...))
  local _, p0, _, _, g0 = core.counts()
  for call = 1, 4 do
    local got = table.pack(compiled(...))
    for i = 1, want.n do assert(same(want[i], got[i]), ("%s, call %d: result %d"):format(what, call, i)) end
  end
  local _, p1, _, waiting, g1 = core.counts()
  assert(waiting == 0)
  return p1 - p0, g1 - g0
end

local function chain(x, y, b)
  local h = (x * 2.5 + y):gelu()
  h = h * h:sigmoid() + b
  return (h - 0.1):tanh() * y, h
end
local x, y, b = random("f32", R, C), random("f32", R, C), random("f32", C)
if mode == "absent" then
  local p = calls("absent", chain, x, y, b)
  assert(p == 0) -- nothing waits
  return
elseif mode == "refused" then
  local p, g = calls("refused", chain, x, y, b)
  assert(p == 4 and g == 0)
  return
end

local texts = tmp .. "/texts"
if mode ~= "gpu" and not os.getenv "CUDA_TWIN_NVRTC_TEXTS" then -- once more, with a folder for the texts
  sh(("rm -rf '%s' '%s' && mkdir -p '%s'"):format(texts, os.getenv "ACCEL_COMPILE_CACHE", texts))
  local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"
  local function again() return sh(("CUDA_TWIN_NVRTC_TEXTS='%s' '%s' '%s' %s"):format(texts, run, arg[0], mode)) end
  local said = again()
  assert(said == "", said)
  local files = select(2, sh(("ls '%s'"):format(texts)):gsub("%.cu", ""))
  assert(files >= 12, files)
  said = again() -- another process finds all of them in the folder of kernels
  assert(said == "" and select(2, sh(("ls '%s'"):format(texts)):gsub("%.cu", "")) == files, said)
  local cache = os.getenv "ACCEL_COMPILE_CACHE"
  sh(("for f in '%s'/*.bin; do echo broken > \"$f\"; done"):format(cache))
  said = again() -- what is broken there is compiled again
  assert(said == "" and select(2, sh(("ls '%s'"):format(texts)):gsub("%.cu", "")) > files, said)
  assert(not sh(("head -qc 6 '%s'/*.bin"):format(cache)):find "broken")
  return
end

-- ---- every formula ----
local unary <const> = { "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "elu", "erf", "exp", "expm1", "floor", "gelu", "hardsigmoid",
  "hardswish", "log", "log1p", "neg", "reciprocal", "relu", "round", "rsqrt", "selu", "sigmoid", "sign", "silu", "sin", "sinh", "softplus",
  "softsign", "sqrt", "square", "tan", "tanh", "trunc", "mish" }
local binary <const> = { "add", "sub", "mul", "div", "maximum", "minimum", "atan2", "pow" }
local function generated(...)
  local p, g = calls(...)
  assert(p >= 4 and g >= 2, (...))
end
local function several(names)
  return function(u0, v0)
    local u, v = u0:sigmoid() * 0.9 + 0.05, v0:sigmoid() + 0.5
    local sum = u - v
    for i, name in ipairs(names) do sum = sum * 0.5 + ((names == binary and accel[name](u, v) or accel[name](u)) - i) end
    return sum
  end
end
for i = 1, #unary, 9 do generated("maps from " .. unary[i], several(table.move(unary, i, math.min(i + 8, #unary), 1, {})), x, y) end
generated("two operands", several(binary), x, y)

-- ---- dtypes and layouts ----
for _, dtype in ipairs { "f32", "bf16", "f16" } do
  generated(dtype, chain, random(dtype, R, C), random(dtype, R, C), random(dtype, C))
end
local function mixed(a, o) return (a + o):tanh() * 2 - o end
generated("column", mixed, x, random("f32", R, 1))
generated("one", mixed, x, random("f32", 1))
generated("narrower", mixed, x, random("bf16", R, C))
generated("turned", mixed, x, random("f32", C, R):t())
generated("whole numbers", mixed, x, accel.randint(-5, 5, { R, C }):to "cuda")
-- numbers and sizes differ from call to call: one kernel; before an operand is written, what waits for it is computed
for i = 1, 4 do
  local f = function(a) return (a * i + 1 / i):clamp(-i, i) * 0.5 end
  assert(same(f(x), accel.compile(f)(x)))
end
local written = function(a)
  local h = a * 2 + 1
  a:add_(1)
  return h * a
end
local one, other = x:clone(), x:clone()
assert(same(written(one), accel.compile(written)(other)) and same(one, other))

-- ---- gradients ----
local function gradients(f)
  local t = x:clone()
  t.requires_grad = true
  local loss = f(t, y, b):square():mean()
  loss:backward()
  return t.grad, loss:detach()
end
local want, loss = gradients(chain)
for _ = 1, 3 do
  local got, l = gradients(accel.compile(chain))
  assert(same(want, got) and same(loss, l))
end

-- ---- recorded steps ----
do
  local function curve(a, o) return ((a * 1.25 - o):abs() + 0.5):sqrt() * o:cos() end -- its kernel is nobody else's
  local function training(f)
    accel.manual_seed(4)
    local w = accel.randn(C, C):to "cuda"
    w.requires_grad = true
    local opt = accel.optim.SGD({ w }, { lr = 0.1 })
    return function(a)
      local out = f(a:matmul(w), y):square():mean()
      out:backward()
      opt:step()
      opt:zero_grad()
      return out
    end, w
  end
  local plain, w = training(curve)
  local step, v = training(accel.compile(curve))
  local graph = accel.graph(step)
  for i = 1, 6 do
    local _, _, _, _, g0 = core.counts()
    assert(same(plain(x * i), graph(x * i)), ("a recorded step, call %d"):format(i))
    local _, _, _, waiting, g1 = core.counts()
    assert(waiting == 0 and (i ~= 3 or g1 > g0)) -- the call that is recorded has kernels already
  end
  assert(same(w, v) and graph.recorded == 1 and graph.replays == 3 and not graph.reason, tostring(graph))
end
do -- what waits around a step, and at its end
  local total, other = accel.zeros({ R, C }):to "cuda", accel.zeros({ R, C }):to "cuda"
  local function around(sum, step)
    return function(a)
      local before = sum * 2 + a
      local h = a * 0.5 + 1
      return step(h) * h, before * before
    end
  end
  local function inner(sum)
    return function(h)
      sum:add_(h)
      return (sum * 0.25 - h):tanh()
    end
  end
  local plain, graph = around(total, inner(total)), accel.graph(inner(other))
  local compiled = accel.compile(around(other, graph))
  for i = 1, 6 do
    local want, got = { plain(x * i) }, { compiled(x * i) }
    for k = 1, 2 do assert(same(want[k], got[k]), ("around a recorded step, call %d, result %d"):format(i, k)) end
  end
  assert(same(total, other) and graph.recorded == 1 and graph.replays == 3 and not graph.reason, tostring(graph))
end
