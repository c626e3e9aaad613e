-- Reads folders and files that other training tools wrote and compares with what those tools computed. The README of
-- shared/reference/folders describes them.
--   accel-run tests/reference/folders.lua DIR [--only PREFIX] [--quiet]
-- DIR has a manifest.json whose `rows` name folders. The first part of a row's name is its kind: `folders_KIND.lua` beside this file has its
-- `check(path, report, row)`, which reports quantities that differ or returns "left out" and a reason. One line per failing quantity: row,
-- quantity, distance, bar. The last line is "N rows, P passed, L left out"; exit status 0 only if every row that is not left out passed,
-- 77 if DIR has no manifest.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path

--- The comparison for rows of a kind, or nil if none is written.
local function check_of(kind)
  local name = "folders_" .. kind:gsub("%W", "_")
  return package.searchpath(name, package.path) and require(name).check
end

local dir, only, quiet
do
  local i = 1
  while arg[i] do
    if arg[i] == "--only" then only, i = arg[i + 1] or "", i + 1
    elseif arg[i] == "--quiet" then quiet = true
    else dir = arg[i] end
    i = i + 1
  end
end
if not dir then
  io.stderr:write("usage: accel-run tests/reference/folders.lua DIR [--only PREFIX] [--quiet]\n")
  os.exit(2)
end
local file = io.open(dir .. "/manifest.json", "rb")
if not file then
  print(("skipped: %s/manifest.json is not there"):format(dir))
  os.exit(77)
end
local manifest = accel.json.decode(file:read "a")
file:close()

local passed, failed, left = 0, 0, 0
for _, row in ipairs(manifest.rows) do
  local kind = row.name:match "^[^/]+"
  local check = check_of(kind)
  if only and row.name:sub(1, #only) ~= only then -- another row is asked for
  elseif not check then
    left = left + 1
    print(("left out %s: no comparison of %s is written yet"):format(row.name, kind))
  else
    local wrong = {}
    local function report(quantity, distance, bar)
      wrong[#wrong + 1] = ("FAIL %s: %s: %s (bar %s)"):format(row.name, quantity, tostring(distance), tostring(bar))
    end
    local ok, why, reason = xpcall(check, debug.traceback, dir .. "/" .. row.name, report, row)
    if not ok then report("run", why, "no error") end
    for _, line in ipairs(wrong) do print(line) end
    if #wrong > 0 then failed = failed + 1
    elseif why == "left out" then
      left = left + 1
      print(("left out %s: %s"):format(row.name, reason))
    else
      passed = passed + 1
      if not quiet then print("ok   " .. row.name) end
    end
  end
end
print(("%d rows, %d passed, %d left out"):format(passed + failed + left, passed, left))
os.exit(failed > 0 and 1 or 0, true)
