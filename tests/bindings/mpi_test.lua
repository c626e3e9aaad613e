-- Scripts under mpirun: `mpirun -n 2 accel-run script.lua` needs no option. This file starts itself as the ranks of
-- small jobs, one case each, and reads what they print.
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local cases = {}

function cases.sum(dist, rank, size)
  assert(dist.get_backend() == (size > 1 and "mpi" or "solo"), dist.get_backend())
  local x = accel.arange(1001, { dtype = "f32" }) + rank
  dist.all_reduce(x)
  local want = accel.arange(1001, { dtype = "f32" }) * size + size * (size - 1) / 2
  assert((x - want):abs():max():item() == 0)
  local all = accel.zeros(size * 3, { dtype = "i64" })
  local w = dist.all_gather_into_tensor(all, accel.full({ 3 }, rank, { dtype = "i64" }), { async_op = true })
  w:wait()
  assert(all:sum():item() == 3 * size * (size - 1) // 2)
  local said = dist.all_gather_object { rank = rank, name = "r" .. rank }
  for r = 0, size - 1 do assert(said[r + 1].rank == r and said[r + 1].name == "r" .. r) end
  local y = accel.tensor { rank + 0.5 }
  if size > 1 then
    local out = dist.isend(y, (rank + 1) % size, { tag = 7 })
    local got = accel.zeros(1)
    dist.recv(got, (rank + size - 1) % size, { tag = 7 })
    out:wait()
    assert(got:item() == (rank + size - 1) % size + 0.5)
  end
  -- a second world in the same processes
  dist.destroy_process_group()
  dist.init_process_group()
  local z = accel.ones(1)
  dist.all_reduce(z)
  assert(z:item() == size)
end

function cases.mismatch(dist, rank)
  local x = accel.zeros(rank == 1 and 11 or 10)
  if rank == 1 then
    dist.all_reduce(x)
  else
    dist.all_reduce(x)
  end
end

function cases.early(dist, rank)
  dist.barrier()
  if rank == 0 then dist.all_reduce(accel.zeros(4)) end
end

function cases.raises(dist, rank)
  dist.barrier()
  if rank == 1 then error "no such thing" end
  dist.all_reduce(accel.zeros(4))
end

local case = arg[1] ~= nil and cases[arg[1]]
if case then
  case(accel.dist, ranks.rank, ranks.size)
  print(("<rank %d done>"):format(ranks.rank))
  return
end

local module = (os.getenv "ACCEL_TEST_BUILD" or "build/dev") .. "/lib/accel/accel_mpi.so"
local f = io.open(module)
if not (f and os.execute "command -v mpirun >/dev/null 2>&1") then
  print "skipped: no mpirun or no accel_mpi.so (Debian: libopenmpi-dev openmpi-bin)"
  os.exit(77, true)
end
f:close()

---Runs a case on n ranks; its exit status and output, and how long it took.
local function job(n, name)
  local began = accel.clock()
  local out, err, status = ranks.try(n, { backend = "mpi", args = name, timeout = 100 })
  return status, out .. err, accel.clock() - began
end
local function need(text, ...)
  for _, part in ipairs { ... } do assert(text:find(part, 1, true), ("no %q in:\n%s"):format(part, text)) end
end
---Script lines of this file that hold a text, in order.
local function lines_with(what)
  local list, i = {}, 0
  for line in io.lines(arg[0]) do
    i = i + 1
    if line:find(what, 1, true) then list[#list + 1] = "mpi_test.lua:" .. i end
  end
  return list
end

for _, n in ipairs { 1, 2, 3 } do
  local status, text = job(n, "sum")
  assert(status == 0, text)
  for r = 0, n - 1 do need(text, ("<rank %d done>"):format(r)) end
end
local reduce = lines_with "  dist.all_reduce(x)"
local status, text, took = job(2, "mismatch")
assert(status ~= 0 and took < 50, text)
need(text, "count", "rank 0", "rank 1", reduce[2], reduce[3])
status, text, took = job(2, "early")
assert(status ~= 0 and took < 50, text)
need(text, "rank 1", "mpi_test.lua:")
status, text, took = job(2, "raises")
assert(status ~= 0 and took < 50, text)
need(text, "no such thing", lines_with("error \"no such thing\"")[1])
