-- The OpenCL device as scripts see it, loaded as a library: a GPT that trains as on the CPU, dropout's bits, what it says of ops that it does
-- not have, out of memory, a device that is lost.
package.path = arg[0]:match "^(.*)/" .. "/../../support/?.lua;" .. package.path
local opencl = require "opencl"
opencl.child(arg[0])
local accel = require "accel"

local function raises(text, fn, ...)
  local ok, why = pcall(fn, ...)
  assert(not ok and tostring(why):find(text, 1, true), ("expected '%s', got %s"):format(text, tostring(why)))
  return why
end

-- only where it is named; its flags and parameters are known
assert(accel.get_default_device() == "cpu" and accel.features().devices.opencl.count >= 1)

-- losses and weights of a GPT with dropout, gradients clipped, twelve steps of AdamW
local function train(device)
  accel.manual_seed(5)
  local V, T, B = 65, 16, 3
  local model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = 48, n_layer = 2, n_head = 3 }
  model:to(device)
  local opt = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  local losses, norms = {}, {}
  for step = 1, 12 do
    local ids = accel.randint(0, V, { B, T }, { device = "cpu" }):to(device)
    local loss = accel.cross_entropy(model(ids):reshape(-1, V), ids:reshape(-1))
    loss:backward()
    norms[step] = accel.nn.utils.clip_grad_norm_(model:parameters(), 1.0):item()
    opt:step()
    opt:zero_grad()
    losses[step] = loss:item()
  end
  return losses, norms, model:state_dict()
end
do
  local want, want_norms, weights = train "cpu"
  local got, norms, moved = train "opencl"
  for i, w in ipairs(want) do
    assert(math.abs(got[i] - w) <= 1e-5 * w, ("step %d: loss %.9g on the device, %.9g on the CPU"):format(i, got[i], w))
    assert(math.abs(norms[i] - want_norms[i]) <= 1e-4 * want_norms[i])
  end
  assert(want[12] < want[1] - 0.3)
  for name, w in pairs(weights) do
    local worst = (moved[name]:to "cpu" - w):abs():amax():item()
    assert(moved[name].device == "opencl:0" and worst < 2e-4, ("%s: %g apart"):format(name, worst))
  end
end

-- the same masks and draws as on the CPU, to the bit, also within a part of a larger batch
local function draws(device)
  accel.manual_seed(11)
  local x = accel.arange(1, 61, { dtype = "f32", device = "cpu" }):view(12, 5):to(device)
  local list = { accel.dropout(x, 0.3), accel.dropout(x:t(), 0.5), accel.empty({ 7, 3 }, { device = device }):normal_(1, 2),
    accel.empty(33, { device = device }):uniform_(-1, 1), accel.empty(9, { device = device, dtype = "i64" }):randint_(-5, 70000000000),
    accel.empty(40, { device = device }):bernoulli_(0.25), accel.empty(8, { device = device, dtype = "bf16" }):uniform_(0, 1) }
  for i, t in ipairs(list) do list[i] = t:to("cpu"):contiguous():to_bytes() end
  return table.concat(list)
end
assert(draws "cpu" == draws "opencl")

-- indices out of range are told by their op, and nothing is written
local w = accel.ones({ 4, 2 }, { device = "opencl" })
raises("embedding: index 4 (element 2) is out of range: there are 4 rows in weight", accel.embedding,
  accel.tensor({ 0, 4 }, { device = "opencl", dtype = "i64" }), w)
raises("is not a class: there are 2", accel.cross_entropy, w, accel.tensor({ 0, 1, 2, 0 }, { device = "opencl", dtype = "i64" }))
local y = accel.zeros({ 2, 2 }, { device = "opencl" })
raises("out of range", y.scatter_add_, y, 1, accel.tensor({ { 0, 7 } }, { device = "opencl", dtype = "i64" }),
  accel.ones({ 1, 2 }, { device = "opencl" }))
assert(y:sum():item() == 0)

-- what it has no kernel for is one line with what has
raises("unsupported on device opencl:0 (kernels exist for: cpu)", accel.sort, w)
raises("tensors are on different devices: opencl:0 and cpu; move one with :to(device)", accel.add, w, accel.ones({ 4, 2 }, { device = "cpu" }))

-- out of memory is an error that a script survives; what was freed is there again
local function run(script, environment) return opencl.output("-e '" .. script .. "'", environment) end
local text, ok = run([[
local accel = require "accel"
local x = accel.ones(1000, { device = "opencl" })
local good, why = pcall(accel.zeros, 100000000, { device = "opencl" })
print(good, why.code, x:sum():item())
local y = accel.zeros(1000000, { device = "opencl" })
print(accel.mem_stats("opencl:0").limit_bytes)]], "ACCEL_OPENCL_MEM_LIMIT=32M")
assert(ok and text == "false\tout_of_memory\t1000.0\n33554432\n", text)

-- a device that is lost (here: a queue that takes no kernel any more) is one error, and every call after it says the same
text, ok = run([[
local accel = require "accel"
local x = accel.ones(8, { device = "opencl" })
local last
for i = 1, 20 do
  local good, why = pcall(function() return x + i end)
  if not good then print(i > 2, why.code, tostring(why):match "[^\n]*") break end
end
local good, why = pcall(x.item, x[1])
print(good, why.code, tostring(why):find("start again from a checkpoint", 1, true) ~= nil)
print(accel.ones(2, { device = "cpu" }):sum():item())]],
  ("LD_PRELOAD=%s/plugin_opencl_lost.so OPENCL_LOST_AFTER=6"):format(os.getenv "ACCEL_TEST_PLUGINS"))
assert(ok, text)
assert(text:find "true\tdevice\t.*add: opencl:0 is lost in map %(CL_DEVICE_NOT_AVAILABLE%)", text)
assert(text:find("false\tdevice\ttrue\n2.0\n", 1, true), text)
print "the OpenCL device trains"
