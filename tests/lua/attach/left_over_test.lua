-- The folder of a job that was killed goes when the next job starts, and that of a live one stays.
--   accel-run tests/lua/attach/left_over_test.lua
local accel = require "accel"

local root = assert(accel.mkdtemp "/tmp/accel-test-") -- short: sockets have little room for names
local _ <close> = accel.util.guard(function() os.execute(("rm -rf '%s'"):format(root)) end)
local R = accel.process.program()
local script = [[local accel = require "accel" io.stdout:write "up\n" io.stdout:flush() local s = ... if s == "wait" then io.read "l" end]]

local function folders() return #(accel.listdir(root .. "/accel") or {}) end
local function start(word, ending)
  assert(accel.write_file(root .. "/s.lua", script))
  return (("XDG_RUNTIME_DIR='%s' ACCEL_ATTACH=1 '%s' '%s/s.lua' %s%s"):format(root, R, root, word, ending or ""))
end
local function run(command)
  local ok, what, code = os.execute(command)
  assert(ok, ("%s: %s %s"):format(command, what, code))
end

-- one lives, one is killed
local live <close> = assert(io.popen(start("wait", " >/dev/null"), "w"))
run(([[mkfifo '%s/in'; sleep 20 > '%s/in' & s=$!; %s < '%s/in' > '%s/out' & p=$!
  n=0; while [ $(ls '%s/accel' 2>/dev/null | wc -l) -lt 2 ] && [ $n -lt 400 ]; do sleep 0.02; n=$((n+1)); done
  kill -9 $p; wait $p; kill $s; wait $s; true]])
  :format(root, root, "env " .. start("wait"), root, root, root))
assert(folders() == 2, folders())
run(start("now", " >/dev/null"))
assert(folders() == 1, folders())
live:write "go\n"
live:close()
assert(folders() == 0, folders())
