-- What opinfo.lua and modinfo.lua count and print.
local known = require "opinfo.known"

local Report = {}
Report.__index = Report

-- Whether an error is one of opinfo/spell.lua: an option without a counterpart.
local function missing(e) return type(e) == "table" and getmetatable(e) == nil and e.missing ~= nil end

local function size(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  return n
end

local function new(verbose, list)
  return setmetatable({ verbose = verbose, list = list, passed = 0, failed = 0, n_listed = 0, listed = {}, seen = {}, gone = {}, cases = 0,
    failures = {} }, Report)
end

--- A difference: listed with its reason, or a failure, for which it returns true. why: text, or {missing = name of an option}.
function Report:note(entry, i, what, why)
  local reason = known(entry, what, missing(why) and "missing: " .. why.missing or tostring(why))
  if missing(why) and not reason then reason = "an option that accel does not have: it raises" end
  if reason then
    self.listed[reason] = (self.listed[reason] or 0) + 1
    self.n_listed = self.n_listed + 1
    if self.list then print(("listed %s[%d] %s: %s: %s"):format(entry.file, i, what, reason, missing(why) and why.missing or tostring(why))) end
    return false
  end
  self.failed = self.failed + 1
  self.failures[entry.full] = (self.failures[entry.full] or 0) + 1
  if self.verbose or self.failures[entry.full] <= 2 then print(("FAIL %s[%d] %s: %s"):format(entry.file, i, what, tostring(why))) end
  return true
end

--- Counts a case; outcome: nil where nothing differed, else what note returned.
function Report:case(entry, outcome)
  self.seen[entry.full] = true
  self.cases = self.cases + 1
  if outcome == nil then self.passed = self.passed + 1 end
end

function Report:absent(name) self.gone[name] = true end

local function sorted(t, line)
  local lines = {}
  for key, n in pairs(t) do lines[#lines + 1] = line(key, n) end
  table.sort(lines)
  return lines
end

--- Prints the summary; ends with status 1 after a failure.
function Report:finish(kind)
  if next(self.failures) then
    print("failed: " .. table.concat(sorted(self.failures, function(name, n) return ("%s (%d)"):format(name, n) end), ", "))
  end
  if next(self.listed) then
    print("listed differences:\n" .. table.concat(sorted(self.listed, function(reason, n) return ("%7d  %s"):format(n, reason) end), "\n"))
  end
  if self.verbose then print("no counterpart: " .. table.concat(sorted(self.gone, function(name) return name end), " ")) end
  print(("%d %s, %d cases: %d passed, %d differences listed, %d failed; %d have no counterpart"):format(size(self.seen), kind, self.cases,
    self.passed, self.n_listed, self.failed, size(self.gone)))
  if self.failed > 0 then os.exit(1, true) end
end

return { new = new, missing = missing }
