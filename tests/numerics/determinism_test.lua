-- The same script gives the same bits, run after run and for 1, 2 and 4 threads.
local here = arg[0]:match("^(.*)/[^/]*$")
local run = (os.getenv("ACCEL_TEST_BUILD") or "build/dev") .. "/bin/accel-run"

local function losses(threads, dtype)
  local p = assert(io.popen(("ACCEL_NUM_THREADS=%d '%s' '%s/gpt_losses.lua' %s"):format(threads, run, here, dtype)))
  local text = p:read("a")
  assert(p:close(), "child failed")
  assert(select(2, text:gsub("0x", "")) == 12, "expected 12 losses: " .. text)
  return text
end

for _, dtype in ipairs { "f32", "bf16" } do
  local want = losses(1, dtype)
  assert(losses(1, dtype) == want, dtype .. ": two runs differ")
  for _, threads in ipairs { 2, 4 } do
    local got = losses(threads, dtype)
    assert(got == want, ("%s: %d threads differ from one\n%s%s"):format(dtype, threads, want, got))
  end
end
assert(losses(1, "f32") ~= losses(1, "bf16"), "bf16 changed nothing")
