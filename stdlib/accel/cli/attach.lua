--- accel-run attach [JOB]: a prompt in a job that runs: its ranks come to it at the next step boundary and train on from it with the bits that
--- they would have had. The prompt is lua/attach/client.lua.
local accel = require "accel"
local command = require "accel.cli.command"
local jobs = accel.host_chunk "attach/jobs"

local START_SECONDS <const> = 10

-- Waits until every rank of this machine can be reached: a script that opens a prompt may run before its other ranks have started.
local function wait_for_ranks(word)
  local limit = accel.clock() + START_SECONDS
  repeat
    local job = jobs.find(word)
    local first = job and job.list[1]
    local pages = first and accel.console.pages(("/proc/%d/fd/%d"):format(first.pid, first.segment))
    local alive = 0
    for _, page in ipairs(pages and pages:read() or {}) do
      if page.state == "running" or page.state == "absent" then alive = alive + 1 end
    end
    if pages then pages:close() end
    if not pages or #job.list >= alive then return end
    accel.console.poll({}, 0.01)
  until accel.clock() > limit
end

return function(...)
  local o, words = command.parse({
    name = "accel-run attach", usage = "[options] [JOB]",
    summary = "Opens a prompt in a running script, on all its ranks, at their next step. JOB is a name that accel-run ps shows, "
      .. "the prefix of one, a process id or a script. With a single job you can leave it out.",
    { "rank", "int", nil, "R", "only this rank; the others wait for it at their next collective", least = 0 },
    { "here", "flag", false, nil, "wait for ranks that reach a breakpoint; pause none" },
    { "hosts", "string", nil, "A,B", "the job's other machines [those that its ranks know of]" },
    { "serve", "flag", false, nil, "of accel-run itself: the job's ranks here over standard input and output" },
    { "tunnel", "int", nil, "FD", "of accel-run itself: the other end of --serve" },
  }, 0, 1, ...)
  if o.serve or o.tunnel then -- a signal ends it, without a word in the client's terminal
    local relay = accel.host_chunk "attach/relay"
    local ok, done = pcall(o.serve and relay.serve or relay.tunnel, words[1], o.tunnel, o.hosts)
    return ok and done
  end
  if o.here then wait_for_ranks(words[1]) end
  local job, why = jobs.find_everywhere(words[1], o.hosts)
  if not job then return command.refuse("accel-run attach", "%s", why) end
  local client = accel.host_chunk "attach/client"
  if o.here then -- the script's end ends it, without a word in the script's terminal
    local ok, done = pcall(client.run, job, o)
    if not ok and not (type(done) == "table" and done.code == "interrupted") then error(done, 0) end
    return ok and done
  end
  local done, ended = client.run(job, o)
  if ended and ended > 1 then os.exit(ended) end -- the job's status
  return done and ended ~= 1
end
