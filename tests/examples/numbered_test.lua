--- The numbered examples run and print what they promise.
local src, build, tmp = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_BUILD", os.getenv "ACCEL_TEST_TMP"

local function run(args)
  local script = args:gsub("@(%S+)", function(name) return ("'%s/examples/%s'"):format(src, name) end)
  local command = ("'%s/bin/accel-run' %s 2>'%s/err.txt'"):format(build, script, tmp)
  local pipe = assert(io.popen(command))
  local out = pipe:read "a"
  local ok, _, code = pipe:close()
  local file = assert(io.open(tmp .. "/err.txt"))
  local err = file:read "a"
  file:close()
  assert(ok, ("%s: status %s\n%s%s"):format(command, code, out, err))
  return out
end

local out = run "@01_tensors.lua"
assert(out:find("minimum found at\ttensor([ 3.0000, -2.0000]", 1, true), out)
assert(out:find("derivatives of x^3 at 2:\t12.0\t12.0", 1, true), out)

out = run "@02_mlp.lua --epochs 60"
assert(tonumber(out:match "right answers: ([%d.]+)") > 98, out)
