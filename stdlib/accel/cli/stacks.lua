--- accel-run stacks [JOB]: each rank's current script line, even inside a loop, a read or a collective that the others never enter. For a
--- stopped process, the content of its status page.
local accel = require "accel"
local command = require "accel.cli.command"
local terminal = require "accel.util.terminal"
local health = accel.host_chunk "repl/health"
local jobs = accel.host_chunk "attach/jobs"

return function(...)
  local o, words = command.parse({ name = "accel-run stacks", usage = "[options] [JOB]",
    summary = "Prints the current script stack of every rank of a job, without stopping it.",
    { "all", "flag", false, nil, "functions of the library as well" },
    { "hosts", "string", nil, "A,B", "the job's other machines [those that its ranks know of]" } }, 0, 1, ...)
  local job, why = jobs.find_everywhere(words[1], o.hosts)
  if not job then return command.refuse("accel-run stacks", "%s", why) end
  local pages
  pages, why = jobs.pages(job)
  if not pages then return command.refuse("accel-run stacks", "%s: %s", job.id, why) end
  local by_rank = {}
  for _, page in ipairs(pages:read()) do by_rank[page.rank] = page end
  local held, ask = {}, {}
  for _, rank in ipairs(job.list) do
    held[rank.rank] = by_rank[rank.rank] and by_rank[rank.rank].held
    if not held[rank.rank] then ask[#ask + 1] = rank.rank end
  end
  local stacks, whys = jobs.stacks(job, ask, o.all)
  for _, rank in ipairs(job.list) do
    local page = by_rank[rank.rank] or {}
    if whys[rank.rank] == "no answer" and not rank.host then held[rank.rank] = jobs.held(rank.pid) end -- by now
    local head = ("rank %d (%spid %d)"):format(rank.rank, rank.host and rank.host .. ", " or "", rank.pid)
    if page.step then head = ("%s, step %d"):format(head, page.step) end
    if page.prompt then head = head .. ", at a prompt" end
    if page.waits then head = ("%s, waits in %s%s for %.1f s"):format(head, page.waits, health.for_whom(page.missing), page.seconds) end
    if held[rank.rank] then head = ("%s, %s"):format(head, held[rank.rank]) end
    local stack, silence = stacks[rank.rank], whys[rank.rank]
    command.say("%s", head)
    if stack and stack ~= "" then io.stdout:write(terminal.message(stack))
    else command.say("  last seen at %s%s", page.at or "a line not known", silence and (" (%s)"):format(silence) or "") end
  end
  pages:close()
  return true
end
