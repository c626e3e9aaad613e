-- A large gradient takes the place of garbage before the pool grows for it.
local accel = require "accel"

accel.collect()
accel.empty_cache()
local w = accel.ones(8 << 20, { requires_grad = true })
local loss = (w * 3):sum()
do local _ = w:detach() * 2 end
local before = accel.mem_stats("cpu").reserved_bytes
loss:backward()
assert(accel.mem_stats("cpu").reserved_bytes == before, "the pool grew beside 64 MiB of garbage")
assert(w.grad:eq(3):all():item())

-- without garbage it grows as ever, and nothing is collected in vain
accel.collect()
local full = accel.gc_stats().full
local again = (w * 3):sum()
again:backward()
assert(accel.gc_stats().full - full <= 1)
print "ok"
