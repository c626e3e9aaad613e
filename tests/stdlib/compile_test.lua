--- accel.compile: results, gradients and random numbers are those of plain calls to the last bit, whatever the function does in between;
--- chains take fewer passes over memory than maps; what it refuses.
-- tier: every change, memory
local accel = require "accel"
local core = require "accel.fuse.core"
local nn = accel.nn

local function says(text, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(text, 1, true), ("expected '%s', got %s"):format(text, tostring(err)))
end
local function counted(f, ...)
  local waited, passes, written = core.counts()
  local r = table.pack(f(...))
  local w, p, n, waiting = core.counts()
  return { waited = w - waited, passes = p - passes, written = n - written, waiting = waiting }, table.unpack(r, 1, r.n)
end
local R, C <const> = 300, 500 -- 150000 elements: enough to wait
local function random(dtype, ...) return accel.randn(...):to(dtype or "f32") end

-- ---- one pass for a chain; bits of single calls ----
accel.manual_seed(2)
local function chain(x, y, b)
  local h = (x * 2.5 + y):gelu()
  h = h * h:sigmoid() + b
  h = (h - 0.1):tanh() * y
  return h:exp():clamp(0, 5), h
end
for _, dtype in ipairs { "f32", "bf16", "f16" } do
  local x, y = random(dtype, R, C), random(dtype, R, C)
  for _, b in ipairs { random(dtype, C), random(dtype, R, 1), random(dtype, 1), random(dtype, R, C) } do
    local want, other = chain(x, y, b)
    local n, got, second = counted(accel.compile(chain), x, y, b)
    assert(accel.equal(want, got) and accel.equal(other, second), dtype)
    assert(n.waited == 11 and n.passes == 1 and n.written == 2 and n.waiting == 0, accel.inspect(n))
  end
end
-- mixed dtypes; operands that lie the other way round; few elements run at once
local mixed = function(x, h) return (x + h):tanh() * 2 - x end
local x, h = random("f32", R, C), random("bf16", R, C)
assert(accel.equal(mixed(x, h), accel.compile(mixed)(x, h)))
local turned = random("f32", C, R):t()
assert(accel.equal(mixed(x, turned), accel.compile(mixed)(x, turned)))
local n = counted(accel.compile(mixed), random("f32", 10, 10), random("bf16", 10, 10))
assert(n.waited == 0)
-- a chain longer than a pass
local function long(t)
  for i = 1, 100 do t = (t + i * 0.01):sin() end
  return t
end
local n200, got = counted(accel.compile(long), x)
assert(accel.equal(got, long(x)) and n200.waited == 200 and n200.passes < 20, accel.inspect(n200))

