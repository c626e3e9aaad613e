-- The runners given a folder without results, or with broken ones: one line that says so, the usual last
-- line, exit status 1.
local run = (os.getenv "ACCEL_TEST_BUILD" or "build/dev") .. "/bin/accel-run"
local here = (os.getenv "ACCEL_TEST_SRC" or ".") .. "/tests/reference"
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function runner(name, dir)
  local p = assert(io.popen(("'%s' '%s/%s.lua' '%s' 2>&1"):format(run, here, name, dir)))
  local text = p:read "a"
  local _, how, status = p:close()
  assert(how == "exit" and status == 1, ("%s ended by %s %s: %s"):format(name, how, status, text))
  return text
end

for name, file in pairs { golden = "golden.json", ops = "manifest.json" } do
  local path = tmp .. "/" .. file
  os.remove(path)
  for _, content in ipairs { false, "{ broken", "3", "" } do
    if content then
      local f = assert(io.open(path, "w"))
      f:write(content)
      f:close()
    end
    local text = runner(name, tmp)
    local first = text:match "^(FAIL [^\n]*)\n0 passed, 1 failed, 0 skipped\n$"
    assert(first, ("%s, %s: %s"):format(name, content, text))
    assert(first:find(file, 1, true), first)
    if not content then assert(first:find("No such file", 1, true), first) end
  end
  os.remove(path)
end
