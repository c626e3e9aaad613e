--- A reduction that waits and cannot be computed for want of memory: the write that would change its operand does not take place. Memory for
--- what waits in a backward is looked for once more, as for its calls, by a collection that may find a reduction that is under way dropped.
-- tier: every change, memory
if not arg[1] then
  local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"
  local seen = {}
  local function try(n, what) -- the n-th allocation of a pool fails; with a minus all after it do as well
    local p = assert(io.popen(("ACCEL_ALLOC_FAIL=%d ACCEL_DEVICE=cpu '%s' '%s' %s 2>&1"):format(n, run, arg[0], what)))
    local text = p:read "a"
    local ended = p:close()
    local word = text:match "(%w+)\n$"
    if n < 0 and not ended then word = "failed" end -- before the region
    assert(word == "right" or word == "failed" and n < 0, ("%s, allocation %d: %s"):format(what, n, text))
    seen[what .. word] = true
  end
  for n = -24, 24 do try(n, "write") end
  for n = -30, 30 do try(n, "backward") end
  for n = -24, 24 do try(n, "dropped") end
  for _, what in ipairs { "write", "backward", "dropped" } do assert(seen[what .. "failed"] and seen[what .. "right"], what) end
  return
end

local accel = require "accel"
local x = accel.ones { 512, 512 }
if arg[1] == "write" then
  local f = accel.compile(function(t)
    local m = t:amax(-1)
    t:add_(1)
    return m
  end)
  local ok, m = pcall(f, x)
  print(not ok and "failed" or m:amax():item() == 1 and "right" or "wrong")
  return
end
x.requires_grad = true
if arg[1] == "dropped" then -- what a hook made is read by a matmul and by a reduction, which is garbage by then
  local eye = accel.eye(512)
  local function drop(t) return t:sum(1) and nil end
  local f = accel.compile(function(t)
    local h = t:matmul(eye)
    h:register_hook(function(d) -- 5 everywhere
      local c = d / (d:square():sum(-1, true) + 1)
      drop(c)
      return c
    end)
    return (h * 2 + 1) * h
  end)
  local ok = pcall(function() f(x):sum():backward() end)
  if not ok then return print "failed" end
  local want = (accel.ones(1) * 5 / 12801):item()
  return print(x.grad:amin():item() == want and x.grad:amax():item() == want and "right" or "wrong")
end
local f = accel.compile(function(t) return ((t * 2 + 1) * t):abs() * t end) -- t^2 (2 t + 1), whose slope at 1 is 8
local ok, said = pcall(function() f(x):sum():backward() end)
if not ok then print((tostring(said):gsub("\n.*", ""))) end
print(not ok and "failed" or x.grad:amin():item() == 8 and x.grad:amax():item() == 8 and "right" or "wrong")
