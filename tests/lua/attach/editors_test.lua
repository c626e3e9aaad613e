-- examples/editors: each configuration of the VS Code extension works with accel-run dap as an editor would use it, its keys are those that
-- the adapter reads, and a key that nobody reads is reported.
local accel = require "accel"
local t = dofile((arg[0]:match "^.*/" or "") .. "support.lua")
local Client = dofile((arg[0]:match "^.*/" or "") .. "dap_client.lua")(t)
local folder = (os.getenv "ACCEL_TEST_SRC" or ".") .. "/examples/editors/"

local function read(path)
  local file <close> = assert(io.open(folder .. path, "rb"))
  return file:read "a"
end
local package_ = accel.json.decode(read "vscode/package.json")
local debugger = package_.contributes.debuggers[1]
local line = t.line_of "a:backward(loss)"

-- A configuration, with the editor's variables replaced and what it adds itself.
local function resolved(config)
  local out = { __sessionId = "1", preLaunchTask = "build", args = config.request == "launch" and accel.json.array { 60 } or nil }
  for key, value in accel.pairs(config) do
    if type(value) == "string" then value = value:gsub("%${file}", t.case):gsub("%${workspaceFolder}", t.tmp) end
    out[key] = value
  end
  return out
end

local function begin(c, config, breakpoints)
  c:ask("initialize", { adapterID = debugger.type })
  c:event "initialized"
  local _, good, why = c:ask(config.request, config)
  assert(good, why)
  c:ask("setBreakpoints", { source = { path = t.case }, breakpoints = breakpoints })
  assert(select(2, c:ask "configurationDone"))
end

local function finish(c)
  c:ask "disconnect"
  c.process:wait(20)
end

local function complaints(c)
  c:read()
  local out = {}
  for _, e in ipairs(c.events) do
    if e.event == "output" and e.body.output:find "has no effect" then out[#out + 1] = e.body.output end
  end
  return table.concat(out)
end

local tried = 0
for _, config in ipairs(debugger.initialConfigurations) do
  assert(config.type == debugger.type)
  local c, job = Client.new(), nil
  if config.request == "attach" then
    job = t.start(("'%s' 100000"):format(t.case))
    t.wait("the job", function() return t.run("ps", ""):find "job.lua" end)
  end
  begin(c, resolved(config), { { line = line } })
  for _ = 1, config.numProcesses or 1 do c:event "stopped" end
  assert(complaints(c) == "", complaints(c))
  finish(c)
  if job then
    job.process:signal(9)
    job.process:wait(10)
  end
  tried = tried + 1
end
assert(tried >= 3)

-- Every key that the extension offers has an effect. Keys that the adapter lacks are named, with what was probably meant.
for request, attributes in accel.pairs(debugger.configurationAttributes) do
  local c = Client.new()
  local config = { request = request, program = t.case, numProcess = 2, wxyz = 1, job = request == "attach" and "nothing of this name" or nil }
  for key in accel.pairs(attributes.properties) do
    if config[key] == nil then config[key] = ({ args = accel.json.array { 3 }, env = {}, cwd = t.tmp, hosts = "", rank = 0 })[key] end
  end
  config.program = request == "launch" and t.case or nil
  c:ask("initialize", {})
  c:ask(request, config)
  local text = t.wait("a complaint", function()
    local got = complaints(c)
    return got:find "wxyz" and got:find "numProcess" and got
  end)
  assert(select(2, text:gsub("has no effect", "")) == 2, text)
  assert(request ~= "launch" or text:find("'numProcess' has no effect; did you mean 'numProcesses'?", 1, true), text)
  finish(c)
end

do -- without debugging, as Ctrl-F5 runs a script: nothing stops, and the output and the status come
  local c = Client.new()
  begin(c, { request = "launch", program = t.case, args = accel.json.array { 3 }, noDebug = true }, { { line = line } })
  assert(c:event("output", function(body) return body.output:find "digest" end).category == "stdout")
  assert(c:event("exited").exitCode == 0)
  for _, e in ipairs(c.events) do assert(e.event ~= "stopped") end
  finish(c)
end

-- The extension and the other editors start the same program.
local code = read "vscode/extension.js"
assert(code:find("DebugAdapterExecutable(setting('program') || 'accel-run', ['dap'])", 1, true))
for _, file in ipairs { "nvim-dap.lua", "helix-languages.toml", "emacs-dape.el" } do
  local text = read(file)
  assert(text:find "accel%-run" and text:find '"dap"', file)
end
assert(load(read "nvim-dap.lua"))
print "editors: ok"
