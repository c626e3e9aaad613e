-- Extreme arguments and calls that refuse late: nothing crashes, nothing is half done.
local accel = require "accel"

local x = accel.arange(64):to("f32")
local huge = {}
for i = 1, 32 do huge[i] = (1 << 59) - 1 end
for i = 33, 64 do huge[i] = 1 end
assert(not pcall(accel.split, x, huge, 1), "pieces whose sum wraps were taken")
assert(#x:chunk(math.maxinteger) == 64)
assert(not pcall(accel.chunk, x, 0))
assert(not pcall(accel.rope, accel.ones(2, 4), { offset = math.maxinteger }))

-- integers wrap
local big = accel.tensor { math.maxinteger, math.mininteger }
assert((big * 2):tolist()[1] == -2 and (big + 1):tolist()[1] == math.mininteger and (big - 1):tolist()[2] == math.maxinteger)

-- rank 0 counts as one dim
local s = accel.tensor(2.0)
assert(s:softmax(-1):item() == 1 and s:argmax(-1):item() == 0 and s:sum(-1):item() == 2 and s:mean(1):item() == 2)

-- an op that is not elementwise sees its input as it was, also when that is the tensor written
local y = accel.tensor { 1.0, 2.0, 3.0 }
local index = accel.tensor { 1, 2, 0 }
local want = y:scatter_add(1, index, y):tolist()
local got = y:clone()
got:scatter_add_(1, index, got)
got = got:tolist()
assert(got[1] == want[1] and got[2] == want[2] and got[3] == want[3])

-- a refused call draws no random numbers
do
  local a = accel.ones(4, { requires_grad = true })
  local b = a * 2
  local v = b:narrow(1, 1, 2)
  b:mul_(a)
  local before = accel.get_rng_state().ordinal
  assert(not pcall(accel.dropout, v, 0.5, true))
  assert(accel.get_rng_state().ordinal == before)
end

-- an input named twice receives its gradient once
do
  local a = accel.ones(3, { requires_grad = true })
  local z = (a * 3):sum()
  z:backward(nil, { inputs = { a, a } })
  assert(a.grad:sum():item() == 9)
end

-- ACCEL_CHECK_NAN names the op and the position, which counts from 1
do
  local run = (os.getenv("ACCEL_TEST_BUILD") or "build/dev") .. "/bin/accel-run"
  local code = [[local a = require "accel" local _, e = pcall(function() return (a.tensor { 1.0, -1.0 } * 1):log() end) print(e)]]
  local p = assert(io.popen(("ACCEL_CHECK_NAN=1 '%s' -e '%s'"):format(run, code)))
  local text = p:read("a")
  p:close()
  assert(text:find("log", 1, true) and text:find("element 2 ", 1, true), text)
end
