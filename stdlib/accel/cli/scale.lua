--- accel-run scale JOB N: an elastic job continues with N ranks from the next boundary between two updates.
local accel = require "accel"
local command = require "accel.cli.command"
local jobs = accel.host_chunk "attach/jobs"

return function(...)
  local _, words = command.parse({ name = "accel-run scale", usage = "JOB N",
    summary = "Changes the number of ranks of an elastic job (--num-machines 1:1) to N, from 1 to the number at its start. Ranks join"
      .. " and leave between two updates. accel-run ps lists the jobs." }, 2, 2, ...)
  local n = math.tointeger(tonumber(words[2]))
  if not n or n < 1 then return command.refuse("accel-run scale", "'%s' is not a number of ranks", words[2]) end
  local job, why = jobs.find(words[1])
  local pages
  if job then pages, why = jobs.pages(job) end
  if not job or not pages then return command.refuse("accel-run scale", "%s", why) end
  local _ <close> = pages
  local ok
  ok, why = pages:ask("scale", n)
  if not ok then return command.refuse("accel-run scale", "%s: %s", job.id, why) end
  command.say("%s: asked for %d ranks; the change follows the current update", job.id, n)
  return true
end
