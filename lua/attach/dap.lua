-- A debug adapter (Debug Adapter Protocol 1.6x, messages as headers and JSON over standard input and output): attaches to a job or launches
-- one, shows each rank as a thread, and passes an editor's requests to the ranks, as client.lua does for people.
--
-- Supported requests: initialize launch attach setBreakpoints setExceptionBreakpoints configurationDone threads stackTrace scopes variables
-- evaluate continue next stepIn stepOut pause disconnect terminate. launch takes program, args, cwd, env, numProcesses, stopOnEntry. attach
-- takes job, rank.
local accel = ...
local client = accel.host_chunk "attach/client"
local Client = accel.host_chunk("attach/client").Client
local jobs = accel.host_chunk "attach/jobs"
local array = accel.json.array

local Adapter = setmetatable({}, { __index = Client })
Adapter.__index = Adapter

local START_SECONDS = 20

-- ---- messages ----

local seq = 0
local function send(message)
  seq = seq + 1
  message.seq = seq
  local text = accel.json.encode(message)
  io.stdout:write(("Content-Length: %d\r\n\r\n"):format(#text), text)
  io.stdout:flush()
end

local function event(name, body) send { type = "event", event = name, body = body } end
local function output(text, category) event("output", { category = category or "console", output = text }) end

-- The next message of the input. nil: it is not complete. "bad": no message of this protocol.
local function next_message(session)
  local head, rest = session.input:match "^(.-)\r\n\r\n()"
  if not head then return #session.input > 65536 and "bad" or nil end
  local length = tonumber(head:lower():match "content%-length:%s*(%d+)")
  if not length or length > 64 << 20 then return "bad" end
  if #session.input < rest + length - 1 then return nil end
  local text = session.input:sub(rest, rest + length - 1)
  session.input = session.input:sub(rest + length)
  local ok, message = pcall(accel.json.decode, text)
  if not ok or type(message) ~= "table" then return "bad" end
  return message
end

-- ---- ranks as threads ----

function Adapter:say(lines)
  if type(lines) == "string" then lines = { lines } end
  if #lines > 0 then output(table.concat(lines, "\n") .. "\n") end
end
function Adapter:complain(text) output(text .. "\n", "stderr") end
function Adapter:width() return 100 end

--- A rank has stopped: the editor is notified once its breakpoints are the newest.
function Adapter:tell_news()
  local news = self.news
  self.news = {}
  if #news > 0 then self:send_stops() end
  for _, rank in ipairs(news) do
    local why = self.ranks[rank].hello.why
    local reasons = { step = self.asked_pause and "pause" or "step", line = "step", watch = "data breakpoint", entry = "entry",
      breakpoint = "breakpoint", ["an error"] = "exception" }
    if why.reason == "entry" and not self.stop_on_entry then
      self:go("continue", { rank })
    else
      event("stopped", { reason = reasons[why.reason] or "breakpoint", threadId = rank + 1, allThreadsStopped = false, text = why.text,
        description = why.text, hitBreakpointIds = why.id and array { why.id } or nil })
    end
  end
end

local function here(self, thread)
  local rank = math.tointeger(thread) and thread - 1
  local r = rank and self.ranks[rank]
  if not r or r.dead then return nil, ("there is no thread %s"):format(tostring(thread)) end
  if r.away then return nil, ("rank %d runs"):format(rank) end
  return rank
end

-- Objects that an editor refers to by a number: a frame or a value of a rank.
local function number(self, what)
  self.things[#self.things + 1] = what
  return #self.things
end

-- One rank's answer to a request. nil, reason.
local function ask(self, rank, request)
  local got = self:ask(request, 1, { rank })
  local a = got and got[rank]
  if not a then return nil, ("rank %d does not answer"):format(rank) end
  if not a.ok then return nil, a.message end
  return a
end

local function variables(self, rank, request)
  request.op = "variables"
  local a, why = ask(self, rank, request)
  if not a then return nil, why end
  local list = array {}
  for _, v in ipairs(a.variables) do
    list[#list + 1] = { name = v.name, value = v.value, type = v.type,
      variablesReference = v.ref and number(self, { rank = rank, ref = v.ref }) or 0 }
  end
  return { variables = list }
end

local function resume(self, how, more)
  self.things, self.asked_pause = {}, false
  local ranks = self:alive()
  self:go(how, ranks, more)
  return ranks
end

-- ---- requests ----

local serve = {}

function serve.initialize()
  return { supportsConfigurationDoneRequest = true, supportsConditionalBreakpoints = true, supportsEvaluateForHovers = true,
    supportTerminateDebuggee = true, supportsTerminateRequest = true }, function() event "initialized" end
end

-- The client for a job. It replaces the data kept before there was one.
local function connect(session, job, only)
  local self, why = client.open(job, only, Adapter)
  if not self then return nil, why end
  self.interactive = false
  self.things = {}
  self.breaks, self.last_stop = session.breaks, session.last_stop
  self.stops_version = 1
  session.client = self
  for rank = 0, self.size - 1 do event("thread", { reason = "started", threadId = rank + 1 }) end
  return self
end

function serve.attach(session, a)
  local job, why = jobs.find(a.job)
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
  if type(a.program) ~= "string" then return nil, "launch: program, the path of a script, is missing" end
  local ranks = math.tointeger(a.numProcesses or 1)
  if not ranks or ranks < 1 then return nil, "launch: numProcesses is a number of ranks" end
  local program = accel.process.program()
  local dir, why = accel.mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/accel-dap-")
  if not dir then return nil, why end
  session.out = dir .. "/out"
  local env = { ACCEL_ATTACH = "1", ACCEL_ATTACH_WAIT = "1", ACCEL_WORLD = false }
  for name, value in accel.pairs(a.env or {}) do env[name] = tostring(value) end
  local words = { "sh", "-c", 'cd "$1" && out=$2 && shift 2 && exec "$@" > "$out" 2>&1', "sh", a.cwd or ".", session.out, program }
  if ranks > 1 then table.move({ "--num-processes", tostring(ranks) }, 1, 2, #words + 1, words) end
  words[#words + 1] = a.program
  for _, word in ipairs(a.args or {}) do words[#words + 1] = tostring(word) end
  session.process = accel.process.spawn("/bin/sh", words, env)
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

-- The ranks' reports on breakpoints: not reached so far, or at another line.
local function tell_notes(self)
  for _, b in ipairs(self.breaks) do
    local note = self.notes[b.id] or {}
    local trouble = note.pending or note.never
    b.line = note.line or b.line
    local text = ("%d %s"):format(b.line, trouble or "")
    if self.told[b.id] ~= text and (trouble or note.line or self.told[b.id]) then
      event("breakpoint", { reason = "changed", breakpoint = { id = b.id, verified = trouble == nil, line = b.line, message = trouble } })
      self.told[b.id] = text
    end
  end
end

function serve.setBreakpoints(session, a)
  local file, kept, list = a.source and a.source.path or "", {}, array {}
  for _, b in ipairs(session.breaks) do
    if b.file ~= file then kept[#kept + 1] = b end
  end
  for _, b in ipairs(a.breakpoints or {}) do
    session.last_stop = session.last_stop + 1
    local condition, why = b.condition ~= "" and b.condition or nil, nil
    if condition then
      local f, message = load("return " .. condition, "=condition", "t")
      why = not f and message or nil
    end
    if not why then kept[#kept + 1] = { id = session.last_stop, file = file, line = b.line, condition = condition } end
    list[#list + 1] = { id = session.last_stop, verified = why == nil, line = b.line, message = why }
  end
  session.breaks = kept
  local self = session.client
  if not self then return { breakpoints = list } end
  self.breaks = kept
  return { breakpoints = list }, function()
    self:stops_changed()
    tell_notes(self)
  end
end

function serve.setExceptionBreakpoints() return {} end

function serve.configurationDone(session)
  session.configured = true
  return {}, session.ready
end

function serve.threads(session)
  local list = array {}
  for rank = 0, (session.client and session.client.size or 1) - 1 do
    list[#list + 1] = { id = rank + 1, name = ("rank %d"):format(rank) }
  end
  return { threads = list }
end

local function path_of(path)
  if path:sub(1, 1) ~= "@" then return path end
  path = path:sub(2)
  return path:sub(1, 1) == "/" and path or ("%s/%s"):format(os.getenv "PWD" or ".", path)
end

function serve.stackTrace(session, a)
  local self = session.client
  local rank, why = here(self, a.threadId)
  if not rank then return nil, why end
  local answer
  answer, why = ask(self, rank, { op = "stack" })
  if not answer then return nil, why end
  local list = array {}
  for i, frame in ipairs(answer.frames) do
    list[i] = { id = number(self, { rank = rank, frame = i }), name = frame.name, line = frame.line, column = 1,
      source = { name = frame.path:match "[^/]*$", path = path_of(frame.path) }, presentationHint = frame.library and "subtle" or "normal" }
  end
  return { stackFrames = list, totalFrames = #list }
end

function serve.scopes(session, a)
  local self = session.client
  local frame = self.things[a.frameId]
  if not frame then return nil, "the stack is not shown any more" end
  local list = array {}
  for _, scope in ipairs { { "Locals", "local" }, { "Upvalues", "upvalue" }, { "Globals", "global" } } do
    list[#list + 1] = { name = scope[1], expensive = scope[2] == "global",
      variablesReference = number(self, { rank = frame.rank, frame = frame.frame, scope = scope[2] }) }
  end
  return { scopes = list }
end

function serve.variables(session, a)
  local what = session.client.things[a.variablesReference]
  if not what then return nil, "the value is not shown any more" end
  return variables(session.client, what.rank, { ref = what.ref, frame = what.frame, scope = what.scope })
end

function serve.evaluate(session, a)
  local self = session.client
  local frame = a.frameId and self.things[a.frameId]
  local rank = frame and frame.rank or self:alive()[1]
  if not rank then return nil, "no rank stands" end
  local answer, why = ask(self, rank, { op = "evaluate_at", text = a.expression, frame = frame and frame.frame })
  if not answer then return nil, why end
  return { result = answer.value, type = answer.type, variablesReference = answer.ref and number(self, { rank = rank, ref = answer.ref }) or 0 }
end

serve["continue"] = function(session)
  resume(session.client, "continue")
  return { allThreadsContinued = true }
end

local function lines(mode)
  return function(session)
    resume(session.client, "line", { mode = mode })
    return {}
  end
end
serve.next, serve.stepIn, serve.stepOut = lines "over", lines "in", lines "out"

function serve.pause(session)
  session.client.asked_pause = true
  if not session.client:agree() then return nil, "the ranks do not come to one step" end
  return {}
end

function serve.terminate(session)
  if session.process then pcall(session.process.signal, session.process, 15) end
  return {}, function() resume(session.client, "continue") end
end

function serve.disconnect(session, a)
  local ends = session.process and a.terminateDebuggee ~= false
  if ends then pcall(session.process.signal, session.process, 15) end
  if session.client then resume(session.client, "detach") end
  session.over = true
  return {}
end

-- ---- the loop ----

local NEEDS_CLIENT = { stackTrace = true, scopes = true, variables = true, evaluate = true, ["continue"] = true, next = true, stepIn = true,
  stepOut = true, pause = true, terminate = true }

local function on_request(session, q)
  local handler = serve[q.command]
  local body, after
  if not handler then after = ("no request '%s'"):format(tostring(q.command))
  elseif NEEDS_CLIENT[q.command] and not session.client then after = "nothing is attached"
  else
    local ok
    ok, body, after = pcall(handler, session, q.arguments or {})
    if not ok then body, after = nil, tostring(body) end
  end
  local response = { type = "response", request_seq = q.seq, command = q.command, success = body ~= nil }
  if body then response.body = body
  else response.message, response.body = tostring(after), { error = { id = 1, format = tostring(after) } } end
  send(response)
  if body and after then after() end
end

-- The launched script's new output.
local function pass_output(session)
  if not session.out then return end
  local file <close> = io.open(session.out, "rb")
  if not file then return end
  file:seek("set", session.passed)
  local text = file:read "a"
  if text == "" then return end
  session.passed = session.passed + #text
  output(text, "stdout")
end

local function check_end(session)
  local self = session.client
  local gone = self ~= nil
  for rank = 0, self and self.size - 1 or -1 do gone = gone and self.ranks[rank].dead end
  local how, status
  if session.ended then return end
  if session.process then -- its ranks end before it does
    how, status = session.process:wait(0)
    gone = how ~= nil
  end
  if not gone then return end
  session.ended = true
  pass_output(session)
  if how then event("exited", { exitCode = how == "exit" and status or 128 + (status or 0) }) end
  event "terminated"
end

local M = {}

function M.run()
  local session = { input = "", breaks = {}, last_stop = 0, passed = 0 }
  while not session.over do
    local self = session.client
    local what, i = accel.console.poll(self and self:channels() or {}, 0.1, true)
    if what == "input" then
      local bytes = accel.console.read_input()
      if not bytes then break end
      session.input = session.input .. bytes
      while not session.over do
        local message = next_message(session)
        if message == nil then break end
        if message == "bad" then
          io.stderr:write "accel-run dap: the input is not a message of the Debug Adapter Protocol\n"
          return false
        end
        if message.type == "request" then on_request(session, message) end
      end
    elseif what == "ready" then
      self:take(i - 1)
    end
    if session.client then session.client:tell_news() end
    pass_output(session)
    check_end(session)
  end
  if session.client and not session.over then session.client:go("detach", session.client:alive()) end
  if session.process and not session.ended then
    pcall(session.process.signal, session.process, 15)
    pcall(session.process.wait, session.process, 5)
  end
  if session.out then
    os.remove(session.out)
    os.remove(session.out:match "^(.*)/")
  end
  return true
end

return M
