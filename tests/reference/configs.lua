-- Configurations against Accelerate's own reading of them: every row of load.json (a file's fields), launch.json (flags and a file to the
-- environment of ranks and the command), plugins.json and the plugins of launch.json (plugins made under an environment),
-- deepspeed_auto.json and yaml_scalars.json of a folder.
--   accel-run tests/reference/configs.lua DIR
-- Rows in which the reference is wrong are listed with the reason and must give what is right. Ends with "N passed, M failed"; exit
-- status 1 if anything failed.
local accel = require "accel"
local config = setmetatable({}, { __index = function(_, name) return require("accel.config." .. name) end })
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path

local SHOWN <const> = 30
local dir = arg[1]
if not dir then
  io.stderr:write "usage: accel-run tests/reference/configs.lua DIR\n"
  os.exit(2)
end

local T = { dir = dir, passed = 0, failures = {}, listed = {}, reasons = {} }

function T.read(name)
  local file <close> = assert(io.open(dir .. "/" .. name, "rb"))
  return accel.json.decode(file:read "a", { wide_integers = true })
end

function T.pass() T.passed = T.passed + 1 end
function T.fail(name, fmt, ...) T.failures[#T.failures + 1] = name .. ": " .. fmt:format(...) end

--- A row in which the reference is wrong.
function T.list(name, reason)
  if not T.listed[reason] then
    T.listed[reason] = {}
    T.reasons[#T.reasons + 1] = reason
  end
  table.insert(T.listed[reason], name)
  T.pass()
end

local null = accel.json.null
local function absent(v) return v == nil or v == null end

--- The first difference of two plain values, as text; nil: none. A number and its text are the same where `loose`.
function T.difference(want, got, at, loose)
  at = at or ""
  if absent(want) and absent(got) then return nil end
  if type(want) == "table" and type(got) == "table" then
    local keys = {}
    for k in next, want do keys[k] = true end
    for k in next, got do keys[k] = true end
    for k in accel.pairs(keys) do
      local d = T.difference(want[k], got[k], at .. "." .. tostring(k), loose)
      if d then return d end
    end
    return nil
  end
  if want == got and math.type(want) == math.type(got) then return nil end
  if type(want) == "number" and want == got then return nil end
  if loose and tostring(want) == tostring(got) then return nil end
  return ("%s: want %s, got %s"):format(at, accel.json.encode { v = want }:sub(6, -2), type(got) == "function" and "a function"
    or accel.json.encode { v = got }:sub(6, -2))
end

--- Whether our message names what the reference's names: a flag, a key or a value in quotes.
function T.names_fault(theirs, ours)
  local plain = ours:gsub("-", "_"):lower()
  local any, words = false, 0
  for word in theirs:gsub("-", "_"):lower():gmatch "[`'\"]([%w_%.=]+)[`'\"]?" do
    words = words + 1
    any = any or plain:find((word:gsub("^_+", ""):gsub("=.*", "")), 1, true) ~= nil
  end
  for word in theirs:gsub("-", "_"):lower():gmatch "__([%w_]+)" do
    words = words + 1
    any = any or plain:find(word, 1, true) ~= nil
  end
  return any or words == 0
end

-- Crashes of the reference, not rules: a clear error or a right answer both pass.
T.CRASH = { AttributeError = true, IndexError = true, TypeError = true, KeyError = true }

local MOST_NAMES <const> = 4

require("configs_load")(T, config)
require("configs_launch")(T, config)
require("configs_plugins")(T, config)

for _, reason in ipairs(T.reasons) do
  local names = T.listed[reason]
  local shown = table.concat(names, ", ", 1, math.min(#names, MOST_NAMES))
  print(("reference wrong in %d rows: %s (%s%s)"):format(#names, reason, shown, #names > MOST_NAMES and ", ..." or ""))
end
for i = 1, math.min(SHOWN, #T.failures) do print("FAIL " .. T.failures[i]) end
if #T.failures > SHOWN then print(("... and %d more"):format(#T.failures - SHOWN)) end
print(("%d passed, %d failed"):format(T.passed, #T.failures))
os.exit(#T.failures == 0 and 0 or 1, true)
