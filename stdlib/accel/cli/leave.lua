--- accel-run leave JOB RANK: a rank leaves an elastic job at the next boundary between two updates, without a micro-batch done again.
local accel = require "accel"
local command = require "accel.cli.command"
local jobs = accel.host_chunk "attach/jobs"

return function(...)
  local _, words = command.parse({ name = "accel-run leave", usage = "JOB RANK",
    summary = "Removes one rank from an elastic job (--num-machines 1:1) between two updates. RANK is its number at the start of the"
      .. " job. accel-run ps lists the jobs." }, 2, 2, ...)
  local rank = math.tointeger(tonumber(words[2]))
  if not rank or rank < 0 then return command.refuse("accel-run leave", "'%s' is not a rank", words[2]) end
  local job, why = jobs.find(words[1])
  local pages
  if job then pages, why = jobs.pages(job) end
  if not job or not pages then return command.refuse("accel-run leave", "%s", why) end
  local _ <close> = pages
  local ok
  ok, why = pages:ask("leave", rank)
  if not ok then return command.refuse("accel-run leave", "%s: %s", job.id, why) end
  command.say("%s: asked rank %d to leave after the current update", job.id, rank)
  return true
end