-- ---- programs by chance: maps, products, reductions, views, writes in place, reads by the host ----
local steps = {
  function(t) return t.a + t.b end, function(t) return t.a * t.b end, function(t) return (t.a - t.b):abs() end,
  function(t) return t.a:tanh() end, function(t) return t.a:clamp(-1, 1) end, function(t) return t.a * 0.5 + 1 end,
  function(t) return t.a:gelu { approximate = "tanh" } end, function(t) return accel.where(t.a:gt(0), t.a, t.b) end,
  function(t) return t.a + t.b:mean(2, true) end, function(t) return t.a / (t.a:abs():max() + 1) end,
  function(t) return t.a:t():contiguous():t() + t.b end, function(t) return t.a:narrow(1, 1, R // 2):tanh():tile(2, 1) end,
  function(t) t.a:add_(t.b) return t.a end, function(t) t.b:mul_(0.9) return t.a + t.b end,
  function(t) local v = t.a:view(-1) v:narrow(1, 1, 7):fill_(0.25) return t.a * 1.5 end,
  function(t) return t.a * (t.b[3][4]:item() > 0 and 1.1 or 0.9) end, function(t) return t.a:softmax(-1) + t.b end,
  function(t) return nn.functional.dropout(t.a, 0.1, true) end, function(t) t.a[2]:zero_() return t.a - t.b end,
  function(t) t.b:copy_(t.a) return t.b:exp():log1p() end, function(t) return accel.cat({ t.a, t.b }, 1):narrow(1, 5, R):relu() end,
}
local function program(seed)
  return function(a, b)
    math.randomseed(seed)
    local t = { a = a * 1, b = b + 0 }
    for _ = 1, 12 do
      local new = steps[math.random(#steps)](t)
      if math.random() < 0.5 then t.a, t.b = new, t.a else t.b = new end
      if t.a == t.b then t.b = t.a * 1 end
    end
    return { t.a, list = { t.b, t.a:sum() } }
  end
end
for seed = 1, 25 do
  local a, b = random("f32", R, C), random("f32", R, C)
  accel.manual_seed(seed)
  local want = program(seed)(a:clone(), b:clone())
  accel.manual_seed(seed)
  local got = accel.compile(program(seed))(a:clone(), b:clone())
  for i, pair in ipairs { { want[1], got[1] }, { want.list[1], got.list[1] }, { want.list[2], got.list[2] } } do
    assert(accel.equal(pair[1], pair[2]), ("program %d, result %d"):format(seed, i))
  end
end

-- ---- gradients; a backward inside; hooks that keep what is saved ----
local function loss_of(x, w, b) return ((x * w + b):gelu() - x):square():mean() end
local function gradients(f, keep)
  local x, w, b = random("f32", R, C), random("f32", R, C), random("f32", C)
  for _, t in ipairs { x, w, b } do t.requires_grad = true end
  local loss = f(x, w, b)
  if not keep then loss:backward() end
  return { loss:detach(), x.grad, w.grad, b.grad }
end
local inside = function(...)
  local loss = loss_of(...)
  loss:backward()
  return loss
end
for _, f in ipairs { accel.compile(loss_of), function(...)
  local a, b, c = ...
  return accel.autograd.graph.saved_tensors_hooks(function(t) return t:clone() end, function(t) return t end, function()
    return accel.compile(loss_of)(a, b, c)
  end)
end } do
  accel.manual_seed(5)
  local want = gradients(loss_of)
  accel.manual_seed(5)
  for i, g in ipairs(gradients(f)) do assert(accel.equal(g, want[i]), i) end
  accel.manual_seed(5)
  for i, g in ipairs(gradients(accel.compile(inside), true)) do assert(accel.equal(g, want[i]), i) end
end

-- gradients that begin in a later call than the first: graphs keep operands that need none, checkpoints their arguments
do
  local w, square = random("f32", R, C), random("f32", C, C)
  w.requires_grad, square.requires_grad = true, true
  for i, f in ipairs {
    function(t) return (t * 2) * w end, function(t) return accel.maximum(t * 2 + 1, w) end, function(t) return (w + 3) / (t:exp() + 1) end,
    function(t) return accel.checkpoint(function(h) return h:tanh():matmul(square) end, t * 2) end,
  } do
    local fused = accel.compile(f)
    accel.no_grad(function() return fused(x) end)
    local got, want = {}, {}
    for list, g in pairs { [got] = fused, [want] = f } do
      w.grad, square.grad = nil, nil
      g(x):sum():backward()
      list[1] = w.grad or square.grad
    end
    assert(accel.equal(got[1], want[1]), i)
  end
end

-- a gradient that was there before, read before a backward adds to it, in place
do
  local function step(w)
    local loss = (w * w):mean()
    local doubled = w.grad * 2
    loss:backward()
    return doubled, w.grad + 0
  end
  local function both(f)
    local w = accel.ones(R, C, { requires_grad = true })
    w.grad = accel.full({ R, C }, 3.0)
    local doubled, grad = f(w)
    return doubled:mean():item(), grad:mean():item(), w.grad:mean():item()
  end
  local w1, w2, w3 = both(step)
  local g1, g2, g3 = both(accel.compile(step))
  assert(w1 == 6 and w1 == g1 and w2 == g2 and w3 == g3)
end

-- ---- what a function keeps without returning it ----
do
  local kept
  local f = accel.compile(function(t)
    kept = t:tanh() * 2
    return kept + 1
  end)
  local y = f(x)
  assert(accel.equal(kept, x:tanh() * 2) and accel.equal(y, kept + 1))
  f(x * 2)
  assert(accel.equal(kept, (x * 2):tanh() * 2)) -- it is known to keep something by now
  local calls = 0
  local late = accel.compile(function(t)
    calls = calls + 1
    local h = t:tanh() * 2
    if calls == 2 then kept = h end
    return h + 1
  end)
  late(x)
  late(x)
  says("neither returned nor used up was read after it", function() return kept:sum():item() end)
  says("neither returned nor used up was read after it", function() return kept + 1 end)
  says("neither returned nor used up was read after it", accel.compile(function(t) return t + 1 end), kept)
end
-- an error inside ends the region; functions inside functions; what was given back is a tensor like any other
local failing = accel.compile(function(t) return (t * 2):nonsense() end)
says("nonsense", failing, x)
local _, _, _, waiting = core.counts()
assert(waiting == 0)
local inner = accel.compile(function(t) return t:exp() * 2 end)
local outer = accel.compile(function(t) return inner(t:tanh()) - 1 end)
assert(accel.equal(outer(x), (x:tanh():exp() * 2) - 1))
local wrapped = accel.compile(function(t)
  local y = t:tanh() + 1
  local capsule = y:to_dlpack() -- no op: it takes memory as it is
  return accel.from_dlpack(capsule), y
end)
local a, b = wrapped(x)
assert(accel.equal(a, x:tanh() + 1) and accel.equal(a, b))

-- ---- models ----
local function same_training(make, input, label)
  local function train(compiled)
    accel.manual_seed(8)
    local model = make()
    if compiled then assert(accel.compile(model) == model) end
    local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
    local losses = {}
    for step = 1, 2 do
      local loss = label(model, input(accel.Generator(step)))
      loss:backward()
      optimizer:step()
      optimizer:zero_grad()
      losses[step] = loss:item()
    end
    return losses, model
  end
  local want, got = train(false), train(true)
  for i, loss in ipairs(want) do assert(loss == got[i], ("step %d: %.17g and %.17g"):format(i, loss, got[i])) end
end
same_training(function()
  return accel.models.GPT2 { vocab_size = 61, n_positions = 64, n_embd = 64, n_layer = 2, n_head = 4, resid_pdrop = 0.1 }
end, function(g) return accel.randint(0, 61, { 64, 64 }, { generator = g }) end, function(model, ids)
  return nn.functional.cross_entropy(model(ids):reshape(-1, 61), ids:reshape(-1))
end)
same_training(function()
  return nn.Sequential(nn.Conv2d(3, 16, 3, { padding = 1 }), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 8, 3, { padding = 1 }), nn.GELU(),
    nn.Dropout(0.2))
end, function(g) return accel.randn(16, 3, 32, 32, { generator = g }) end, function(model, pictures)
  local y = model(pictures)
  return (y:sigmoid() * y):square():mean()
end)

-- ---- settings ----
local plain = function(t) return t end
assert(accel.compile(plain, { backend = "eager" }) == plain and accel.compile(plain, { disable = true }) == plain)
accel.compile(plain, { fullgraph = true, dynamic = true, mode = "max-autotune" })
says("backend must be one of 'inductor', 'eager' and 'aot_eager', got 'indctor'", accel.compile, plain, { backend = "indctor" })
says("mode must be one of", accel.compile, plain, { mode = "fast" })
says("give mode or options, not both", accel.compile, plain, { mode = "default", options = {} })
for backend in ("inductor INDUCTOR eager aot_eager aot_ts_nvfuser nvprims_nvfuser cudagraphs ofi fx2trt onnxrt tensorrt tvm " ..
  "aot_torchxla_trace_once torchxla_trace_once hpu_backend neuron no"):gmatch "%S+" do
  assert(accel.TorchDynamoPlugin({ backend = backend }).backend == backend:upper())
  assert(accel.compile(plain, { backend = backend })(7) == 7)
end
says("unknown", accel.TorchDynamoPlugin, { use_regional = true })
says("backend", accel.TorchDynamoPlugin, { backend = "indctor" })
says("mode must be one of", accel.TorchDynamoPlugin, { mode = "fast" })
says("unknown option 'fulgraph'", accel.compile, plain, { fulgraph = true })
says("expected a function or a model, got", accel.compile, 5)

local A = accel.accelerator
local function made(opts)
  accel.AcceleratorState._reset_state(true)
  return accel.Accelerator(opts)
end
local acc = made { dynamo_plugin = accel.TorchDynamoPlugin { backend = "inductor", mode = "reduce-overhead" }, mixed_precision = "bf16" }
local net = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Tanh())
local prepared = acc:prepare(net)
assert(A.is_compiled_module(net) and A.has_compiled_regions(net))
local n1, out = counted(prepared, random("f32", 600, 512))
assert(n1.waited >= 2 and n1.passes < n1.waited and out.dtype == "f32", accel.inspect(n1))
assert(acc:unwrap_model(prepared) == net and A.is_compiled_module(net))
acc:unwrap_model(prepared, { keep_fp32_wrapper = false })
assert(A.is_compiled_module(net) and net(random("f32", 4, 512)).dtype == "f32")
acc:unwrap_model(prepared, { keep_torch_compile = false })
assert(not A.is_compiled_module(net) and rawget(net, "forward") == nil)
A.patch_environment({ ACCELERATE_DYNAMO_BACKEND = "INDUCTOR", ACCELERATE_DYNAMO_MODE = "max-autotune" }, function()
  local b = made()
  assert(b.dynamo_plugin.mode == "max-autotune" and b.config:origin "dynamo_plugin" == "ACCELERATE_DYNAMO_BACKEND")
end)
assert(made().dynamo_plugin == nil and made({ dynamo_backend = "no" }).dynamo_plugin == nil)
says("give dynamo_plugin or dynamo_backend, not both", made, { dynamo_backend = "inductor", dynamo_plugin = accel.TorchDynamoPlugin {} })
says("dynamo_plugin must be a TorchDynamoPlugin", made, { dynamo_plugin = { backend = "inductor" } })
