--- accel-run top [JOB]: a live table of the ranks of a job: step and its time, what the script logged as loss and tokens a second, memory, what each
--- rank waits for and since when; stragglers are marked. Read from the ranks' status pages: the job does nothing for it.
local accel = require "accel"
local command = require "accel.cli.command"
local terminal = require "accel.util.terminal"
local jobs = accel.host_chunk "attach/jobs"
local watch = require "accel.cli.stragglers"

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

local function memory(pid)
  local kib = (read(("/proc/%d/status"):format(pid)) or ""):match "VmRSS:%s+(%d+)"
  if not kib then return "?" end
  kib = tonumber(kib)
  if kib >= 1 << 20 then return ("%.1fG"):format(kib / 2 ^ 20) end
  return ("%dM"):format(kib // 1024)
end

local function time(seconds)
  if not seconds then return "" end
  if seconds < 1e-3 then return ("%.0fus"):format(seconds * 1e6) end
  if seconds < 1 then return ("%.1fms"):format(seconds * 1e3) end
  return ("%.2fs"):format(seconds)
end

local function doing(page, stopped)
  if stopped then return "stopped (SIGSTOP) at " .. (page.at or "?") end
  if page.prompt then return "at a prompt: " .. (page.at or "?") end
  if page.waits and page.seconds > 0.05 then
    return ("%.1fs in %s for %s"):format(page.seconds, page.waits:gsub(" %(.*$", ""), table.concat(page.missing, ","))
  end
  return page.at or ""
end

local function lines(job, pages, width)
  local read_pages, abort = pages:read()
  local shown, late = { ("%s  %s  %s"):format(job.id, job.script, os.date "%H:%M:%S") }, watch.late(read_pages)
  shown[2] = ("%4s %8s %8s %9s %8s %7s  %s"):format("RANK", "STEP", "TIME", "LOSS", "TOKENS/S", "MEM", "AT")
  for _, page in ipairs(read_pages) do
    local alive = page.state == "running"
    local stopped = alive and (page.stopped or jobs.process_state(page.pid) == "T")
    local text = ("%4s %8d %8s %9s %8s %7s  %s"):format((late[page.rank] and "!" or "") .. page.rank, page.step, time(page.step_seconds),
      page.loss and ("%.4g"):format(page.loss) or "", page.tokens_per_s and ("%.0f"):format(page.tokens_per_s) or "",
      alive and memory(page.pid) or "", alive and doing(page, stopped) or page.ended or page.state)
    shown[#shown + 1] = #text > width and text:sub(1, width - 1) .. "~" or text
  end
  for rank, text in accel.pairs(late) do shown[#shown + 1] = ("! rank %d: %s"):format(rank, text):sub(1, width) end
  if abort then shown[#shown + 1] = abort:sub(1, width) end
  return shown
end

return function(...)
  local o, words = command.parse({
    name = "accel-run top", usage = "[options] [JOB]", summary = "A live table of a job's ranks; Ctrl-C leaves. Into a pipe it writes one table.",
    { "interval", "number", 1, "S", "seconds between two looks" },
    { "count", "int", nil, "N", "leave after N looks" },
  }, 0, 1, ...)
  if o.interval < 0.05 then return command.refuse("accel-run top", "--interval %g: 0.05 s at least", o.interval) end
  local job, why = jobs.find(words[1])
  if not job then return command.refuse("accel-run top", "%s", why) end
  local pages
  pages, why = jobs.pages(job)
  if not pages then return command.refuse("accel-run top", "%s: %s", job.id, why) end
  local live = terminal.interactive(1)
  local _ <close> = accel.console.session()
  local looks = o.count or (live and math.huge or 1)
  local drawn = 0
  while looks > 0 do
    local shown = lines(job, pages, live and terminal.width() or 200)
    if live and drawn > 0 then io.stdout:write(("\27[%dA\27[J"):format(drawn)) end
    io.stdout:write(table.concat(shown, "\n"), "\n")
    io.stdout:flush()
    drawn = #shown
    looks = looks - 1
    local running = false
    for _, rank in ipairs(job.list) do running = running or jobs.process_state(rank.pid) ~= nil end
    if not running then break end
    if looks > 0 and accel.console.poll({}, o.interval) == "break" then break end
  end
  return true
end
