-- A job to be shot at: every rank works and reduces until it is stopped, then says when it learnt of it. Run on every rank:
--   kill_case.lua FOLDER SIZES    pids go to FOLDER/pid.<rank>
local accel = require "accel"
local dist = accel.dist
local rank = dist.get_rank()
local stat = assert(io.open "/proc/self/stat")
local pid = stat:read "n"
stat:close()
local buffers = {}
for size in arg[2]:gmatch "%d+" do
  local n = math.tointeger(tonumber(size))
  buffers[#buffers + 1] = #buffers % 2 == 0 and dist.empty(n):zero_() or accel.zeros(n)
end
dist.barrier()
local f = assert(io.open(arg[1] .. "/pid." .. rank, "w"))
f:write(pid, "\n")
f:close()

local function work()
  local a = accel.randn(64, 64)
  for i = 1, math.huge do
    for _ = 1, (rank + i) % 3 do a = (a:matmul(a)):clamp(-1, 1) end
    local b = buffers[i % #buffers + 1]
    if i % 4 == 0 then dist.all_reduce(b, { async_op = true }):wait()
    else dist.all_reduce(b) end
    if i % 5 == 0 then dist.barrier() end
    accel.step()
  end
end
local ok, err = pcall(work)
print(("survivor %d %.6f %s"):format(rank, accel.clock(), (tostring(err):gsub("\n.*", ""))))
error(err, 0)
