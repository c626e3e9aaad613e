-- Accelerator:save on a file that cannot be written: an error on the process that writes, which the others hear of; on 1 and
-- 2 ranks.
--   accel-run tests/stdlib/accelerator/save_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")

if arg[1] ~= "fails" and ranks.start { 1, 2 } then
  for _, n in ipairs { 1, 2 } do
    local out, err, status = ranks.try(n, { args = "fails" })
    assert(status == 1, ("%d ranks: status %d\n%s%s"):format(n, status, out, err))
    assert(err:find("save: ", 1, true) and err:find("/nowhere/z.safetensors", 1, true), err)
    assert(not out:find("went on", 1, true), out)
  end
  -- no room for the file
  local path = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/large.safetensors"
  local pipe = assert(io.popen(("ulimit -f 8; '%s' '%s' fails '%s' 2>&1"):format(accel.process.program(), arg[0], path)))
  local text = pipe:read "a"
  assert(not pipe:close() and text:find("save: ", 1, true) and not text:find("went on", 1, true), text)
  assert(not io.open(path))
  return
end

local accelerator = accel.Accelerator()
local tensors = { w = accel.ones(3) }

if arg[1] == "fails" then
  accelerator:save({ w = accel.ones(10000) }, arg[2] or "/nowhere/z.safetensors")
  accelerator:wait_for_everyone()
  print "went on"
  return
end

local path = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/saved.safetensors"
accelerator:save(tensors, path)
accelerator:wait_for_everyone()
assert(accel.equal(accel.load(path).w, tensors.w))
local ok, err = pcall(accelerator.save, accelerator, tensors, "/nowhere/z.safetensors")
assert(ok == not accelerator.is_main_process)
if not ok then assert(tostring(err):find("save_test.lua:%d+: save: .*/nowhere/z%.safetensors"), tostring(err)) end
