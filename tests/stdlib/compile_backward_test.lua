--- accel.compile in backward: chains of gradients wait as those of the forward do. Bits of single calls, whatever looks on: hooks, retained
--- gradients, gradients that were there, leaves that are frozen or thawed between calls, second derivatives, checkpoints; how many passes.
-- tier: every change, memory
local accel = require "accel"
local core = require "accel.fuse.core"
local nn = accel.nn
local R, C <const> = 300, 500

local function counted(f, ...)
  local waited, passes, written = core.counts()
  local r = table.pack(f(...))
  local w, p, n, waiting = core.counts()
  return { waited = w - waited, passes = p - passes, written = n - written, waiting = waiting }, table.unpack(r, 1, r.n)
end
local function same(what, want, got)
  assert(#want == #got, what)
  for i, t in ipairs(want) do assert(accel.equal(t, got[i]), ("%s: gradient %d"):format(what, i)) end
end

-- ---- chains whose backward has chains ----
local function softmax(x)
  local e = (x - x:amax(-1, true)):exp()
  return e / e:sum(-1, true)
end
local chains <const> = {
  activations = function(x, y, w) return ((x * w):tanh():sigmoid() * y):gelu():silu() end,
  residual = function(x, y, w)
    for _ = 1, 4 do x = x + (x * w):tanh() * y end
    return x
  end,
  bias = function(x, y, w, b) return ((x + w):gelu() * y + b):tanh() end, -- sums over rows end chains
  softmax = function(x, y) return softmax(x * 0.125 + y) * y end,
  layer_norm = function(x, y, w, b)
    local d = x - x:mean(-1, true)
    return d * ((d * d):mean(-1, true) + 1e-5):rsqrt() * w + b + y
  end,
  clipped = function(x, y, w) return accel.where(x:gt(0), x * w, y):clamp(-1, 1) * x:abs() end,
  long = function(x, y)
    for i = 1, 40 do x = (x * 0.9 + i * 0.01):sin() end
    return x * y
  end,
}
local function leaves(dtype)
  accel.manual_seed(6)
  local t = { accel.randn(R, C):to(dtype), accel.randn(R, C):to(dtype), accel.randn(C):to(dtype), accel.randn(C):to(dtype) }
  for _, each in ipairs(t) do each.requires_grad = true end
  return t
end
local function gradients_of(t)
  local list = {}
  for _, each in ipairs(t) do list[#list + 1] = each.grad end
  return list
end
local function run(f, dtype, around)
  local t = leaves(dtype)
  local n
  for _ = 1, 4 do -- gradients add up, and the fourth time kernels are there
    local loss = (f(table.unpack(t)) * 0.5):sum()
    n = counted(around or function(l) l:backward() end, loss, t)
  end
  return gradients_of(t), n
end
for name, f in accel.pairs(chains) do
  for _, dtype in ipairs { "f32", "bf16", "f16" } do
    local what = ("%s in %s"):format(name, dtype)
    local want, none = run(f, dtype)
    local got, n = run(accel.compile(f), dtype)
    same(what, want, got)
    assert(none.waited == 0 and n.waited > 1 and n.passes < n.waited and n.waiting == 0, what .. accel.inspect(n))
  end
end

-- ---- what looks on ----
local f = chains.residual
local lookers <const> = {
  ["named inputs"] = function(loss, t) for i, g in ipairs(accel.grad(loss, t, { allow_unused = true })) do t[i].grad = g end end,
  ["twice"] = function(loss)
    loss:backward { retain_graph = true }
    loss:backward()
  end,
  ["inputs"] = function(loss, t) loss:backward { inputs = { t[1], t[3] } } end,
}
for what, around in accel.pairs(lookers) do same(what, (run(f, "f32", around)), (run(accel.compile(f), "f32", around))) end

local function hooked(g)
  local t, seen = leaves "f32", {}
  local y = g(table.unpack(t))
  y:retain_grad()
  y:register_hook(function(d)
    seen[1] = d * 2 -- waits, and is read after the backward
    return d * 0.5
  end)
  t[1]:register_hook(function(d)
    seen[2] = d
    return d * 3
  end)
  t[2]:register_post_accumulate_grad_hook(function(p) seen[3] = p.grad:clone() p.grad:mul_(2) end)
  local loss = (y * y):sum()
  loss:backward()
  return { seen[1], seen[2], seen[3], y.grad, table.unpack(gradients_of(t)) }
end
same("hooks", hooked(f), hooked(accel.compile(f)))

-- a second derivative is recorded, call by call, and taken by a backward of its own
local function second(g)
  local t = leaves "f32"
  local d = accel.grad(g(table.unpack(t)):sum(), { t[1] }, { create_graph = true })[1]
  d:square():sum():backward()
  return gradients_of(t)
end
local twice = function(x, y) return (x * y):tanh() * x end
same("second derivative", second(twice), second(accel.compile(twice)))

local function checkpointed(g)
  local t = leaves "f32"
  accel.checkpoint(function(a, b, c, d) return g(g(a, b, c, d), b, c, d) end, table.unpack(t)):square():mean():backward()
  return gradients_of(t)
end
same("checkpoint", checkpointed(chains.bias), checkpointed(accel.compile(chains.bias)))

-- leaves that are frozen, thawed, and written between calls: each backward goes by what the call before it recorded
local function freezing(g)
  local t, all = leaves "f32", {}
  for step = 1, 8 do
    for i, each in ipairs(t) do each.requires_grad = i == 1 or (step + i) % 3 > 0 end
    g(table.unpack(t)):square():mean():backward()
    for i, each in ipairs(t) do
      all[#all + 1] = each.grad and each.grad:clone() or accel.zeros(1)
      accel.no_grad(function() if each.grad then each:sub_(each.grad) end end)
      if step % 2 == i % 2 then each.grad = nil end
    end
  end
  return all
end
for name, g in accel.pairs(chains) do same("frozen and thawed, " .. name, freezing(g), freezing(accel.compile(g))) end

-- a failure inside ends the region; the next backward is right
do
  local t, g = leaves "f32", accel.compile(f)
  local y = g(table.unpack(t))
  local handle = t[3]:register_hook(function() error "not today" end)
  local ok, said = pcall(function() y:sum():backward() end)
  assert(not ok and tostring(said):find("not today", 1, true))
  handle:remove()
  local _, _, _, waiting = core.counts()
  assert(waiting == 0)
  for _, each in ipairs(t) do each.grad = nil end
  local want = leaves "f32"
  f(table.unpack(want)):sum():backward()
  g(table.unpack(t)):sum():backward()
  same("after a failure", gradients_of(want), gradients_of(t))
end

-- ---- memory: chains have none on the way, and end where they began ----
local function peak(g, ...)
  accel.collect()
  accel.reset_peak_memory()
  local before = accel.mem_stats().peak_bytes
  local r <close> = accel.scope()
  g(...)
  return (accel.mem_stats().peak_bytes - before) / (R * C * 4)
end
local x, y = accel.randn(R, C), accel.randn(R, C)
local function forward(a, b) return ((a + b) * 0.5 - a):abs():tanh() end
local plain, fused = peak(forward, x, y), peak(accel.compile(forward), x, y)
assert(plain > 1.9 and fused < 1.1, ("%g results, plain %g"):format(fused, plain))
-- the gradient of 12 residual blocks: one chain, whose parts a plain backward has side by side
local deep = function(a, b) for _ = 1, 12 do a = (a * 0.5 + b):abs() end return a end
local tall = accel.compile(deep)
local function backward(g)
  local t = leaves "f32"
  local loss = g(t[1], t[2]):sum()
  return peak(function() loss:backward() end)
end
backward(tall)
plain, fused = backward(deep), backward(tall)
assert(fused <= plain, ("%g results, plain %g"):format(fused, plain))
-- what somebody still holds keeps its memory
do
  local a = accel.randn(R, C)
  local held = a * 1
  local kept = accel.compile(function(t) return (t + 1):abs() * t end)(held)
  assert(accel.equal(held, a) and accel.equal(kept, (a + 1):abs() * a))
  local turned = accel.randn(400, 400) -- an operand that is also read the other way round
  local function both(t) local s = t * 1 return (s + s:t()):tanh() - s end
  assert(accel.equal(accel.compile(both)(turned), both(turned)))
end
