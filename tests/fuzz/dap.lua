-- Fuzzing of the debug adapter: any bytes on the standard input of accel-run dap become answers of its protocol or end it with one line;
-- never a traceback, never a signal, never a wait. Messages are requests of every kind with odd arguments, cut and changed.
--   accel-run tests/fuzz/dap.lua SECONDS [SEED]
local accel = require "accel"

local seconds, seed = tonumber(arg[1] or 5), math.tointeger(tonumber(arg[2] or os.getenv "ACCEL_TEST_SEED" or os.time()))
math.randomseed(seed)
print("seed " .. seed)
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/dap-"))
local program = accel.process.program()
assert(os.execute(("mkdir -m 700 '%s/run'"):format(root)))

-- No launch: what it starts is its caller's to choose. No job is there to attach to.
local COMMANDS <const> = { "initialize", "attach", "setBreakpoints", "setExceptionBreakpoints", "configurationDone", "threads", "stackTrace",
  "scopes", "variables", "setVariable", "completions", "exceptionInfo", "loadedSources", "setFunctionBreakpoints", "evaluate", "continue",
  "next", "stepIn", "stepOut", "pause", "terminate", "disconnect", "", "nothing", "__index" }
local NAMES <const> = { "job", "rank", "source", "breakpoints", "path", "line", "condition", "threadId", "frameId", "variablesReference",
  "expression", "stopOnEntry", "terminateDebuggee",
  "hitCondition", "logMessage", "name", "value", "text", "column", "filters", "context" }
local ODD <const> = { 0, -1, 1, 2 ^ 53, 1e308, 0.5, "", "x", "\0", "\u{e9}", ("a"):rep(3000), "return 1", ")", true, false, "../..", "-1" }

local function pick(list) return list[math.random(#list)] end

local function odd(depth)
  if depth > 0 and math.random(4) == 1 then
    local out = {}
    for i = 1, math.random(0, 3) do out[math.random(2) == 1 and i or pick(NAMES)] = odd(depth - 1) end
    return out
  end
  return pick(ODD)
end

local function request()
  local arguments = {}
  for _ = 1, math.random(0, 4) do arguments[pick(NAMES)] = odd(3) end
  local message = { type = "request", seq = math.random(100), command = pick(COMMANDS), arguments = arguments }
  if math.random(6) == 1 then message[pick { "type", "seq", "command", "arguments" }] = odd(3) end
  local ok, text = pcall(accel.json.encode, message)
  if not ok then return request() end
  return ("Content-Length: %d\r\n\r\n%s"):format(#text, text)
end

local function change(text)
  local at, kind = math.random(0, #text), math.random(5)
  if kind == 1 then return text:sub(1, at) end
  if kind == 2 then return text:sub(1, at) .. string.char(math.random(0, 255)) .. text:sub(at + 2) end
  if kind == 3 then return (text:gsub("%d+", pick { "-5", "99999999999999999999", "0", "67108865", "1e9", "" }, 1)) end
  if kind == 4 then return text:sub(1, at) .. text:sub(at + math.random(10)) end
  return text:sub(1, at) .. pick { "\r\n\r\n", "{", "[[[[[[[[[[", "\0", "null", '"\\ud800"' } .. text:sub(at + 1)
end

local function write(name, text)
  local file <close> = assert(io.open(root .. "/" .. name, "wb"))
  file:write(text)
end
local function read(name)
  local file <close> = io.open(root .. "/" .. name, "rb")
  return file and file:read "a" or ""
end

local runs, messages, stop = 0, 0, accel.clock() + seconds
while accel.clock() < stop do
  local list = {}
  for i = 1, math.random(30) do list[i] = request() end
  messages = messages + #list
  local text = table.concat(list)
  if math.random(3) > 1 then
    for _ = 1, math.random(3) do text = change(text) end
  end
  write("in", text)
  local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", ("exec '%s' dap <'%s/in' >'%s/out' 2>'%s/err'"):format(program, root, root,
    root) }, { XDG_RUNTIME_DIR = root .. "/run", TMPDIR = root })
  local how, code = p:wait(60)
  local err = read "err"
  if how ~= "exit" or code > 1 or err:find "traceback" then
    write("crash-input", text)
    error(("seed %d, run %d: %s %s, kept in %s/crash-input:\n%s"):format(seed, runs, tostring(how), tostring(code), root, err), 0)
  end
  runs = runs + 1
end
print(("%d runs, %d messages"):format(runs, messages))
