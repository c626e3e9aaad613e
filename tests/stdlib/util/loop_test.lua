-- The end of a `for` is known however it is left, whether this Lua closes the loop's value or not: break out of blocks
-- with captured and closed locals, errors, coroutines, iterators around others; and loaders are ready for the next pass.
local accel = require "accel"
local loop = require "accel.util.loop"

local function counter(n)
  local c = { ended = 0 }
  function c.pass()
    local k = 0
    local function step()
      if c.watch == nil then c.watch = loop.watch(step) end
      k = k + 1
      return k <= n and k or nil
    end
    c.step = step
    return loop.iterator(step, function() c.ended = c.ended + 1 end)
  end
  function c.left() return c.ended > 0 or (c.watch and loop.left(c.watch)) end
  return c
end

local scope = function() return setmetatable({}, { __close = function() end }) end
local ways = {
  captured = function(c) for i in c.pass() do local f = function() return i end if f() == 2 then break end end end,
  closed = function(c) for i in c.pass() do local _ <close> = scope() if i == 2 then break end end end,
  plain = function(c) for i in c.pass() do if i == 2 then break end end end,
  jump = function(c) for i in c.pass() do local _ <close> = scope() if i == 2 then goto out end end ::out:: end,
  back = function(c) for i in c.pass() do local _ <close> = scope() if i == 2 then return end end end,
  failure = function(c) pcall(function() for i in c.pass() do local _ <close> = scope() if i == 2 then error "x" end end end) end,
  finished = function(c) for _ in c.pass() do local _ <close> = scope() end end,
}
for name, run in accel.pairs(ways) do
  local c = counter(5)
  run(c)
  assert(c.left(), name .. ": the loop counts as running")
end

do -- in the loop, and deep below it, it is running
  local c = counter(3)
  local function deep(k) return k == 0 and c.left() or k > 0 and deep(k - 1) end
  for i in c.pass() do
    local f = function() return i end
    assert(not c.left() and not deep(20) and f() == i)
    for _ = 1, 2 do assert(not c.left()) end
  end
end

do -- a loop that waits in a coroutine is not over
  local c = counter(3)
  local co = coroutine.wrap(function()
    for i in c.pass() do
      local _ <close> = scope()
      coroutine.yield(i)
      if i == 2 then break end
    end
    coroutine.yield "after"
  end)
  assert(co() == 1 and not c.left() and co() == 2 and not c.left() and co() == "after" and c.left())
end

do -- around another iterator; stepped by hand, where nothing is known
  local c = counter(3)
  local function around()
    c.pass()
    local function outer() return c.step() end
    loop.drive(c.step, outer)
    return outer
  end
  for i in around() do
    assert(not c.left())
    if i == 2 then break end
  end
  assert(loop.closes or c.left())
  local by_hand = counter(3)
  local step = by_hand.pass()
  step()
  assert(not by_hand.left())
end

do -- loaders, through break in a block with closed locals
  local loader = accel.data.DataLoader(accel.data.TensorDataset(accel.arange(8)), { batch_size = 2 })
  for _ = 1, 3 do
    for _ in loader() do
      local _ <close> = accel.no_grad()
      local k = 0
      local add = function() k = k + 1 end
      add()
      assert(loader:state_dict().position == 1)
      if k > 0 then break end
    end
  end
  local state = loader:state_dict()
  assert(state.epoch == 3 and state.position == 0, state.epoch .. " " .. state.position)
  local n = 0
  for _ in loader() do n = n + 1 end
  assert(n == 4)
end

do -- a pass that waits in a coroutine, or around this one, is over when another one begins
  local loader = accel.data.DataLoader(accel.data.TensorDataset(accel.arange(6)), { batch_size = 1 })
  for i = 1, 7 do
    local first
    coroutine.wrap(function()
      for batch in loader() do
        first = batch[1]:item()
        coroutine.yield()
      end
    end)()
    assert(first == 0 and loader.epoch == i - 1)
  end
  local n = 0
  for _ in loader() do
    for _ in loader() do n = n + 1 end
    break
  end
  assert(n == 6 and loader.epoch == 9, loader.epoch)
end
