-- What a script sees of the tiny device, in whichever way it came. arg[1]: accel-run.
local accel = require "accel"
local function raises(text, fn, ...)
  local ok, why = pcall(fn, ...)
  assert(not ok and tostring(why):find(text, 1, true), ("expected '%s', got %s"):format(text, tostring(why)))
end
local function list(t) return table.concat(t:tolist(), " ") end

-- it is opened when it is named, and only then
assert(table.concat(accel.devices(), " ") == "cpu meta" and accel.get_default_device() == "cpu")
local a = accel.ones(2, { device = "tiny" })
assert(a.device == "tiny:0" and list(a) == "1.0 1.0" and table.concat(accel.devices(), " ") == "cpu meta tiny:0")

-- an op with a kernel, its in-place form; one without says who has it
local b = accel.tensor({ 0.25, 3 }, { device = "tiny:0" })
assert(list(a:add(b)) == "1.25 4.0" and list(a:add_(b)) == "1.25 4.0" and a[2]:item() == 4)
raises("mul: unsupported on device tiny:0 (kernels exist for: cpu)", accel.mul, a, b)
raises("tiny devices take contiguous f32", accel.ones, 2, { device = "tiny", dtype = "f64" })
-- what needs no kernel: views, copies between devices, memory, gradients through its ops
assert(b:view { 2, 1 }:t().shape[2] == 2 and list(b:narrow(1, 2, 1)) == "3.0")
assert(list(b:to "cpu") == "0.25 3.0" and list(b:to("cpu"):to("tiny:1"):to("tiny:0"):add(b)) == "0.5 6.0")
assert(accel.mem_stats("tiny:1").live_bytes >= 0 and accel.features().devices.tiny.count == 2)
raises("different devices: tiny:0 and cpu", accel.add, b, accel.ones(2))
do
  local x = accel.ones(2, { device = "tiny", requires_grad = true })
  local g = accel.grad(x:add(b), x, { grad_outputs = b })
  assert(list(g) == "0.25 3.0")
end

-- names
raises("this process sees 2 devices of tiny", accel.ones, 2, { device = "tiny:2" })
raises([[they are "tiny" (the first) or "tiny:0", "tiny:1", ...]], accel.ones, 2, { device = "tiny:x" })
raises("no device 'tinyx' here; available: cpu, meta, tiny:0", accel.ones, 2, { device = "tinyx" })

-- its flag is this host's
assert(accel.device_flags("tiny").round == false)
local was = accel.device_flags("tiny", { round = true })
assert(was.round == false and list(b:add(b)) == "1.0 6.0")
do -- a worker has the flags of its owner, as they were when it was started
  package.path = (arg[0]:match "^.*/" or "") .. "../../../../support/?.lua;" .. package.path
  local w <close> = accel.worker.start("worker_echo", {})
  assert(w:receive(30) and w:send { act = "flags", x = b })
  local _, answer = w:receive(30)
  assert(answer.flags.round == true and list(answer.sum) == "1.0 6.0")
end
accel.device_flags("tiny", was)
assert(list(b:add(b)) == "0.5 6.0")
raises("round", accel.device_flags, "tiny", { rond = true })

-- on the command line: what it is and its parameters; where new tensors go
local function output(environment, arguments)
  local p = assert(io.popen(("%s %s %s 2>&1"):format(environment, arg[1], arguments)))
  local text = p:read "a"
  p:close()
  return text
end
local env = output("ACCEL_TINY_ROUND=1", "env")
assert(env:find("\ntiny +tinykit 0.1; tiny:0 a tiny device, the first; tiny:1 a tiny device, the other\n"), env)
assert(env:find "\nACCEL_TINY_ROUND +true +environment +round sums to whole numbers\n" and not env:find "means nothing", env)
assert(output("ACCEL_TINY_COUNT=0", "env"):find("\ntiny +absent: tinykit 0.1; ACCEL_TINY_COUNT says that there is none\n"))
local sum = [[-e 'local a = require "accel" local x = a.full({ 1 }, 0.3) print(x:add(x):item(), x.device)']]
local text = output("ACCEL_DEVICE=tiny ACCEL_TINY_ROUND=1", sum)
assert(text:find "^1%.0\ttiny:0\n", text)
text = output("ACCEL_DEVICE=tiny ACCEL_TINY_COUNT=0", sum)
assert(text:find("ACCEL_DEVICE: no device 'tiny:0' here: ACCEL_TINY_COUNT says that there is none", 1, true), text)
print "a tiny device works"
