-- One run of a worker of goals.lua: its command, its time limit, its counts. For gate.lua.
local accel = require "accel"

local M = {}

local function quote(s) return "'" .. tostring(s):gsub("'", "'\\''") .. "'" end
M.quote = quote

local src, build = os.getenv "ACCEL_TEST_SRC" or ".", os.getenv "ACCEL_TEST_BUILD" or "build/dev"

--- The shell command of a run.
---@param w table a worker
---@param run table n, seconds, seed, tmp
---@return string
function M.command(w, run)
  local values = { n = run.n, s = run.seconds and ("%.0f"):format(run.seconds), seed = run.seed, build = quote(build), tmp = quote(run.tmp),
    ["accel-run"] = quote(build .. "/bin/accel-run") }
  local function fill(text)
    return (text:gsub("%%(%l[%l-]*)", function(name) return values[name] and tostring(values[name]) or "%" .. name end))
  end
  local program
  if w.lua then program = ("%s %s %s"):format(values["accel-run"], quote(("%s/tests/%s"):format(src, w.lua)), fill(w.args or ""))
  elseif w.bin then program = quote(("%s/tests/bin/test_%s"):format(build, w.bin:gsub("/", "_")))
  else program = fill(w.sh) end
  local env = ("ACCEL_TEST_SEED=%d FUZZ_SEED=%d ACCEL_TEST_TMP=%s"):format(run.seed, run.seed, quote(run.tmp))
  return ("mkdir -p %s && cd %s && exec env %s %s timeout -k 20 %d %s"):format(quote(run.tmp), quote(w.sh and src or run.tmp), env,
    fill(w.env or ""), run.limit, program)
end

-- The sum of all that a pattern finds; nil where it finds nothing.
local function found(text, patterns)
  local sum
  for _, pattern in ipairs(type(patterns) == "table" and patterns or { patterns }) do
    for number in text:gmatch(pattern) do sum = (sum or 0) + tonumber(number) end
  end
  return sum
end

--- The counts of an output. A pattern that finds nothing in a run that passed is a fault of the entry in goals.lua, and an error.
---@param w table
---@param text string
---@param passed boolean
---@return table<string, number>? counts, string? message
function M.counts(w, text, passed)
  local counts = {}
  for name, how in pairs(w.counts) do
    if type(how) == "string" or type(how) == "table" then counts[name] = found(text, how)
    elseif passed then counts[name] = how == true and 1 or how end
    if passed and not counts[name] then return nil, ("its output has no number of %s"):format(name) end
  end
  return counts
end

-- Ends what a run left: processes with the run's folder in their environment. A worker may start programs in process groups of their own,
-- which its end does not reach.
local function sweep(tmp)
  local mark, pids = "ACCEL_TEST_TMP=" .. tmp .. "\0", {}
  for _, name in ipairs(accel.listdir "/proc" or {}) do
    local file <close> = name:find "^%d+$" and io.open(("/proc/%s/environ"):format(name), "rb") or nil
    if file and ((file:read "a") or ""):find(mark, 1, true) then pids[#pids + 1] = name end
  end
  if pids[1] then os.execute("kill -9 " .. table.concat(pids, " ") .. " 2>/dev/null") end
end

--- Runs a worker. Ctrl-C ends the program, and is then raised as "stopped".
---@param w table
---@param run table n, seconds, seed, tmp, limit, log
---@return string result "passed", "failed", "skipped", "late"
---@return table<string, number> counts
---@return string why for all but "passed"
function M.run(w, run)
  local command = ("exec > %s 2>&1 < /dev/null; %s"):format(quote(run.log), M.command(w, run))
  local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", command }, {})
  local how, number
  repeat
    how, number = p:wait(0.5)
    if not how and accel.interrupted() then
      p:signal(15) -- timeout passes it on
      repeat how = p:wait(1) until how
    end
  until how
  sweep(run.tmp)
  if accel.interrupted() then error("stopped", 0) end
  local file <close> = io.open(run.log, "rb")
  local text = file and file:read "a" or ""
  local last = text:match "([^\n]*)%s*$"
  if how == "exit" and number == 77 then return "skipped", {}, text:match "skipped: ([^\n]*)" or last end
  if how == "exit" and number == 124 then return "late", {}, ("not over after %d s"):format(run.limit) end
  local passed = how == "exit" and number == 0
  local counts, message = M.counts(w, text, passed)
  if passed and not counts then return "failed", {}, message end
  return passed and "passed" or "failed", counts or {}, passed and "" or ("%s %s: %s"):format(how, number or "", last)
end

return M
