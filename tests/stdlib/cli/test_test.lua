-- accel-run test, doctor and completion: ticks of every check on several ranks, by a configuration too; what they refuse.
--   accel-run tests/stdlib/cli/test_test.lua
local accel = require "accel"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/test-"))
local R = accel.process.program()

local function run(args)
  local pipe = assert(io.popen(("cd '%s' && '%s' %s 2>&1"):format(root, R, args)))
  local text = pipe:read "a"
  local _, _, status = pipe:close()
  return text, status
end

local text, status = run "test"
assert(status == 0, text)
assert(text:find("2 ranks\n", 1, true) and text:find("all checks passed", 1, true) and not text:find("FAIL", 1, true), text)
assert(select(2, text:gsub("  ok    ", "")) >= 7, text)

local file = assert(io.open(root .. "/c.yaml", "w"))
file:write "distributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 3\nmixed_precision: bf16\n"
file:close()
text, status = run "test --config_file c.yaml"
assert(status == 0 and text:find("3 ranks\n", 1, true), text)
text, status = run "test --config_file nowhere.yaml"
assert(status == 1 and text:find("nowhere.yaml", 1, true), text)

-- A failed check is told with its rank and reason.
local ranks = require "accel.cli.test_ranks"
assert(type(ranks) == "function")

text, status = run "doctor"
assert(status == 0, text)
for _, name in ipairs { "memory", "shared memory", "open files", "cpus", "clock", "arithmetic" } do
  assert(text:find("\n?%l+%s+" .. name .. " "), name .. "\n" .. text)
end

for _, shell in ipairs { "bash", "zsh", "fish" } do
  text, status = run("completion " .. shell)
  assert(status == 0 and text:find("num%-processes") and text:find("FULL_STATE_DICT", 1, true), text)
end
assert(os.execute(("'%s' completion bash | bash -n"):format(R)))
text, status = run "completion tcsh"
assert(status == 1 and text:find("not one of bash", 1, true), text)
print "ok"
