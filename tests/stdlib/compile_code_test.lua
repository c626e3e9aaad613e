--- Kernels that accel.compile makes: bits of single calls for the formula of every map, whatever operands are; found again by another process;
--- nothing of a folder that others may write to, and none of it where there is no compiler.
-- tier: every change, memory
local accel = require "accel"
local core = require "accel.fuse.core"
local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"
local tmp = os.getenv "ACCEL_TEST_TMP"
local function sh(command)
  local p <close> = assert(io.popen(command .. " 2>&1"))
  return p:read "a"
end
local cc = sh("command -v cc"):match "^(/[^\n]+)"
if not cc then
  print "skipped: there is no C compiler 'cc'"
  os.exit(77, true)
end

local R, C <const> = 300, 500
accel.manual_seed(3)
--- Calls f, compiled, until its kernel is there, and compares every call's bits. Returns how many passes were by a kernel.
local function generated(what, f, ...)
  local compiled = accel.compile(f)
  local want = table.pack(f(...))
  local _, _, _, _, before = core.counts()
  for call = 1, 4 do
    local got = table.pack(compiled(...))
    for i = 1, want.n do
      assert(accel.equal(want[i], got[i]), ("%s, call %d: result %d"):format(what, call, i))
    end
  end
  local _, _, _, _, after = core.counts()
  return after - before
end

local x, y = accel.randn(R, C), accel.randn(R, C)
-- All maps of one operand, and some of two, nine to a kernel; operands lie where every one of them has a value.
local unary <const> = { "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "elu", "erf", "exp", "expm1", "floor", "gelu", "hardsigmoid",
  "hardswish", "log", "log1p", "neg", "reciprocal", "relu", "round", "rsqrt", "selu", "sigmoid", "sign", "silu", "sin", "sinh", "softplus",
  "softsign", "sqrt", "square", "tan", "tanh", "trunc", "mish" }
local binary <const> = { "add", "sub", "mul", "div", "maximum", "minimum", "atan2", "pow" }
local function several(names)
  return function(a, b)
    local u, v = a:sigmoid() * 0.9 + 0.05, b:sigmoid() + 0.5
    local sum = u - v
    for i, name in ipairs(names) do sum = sum * 0.5 + ((names == binary and accel[name](u, v) or accel[name](u)) - i) end
    return sum
  end
