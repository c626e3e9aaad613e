-- Options that a sweep leaves to another test ("by other tests"): that test fails where the option is dropped from every call
-- (support/option_drop.lua), so it sets the option and looks at its effect. A sample; all of them where ACCEL_TEST_FULL=1, and one of
-- eight parts of these where ACCEL_TEST_PART is set as well. Tests that are skipped here, or too slow below the hook, are counted.
-- tier: slow
-- parts: 1 2 3 4 5 6 7 8
--   accel-run tests/options/elsewhere_test.lua [NAME] [OPTION]     patterns of names and options: all that match
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
if not here:find "^/" then here = require "lfs".currentdir() .. "/" .. here end
local sample = dofile(here .. "/../support/sample.lua")
local root, program = here .. "/../..", accel.process.program()
local tmp = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/elsewhere-")
local LIST <const> = os.getenv "ACCEL_TEST_LIST" == "1" -- of all verdicts with their seconds, also of those that hold

local function run(env, words, err)
  local pipe = assert(io.popen(("unset ACCEL_TEST_FULL ACCEL_TEST_PART; %s timeout -k 5 400 '%s' %s </dev/null 2>%s"):format(env, program,
    words, err or "/dev/null")))
  local out = pipe:read "a"
  local ok, _, code = pipe:close()
  return ok and 0 or code, out
end

-- What the sweeps leave to others: { name, option, place, file }.
local left, seen = {}, {}
for _, name in ipairs(accel.listdir(here)) do
  local text <close> = assert(io.open(here .. "/" .. name))
  if name:find "_test%.lua$" and name ~= "elsewhere_test.lua" and text:read "a":find('require "option_sweep"', 1, true) then
    local status, out = run("ACCEL_TEST_ELSEWHERE=1", ("'%s/%s'"):format(here, name))
    assert(status == 0, name .. " does not list what it leaves to other tests")
    for line in out:gmatch "[^\n]+" do
      local row = { line:match "ELSEWHERE (%S+) (%S+) (%d+) (%S+)$" }
      local key = table.concat(row, " ")
      if row[1] and not seen[key] then left[#left + 1], seen[key] = row, true end
    end
  end
end
assert(#left > 100, "the sweeps list what they leave to other tests")
table.sort(left, function(a, b) return table.concat(a, " ") < table.concat(b, " ") end)

--- The status of a test that loses an option; "": that loses none. words: arguments of the test.
local function status_of(row, option, log, words)
  local name, _, place, file = table.unpack(row)
  accel.makedirs(log .. ".d")
  return (run(("cd '%s' && ACCEL_TEST_TMP='%s' ACCEL_TEST_DROP='%s %s %s %s'"):format(log .. ".d", log .. ".d", name, option, place, log),
    ("'%s/tests/support/option_drop.lua' '%s/%s' %s"):format(root, root, file, words)))
end

local whole = {} -- file and arguments -> status with all options

--- The verdict of a test with these arguments.
local function verdict_of(row, log, words)
  local name, option, _, file = table.unpack(row)
  local key = file .. " " .. words
  whole[key] = whole[key] or status_of({ name, "", 0, file }, "/", log .. ".whole", words)
  local status = whole[key] == 0 and status_of(row, option, log, words) or whole[key]
  local dropped = io.open(log)
  if dropped then dropped:close() end
  return (status == 77 or status == 124) and "skipped" or whole[key] ~= 0 and "the test fails" or not dropped and "the test never sets it"
    or status == 0 and "the test passes without it" or "ok"
end

local part = tonumber(os.getenv "ACCEL_TEST_PART")
local taken = arg[1] and function() return true end or sample.one_of(12)
local n, skipped, wrong = 0, 0, {}
for i, row in ipairs(left) do
  local name, option, _, file = table.unpack(row)
  if taken() and (not part or i % 8 + 1 == part) and (not arg[1] or name:find(arg[1])) and (not arg[2] or option:find(arg[2])) then
    local log, began = ("%s/%d"):format(tmp, i), accel.clock()
    local verdict -- a sweep is tried with its checks and one entry first, and as a whole if these do not show the option
    if file:find "^tests/options/" then verdict = verdict_of(row, log .. ".entry", ("'%s'"):format(name)) end
    if verdict ~= "ok" then verdict = verdict_of(row, log, "") end
    if verdict == "skipped" then skipped = skipped + 1
    elseif verdict ~= "ok" then wrong[#wrong + 1] = ("%s: %s: %s: %s"):format(name, option, file, verdict) end
    n = n + 1
    if LIST then
      print(("%s %s %s: %s, %.1f s"):format(name, option, file, verdict, accel.clock() - began))
      io.stdout:flush()
    end
  end
end
for _, line in ipairs(wrong) do print("FAIL " .. line) end
print(("options by other tests: %d of %d tried, %d skipped, %d failures"):format(n, #left, skipped, #wrong))
if #wrong > 0 then os.exit(1, true) end
