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

fails("momentum must lie", optim.SGD8bit, { leaf(3) }, { lr = 0.1 })
fails("betas must be three", optim.AdEMAMix8bit, { leaf(3) }, { betas = { 0.9, 0.99 } })
fails("betas must lie", optim.Lion8bit, { leaf(3) }, { betas = { 0.9, 1.0 } })
fails("unknown option 'min_8bit'", optim.AdamW8bit, { leaf(3) }, { min_8bit = 3 })
