-- Every example runs under --dry-run and --profile, with a small number of steps, on one rank and on two where it is for several.
-- tier: sampled
local accel = require "accel"
local sample = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/sample.lua")
local src, build, tmp = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_BUILD", os.getenv "ACCEL_TEST_TMP"

local rows = dofile(src .. "/tests/examples/rows.lua")
local ROWS <const>, names = rows.arguments, rows.names

local function run(how, name, args)
  local folder = accel.mkdtemp(tmp .. "/run")
  local command = ("cd '%s' && ACCEL_NUM_THREADS=1 '%s/bin/accel-run' %s '%s/examples/%s.lua' %s"):format(folder, build, how, src, name,
    (args:gsub("~", tmp .. "/")))
  if not args:find "<" then command = command .. " </dev/null" end
  local pipe = assert(io.popen(command .. " 2>'" .. tmp .. "/err.txt'"))
  local out = pipe:read "a"
  local ok, _, status = pipe:close()
  local f <close> = assert(io.open(tmp .. "/err.txt", "rb"))
  local failed = not ok and ("%s: status %s\n%s%s"):format(command, tostring(status), out, f:read "a") or nil
  return out, failed
end

local rates = src .. "/tests/support/rates.json"
local taken, wanted = sample.one_of(30, 60), os.getenv "ACCEL_TEST_EXAMPLES"

local wrong = {}
for _, name in ipairs(names) do
  local row = ROWS[name]
  local args, ranks, more = row, nil, ""
  if type(row) == "table" then args, ranks, more = row[1], row[2], row[3] or "" end
  local modes = { "--dry-run --rates '" .. rates .. "'", "--dry-run --device cuda", "--profile '" .. tmp .. "/trace.json'" }
  if ranks then
    modes[#modes + 1] = ("--dry-run --num-processes %d --rates '%s'"):format(ranks, rates)
    modes[#modes + 1] = ("--num-processes %d --profile '%s/trace.json'"):format(ranks, tmp)
  end
  for _, mode in ipairs(modes) do
    local asked = wanted and (" " .. wanted .. " "):find(" " .. name .. " ", 1, true)
    if wanted and asked or not wanted and taken() then
      print(name, mode:match "^%-%-num%-processes" and "--profile, several ranks" or mode:match "^%S+ --device" or mode:match "^%S+")
      local text, failed = run(mode, name, mode:find "num%-processes" and args .. more or args)
      wrong[#wrong + 1] = failed
      assert(mode:find "profile" or not text:lower():find "[%s:]%-?nan[%s]", text)
    end
  end
end
assert(#wrong == 0, table.concat(wrong, "\n"))
