--- accel-run ps: this user's jobs on this machine: name, processes, age, step, script.
local accel = require "accel"
local command = require "accel.cli.command"
local terminal = require "accel.util.terminal"
local fit = require "accel.cli.fit"
local jobs = accel.host_chunk "attach/jobs"

local columns = { { "JOB", 8, 9, left = true }, { "PID", 9, 2 }, { "RANKS", 10, 3 }, { "AGE", 10, 4 }, { "STEP", 9, 5 }, { "SCRIPT", path = true } }

--- "3:07", "2:03:07", "4d 03:07".
local function age(seconds)
  seconds = math.max(0, math.floor(seconds))
  local days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
  if days > 0 then return ("%dd %02d:%02d"):format(days, hours, minutes) end
  if hours > 0 then return ("%d:%02d:%02d"):format(hours, minutes, seconds % 60) end
  return ("%d:%02d"):format(minutes, seconds % 60)
end

local function ranks_of(job)
  if #job.list == job.size then return ("%d"):format(job.size) end
  return ("%d of %d"):format(#job.list, job.size)
end

return function(...)
  command.parse({ name = "accel-run ps", usage = "", summary = "Lists your jobs on this machine." }, 0, 0, ...)
  local list = jobs.list()
  if #list == 0 then
    io.stderr:write "accel-run ps: you have no running script\n"
    return true
  end
  local width = accel.isatty(1) and terminal.width() or math.huge
  local shown = fit.choose(columns, width)
  io.stdout:write(fit.head(columns, shown, width), "\n")
  for _, job in ipairs(list) do
    local pages = jobs.pages(job)
    local step
    for _, page in ipairs(pages and pages:read() or {}) do
      if page.state == "running" then step = math.min(step or page.step, page.step) end
    end
    if pages then pages:close() end
    io.stdout:write(fit.line(columns, shown, { job.id, ("%d"):format(job.list[1].pid), ranks_of(job), age(os.time() - job.began),
      tostring(step or "?"), job.script }, width), "\n")
  end
  return true
end
