-- Every op gives the same bits in processes of 1, 2 and 4 threads: results and gradients, of tensors
-- large enough to be shared between threads. tier: sampled
local here = arg[0]:match("^(.*)/[^/]*$")
local run = (os.getenv("ACCEL_TEST_BUILD") or "build/dev") .. "/bin/accel-run"

local function lines(threads)
  local p = assert(io.popen(("ACCEL_NUM_THREADS=%d '%s' '%s/ops_digest.lua'"):format(threads, run, here)))
  local list = {}
  for line in p:lines() do list[#list + 1] = line end
  assert(p:close(), "the child failed:\n" .. table.concat(list, "\n", math.max(1, #list - 5)))
  return list
end

local want, failed = lines(1), 0
assert(#want > (os.getenv "ACCEL_TEST_FULL" == "1" and 1000 or 350), "too few digests")
for _, threads in ipairs { 2, 4 } do
  local got = lines(threads)
  assert(#got == #want, "other cases")
  for i, line in ipairs(want) do
    if got[i] ~= line then
      failed = failed + 1
      print(("FAIL %d threads: %s\n  instead of %s"):format(threads, got[i], line))
    end
  end
end
print(("%d digests, %d failed"):format(#want, failed))
if failed > 0 then os.exit(1, true) end
