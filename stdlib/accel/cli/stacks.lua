--- accel-run stacks [JOB]: where every rank of a job is, by script line, also one that is in a loop, a read or a collective that the others never
--- enter, and of a stopped process what its status page knows.
local accel = require "accel"
local command = require "accel.cli.command"
local jobs = accel.host_chunk "attach/jobs"

local function list_of(ranks)
  return (#ranks > 1 and "ranks " or "rank ") .. table.concat(ranks, ", ")
end

return function(...)
  local _, words = command.parse({ name = "accel-run stacks", usage = "[JOB]",
    summary = "The stack of the script on every rank of a job; nothing is stopped for it." }, 0, 1, ...)
  local job, why = jobs.find(words[1])
  if not job then return command.refuse("accel-run stacks", "%s", why) end
  local pages
  pages, why = jobs.pages(job)
  if not pages then return command.refuse("accel-run stacks", "%s: %s", job.id, why) end
  local by_rank = {}
  for _, page in ipairs(pages:read()) do by_rank[page.rank] = page end
  for _, rank in ipairs(job.list) do
    local page = by_rank[rank.rank] or {}
    local head = ("rank %d (pid %d)"):format(rank.rank, rank.pid)
    if page.step then head = ("%s, step %d"):format(head, page.step) end
    if page.prompt then head = head .. ", at a prompt" end
    if page.waits then head = ("%s, waits in %s for %s for %.1f s"):format(head, page.waits, list_of(page.missing), page.seconds) end
    local stopped = page.stopped or jobs.process_state(rank.pid) == "T"
    local stack, reason
    if stopped then
      head = ("%s, is stopped; kill -CONT %d lets it go on"):format(head, rank.pid)
    else
      stack, reason = jobs.stack(job, rank.rank)
    end
    io.stdout:write(head, "\n")
    if stack and stack ~= "" then io.stdout:write(stack)
    else io.stdout:write(("  last seen at %s%s\n"):format(page.at or "a line not known", reason and (" (%s)"):format(reason) or "")) end
  end
  pages:close()
  return true
end
