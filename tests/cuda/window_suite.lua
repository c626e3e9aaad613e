-- Copies between tiers of memory that are under way when something else happens: their tensor goes, an index is out of range, memory is short, work
-- is recorded. On the stand-in such copies are made as late as can be. Runs as ops_suite.lua does.
local accel = require "accel"
local core = require "accel.offload.core"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local N <const> = 64 << 10
local host <const> = core.host(0)

local function touch(t) return t:narrow(1, 1, 1):sum() end
local function live() return accel.mem_stats("cuda:0").live_bytes end

-- A tensor that was written goes while its bytes are on their way home: the page-locked memory at their end is nobody else's until they have come.
for round = 1, 5 do
  local w = core.window("cuda:0", 3 * 4 * N, 1 << 30)
  local tensors = {}
  for i = 1, 6 do
    tensors[i] = w:tensor(host, { N }, "f32")
    tensors[i]:fill_(i)
  end
  w:flush()
  for _ = 1, 2 do
    w:pass()
    for i = 1, 6 do touch(tensors[i]) end
  end
  accel.collect()
  w:pass()
  tensors[1]:fill_(100)
  touch(tensors[2]) -- makes room for those to come
  tensors[1]:release()
  for i = 3, 6 do
    local least, most = tensors[i]:min():item(), tensors[i]:max():item()
    assert(least == i and most == i, ("round %d: tensor %d has %g to %g"):format(round, i, least, most))
  end
  for i = 2, 6 do tensors[i]:release() end
end

-- What a kernel found wrong is told to the script, whatever waits of the window come before.
do
  local w = core.window("cuda:0", 8 * N, 0)
  local t = w:tensor(host, { N }, "f32")
  t:fill_(1)
  w:empty()
  touch(t) -- its page-locked memory is given back with the last tensor of the window, after a wait
  local y = accel.embedding(accel.tensor({ 0, 7 }):to "cuda:0", accel.ones(3, 2, { device = "cuda:0" }))
  t:release()
  accel.collect() -- views of it
  local ok, message = pcall(accel.synchronize, "cuda:0")
  assert(not ok and tostring(message):find("out of range", 1, true), tostring(message))
  accel.synchronize "cuda:0"
  y:release()
end

-- Page-locked memory of copies that are through is had again where the device's limit is met.
do
  local script <close> = suite.temporary [[
local accel = require "accel"
local core = require "accel.offload.core"
local w = core.window("cuda:0", 32 << 20, 0)
local t = w:tensor(core.host(0), { 2 << 20 }, "f32")
t:fill_(1)
w:empty()
t:narrow(1, 1, 1):sum() -- 8 MiB here, and as many on their way
assert(accel.empty({ 18 << 20 }, { dtype = "u8", device = "cuda:0" }):numel() == 18 << 20)
assert(t:narrow(1, 7, 1):sum():item() == 1)
w:empty()
local m = accel.mem_stats "cuda:0"
print(m.live_bytes <= 18 << 20 and "room" or m.live_bytes)
]]
  local text, ok = suite.output(("env -u ACCEL_DEVICE ACCEL_CUDA_MEM_LIMIT=%d %s/bin/accel-run --device cpu %s"):format(21 << 20,
    os.getenv "ACCEL_TEST_BUILD", script.path))
  assert(ok and text:find "^room", text)
end

-- A tensor that comes, and one that has to go home for it, while a step is recorded: the step says why it is not, and nothing is left behind.
do
  accel.collect()
  local before = live()
  local w = core.window("cuda:0", 4 * N, 0)
  local a, b = w:tensor(host, { N }, "f32"), w:tensor(host, { N }, "f32")
  local x, calls = accel.ones({ 4 }, { device = "cuda:0" }), 0
  local warned, old = {}, warn
  warn = function(...) warned[#warned + 1] = table.concat { ... } end -- luacheck: ignore
  for _, at in ipairs { 1, 2, 3 } do
    a:fill_(3)
    b:fill_(5) -- for which a went home
    calls = 0
    local step = accel.graph(function(v)
      calls = calls + 1
      return calls >= at and v * a:narrow(1, 1, 1) or v * 3
    end)
    for _ = 1, 6 do assert(step(x):sum():item() == 12) end
    assert(step.recorded == 0 and step.reason and step.reason:find("offload", 1, true), tostring(step))
    assert(b:min():item() == 5 and b:max():item() == 5)
    w:empty()
  end
  warn = old -- luacheck: ignore
  a:release()
  b:release()
  x:release()
  w = nil -- luacheck: ignore
  accel.collect()
  accel.collect()
  assert(live() == before, ("%d bytes are left of %d"):format(live(), before))
end
suite.finish()
