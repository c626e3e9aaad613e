-- The part of dap.lua that starts a script or joins a job that runs.
local accel = ...
local client = accel.host_chunk "attach/client"
local jobs = accel.host_chunk "attach/jobs"

local START_SECONDS <const> = 20

-- What a configuration may hold: the adapter's keys, then those that editors add for themselves.
local KEYS <const> = {
  launch = { program = true, args = true, cwd = true, env = true, numProcesses = true, stopOnEntry = true, noDebug = true },
  attach = { job = true, rank = true, hosts = true, stopOnEntry = true },
}
local EDITORS <const> = { type = true, name = true, request = true, presentation = true, preLaunchTask = true, postDebugTask = true,
  internalConsoleOptions = true, suppressMultipleSessionWarning = true, linux = true, osx = true, windows = true,
  debugServer = true, serverReadyAction = true, noDebug = true }

--- Adds launch and attach to the table of handlers. o.Adapter: the class of clients. o.event and o.output: what the editor is told.
---@param serve table<string, function>
---@param o {Adapter: table, event: function, output: function}
return function(serve, o)
  local event, output = o.event, o.output

  -- A key that nobody reads is a typing error, or another adapter's.
  local function check(request, a)
    local keys, names = KEYS[request], {}
    for key in next, keys do names[#names + 1] = key end
    for key in accel.pairs(a) do
      if not keys[key] and not EDITORS[key] and key:sub(1, 2) ~= "__" then
        local near = accel.nearest(key, names)
        output(("%s: the key '%s' has no effect%s\n"):format(request, key, near and ("; did you mean '%s'?"):format(near) or ""), "stderr")
      end
    end
  end

  -- The client for a job. It replaces the data kept before there was one.
  local function connect(session, job, only)
    local self, why = client.open(job, only, o.Adapter)
    if not self then return nil, why end
    self.interactive = false
    self.things = {}
    self.breaks, self.last_stop, self.errors = session.breaks, session.last_stop, session.errors
    self.stops_version = 1
    session.client = self
    for rank = 0, self.size - 1 do event("thread", { reason = "started", threadId = rank + 1 }) end
    return self
  end

  function serve.attach(session, a)
    check("attach", a)
    local job, why = jobs.find_everywhere(a.job, a.hosts)
    if not job then return nil, why end
    local self
    self, why = connect(session, job, a.rank)
    if not self then return nil, why end
    self.stop_on_entry = true
    session.ready = function()
      self.asked_pause = true
      if a.stopOnEntry ~= false then self:agree() end
    end
    return {}
  end

  local function parent_of(pid)
    local file <close> = io.open(("/proc/%d/stat"):format(pid))
    return file and math.tointeger(tonumber(file:read "a":match "%) %a (%d+)"))
  end

  -- The job of a process that was started: its own, or of ranks that it started.
  local function job_of(pid, ranks)
    for _, job in ipairs(jobs.list()) do
      if #job.list == ranks and (job.list[1].pid == pid or parent_of(job.list[1].pid) == pid) then return job end
    end
  end

  function serve.launch(session, a)
    check("launch", a)
    if type(a.program) ~= "string" then return nil, "launch: program, the path of a script, is missing" end
    local ranks = math.tointeger(tonumber(a.numProcesses or 1))
    if not ranks or ranks < 1 then return nil, "launch: numProcesses is a number of ranks" end
    local program = accel.process.program()
    local dir, why = accel.mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/accel-dap-")
    if not dir then return nil, why end
    session.out = dir .. "/out"
    local env = { ACCEL_ATTACH = "1", ACCEL_ATTACH_WAIT = a.noDebug and "0" or "1", ACCEL_WORLD = false }
    for name, value in accel.pairs(a.env or {}) do env[name] = tostring(value) end
    local words = { "sh", "-c", 'cd "$1" && out=$2 && shift 2 && exec "$@" > "$out" 2>&1', "sh", a.cwd or ".", session.out, program }
    if ranks > 1 then table.move({ "--num-processes", tostring(ranks) }, 1, 2, #words + 1, words) end
    words[#words + 1] = a.program
    for _, word in ipairs(a.args or {}) do words[#words + 1] = tostring(word) end
    session.process = accel.process.spawn("/bin/sh", words, env)
    if a.noDebug then return {} end
    session.ready = function()
      local limit = accel.clock() + START_SECONDS
      local job
      while not job and accel.clock() < limit do
        if session.process:wait(0.05) then break end
        job = job_of(session.process:pid(), ranks)
      end
      local self, reason
      if job then self, reason = connect(session, job) end
      if not self then
        output(("launch: %s\n"):format(reason or "the script has ended, or its ranks did not come"), "stderr")
        return
      end
      self.stop_on_entry = a.stopOnEntry == true
    end
    return {}
  end
end
