--- Requests to the launcher of an elastic job, for accel-run scale and leave.
local accel = require "accel"
local command = require "accel.cli.command"
local jobs = accel.host_chunk "attach/jobs"

--- Asks for a change between two updates. Returns true, or refuses with the reason.
---@param who string "accel-run scale"
---@param name string a job as accel-run ps shows it
---@param request string "scale" or "leave"
---@param n integer ranks, or a rank
---@param done string what was asked for, with a place for n
---@return boolean?
return function(who, name, request, n, done)
  local job, why = jobs.find(name)
  local pages
  if job then pages, why = jobs.pages(job) end
  if not job or not pages then return command.refuse(who, "%s", why) end
  local _ <close> = pages
  local ok
  ok, why = pages:ask(request, n)
  if not ok then return command.refuse(who, "%s: %s", job.id, why) end
  command.say("%s: " .. done, job.id, n)
  return true
end
