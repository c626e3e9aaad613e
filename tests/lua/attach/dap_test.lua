-- accel-run dap with a client that speaks the Debug Adapter Protocol as editors do: a script that it launches on two ranks, breakpoints, stacks,
-- scopes, tensors that open, evaluation, steps of lines, and attaching to a job that trains already.
local accel = require "accel"
local t = dofile((arg[0]:match "^.*/" or "") .. "support.lua")
local Client = dofile((arg[0]:match "^.*/" or "") .. "dap_client.lua")(t)

local function by_name(list, name)
  for _, x in ipairs(list) do
    if x.name == name then return x end
  end
  error(("no '%s' in %s"):format(name, accel.json.encode(list)))
end

local function line_of(part)
  local k = 0
  for line in io.lines(t.case) do
    k = k + 1
    if line:find(part, 1, true) then return k end
  end
end

-- ---- a launch on two ranks ----
local c = Client.new()
local caps = c:ask("initialize", { adapterID = "accel", linesStartAt1 = true })
assert(caps.supportsConfigurationDoneRequest and caps.supportsConditionalBreakpoints)
c:event "initialized"
local _, good, why = c:ask("launch", {})
assert(not good and why:find "program")
assert(select(2, c:ask("launch", { program = t.case, args = { 60 }, numProcesses = 2 })))
local breaks = c:ask("setBreakpoints", { source = { path = t.case }, breakpoints = {
  { line = line_of "a:backward(loss)", condition = "i == 3" }, { line = 1, condition = "i ==" } } }).breakpoints
assert(breaks[1].verified and not breaks[2].verified and breaks[2].message, accel.json.encode(breaks))
assert(select(2, c:ask "configurationDone"))
for thread = 1, 2 do
  local stopped = c:event("stopped", function(body) return body.threadId == thread end)
  assert(stopped.reason == "breakpoint" and stopped.hitBreakpointIds[1] == breaks[1].id, accel.json.encode(stopped))
