-- What the tests of attach share: jobs in a run folder of the test's own, clients with input from a script of lines and pauses.
local accel = require "accel"

local M = {}
local src, exe = os.getenv "ACCEL_TEST_SRC" or ".", accel.process.program()
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/attach"
os.execute(("rm -rf '%s'; mkdir -p -m 700 '%s/run'"):format(tmp, tmp))
M.tmp, M.exe, M.case = tmp, exe, src .. "/tests/lua/attach/job.lua"
-- The socket's folder, also for what this process itself asks.
M.env = { XDG_RUNTIME_DIR = tmp .. "/run", ACCEL_ATTACH = "1", ACCEL_NUM_THREADS = "1" }

local n = 0

--- The number of the line of the job that has this text.
function M.line_of(part)
  local number = 0
  for line in io.lines(M.case) do
    number = number + 1
    if line:find(part, 1, true) then return number end
  end
  error(("%s has no line with '%s'"):format(M.case, part))
end

function M.read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a" or ""
end

--- Starts accel-run with these words (a shell's); output goes to the files out and err, input is a pipe that says nothing and does not end.
function M.start(words)
  n = n + 1
  local base = ("%s/%d"):format(tmp, n)
  local p = accel.process.spawn("/bin/sh", { "sh", "-c", ("mkfifo '%s.in'; exec '%s' %s <>'%s.in' >'%s.out' 2>'%s.err'"):format(
    base, exe, words, base, base, base) }, M.env)
  return { process = p, out = base .. ".out", err = base .. ".err" }
end

--- Runs accel-run with these words to its end, input a text: output, errors, status. A line "#0.5" of the input is a pause of so many seconds.
function M.run(words, input)
  n = n + 1
  local base = ("%s/%d"):format(tmp, n)
  local feed = {}
  for line in ((input or "") .. "\n"):gmatch "([^\n]*)\n" do
    local pause = line:match "^#([%d.]+)$"
    feed[#feed + 1] = pause and "sleep " .. pause or line ~= "" and ("printf '%%s\\n' '%s'"):format((line:gsub("'", "'\\''"))) or nil
  end
  local script = #feed > 0 and ("(%s)"):format(table.concat(feed, "; ")) or ": "
  local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", ("%s | exec timeout 60 '%s' %s >'%s.out' 2>'%s.err'"):format(script, exe, words,
    base, base) }, M.env)
  local how, status = p:wait(100)
  return M.read(base .. ".out"), M.read(base .. ".err"), how == "exit" and status or how
end

--- Until ok() gives something that is not false.
function M.wait(what, ok, seconds)
  local limit = accel.clock() + (seconds or 60)
  while true do
    local got = ok()
    if got then return got end
    assert(accel.clock() < limit, "nothing came of: " .. what)
    accel.process.spawn("/bin/sleep", { "sleep", "0.02" }, {}):wait(1)
  end
end

--- The jobs that accel-run ps shows: {id, pid, ranks, step, script} each.
function M.ps()
  local out, list = M.run "ps", {}
  for id, pid, ranks, step, script in out:gmatch "(%x+)%s+(%d+)%s+(%d+)%s+[%d:]+%s+(%S+)%s+(%S+)\n" do
    list[#list + 1] = { id = id, pid = tonumber(pid), ranks = tonumber(ranks), step = tonumber(step), script = script }
  end
  return list
end

--- Waits until a job of these many ranks has made steps.
function M.running(ranks, steps)
  return M.wait("a job that runs", function()
    local job = M.ps()[1]
    return job and job.ranks == ranks and job.step and job.step >= steps and job
  end)
end

--- Kills a job, which is alone, and waits until no row of ps names it: one whose first rank is dead already has another form than M.ps takes.
function M.kill(job)
  local ids = {}
  for i, row in ipairs(M.ps()) do ids[i] = row.id end
  pcall(job.process.signal, job.process, 9)
  M.wait("its end", function()
    local out = M.run "ps"
    for _, id in ipairs(ids) do
      if out:find(id, 1, true) then return false end
    end
    return #M.ps() == 0
  end)
  job.process:close()
end

return M
