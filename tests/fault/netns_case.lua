-- Closed forms over two machines; arg[1]: the backend that must be in use.
local accel = require "accel"
local dist = accel.dist
local rank, size = dist.get_rank(), dist.get_world_size()
assert(dist.get_backend() == arg[1], ("backend %s, wanted %s"):format(dist.get_backend(), arg[1]))
assert(size == math.tointeger(tonumber(arg[2])), size)
for _, n in ipairs { 1, 7, 1000, 300001 } do
  local x = accel.arange(n, { dtype = "f32" }) + rank
  dist.all_reduce(x)
  local want = accel.arange(n, { dtype = "f32" }) * size + size * (size - 1) / 2
  assert((x - want):abs():max():item() == 0, n)
  local all = accel.zeros(n * size, { dtype = "i64" })
  dist.all_gather_into_tensor(all, accel.full({ n }, rank, { dtype = "i64" }))
  assert(all:sum():item() == n * size * (size - 1) // 2)
end
local names = dist.all_gather_object { rank = rank }
for r = 0, size - 1 do assert(names[r + 1].rank == r) end
dist.barrier()
if rank == 0 then print("netns ok " .. arg[1]) end
