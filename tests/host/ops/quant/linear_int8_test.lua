--- linear_quantized with int8: many rows, which oneDNN may multiply, give the bits of few rows, which our own loop does, whatever
--- instructions oneDNN is allowed to use, without it, and with one thread or several. What the sums take in memory tells whether oneDNN's
--- way is open, which it must be where the module and VNNI are there; it is limited, and what goes on without it.
-- tier: every change, memory
package.path = arg[0]:match("^(.*)/host/ops/quant/[^/]*$") .. "/support/?.lua;" .. package.path
local accel = require "accel"

local CASES <const> = { -- rows, outputs, values a row, threshold, dtype
  { 128, 64, 64, 0, "f32" }, { 130, 100, 96, 6, "f32" }, { 257, 530, 200, 6, "bf16" }, { 600, 1100, 65, 6, "f16" }, { 129, 70, 1030, 0, "f64" },
  { 300, 65, 33000, 6, "f32" }, -- longer than the piece that our loop sums in i32
  { 4100, 600, 64, 6, "f32" }, -- more rows, and more columns, than are summed at a time
}

local function inputs(case)
  local m, n, k, threshold, dtype = table.unpack(case)
  local x = accel.randn(m, k)
  if threshold > 0 then -- columns with outliers: the same in every row, so that any part of the rows finds them
    for _, column in ipairs { 2, k // 2, k } do x:select(2, column):fill_(9.5):add_(accel.randn(m)) end
  end
  return x:to(dtype), accel.quantize_int8(accel.randn(n, k)), accel.randn(n)
end

if arg[1] == "write" then
  accel.manual_seed(3)
  local file <close> = assert(io.open(arg[2], "wb"))
  for _, case in ipairs(CASES) do
    local x, w, bias = inputs(case)
    file:write(accel.linear_quantized(x, w, bias, case[4]):contiguous():to_bytes())
  end
  return
end

--- Allocations of one product and the most bytes that it had at a time beside its result.
local function cost(m, n, k)
  local x, w = accel.randn(m, k), accel.quantize_int8(accel.randn(n, k))
  accel.collect()
  accel.reset_peak_memory()
  local before = accel.mem_stats()
  local y <close> = accel.linear_quantized(x, w, nil, 0)
  local after = accel.mem_stats()
  return after.n_allocs - before.n_allocs, after.peak_bytes - before.live_bytes - y:numel() * 4
end

if arg[1] == "cost" then
  print(("%d %d"):format(cost(math.tointeger(arg[2]), math.tointeger(arg[3]), math.tointeger(arg[4]))))
  return
elseif arg[1] == "fail" then -- ACCEL_ALLOC_FAIL counts from the start
  accel.manual_seed(5)
  local x, w = accel.randn(200, 64), accel.quantize_int8(accel.randn(70, 64))
  local from, full = accel.mem_stats().n_allocs, accel.gc_stats().full
  local y = accel.linear_quantized(x, w, nil, 0)
  print(from, accel.mem_stats().n_allocs - from, accel.gc_stats().full - full, y:to "f64":abs():sum():item())
  return
end

accel.manual_seed(4)
for _, case in ipairs(CASES) do
  local x, w, bias = inputs(case)
  for _, b in ipairs { false, bias } do
    local y, parts = accel.linear_quantized(x, w, b or nil, case[4]), {}
    local few = case[1] > 1000 and 100 or 7 -- rows that oneDNN never takes
    for at = 1, case[1], few do
      parts[#parts + 1] = accel.linear_quantized(x:narrow(1, at, math.min(few, case[1] - at + 1)), w, b or nil, case[4])
    end
    assert(accel.equal(y, accel.cat(parts, 1)), table.concat(case, " "))
  end
end

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/linear_int8-"))
-- On AMX oneDNN multiplies in several threads, and LeakSanitizer may crash as it reads the thread-local data of oneDNN 2.6.3.
local sanitized = (os.getenv "ACCEL_TEST_SANITIZE" or "") ~= "" and 'ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" ' or ""
local function child(env, options, words)
  env = sanitized .. env
  local pipe = assert(io.popen(("%s '%s' %s '%s' %s 2>&1"):format(env, accel.process.program(), options, arg[0], words)))
  local said = pipe:read "a"
  assert(pipe:close(), said)
  return said
end
local function bytes(env, options)
  local path = root .. "/y"
  child(env, options or "", ("write '%s'"):format(path))
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end
local want = bytes "ACCEL_ONEDNN=0"
assert(#want > 0)

-- whether oneDNN's way is open: it takes one allocation more than our loop
local function costs(env, m, n, k)
  local count, most = child(env, "", ("cost %d %d %d"):format(m, n, k)):match "^(%d+) (%d+)\n$"
  return math.tointeger(count), math.tointeger(most)
end
local own, own_most = costs("ACCEL_ONEDNN=0", 10000, 600, 64)
local function open(env)
  local more = costs(env, 10000, 600, 64) - own
  assert(more == 0 or more == 1, more)
  return more == 1
end

local features = accel.features()
local able = features.onednn ~= nil and (" " .. table.concat(features.cpu, " ") .. " "):find(" avx512vnni ", 1, true) ~= nil
local must = { AVX2 = false, AVX512_CORE = false, AVX512_CORE_VNNI = able or nil, AVX512_CORE_BF16 = able or nil, ALL = able or nil }
local ways = {}
for _, isa in ipairs { "AVX2", "AVX512_CORE", "AVX2_VNNI", "AVX512_CORE_VNNI", "AVX512_CORE_BF16", "AVX512_CORE_AMX", "ALL" } do
  local env = "ACCEL_ONEDNN=1 DNNL_MAX_CPU_ISA=" .. isa
  assert(bytes(env) == want, isa)
  ways[#ways + 1] = isa .. (open(env) and " open" or " shut")
  assert(must[isa] == nil or open(env) == must[isa], ways[#ways])
end
print(("oneDNN %s: %s"):format(features.onednn or "is not there", table.concat(ways, ", ")))
assert(bytes("", "--num_threads 1") == want and bytes("", "--num_threads 3") == want, "threads")
for _, isa in ipairs(require "isas") do assert(bytes("ACCEL_CPU_ISA=" .. isa) == want, isa) end

-- sums have at most 8 MiB at a time, however many rows there are; where there is no memory for them, our loop multiplies, and nothing
-- is collected for their sake
local _, most = costs("ACCEL_ONEDNN=1", 10000, 600, 64)
assert(most - own_most <= (8 << 20) + 4096, most - own_most)
local from, n, _, sum = child("ACCEL_ONEDNN=1", "", "fail"):match "^(%d+)\t(%d+)\t(%d+)\t(%S+)\n$"
local own_n = child("ACCEL_ONEDNN=0", "", "fail"):match "^%d+\t(%d+)\t"
if open "ACCEL_ONEDNN=1" then
  assert(n - own_n == 1)
  local said = child(("ACCEL_ONEDNN=1 ACCEL_ALLOC_FAIL=%d"):format(from + n), "", "fail")
  assert(said == ("%d\t%d\t0\t%s\n"):format(from, n, sum), said)
end
