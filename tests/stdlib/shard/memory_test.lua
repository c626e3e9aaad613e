-- Memory of units: what local ranks share lies there once, is seen by all and goes when the last one lets go, also in another
-- order than it was taken; gathered tensors have bytes only in between, and raise or ask for them else; parameters move under
-- their identity.
--   accel-run tests/stdlib/shard/memory_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local core = require "accel.shard.core"
local dist = accel.dist

if ranks.start { 1, 3 } then return end
local R, P <const> = ranks.rank, ranks.size

-- shared memory
if P > 1 then
  assert(core.shares(nil))
  local bytes = dist.heap_bytes()
  for round = 1, 3 do
    local owner = round % P
    local t = core.shared(nil, 1024 * P, "f32", owner)
    t:narrow(1, R * 1024 + 1, 1024):fill_(R + round)
    dist.barrier()
    for r = 0, P - 1 do
      assert(t[r * 1024 + 1]:item() == r + round and t[(r + 1) * 1024]:item() == r + round)
    end
    dist.barrier()
    if R == (owner + 1) % P then dist.barrier() end -- one rank lets go before the others, one after
    t:release()
    if R ~= (owner + 1) % P then dist.barrier() end
    dist.barrier()
  end
  local big = 64 << 20 -- more than the pool keeps: only the owner's heap grows, and what it let go is used again
  for _ = 1, 4 do
    local t = core.shared(nil, big // 4, "f32", 0)
    dist.barrier()
    assert(dist.heap_bytes() - bytes < (R == 0 and big + big // 2 or big // 2))
    t:release()
    dist.barrier()
  end
  local ok, e = pcall(core.shared, nil, 16, "f32", P)
  assert(not ok and tostring(e):find "rank 3 of a group of 3")
end

-- gathered memory
do
  local asked, flat = 0, nil
  flat = core.gathered("h.0", 6, "f32", "cpu", function()
    asked = asked + 1
    core.set(flat, accel.tensor { 1, 2, 3, 4, 5, 6 }:float())
  end)
  local w = accel.zeros(2, 3, { requires_grad = true })
  core.bind(w, flat, 0)
  assert(not core.there(flat))
  for _, use in ipairs { function() return w + 1 end, function() return w:tolist() end } do
    local ok, e = pcall(use)
    assert(not ok and tostring(e):find "sharded unit 'h.0'" and tostring(e):find "summon_full_params", e)
  end
  assert(tostring(w):find "size=%(2, 3%)") -- printing never raises
  core.set(flat, accel.full({ 6 }, 2.0))
  local y = (w * w):sum()
  assert(y:item() == 24 and not core.written(flat))
  core.set(flat, nil)
  y:backward() -- asks for the bytes
  assert(asked == 1 and core.there(flat))
  assert(w.grad:view(-1):eq(accel.tensor { 2, 4, 6, 8, 10, 12 }):all():item())
  do
    local _ <close> = accel.no_grad()
    w:mul_(2)
  end
  assert(core.written(flat))
  local ok, e = pcall(core.set, flat, accel.zeros(5))
  assert(not ok and tostring(e):find "does not fit")
end

-- parameters keep their identity, hooks and gradients
do
  local w = accel.ones(2, 2, { requires_grad = true })
  local seen, t = 0, accel.tensor { 9.0, 1, 2, 3, 4, 9 }
  w:register_hook(function() seen = seen + 1 end)
  core.bind(w, t, 1)
  assert(w:tolist()[2][1] == 3 and w.is_leaf)
  local _ = (w * 3):sum():backward()
  assert(seen == 1 and w.grad[1][1]:item() == 3)
  t:fill_(7)
  assert(w[1][1]:item() == 7)
  assert(not pcall(core.bind, w, t, 3) and not pcall(core.bind, w * 1, t, 0) and not pcall(core.bind, w, t:double(), 0))
end

-- boxes
local b = core.boxes({ 3, 4 }, 2, 7)
assert(#b == 3 and b[1].at == 0 and b[1].count == 2 and b[2].at == 2 and b[3].at == 6 and b[3].count == 1)
assert(b[2].offsets[1] == 1 and b[2].offsets[2] == 0 and b[2].shape[1] == 1 and b[2].shape[2] == 4)
assert(not pcall(core.boxes, { 3, 4 }, 6, 7))

-- an owner that ends first leaves the bytes to those that still read them
if P > 1 then
  local t = core.shared(nil, 1 << 20, "f32", P - 1)
  if R == P - 1 then t:fill_(5) end
  dist.barrier()
  if R < P - 1 then
    os.execute "sleep 0.3"
    assert(t:eq(5):all():item())
  end
end
