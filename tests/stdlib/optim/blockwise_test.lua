--- Optimizers with 8-bit states: sizes, the 32-bit rule they stand for, rounding at random, options.
local accel = require "accel"
local optim = accel.optim

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local function leaf(n, dtype)
  accel.manual_seed(n)
  return accel.randn(n):to(dtype or "f32"):clone():requires_grad_()
end

-- the same path as the optimizer with whole states, within what the codes lose
for name, plain in pairs { AdamW8bit = "AdamW", Lion8bit = "Lion", Adam8bit = "Adam", SGD8bit = "SGD", RMSprop8bit = "RMSprop" } do
  local opts = { lr = 0.01 }
  if name == "SGD8bit" then opts.momentum = 0.9 end
  local p, q = leaf(5000), leaf(5000)
  local start = p:detach():clone()
  local a, b = optim[name]({ p }, opts), optim[plain]({ q }, opts)
  for step = 1, 20 do
    accel.manual_seed(step)
    local g = accel.randn(5000) + start
    p.grad, q.grad = g, g:clone()
    a:step()
    b:step()
  end
  local moved = (q:detach() - start):norm():item()
  local off = (p:detach() - q:detach()):norm():item()
  assert(off < 0.1 * moved and moved > 0, ("%s: %.3g of %.3g"):format(name, off, moved))
  local s = a.state[p]
  assert(s.state1.dtype == "u8" and s.absmax1.dtype == "f32" and s.absmax1:numel() == 20)
end

do -- small parameters keep f32; 32-bit classes all
  local p, q = leaf(4095), leaf(4096)
  local o = optim.AdamW8bit { p, q }
  p.grad, q.grad = p:detach(), q:detach()
  o:step()
  assert(o.state[p].state2.dtype == "f32" and o.state[q].state2.dtype == "u8")
  o = optim.AdamW32bit { q }
  o:step()
  assert(o.state[q].state1.dtype == "f32")
end

do -- steps below the spacing of bf16: lost when rounded to nearest, kept on average at random, the same at every run
  local function run(stochastic)
    accel.manual_seed(5)
    local p = accel.ones(8192, { dtype = "bf16" }):requires_grad_()
    local o = optim.SGD8bit({ p }, { lr = 1e-4, momentum = 0.5, stochastic_rounding = stochastic })
    for _ = 1, 50 do
      p.grad = accel.ones(8192, { dtype = "bf16" })
      o:step()
    end
    return p:detach():to "f32"
  end
  assert(run(false):eq(1):all():item())
  local mean = run(true):mean():item()
  assert(math.abs(mean - (1 - 49 * 2e-4)) < 4e-4, mean)
  assert(accel.equal(run(true), run(true)))
end

do -- Lion8bit in a closed form: a constant gradient moves by lr against its sign, whatever its size, and weights decay
  local p = accel.tensor({ 2.0, -1.0, 0.5, 4.0 }):repeat_interleave(2048):clone():requires_grad_()
  local g = accel.tensor({ 3.0, -1e-3, 0.0, 0.25 }):repeat_interleave(2048)
  local start, o, lr, decay = p:detach():clone(), optim.Lion8bit({ p }, { lr = 2.0 ^ -7, weight_decay = 0.5 }), 2.0 ^ -7, 0.5
  for step = 1, 5 do
    p.grad = g:clone()
    o:step()
    local kept = (1 - lr * decay) ^ step -- of the start; steps before shrink as well
    local moved = (1 - kept) / decay
    local want = start * kept - g:sign() * moved
    assert((p:detach() - want):abs():max():item() < 1e-6)
    local m = g * (1 - 0.99 ^ step) -- the largest of a block is kept whole, and blocks are all of one value
    assert(((o.state[p].state1:to "i64"):eq(255):logical_or(g:lt(1e-9))):logical_or(g:lt(0)):all():item())
    assert((o.state[p].absmax1 - m:abs():reshape(-1, 256):amax(2)):abs():max():item() < 1e-6)
  end
end

do -- rounding at random in a closed form: a value that lies a share f of the way to the next bf16 goes there with probability f
  local n = 1 << 16
  for _, row in ipairs { { 1.0, 1, 2.0 ^ -8 }, { -1.0, -1, 2.0 ^ -8 }, { 1.0, -1, 2.0 ^ -7 }, { 96.0, 1, 0.5 } } do
    local value, sign, spacing = table.unpack(row) -- Lion steps by lr against the gradient's sign
    for _, f in ipairs { 0.0, 1 / 256, 0.25, 0.5, 0.9, 1.0 } do
      accel.manual_seed(11)
      local p = accel.full({ n }, value, { dtype = "bf16" }):requires_grad_()
      local o = optim.Lion8bit({ p }, { lr = f * spacing, stochastic_rounding = true })
      p.grad = accel.full({ n }, sign + 0.0, { dtype = "bf16" })
      o:step()
      local q = p:detach():to "f32"
      local there, here = q:eq(value - sign * spacing):sum():item(), q:eq(value):sum():item()
      assert(there + here == n, ("%g, %g: %d elsewhere"):format(value, f, n - there - here))
      local off = math.abs(there / n - f)
      assert(off <= 5 * math.sqrt(f * (1 - f) / n) + 2.0 ^ -16, ("%g: a share of %g instead of %g"):format(value, there / n, f))
    end
  end
  local p = accel.tensor({ math.huge, -math.huge, 0 / 0, 1.0 }, { dtype = "bf16" }):repeat_interleave(1024):clone():requires_grad_()
  local o = optim.Lion8bit({ p }, { lr = 0.01, stochastic_rounding = true })
  p.grad = accel.ones_like(p)
  o:step()
  local q = p:detach():to "f32"
  assert(q[1]:item() == math.huge and q[1025]:item() == -math.huge and q[2049]:item() ~= q[2049]:item() and q[3073]:item() < 1)
end

fails("momentum must be between", optim.SGD8bit, { leaf(3) }, { lr = 0.1 })
fails("betas must be three", optim.AdEMAMix8bit, { leaf(3) }, { betas = { 0.9, 0.99 } })
fails("betas must lie", optim.Lion8bit, { leaf(3) }, { betas = { 0.9, 1.0 } })
fails("unknown option 'min_8bit'", optim.AdamW8bit, { leaf(3) }, { min_8bit = 3 })
