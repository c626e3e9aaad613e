-- A debug adapter (Debug Adapter Protocol 1.6x, messages as headers and JSON over standard input and output): attaches to a job or launches
-- one, shows each rank as a thread, and passes an editor's requests to the ranks, as client.lua does for people.
--
-- Supported requests: initialize launch attach setBreakpoints setFunctionBreakpoints setExceptionBreakpoints configurationDone threads
-- continue next stepIn stepOut pause disconnect terminate, and those of dap_values.lua. dap_start.lua has launch and attach.
local accel = ...
local Client = accel.host_chunk("attach/client").Client
local places = accel.host_chunk "repl/places"
local array = accel.json.array

local Adapter = setmetatable({}, { __index = Client })
Adapter.__index = Adapter

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
      breakpoint = "breakpoint", ["an error"] = "exception", exception = "exception" }
    if why.reason == "entry" and not self.stop_on_entry then
      self:go("continue", { rank })
    else
      event("stopped", { reason = reasons[why.reason] or "breakpoint", threadId = rank + 1, allThreadsStopped = false,
        text = why.message or why.text, description = why.text, hitBreakpointIds = why.id and array { why.id } or nil })
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

local serve = {}

-- Objects that an editor refers to by a number: a frame or a value of a rank.
local function number(self, what)
  self.things[#self.things + 1] = what
  return #self.things
end

-- One rank's answer to a request. nil, reason.
local function ask(self, rank, request)
  local got, job = self:ask(request, 1, { rank })
  local a = got and got[rank]
  for _, line in ipairs(job.out[rank]) do output(line.text .. "\n", "stdout") end
  if not a then return nil, ("rank %d does not answer"):format(rank) end
  if not a.ok then return nil, a.message end
  return a
end

accel.host_chunk "attach/dap_values"(serve, { ask = ask, here = here, number = number })
accel.host_chunk "attach/dap_start"(serve, { Adapter = Adapter, event = event, output = output })

local function resume(self, how, more)
  self.things, self.asked_pause = {}, false
  local ranks = self:alive()
  self:go(how, ranks, more)
  return ranks
end

-- ---- requests ----

function serve.initialize()
  return { supportsConfigurationDoneRequest = true, supportsConditionalBreakpoints = true, supportsEvaluateForHovers = true,
    supportTerminateDebuggee = true, supportsTerminateRequest = true, supportsHitConditionalBreakpoints = true, supportsLogPoints = true,
    supportsFunctionBreakpoints = true, supportsSetVariable = true, supportsCompletionsRequest = true, supportsExceptionInfoRequest = true,
    supportsLoadedSourcesRequest = true, supportsReadMemoryRequest = true, exceptionBreakpointFilters = array {
      { filter = "uncaught", label = "Uncaught errors", default = true }, { filter = "all", label = "All errors" } } },
    function() event "initialized" end
end

-- The ranks' reports on breakpoints: not reached so far, or at another line.
local function tell_notes(self)
  for _, b in ipairs(self.breaks) do
    local note = self.notes[b.id] or {}
    local trouble = note.pending or note.never
    b.line = note.line or b.line
    local text = ("%s %s"):format(b.line or b.name, trouble or "")
    if self.told[b.id] ~= text and (trouble or note.line or self.told[b.id]) then
      event("breakpoint", { reason = "changed", breakpoint = { id = b.id, verified = trouble == nil, line = b.line, message = trouble } })
      self.told[b.id] = text
    end
  end
end

-- The list of breakpoints is another one: the ranks receive it, running ones at their next step.
local function changed(session, list, kept)
  session.breaks = kept
  local self = session.client
  if not self then return { breakpoints = list } end
  self.breaks = kept
  return { breakpoints = list }, function()
    self:stops_changed()
    tell_notes(self)
  end
end

-- A breakpoint of an editor, as ranks know it, and why it is none.
local function breakpoint_of(session, a, b)
  session.last_stop = session.last_stop + 1
  b.id, b.condition = session.last_stop, a.condition ~= "" and a.condition or nil
  b.hits, b.log = a.hitCondition ~= "" and a.hitCondition or nil, a.logMessage
  if b.condition then
    local f, why = load("return " .. b.condition, "=condition", "t")
    if not f then return nil, why end
  end
  if b.hits and (not b.hits:find "^%s*[<>=%%]*%s*%d+%s*$" or b.hits:find "^%s*%%%s*0+%s*$") then
    return nil, ("hit condition '%s' is not a number, as in 10, >= 10, %% 10"):format(b.hits)
  end
  return b
end

function serve.setBreakpoints(session, a)
  local file, kept, list = a.source and a.source.path or "", {}, array {}
  for _, b in ipairs(session.breaks) do
    if b.file ~= file then kept[#kept + 1] = b end
  end
  for _, wanted in ipairs(a.breakpoints or {}) do
    local b, why = breakpoint_of(session, wanted, { file = file, line = wanted.line })
    local ok, note = pcall(places.in_file, file, wanted.line)
    if b and ok then
      why = note.never
      b.line = note.line or b.line
    end
    if b and not why then kept[#kept + 1] = b end
    list[#list + 1] = { id = session.last_stop, verified = why == nil and ok, line = b and b.line or wanted.line,
      message = why or not ok and ("%s cannot be read so far"):format(file) or nil }
  end
  return changed(session, list, kept)
end

function serve.setFunctionBreakpoints(session, a)
  local kept, list = {}, array {}
  for _, b in ipairs(session.breaks) do
    if not b.name then kept[#kept + 1] = b end
  end
  for _, wanted in ipairs(a.breakpoints or {}) do
    local b, why = breakpoint_of(session, wanted, { name = tostring(wanted.name):match "[%w_]+$" })
    if b and not b.name then b, why = nil, "the name of a function is missing" end
    kept[#kept + 1] = b
    list[#list + 1] = { id = session.last_stop, verified = b ~= nil, message = why }
  end
  return changed(session, list, kept)
end

function serve.setExceptionBreakpoints(session, a)
  local list, mode = array {}, nil
  for _, filter in ipairs(a.filters or {}) do
    local known = filter == "uncaught" or filter == "all"
    if known and mode ~= "all" then mode = filter end
    list[#list + 1] = { verified = known,
      message = not known and ("no filter '%s'; there are uncaught and all"):format(tostring(filter)) or nil }
  end
  session.errors = mode
  local self = session.client
  if self then self.errors = mode end
  return { breakpoints = list }, self and function() self:stops_changed() end
end

function serve.configurationDone(session)
  session.configured = true
  return {}, session.ready
end

function serve.threads(session)
  local list = array {}
  local self = session.client
  local pages = self and self.pages:read()
  for rank = 0, (self and self.size or 1) - 1 do
    local page = self and self.ranks[rank].away and self:page_of(pages, rank)
    list[#list + 1] = { id = rank + 1, name = ("rank %d%s"):format(rank, page and page.waits
      and (" (waits in %s%s)"):format(page.waits, self.for_whom(page.missing)) or "") }
  end
  return { threads = list }
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
  return {}, function()
    if session.client then resume(session.client, "continue") end
  end
end

function serve.disconnect(session, a)
  local ends = session.process and a.terminateDebuggee ~= false
  if ends then pcall(session.process.signal, session.process, 15) end
  if session.client then resume(session.client, "detach") end
  session.over = true
  return {}
end

-- ---- the loop ----

local NEEDS_CLIENT = {}
for _, name in ipairs { "stackTrace", "scopes", "variables", "readMemory", "setVariable", "evaluate", "completions", "exceptionInfo", "loadedSources",
  "continue", "next", "stepIn", "stepOut", "pause" } do NEEDS_CLIENT[name] = true end

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
