-- Results of linear algebra have the same bits on any number of threads: with own rotations and with LAPACK, one matrix and batches.
--   accel-run tests/stdlib/linalg/threads_test.lua
local accel = require "accel"

if arg[1] == "print" then
  local L = accel.linalg
  accel.manual_seed(1)
  local x, y = accel.randn({ 3, 70, 70 }, { dtype = "f64" }), accel.randn({ 150, 90 }, { dtype = "f64" })
  local small, definite = accel.randn({ 5, 12, 12 }, { dtype = "f64" }), y:t():matmul(y)
  for _, t in ipairs { (x:svd()), (y:svd()), (small:svd()), ((x + x:transpose(-1, -2)):eigh()), ((small + small:transpose(-1, -2)):eigh()), L.inv(x),
    L.cholesky(definite), (L.lu_factor(y)), L.solve(definite, y:t()), L.det(x), L.pinv(y) } do
    local hash = 0
    for _, v in ipairs(t:reshape(-1):tolist()) do hash = (hash * 31 + string.unpack("<i8", string.pack("<d", v))) & 0x7fffffffffffffff end
    io.write(hash, " ")
  end
  return
end

local exe = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"
local function run(threads)
  local pipe = assert(io.popen(("'%s' --num_threads %d '%s' print"):format(exe, threads, arg[0])))
  local text = pipe:read "a"
  assert(pipe:close())
  return text
end
local one = run(1)
assert(select(2, one:gsub("%d+ ", "")) == 11, one)
for _, threads in ipairs { 2, 3 } do assert(run(threads) == one, threads) end
