-- tests/support/mirror.sh: which tests `sh tests/run.sh one FILE` takes, and that of an example it is about that one alone.
--   accel-run tests/support/mirror_test.lua
local src, build = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_BUILD"

local function output_of(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  return text, pipe:close()
end

local all = {
  "bindings/core/box", "examples/accelerator", "examples/autograd", "examples/complete", "examples/distributed",
  "examples/numbered", "examples/train_gpt", "host/base/json_read", "host/base/params", "stdlib/nn/linear",
}

local function names(file)
  local text, ok = output_of(("cd '%s' && . tests/support/mirror.sh && all='%s' && mirror_names '%s'"):format(src,
    table.concat(all, "\n"), file))
  assert(ok, text)
  return (text:gsub("\n$", ""):gsub("\n", " "))
end

for file, want in pairs {
  ["host/base/params.c"] = "host/base/params",
  ["host/base/json.c"] = "host/base/json_read",
  ["bindings/core/box.c"] = "bindings/core/box",
  ["stdlib/accel/nn/linear.lua"] = "stdlib/nn/linear",
  ["tests/examples/numbered_test.lua"] = "examples/numbered",
  ["examples/05_ranks.lua"] = "examples/numbered",
  ["examples/06_accelerator.lua"] = "examples/accelerator",
  ["examples/23_recompute.lua"] = "examples/autograd",
  ["examples/train_gpt.lua"] = "examples/train_gpt",
} do
  local got = names(file)
  assert(got == want, ("%s: '%s', not '%s'"):format(file, got, want))
end

-- a test that came after the build was configured is seen, of what it mirrors too
do
  local tmp = os.getenv "ACCEL_TEST_TMP"
  local function is_new(file)
    return (select(2, output_of(("cd '%s/tree' && . '%s/tests/support/mirror.sh' && has_new_test %s"):format(tmp, src, file)))) == true
  end
  assert(os.execute(("rm -rf '%s/tree' && mkdir -p '%s/tree/build/dev/tests' '%s/tree/tests/host/base'"):format(tmp, tmp, tmp)))
  for name, text in pairs {
    ["build/dev/tests/CTestTestfile.cmake"] = "add_test([=[host/base/old]=] x)\n", ["tests/host/base/old_test.lua"] = "",
    ["tests/host/base/new_test.lua"] = "", ["tests/host/base/test_other.c"] = "",
  } do
    local file <close> = assert(io.open(("%s/tree/%s"):format(tmp, name), "wb"))
    file:write(text)
  end
  for file, want in pairs {
    ["host/base/new.c"] = true, ["tests/host/base/new_test.lua"] = true, ["host/base/other.c"] = true, ["host/base/old.c"] = false,
    ["host/base/none.c"] = false,
  } do assert(is_new(file) == want, file) end
end

-- of a test about several examples the one that is wanted runs
for wanted, runs in pairs { ["22_custom_function"] = { true, false }, ["06_accelerator"] = { false, false } } do
  local text, ok = output_of(("ACCEL_TEST_EXAMPLES=%s '%s/bin/accel-run' '%s/tests/examples/autograd_test.lua' 2>&1"):format(
    wanted, build, src))
  assert(ok, text)
  for i, name in ipairs { "22_custom_function", "23_recompute" } do
    assert((text:find("example " .. name, 1, true) ~= nil) == runs[i], wanted .. ": " .. text)
  end
end
