-- The device itself: copies, several devices, statistics, errors that are found when the device is waited for, gradients and training
-- that equal the CPU's. Runs as ops_suite.lua does.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"

local function raises(text, fn, ...)
  local ok, why = pcall(fn, ...)
  assert(not ok and tostring(why):find(text, 1, true), ("expected '%s', got %s"):format(text, tostring(why)))
end

-- a GPU that a worker came to first: what the script does with it comes behind the worker's work, in one order
do
  local w <close> = accel.worker.start("worker_echo", {})
  local given <close> = accel.worker.start("worker_echo", {})
  assert(w:receive(60) and given:receive(60))
  w:send { act = "fill", device = "cuda" }
  local ok, x = w:receive(60)
  local y = accel.ones(1024, 1024, { device = "cuda" }):add(x)
  assert(ok and y:to("cpu"):sum():item() == 4 << 20)
  -- and one that is given a tensor there before it has opened the GPU itself
  given:send { act = "add", x = y }
  ok, x = given:receive(60)
  assert(ok, x)
  assert(tostring(x.device) == "cuda:0" and x:to("cpu"):sum():item() == 8 << 20)
end

-- there and back, strided, empty, rank 0; reading without a copy by hand
for _, dtype in ipairs { "f64", "f32", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool" } do
  local x = accel.tensor({ { 0, 1, 1 }, { 1, 0, 1 } }):to(dtype)
  local y = x:to("cuda")
  assert(y.device == "cuda:0" and y:to("cpu"):to_bytes() == x:to_bytes(), dtype)
  assert(y:transpose(1, 2):to("cpu"):contiguous():to_bytes() == x:transpose(1, 2):contiguous():to_bytes(), dtype)
  assert(tostring(y:select(1, 1):tolist()[2]) == tostring(x:select(1, 1):tolist()[2]), dtype)
end
assert(accel.zeros({ 0, 3 }, { device = "cuda" }):to("cpu").shape[2] == 3)
assert(accel.full({}, 2.5, { device = "cuda" }):item() == 2.5)
assert(accel.tensor({ 1, 2, 3 }, { device = "cuda" })[2]:item() == 2)
raises("different devices: cuda:0 and cpu", accel.add, accel.ones(2, { device = "cuda" }), accel.ones(2))

-- several devices
if suite.cuda.count > 1 then
  local a = accel.arange(5, { dtype = "f32" }):to("cuda:1")
  assert(a.device == "cuda:1" and (a * 2):to("cuda:0"):sum():item() == 20)
  raises("different devices", accel.add, a, a:to("cuda:0"))
end
raises("this process sees " .. suite.cuda.count, accel.zeros, 1, { device = "cuda:" .. suite.cuda.count })

-- statistics of the pool
do
  local before = accel.mem_stats "cuda"
  local t = accel.zeros(1000, 1000, { device = "cuda" })
  local during = accel.mem_stats "cuda"
  assert(during.live_bytes - before.live_bytes == 4000000 and during.reserved_bytes >= during.live_bytes)
  assert(during.fragmentation >= 0 and during.fragmentation <= 1 and during.peak_bytes >= during.live_bytes)
  t:release()
  assert(accel.mem_stats("cuda").live_bytes == before.live_bytes)
  accel.empty_cache()
end

-- a value that is out of range is told at the next wait, once
do
  local w = accel.ones(3, 2, { device = "cuda" })
  local y = accel.embedding(accel.tensor({ 0, 7 }):to("cuda"), w)
  raises("out of range", accel.synchronize, "cuda")
  accel.synchronize "cuda"
  y:release()
end

-- a dilated window whose taps all lie in the padding is -infinity, of no place, and gives nothing back
for _, device in ipairs { "cpu", "cuda" } do
  local x = accel.ones(1, 2, 1, { device = device, requires_grad = true })
  local y, place = accel.max_pool1d(x, 2, { dilation = 2, padding = 1, stride = 1, return_indices = true })
  local g = accel.grad(y, x, { grad_outputs = accel.ones(y.shape, { device = device }) })
  for c = 1, 2 do
    assert(y[1][c][1]:item() == -math.huge and place[1][c][1]:item() == -1 and g[1][c][1]:item() == 0, device)
  end
end

-- random numbers are the CPU's, bit for bit; dropout's mask comes again in backward
for _, dtype in ipairs { "f64", "f32", "bf16", "f16" } do
  for _, op in ipairs { "uniform_", "normal_" } do
    accel.manual_seed(3)
    local a = accel.op(op)(accel.empty(7, 13, { dtype = dtype }))
    accel.manual_seed(3)
    local b = accel.op(op)(accel.empty(7, 13, { dtype = dtype, device = "cuda" }))
    assert(a:to_bytes() == b:to("cpu"):to_bytes(), op .. " " .. dtype)
  end
end
do
  local x = accel.ones(4, 33, { device = "cuda", requires_grad = true })
  local y = x:dropout(0.5)
  local g = accel.grad(y, x, { grad_outputs = accel.ones(4, 33, { device = "cuda" }) })
  assert(g:to("cpu"):to_bytes() == y:detach():to("cpu"):to_bytes())
end

-- sums do not depend on what ran before, and repeat bit for bit
do
  local x = accel.randn(3, 5000):to("cuda")
  local first = x:sum(2):to("cpu"):to_bytes()
  for _ = 1, 3 do assert(x:sum(2):to("cpu"):to_bytes() == first) end
end

-- a small model trains as on the CPU
local nn, optim = require "accel.nn", require "accel.optim"
local function train(device)
  accel.manual_seed(1)
  local model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)):to(device)
  local opt = optim.AdamW(model:parameters(), { lr = 1e-2 })
  accel.manual_seed(2)
  local x, y = accel.randn(32, 8):to(device), accel.empty(32, { dtype = "i64" }):randint_(0, 4):to(device)
  local losses = {}
  for step = 1, 10 do
    opt:zero_grad()
    local loss = nn.functional.cross_entropy(model(x), y)
    loss:backward()
    accel.clip_grad_norm_((function()
      local g = {}
      for _, p in ipairs(model:parameters()) do g[#g + 1] = p.grad end
      return g
    end)(), 1.0)
    opt:step()
    losses[step] = loss:item()
  end
  return losses
end
local cpu, cuda = train "cpu", train "cuda"
for i = 1, #cpu do
  assert(math.abs(cpu[i] - cuda[i]) <= 2e-5 * math.abs(cpu[i]), ("step %d: %.9g and %.9g"):format(i, cpu[i], cuda[i]))
end
assert(cuda[10] < cuda[1])
suite.finish()
