-- Scripts as programs: "#!/usr/bin/env accel-run", their arguments, and what their end means to a shell.
local run = assert(os.getenv "ACCEL_TEST_BUILD", "ACCEL_TEST_BUILD is not set") .. "/bin/accel-run"
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/"

local function write(name, text)
  local file <close> = assert(io.open(tmp .. name, "wb"))
  file:write(text)
  return tmp .. name
end

-- Output and status of a command with accel-run on PATH.
local function shell(command)
  local p = assert(io.popen(("PATH='%s':$PATH; export PATH; cd '%s'; %s"):format(run:match "^(.*)/", tmp, command)))
  local out = p:read "a"
  local _, how, code = p:close()
  return out, how == "signal" and 128 + code or code
end

local function check(command, out, status)
  local got, code = shell(command)
  assert(code == status and (not out or got == out), ("%s: status %d, %q"):format(command, code, got))
end

-- ---- a script that is a program ----
write("hello", "#!/usr/bin/env accel-run\nlocal accel = require 'accel'\nprint(arg[0], #arg, arg[1], arg[2], ...)\n"
  .. "print(accel.ones(3):sum():item())\nos.exit(#arg)\n")
assert(os.execute(("chmod +x '%shello'"):format(tmp)))
check("./hello 'a b' --flag", "./hello\t2\ta b\t--flag\ta b\t--flag\n3.0\n", 2)
check("./hello", "./hello\t0\tnil\tnil\n3.0\n", 0)
check("mkdir -p sub && cp hello sub/x.lua && ./sub/x.lua 1 2 3", nil, 3)
-- lines are counted from the first, the one with the name of the interpreter
write("fails", "#!/usr/bin/env accel-run\nerror 'here'\n")
assert(os.execute(("chmod +x '%sfails'"):format(tmp)))
local out, code = shell "./fails 2>&1"
assert(code == 1 and out:find("fails:2: here", 1, true), out)
-- through a link, and with an option in the line (env -S)
check("ln -sf hello link && ./link x", "./link\t1\tx\tnil\tx\n3.0\n", 1)
write("option", "#!/usr/bin/env -S accel-run --num-threads 1\nprint(require('accel').num_threads(), ...)\n")
assert(os.execute(("chmod +x '%soption'"):format(tmp)))
check("./option y", "1\ty\n", 0)
-- with a byte order mark or Windows' line ends nothing is promised; a first line that is a comment of Lua is one
check("printf '# not Lua\\nprint(5)' > hash.lua && accel-run hash.lua", "5\n", 0)

-- ---- arguments ----
write("args.lua", "for i = 0, #arg do io.write('[', arg[i], ']') end print(select('#', ...))")
check("accel-run args.lua '' 'two words' '*' -- -x --num-threads 3", "[args.lua][][two words][*][--][-x][--num-threads][3]7\n", 0)
check("accel-run -e \"print(arg[0], arg[1])\" z", "-e\tz\n", 0)
check("echo 'print(arg[0], arg[1])' | accel-run - q", "-\tq\n", 0)

-- ---- how a script ends ----
for text, status in pairs {
  [""] = 0, ["return 5"] = 0, ["return false"] = 0, ["return nil, 'x'"] = 0,
  ["os.exit()"] = 0, ["os.exit(true)"] = 0, ["os.exit(false)"] = 1, ["os.exit(0)"] = 0, ["os.exit(42)"] = 42, ["os.exit(256 + 7)"] = 7,
  ["os.exit(true, true)"] = 0, ["os.exit(3, true)"] = 3,
  ["error 'x'"] = 1, ["error()"] = 1, ["error({})"] = 1, ["x ="] = 1, ["local t <close> = 1"] = 1,
  ["coroutine.wrap(function() os.exit(9) end)()"] = 9, ["pcall(os.exit, 4) os.exit(5)"] = 4,
  ["local t <close> = setmetatable({}, { __close = function() os.exit(6) end }) error 'x'"] = 6,
  ["os.exit('x')"] = 1, ["require('accel').ones(1).nothing()"] = 1,
} do
  check("accel-run " .. write("ends.lua", text) .. " 2>/dev/null", nil, status)
end
-- a program around it sees them
local _, how, number = os.execute(("'%s' -e 'os.exit(11)'"):format(run))
assert(how == "exit" and number == 11)
print "scripts are programs"
