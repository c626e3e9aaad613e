-- Collectives of 64 MiB against closed forms: shared and private memory, over shm, tcp and, where there is mpirun, mpi.
-- tier: slow
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist = accel.dist

if ranks.launched then -- on every rank: large_test.lua BACKEND
  local rank, size = ranks.rank, ranks.size
  assert(dist.get_backend() == arg[1], dist.get_backend())
  local n = 64 << 20
  local function check(x, want, what)
    local worst = accel.amax((x - want):abs()):item()
    assert(worst == 0, ("%s, rank %d of %d: off by %g"):format(what, rank, size, worst))
  end
  for _, dtype in ipairs { "f32", "bf16", "i64" } do
    local bytes = dtype == "f32" and 4 or dtype == "bf16" and 2 or 8
    local count = n // bytes // (8 * size) * 8 * size
    -- small whole numbers, so that sums are exact in bf16
    local function fill(x, r)
      x:fill_(r)
      x:narrow(1, 1, 3):copy_(accel.tensor({ 0, 1, 2 }, { dtype = dtype }) + r)
      x:narrow(1, count - 1, 2):copy_(accel.tensor({ 3, 4 }, { dtype = dtype }) + r)
      return x
    end
    for _, shared in ipairs { true, false } do
      local function new(k) return shared and dist.empty(k, { dtype = dtype }) or accel.empty(k, { dtype = dtype }) end
      local what = ("%s %s"):format(dtype, shared and "shared" or "private")
      local x = fill(new(count), rank)
      dist.all_reduce(x)
      local want = accel.full({ count }, size * (size - 1) // 2, { dtype = dtype })
      want:narrow(1, 1, 3):copy_(accel.tensor({ 0, size, 2 * size }, { dtype = dtype }) + size * (size - 1) // 2)
      want:narrow(1, count - 1, 2):copy_(accel.tensor({ 3 * size, 4 * size }, { dtype = dtype }) + size * (size - 1) // 2)
      check(x, want, "all_reduce " .. what)
      fill(x, rank)
      dist.broadcast(x, size - 1)
      check(x, fill(want, size - 1), "broadcast " .. what)
      local part = count // size
      local mine = new(part)
      dist.reduce_scatter_tensor(mine, fill(x, rank), { op = "max" })
      check(mine, fill(want, size - 1):narrow(1, rank * part + 1, part), "reduce_scatter " .. what)
      mine:fill_(rank)
      dist.all_gather_into_tensor(x, mine)
      for r = 0, size - 1 do want:narrow(1, r * part + 1, part):fill_(r) end
      check(x, want, "all_gather " .. what)
    end
  end
  if rank == 0 then print("large ok") end
  return
end

local function run(n, used, backend)
  local text = ranks.run(n, { backend = backend, args = used, capture = true,
    env = { ASAN_OPTIONS = "detect_leaks=0" } })
  assert(text:find "large ok", text)
end
local sanitized = (os.getenv "ACCEL_TEST_SANITIZE" or "") ~= ""
for _, n in ipairs(sanitized and { 2 } or { 1, 2, 3, 4 }) do run(n, "shm") end
run(2, "tcp", "tcp")
if accel.features().mpi and os.execute "command -v mpirun >/dev/null" then run(2, "mpi", "mpi") end
