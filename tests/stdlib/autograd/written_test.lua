-- Tensors that nodes keep for backward and that are written in place afterwards: nothing of such a graph outlives the
-- script's last handle, backward through it says what was written, and what was not written is differentiated twice.
--   accel-run tests/stdlib/autograd/written_test.lua
local accel = require "accel"
local w = accel.tensor({ 1, 2, 3 }, { dtype = "f64", requires_grad = true })

local function once(f)
  f()
  accel.collect()
  accel.collect()
  return accel.mem_stats().live_tensors
end

local Keeps = accel.Function {
  forward = function(ctx, x)
    ctx:save_for_backward(x)
    return x * x
  end,
  backward = function(ctx, g) return g * 2 * ctx:saved_tensors() end,
}
local Adds = accel.Function {
  forward = function(ctx, x, y)
    ctx:mark_dirty(x)
    return x:add_(y)
  end,
  backward = function(_, g) return g, g end,
}
local writes = { op = function(h, y) h:add_(y) end, Function = function(h, y) Adds(h, y) end }
local ways = {
  product = function(h) return h * h end,
  matmul = function(h) return h:view(1, 3):matmul(h:view(3, 1)):view(1):expand(3) end,
  list = function(h) return accel.stack({ h, h * h }):prod(1) end,
  unary = function(h) return h:sigmoid() * h end,
  Function = function(h) return Keeps(h) end,
  checkpoint = function(h) return accel.checkpoint(function(x) return x * x end, h) end,
}
local function check(name, f, write)
  for _, backward in ipairs { false, true } do
    local function run()
      local h = w * 2
      write(h, f(h))
      if not backward then return end
      local ok, err = pcall(function() h:sum():backward() end)
      assert(not ok and tostring(err):find "changed in place", name .. ": " .. tostring(err))
      w.grad = nil
    end
    local first = once(run)
    for _ = 1, 3 do assert(once(run) == first, name .. ": tensors are left") end
  end
end
for name, f in accel.pairs(ways) do
  for by, write in accel.pairs(writes) do check(("%s, written by %s"):format(name, by), f, write) end
end

-- a plain tensor that gets a history, itself as the other argument, two tensors that lead to each other
for i, f in ipairs {
  function()
    local x = accel.ones(3, { dtype = "f64" })
    x:add_(x * w)
  end,
  function()
    local h = w * 2
    h:mul_(h)
  end,
  function()
    local t, u = w * 2, w * 3
    local a, b = t * t, u * u
    t:add_(b)
    u:add_(a)
  end,
} do
  local first = once(f)
  for _ = 1, 3 do assert(once(f) == first, "graph " .. i .. ": tensors are left") end
end

-- written, and kept again after it: the new value counts
do
  local h = w * 2
  local lost = h * h
  h:add_(1)
  local y = (h * h):sum()
  local g = accel.grad(y, w, { create_graph = true })
  assert((g - 4 * (2 * w + 1)):abs():max():item() == 0)
  assert((accel.grad(g:sum(), w) - 8):abs():max():item() == 0)
  assert(not pcall(accel.grad, lost:sum(), w))
end

-- what a function kept has its history for second derivatives
do
  local h = w * 2
  local g = accel.grad(Keeps(h):sum(), w, { create_graph = true }) -- 8 w
  assert((accel.grad((g * g):sum(), w) - 128 * w):abs():max():item() == 0)
end
print "ok"
