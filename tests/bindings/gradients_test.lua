-- accel.optim.core: gradients of a list of parameters in one call, and handles that end with the step.
local accel = require "accel"
local core = require "accel.optim.core"
local optim = accel.optim

local function leaf(...) return accel.ones(..., { requires_grad = true }) end

do -- a gradient each, false where there is none, new handles
  local p, q = leaf(3), leaf(2)
  local grads, all = core.gradients { p, q }
  assert(#grads == 2 and grads[1] == false and grads[2] == false and all == false)
  p.grad = accel.ones(3) * 2
  grads, all = core.gradients { p, q }
  assert(grads[1] == p.grad and grads[2] == false and all == false)
  q.grad = accel.ones(2)
  grads, all = core.gradients { p, q }
  assert(all == true and grads[2] == q.grad)
  local mine = p.grad
  core.spend(grads)
  assert(not pcall(function() return grads[1]:sum() end), "spent")
  assert(mine:sum():item() == 6 and p.grad == mine, "only those handles end")
  core.spend(grads)
  core.spend { false, 1, "x" }
  core.zero { p, q }
  assert(p.grad == nil and q.grad == nil and mine:sum():item() == 6)
  assert(select("#", core.gradients {}) == 2 and select(2, core.gradients {}) == true)
end

do -- gradients that are still to be multiplied: as long as they are there, and nothing may be added to them
  local p, q = leaf(1), leaf(1)
  local function counts(...)
    local there, due = core.count { p, q }
    assert(there == select(1, ...) and due == select(2, ...), ("%d, %d"):format(there, due))
  end
  counts(0, 0)
  p.grad = accel.ones(1)
  core.defer({ p, q }, true)
  counts(1, 1)
  q.grad = accel.ones(1)
  counts(2, 1)
  local grads, all = core.gradients({ p, q }, true)
  assert(grads[1] == p.grad and grads[2] == false and not all)
  local ok, why = pcall(function() (p * 2):sum():backward() end)
  assert(not ok and tostring(why):find("backward adds to a gradient that clip_grad_norm_", 1, true), tostring(why))
  q:sum():backward()
  assert(p.grad:item() == 1 and q.grad:item() == 2)
  p.grad = accel.ones(1)
  counts(2, 0)
  core.defer({ p, q }, true)
  counts(2, 2)
  core.defer({ p }, false)
  core.zero { q }
  counts(1, 0)
  ;((p + q) * 2):sum():backward()
  assert(p.grad:item() == 3 and q.grad:item() == 2)
  p.grad = nil -- where the gradient has a place of its own
  p:set_grad_slot_(accel.zeros(1))
  for _ = 1, 2 do
    p:sum():backward()
    core.defer({ p }, true)
    counts(2, 1)
    assert(p.grad:item() == 1 and not pcall(function() p:sum():backward() end))
    p.grad = nil
    counts(1, 0)
  end
end

do -- a leaf that serves as a gradient keeps its one handle
  local p, g = leaf(2), leaf(2)
  local key = { [g] = 1 }
  p.grad = g
  core.spend((core.gradients { p }))
  assert(g:sum():item() == 2 and key[p.grad] == 1)
end

do -- what is not a parameter is refused
  for _, bad in ipairs { { 1 }, { "x" }, { accel.ones(1), {} } } do
    local ok, why = pcall(core.gradients, bad)
    assert(not ok and tostring(why):find("expected tensor", 1, true), tostring(why))
    assert(not pcall(core.zero, bad))
  end
  assert(not pcall(core.gradients, nil) and not pcall(core.spend, 3) and not pcall(core.zero))
  local gone = leaf(1)
  gone:release()
  assert(not pcall(core.gradients, { gone }) and not pcall(core.zero, { gone }))
end

do -- gradients leave with zero_grad, no collection needed
  local n = 1 << 18
  local p = leaf(n)
  local opts = { optim.SGD(p, { lr = 1, momentum = 0.5 }), optim.AdamW(p), optim.Lion(p), optim.Adafactor(p) }
  accel.collect()
  collectgarbage "stop"
  for _, opt in ipairs(opts) do
    p.grad = nil
    for round = 1, 3 do
      local before = accel.mem_stats().live_bytes
      p:sum():backward()
      accel.nn.utils.clip_grad_norm_({ p }, 1)
      accel.nn.utils.clip_grad_value_(p, 0.5)
      opt:step()
      opt:zero_grad()
      local more = accel.mem_stats().live_bytes - before
      assert(round == 1 or more < n, more) -- the first makes the state
    end
  end
  collectgarbage "restart"
end

do -- an optimizer of a script may keep what it was given, also one below a built-in one
  local Plain = optim.SGD:extend "Plain"
  local kept
  function Plain:update(group, step_group, grads, lr)
    kept = grads[1]
    optim.SGD.update(self, group, step_group, grads, lr)
  end
  local p = leaf(2)
  local opt = Plain(p, { lr = 0.5 })
  p.grad = accel.ones(2)
  opt:step()
  opt:zero_grad()
  assert(kept:sum():item() == 2 and p:sum():item() == 1)
end