end
local threads = c:ask("threads").threads
assert(#threads == 2 and threads[2].name == "rank 1")
local frames = c:ask("stackTrace", { threadId = 2 }).stackFrames
assert(frames[1].name == "step" and frames[1].line == line_of "a:backward(loss)" and frames[1].source.path == t.case, accel.json.encode(frames))
assert(frames[#frames].name == "main chunk")
local scopes = c:ask("scopes", { frameId = frames[1].id }).scopes
local locals = c:ask("variables", { variablesReference = by_name(scopes, "Locals").variablesReference }).variables
assert(by_name(locals, "i").value == "3")
local loss = by_name(locals, "loss")
assert(loss.type == "tensor" and loss.variablesReference > 0)
local x = by_name(locals, "x")
local parts = c:ask("variables", { variablesReference = x.variablesReference }).variables
assert(by_name(parts, "dtype").value:find "f32" and by_name(parts, "finite").value == "true")
local shape = c:ask("variables", { variablesReference = by_name(parts, "shape").variablesReference }).variables
do -- its bytes, from the middle of an element to past the end
  local base64 = require "accel.util.base64"
  local whole = base64.decode(c:ask("readMemory", { memoryReference = x.memoryReference, count = 4 * 32 }).data)
  assert(#whole == 4 * 32 and loss.memoryReference)
  local first = accel.from_bytes(whole, "f32", { 4, 8 })
  assert(math.abs(first:mean():item() - tonumber(by_name(parts, "mean").value)) < 1e-6)
  local part = c:ask("readMemory", { memoryReference = x.memoryReference, offset = 6, count = 4 * 32 })
  assert(base64.decode(part.data) == whole:sub(7) and part.unreadableBytes == 6 and part.address == "0x6")
  _, good, why = c:ask("readMemory", { memoryReference = "9999", count = 4 })
  assert(not good and why:find "not shown")
end
assert(shape[1].value == "4" and shape[2].value == "8")
local upvalues = c:ask("variables", { variablesReference = by_name(scopes, "Upvalues").variablesReference }).variables
assert(by_name(upvalues, "rank").value == "1")
assert(c:ask("evaluate", { expression = "x:sum():item() == x:sum():item() and rank * 10", frameId = frames[1].id }).result == "10")
_, good, why = c:ask("evaluate", { expression = "nothing_at_all.x", frameId = frames[1].id })
assert(not good and why:find "nothing_at_all")
assert(select(2, c:ask("setBreakpoints", { source = { path = t.case }, breakpoints = accel.json.array {} })))
c:ask("next", { threadId = 1 })
c:event("stopped", function(body) return body.threadId == 1 and body.reason == "step" end)
c:event("stopped", function(body) return body.threadId == 2 and body.reason == "step" end)
assert(c:ask("stackTrace", { threadId = 1 }).stackFrames[1].line == line_of 'if mode == "breakpoint"')
c:ask("stepOut", { threadId = 1 })
for thread = 1, 2 do c:event("stopped", function(body) return body.threadId == thread end) end
assert(c:ask("stackTrace", { threadId = 1 }).stackFrames[1].name == "main chunk")
_, good = c:ask "no_such_request"
assert(not good)
c:ask("continue", { threadId = 1 })
assert(c:event("output", function(body) return body.output:find "digest" end).category == "stdout")
assert(c:event("exited").exitCode == 0)
c:event "terminated"
c:ask "disconnect"
local how, status = c.process:wait(20)
assert(how == "exit" and status == 0, t.read(c.err))

-- ---- what editors rely on: values that are set, completions, the console, functions, hits, log points, errors of one of two ranks ----
do
  local path = t.tmp .. "/editor.lua"
  local file <close> = assert(io.open(path, "w"))
  file:write [[
local accel = require "accel"
local rank = accel.dist.get_rank()
local settings = { scale = 2 }
local function product(a, b)
  local both = a * settings.scale

  return both + b
end
local total = 0
for i = 1, 20 do
  total = total + product(i, 1)
end
print("total", total)
pcall(error, "caught")
if rank == 1 then accel.ones(2):add(accel.ones(3)) end
accel.dist.all_reduce(accel.ones(2))
]]
  file:close()
  local d = Client.new()
  local able = d:ask("initialize", { adapterID = "accel" })
  for _, what in ipairs { "HitConditionalBreakpoints", "LogPoints", "FunctionBreakpoints", "SetVariable", "CompletionsRequest",
    "ExceptionInfoRequest", "LoadedSourcesRequest" } do assert(able["supports" .. what], what) end
  assert(able.exceptionBreakpointFilters[2].filter == "all")
  d:event "initialized"
  assert(select(2, d:ask("launch", { program = path, numProcesses = 2 })))
  local list = d:ask("setBreakpoints", { source = { path = path }, breakpoints = { { line = 6, hitCondition = "% 4" }, { line = 99 },
    { line = 11, hitCondition = "often" }, { line = 13, logMessage = "total is {total} of {nobody}" } } }).breakpoints
  assert(list[1].verified and list[1].line == 7, accel.json.encode(list))
  assert(not list[2].verified and list[2].message:find "has 16 lines" and not list[3].verified and list[3].message:find "often")
  local filters = d:ask("setExceptionBreakpoints", { filters = { "uncaught", "some" } }).breakpoints
  assert(filters[1].verified and not filters[2].verified)
  assert(select(2, d:ask "configurationDone"))
  local function stopped(thread, reason)
    local body = d:event("stopped", function(body) return body.threadId == thread end)
    assert(body.reason == reason, accel.json.encode(body))
    return body
  end
  for thread = 1, 2 do stopped(thread, "breakpoint") end
  local all = d:ask("stackTrace", { threadId = 2, startFrame = 0, levels = 1 })
  assert(#all.stackFrames == 1 and all.totalFrames == 2 and all.stackFrames[1].line == 7)
  local frame = all.stackFrames[1].id
  local where = d:ask("scopes", { frameId = frame }).scopes
  local here_, above = by_name(where, "Locals").variablesReference, by_name(where, "Upvalues").variablesReference
  assert(by_name(d:ask("variables", { variablesReference = here_ }).variables, "a").value == "4")
  assert(d:ask("setVariable", { variablesReference = here_, name = "both", value = "a * 100" }).value == "400")
  assert(d:ask("evaluate", { expression = "both", frameId = frame, context = "watch" }).result == "400")
  local inner = by_name(d:ask("variables", { variablesReference = above }).variables, "settings").variablesReference
  assert(d:ask("setVariable", { variablesReference = inner, name = "scale", value = "3" }).value == "3")
  assert(d:ask("evaluate", { expression = "settings.scale", frameId = frame, context = "hover" }).result == "3")
  local _, fine, reason = d:ask("setVariable", { variablesReference = here_, name = "nobody", value = "1" })
  assert(not fine and reason:find "no variable 'nobody'", reason)
  assert(d:ask("completions", { text = "x = bo", column = 7, frameId = frame }).targets[1].label == "both")
  local said, good_, why_ = d:ask("evaluate", { expression = ":stats require 'accel'.ones(4)", frameId = frame, context = "repl" })
  assert(good_ and said.result:find "4 values, 0 NaN", why_)
  local values = d:ask("evaluate", { expression = "require 'accel'.ones(3, 2)", frameId = frame, context = "watch" }).variablesReference
  local part = by_name(d:ask("variables", { variablesReference = values }).variables, "[2]")
  assert(by_name(d:ask("variables", { variablesReference = part.variablesReference }).variables, "[1]").value == "1")
  d:ask("evaluate", { expression = "print('from the console')", frameId = frame, context = "repl" })
  d:event("output", function(body) return body.output:find "from the console" end)
  local known = d:ask("loadedSources").sources
  assert(by_name(known, "editor.lua").path == path)
  assert(d:ask("setFunctionBreakpoints", { breakpoints = { { name = "product", condition = "a == 6" } } }).breakpoints[1].verified)
  d:ask("continue", { threadId = 1 })
  for thread = 1, 2 do stopped(thread, "breakpoint") end
  assert(d:ask("evaluate", { expression = "a", frameId = d:ask("stackTrace", { threadId = 1 }).stackFrames[1].id }).result == "6")
  d:ask("setFunctionBreakpoints", { breakpoints = accel.json.array {} })
  d:ask("setBreakpoints", { source = { path = path }, breakpoints = { { line = 13, logMessage = "total is {total} of {nobody}" } } })
  d:ask("setExceptionBreakpoints", { filters = { "all" } })
  d:ask("continue", { threadId = 1 })
  for thread = 1, 2 do stopped(thread, "exception") end -- the caught one
  assert(d:ask("exceptionInfo", { threadId = 1 }).breakMode == "always")
  d:event("output", function(body) return body.output:find "total is %d+ of {nobody: 'nobody' is not defined here}" end)
  d:ask("continue", { threadId = 1 })
  local failed = stopped(2, "exception")
  assert(failed.text:find "editor.lua:15: add: shapes", failed.text)
  local info = d:ask("exceptionInfo", { threadId = 2 })
  assert(info.breakMode == "unhandled" and info.description:find "add: shapes")
  t.wait("a thread that waits", function() return d:ask("threads").threads[1].name:find "waits in all_reduce" end)
  d:ask("continue", { threadId = 2 })
  assert(d:event("exited").exitCode == 1)
  d:ask "disconnect"
  d.process:wait(20)
end

-- ---- attaching to a job, a pause, a breakpoint that is set while it trains ----
local job = t.start(("--num-processes 2 '%s' 1000000 slow"):format(t.case))
local row = t.running(2, 5)
c = Client.new()
c:ask "initialize"
_, good, why = c:ask("attach", { job = "nowhere" })
assert(not good and why:find "no job 'nowhere'")
assert(select(2, c:ask("attach", { job = row.id })))
c:ask "configurationDone"
assert(c:event("stopped", function(body) return body.threadId == 1 end).reason == "pause")
c:event("stopped", function(body) return body.threadId == 2 end)
c:ask("continue", { threadId = 1 })
assert(c:ask("setBreakpoints", { source = { path = t.case }, breakpoints = { { line = line_of "opt:zero_grad()", condition = "rank == 1" } } }))
assert(c:event("stopped", function(body) return body.reason == "breakpoint" end).threadId == 2)
_, good, why = c:ask("stackTrace", { threadId = 1 })
assert(not good and why:find "rank 0 runs")
c.pipe:close() -- the editor is gone
how, status = c.process:wait(20)
assert(how == "exit" and status == 0, t.read(c.err))
local step = t.ps()[1].step
t.wait("steps after the editor", function() return t.ps()[1].step > step + 5 end)
t.kill(job)

-- ---- what is not a message of the protocol ----
c = Client.new()
c.pipe:write "GET / HTTP/1.1\r\n\r\n"
c.pipe:close()
how, status = c.process:wait(20)
assert(how == "exit" and status == 1)
assert(t.read(c.err):find "not a message of the Debug Adapter Protocol")
