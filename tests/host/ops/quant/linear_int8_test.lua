--- linear_quantized with int8: many rows, which oneDNN may multiply, give the bits of few rows, which our own loop does, whatever
--- instructions oneDNN is allowed to use, without it, and with one thread or several.
-- tier: every change, memory
local accel = require "accel"

local CASES <const> = { -- rows, outputs, values a row, threshold, dtype
  { 128, 64, 64, 0, "f32" }, { 130, 100, 96, 6, "f32" }, { 257, 530, 200, 6, "bf16" }, { 600, 1100, 65, 6, "f16" }, { 129, 70, 1030, 0, "f64" },
  { 300, 65, 33000, 6, "f32" }, -- longer than the piece that our loop sums in i32
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

accel.manual_seed(4)
for _, case in ipairs(CASES) do
  local x, w, bias = inputs(case)
  for _, b in ipairs { false, bias } do
    local y, parts = accel.linear_quantized(x, w, b or nil, case[4]), {}
    for at = 1, case[1], 7 do
      parts[#parts + 1] = accel.linear_quantized(x:narrow(1, at, math.min(7, case[1] - at + 1)), w, b or nil, case[4])
    end
    assert(accel.equal(y, accel.cat(parts, 1)), table.concat(case, " "))
  end
end

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/linear_int8-"))
local function bytes(env, options)
  local path = root .. "/y"
  local pipe = assert(io.popen(("%s '%s' %s '%s' write '%s' 2>&1"):format(env, accel.process.program(), options or "", arg[0], path)))
  local said = pipe:read "a"
  assert(pipe:close(), said)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end
local want = bytes "ACCEL_ONEDNN=0"
assert(#want > 0)
for _, isa in ipairs { "AVX2", "AVX512_CORE", "AVX2_VNNI", "AVX512_CORE_VNNI", "AVX512_CORE_BF16", "AVX512_CORE_AMX", "ALL" } do
  assert(bytes("DNNL_MAX_CPU_ISA=" .. isa) == want, isa)
end
assert(bytes("", "--num_threads 1") == want and bytes("", "--num_threads 3") == want, "threads")
assert(bytes "ACCEL_CPU_ISA=avx2" == want and bytes "ACCEL_CPU_ISA=base" == want, "our own clones")