end
for i = 1, #unary, 9 do
  local names = table.move(unary, i, math.min(i + 8, #unary), 1, {})
  assert(generated(table.concat(names, " "), several(names), x, y) >= 2, table.concat(names, " "))
end
assert(generated("two operands", several(binary), x, y) >= 2)
-- operands that are broadcast, narrower, the other way round; numbers that differ from call to call take one kernel
for what, b in accel.pairs {
  row = accel.randn(C), column = accel.randn(R, 1), one = accel.randn(1), bf16 = y:to "bf16", turned = accel.randn(C, R):t(),
} do
  assert(generated(what, function(a, o) return (a + o):tanh() * 2 - o end, x, b) >= 2, what)
end
do
  local _, _, _, _, before = core.counts()
  for i = 1, 6 do
    local f = function(a) return (a * i + 1 / i):clamp(-i, i) * 0.5 end
    assert(accel.equal(accel.compile(f)(x), f(x)), i)
  end
  local _, _, _, _, after = core.counts()
  assert(after - before == 4)
end
-- results of 16 bits go by the chain; two results, and gradients
assert(generated("bf16 results", function(a) return (a * 2 + 1):tanh() end, x:to "bf16") == 0)
assert(generated("two results", function(a, b)
  local h = (a + b):gelu()
  return h, h:exp() * b
end, x, y) >= 2)
do
  local w = accel.randn(R, C, { requires_grad = true })
  local f = function(a) return ((a * w + 1):gelu() - a):square():mean() end
  local grads = {}
  for i, g in ipairs { f, accel.compile(f) } do
    for _ = 1, 4 do
      w.grad = nil
      g(x):backward()
      grads[i] = w.grad
    end
  end
  assert(accel.equal(grads[1], grads[2]))
end

-- ---- other processes ----
local script = tmp .. "/chain.lua"
do
  local f <close> = assert(io.open(script, "w"))
  f:write [[
    local accel, core = require "accel", require "accel.fuse.core"
    accel.manual_seed(1)
    local x = accel.randn(400, 500)
    local f = function(a) return ((a * 2 + 1):tanh() - a):exp() * 0.5 end
    local c = accel.compile(f)
    for _ = 1, 5 do assert(accel.equal(c(x), f(x))) end
    print("generated", (select(5, core.counts())))
  ]]
end
local log, wrapper = tmp .. "/calls", tmp .. "/cc.sh"
do
  local f <close> = assert(io.open(wrapper, "w"))
  f:write(("#!/bin/sh\necho call >> '%s'\nexec '%s' \"$@\"\n"):format(log, cc))
end
sh(("chmod 755 '%s'"):format(wrapper))
local folder = tmp .. "/own"
local function child(compiler)
  local text = sh(("ACCEL_COMPILE_CACHE='%s' ACCEL_COMPILE_CC='%s' ACCEL_DEVICE=cpu '%s' '%s'"):format(folder, compiler, run, script))
  local calls = select(2, sh(("cat '%s' 2> /dev/null || true"):format(log)):gsub("call", ""))
  return tonumber(text:match "generated%s+(%d+)") or error(text), calls
end
local function expect(what, compiler, passes, calls)
  local n, m = child(compiler)
  assert(n == passes and m == calls, ("%s: %d passes by a kernel, %d calls of the compiler"):format(what, n, m))
end
-- two threads of a process that make the same kernel at a time: the compiler of each ends when the other's has made its file as well
do
  local pair, both = tmp .. "/pair.lua", tmp .. "/both.sh"
  assert(accel.write_file(tmp .. "/chain_worker.lua", ([[
    return function(_, endpoint)
      local told
      local env = setmetatable({ print = function(_, n) told = n end }, { __index = _G })
      assert(loadfile(%q, "t", env))()
      endpoint:send(told)
    end
  ]]):format(script)))
  assert(accel.write_file(pair, ([[
    local accel = require "accel"
    package.path = %q .. "/?.lua;" .. package.path
    local one, other = accel.worker.start("chain_worker", {}), accel.worker.start("chain_worker", {})
    local _, a = assert(one:receive(300))
    local _, b = assert(other:receive(300))
    print("generated", a + b)
  ]]):format(tmp)))
  assert(accel.write_file(both, ([[#!/bin/sh
'%s' "$@" || exit 1
echo made >> '%s'
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  [ "$(grep -c made '%s')" -ge 2 ] && exit 0
  sleep 0.5
done
exit 0
]]):format(cc, log, log)))
  sh(("chmod 755 '%s'; rm -rf '%s' '%s'"):format(both, folder, log))
  local text = sh(("ACCEL_COMPILE_CACHE='%s' ACCEL_COMPILE_CC='%s' ACCEL_DEVICE=cpu '%s' '%s'"):format(folder, both, run, pair))
  assert(text:match "generated%s+6", text)
end
sh(("rm -rf '%s' '%s'"):format(folder, log))
expect("the first", wrapper, 3, 1)
expect("another process", wrapper, 3, 1)
local files = sh(("ls '%s'"):format(folder))
assert(files:match "^%x+%.so\n$", files)
sh(("echo broken > '%s/%s'"):format(folder, files:match "%S+"))
expect("a file that is broken", wrapper, 3, 2)
sh(("chmod 777 '%s'"):format(folder))
expect("a folder that others may write to", wrapper, 0, 2)
sh(("chmod 700 '%s'; chmod 666 '%s/%s'"):format(folder, folder, files:match "%S+"))
expect("a file that others may write to", wrapper, 3, 3)
expect("no compiler", "/nowhere/cc", 0, 3)
expect("switched off", "off", 0, 3)
expect("one that fails", sh "command -v false":match "%S+", 0, 3)
