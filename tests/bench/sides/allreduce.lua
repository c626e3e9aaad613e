-- accel's side of the collectives bench, run on every rank. Prints microseconds per all-reduce (f32 sum, in place) by size in bytes:
-- b<bytes> in the memory that all ranks map, p<bytes> in memory of this process alone.
local accel = require "accel"
local dist = accel.dist

local quick = arg[1] == "--quick"
local sizes = quick and { 4, 1024 } or { 4, 1024, 1 << 20, 64 << 20 }
local out = {}
local function measure(name, t, bytes)
  local repeats = bytes <= 1024 and (quick and 100 or 20000) or bytes <= 1 << 20 and 300 or 8
  local best = math.huge
  for _ = 1, 4 do
    dist.barrier()
    local began = accel.clock()
    for _ = 1, repeats do dist.all_reduce(t) end
    best = math.min(best, (accel.clock() - began) / repeats * 1e6)
  end
  out[name .. bytes] = best
end
for _, bytes in ipairs(sizes) do
  local n = bytes // 4
  measure("b", dist.empty(n):zero_(), bytes)
  measure("p", accel.zeros(n), bytes)
end
if dist.get_rank() == 0 then print(accel.json.encode(out)) end
