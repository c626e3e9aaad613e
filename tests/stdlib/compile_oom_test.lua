--- A reduction that waits and cannot be computed for want of memory: the write that would change its operand does not take place.
-- tier: every change, memory
if not arg[1] then
  local run = (os.getenv "ACCEL_TEST_BUILD" or "build/dev") .. "/bin/accel-run"
  for n = 1, 24 do
    local p = assert(io.popen(("ACCEL_ALLOC_FAIL=%d ACCEL_DEVICE=cpu '%s' '%s' child 2>&1"):format(n, run, arg[0])))
    local text = p:read "a"
    local ended = p:close()
    assert(ended and not text:find "wrong", ("allocation %d: %s"):format(n, text))
  end
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
if ok and m:amax():item() ~= 1 then print "wrong" end
