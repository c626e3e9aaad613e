--- A reduction that waits and cannot be computed for want of memory: the write that would change its operand does not take place.
-- tier: every change, memory
if not arg[1] then
  local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"
  local seen = {}
  for n = -24, 24 do -- the n-th allocation of a pool fails; with a minus all after it do as well
    local p = assert(io.popen(("ACCEL_ALLOC_FAIL=%d ACCEL_DEVICE=cpu '%s' '%s' child 2>&1"):format(n, run, arg[0])))
    local text = p:read "a"
    local ended = p:close()
    local word = text:match "(%w+)\n$"
    if n < 0 and not ended then word = "failed" end -- before the region
    assert(word == "right" or word == "failed" and n < 0, ("allocation %d: %s"):format(n, text))
    seen[word] = true
  end
  assert(seen.failed and seen.right)
  return
end

local accel = require "accel"
local x = accel.ones { 1024, 1024 }
local f = accel.compile(function(t)
  local m = t:amax(-1)
  t:add_(1)
  return m
end)
local ok, m = pcall(f, x)
print(not ok and "failed" or m:amax():item() == 1 and "right" or "wrong")
