-- A kernel of notebooks with a client in Lua, which speaks ZeroMQ itself: cells, output, errors, forged messages, ranks, an interrupt of a
-- loop that catches errors, the end of a process, and of the kernel. client_test.lua has Jupyter's own client.
local accel = require "accel"
local message = accel.host_chunk "jupyter/message"
local exe, tmp = accel.process.program(), os.getenv "ACCEL_TEST_TMP"

local ok, z = pcall(accel.console.zmq)
if not ok or not accel.features().libcrypto then
  print("skipped: " .. (ok and "libcrypto is not here" or tostring(z)))
  os.exit(77)
end

local KEY <const>, names <const> = "a key", { "shell", "control", "iopub", "stdin", "hb" }
-- addresses are files, relative to the test's folder, so that no port can be taken and no path is too long
assert(require "lfs".chdir(tmp))
local connection = { transport = "ipc", ip = "k", key = KEY, signature_scheme = "hmac-sha256" }
for i, name in ipairs(names) do connection[name .. "_port"] = i end
assert(accel.write_file("connection.json", accel.json.encode(connection)))
local kernel = accel.process.spawn("/bin/sh", { "sh", "-c", ("exec '%s' jupyter kernel connection.json 2>err"):format(exe) })

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local sockets = {}
for i, name in ipairs(names) do -- questions go to the one that sent the cell
  local kind = ({ iopub = "sub", hb = "req" })[name] or "dealer"
  sockets[name] = z:open(kind, "ipc://k-" .. i, (name == "shell" or name == "stdin") and "client" or "")
end

-- The next message of a socket.
local function receive(name, seconds)
  local limit = accel.clock() + (seconds or 60)
  repeat
    local frames = sockets[name]:receive()
    if frames then return assert(message.unpack(KEY, frames)) end
    assert(kernel.wait == nil or not kernel:wait(0), "the kernel has ended")
    z:wait({ sockets[name] }, 0.1)
  until accel.clock() > limit
end

local function send(name, kind, content)
  local m = { header = message.header(kind, "test"), content = content or {} }
  sockets[name]:send(message.pack(KEY, {}, m))
  return m.header.msg_id
end

-- A request and its reply; what was published for it, by kind. during: called when it is busy.
local function ask(kind, content, name, during)
  local id = send(name or "shell", kind, content)
  local published = {}
  local last
  repeat
    last = assert(receive "iopub", "no answer to " .. kind)
    if last.parent.msg_id == id then
      table.insert(published, last)
      if during and last.header.msg_type == "execute_input" then during() end
    end
  until last.header.msg_type == "status" and last.content.execution_state == "idle" and last.parent.msg_id == id
  local reply
  repeat reply = assert(receive(name or "shell")) until reply.parent.msg_id == id
  return reply.content, published, reply.header.msg_type
end

local function run(code, more, during)
  local content = { code = code, silent = false, store_history = true, user_expressions = {}, allow_stdin = false, stop_on_error = true }
  for k, v in pairs(more or {}) do content[k] = v end
  local reply, published = ask("execute_request", content, nil, during)
  local got = { stdout = "", stderr = "", kinds = {} }
  for _, m in ipairs(published) do
    local c = m.content
    table.insert(got.kinds, m.header.msg_type)
    if m.header.msg_type == "stream" then got[c.name] = got[c.name] .. c.text
    elseif m.header.msg_type == "execute_result" then got.result = c.data["text/plain"]
    elseif m.header.msg_type == "display_data" then got.display = c.data end
  end
  return reply, got
end

local function cell(...) return select(2, run(...)) end

-- the kernel is there once its publisher is
local limit = accel.clock() + 60
local info
repeat
  local id = send("shell", "kernel_info_request")
  local seen = receive("iopub", 0.5)
  repeat info = receive("shell", 10) until not info or info.parent.msg_id == id
until seen or accel.clock() > limit
assert(info and info.content.protocol_version == "5.3" and info.content.language_info.name == "lua")
while receive("iopub", 0.2) do end

sockets.hb:send { "ping" }
z:wait({ sockets.hb }, 30)
assert(sockets.hb:receive()[1] == "ping")

-- a cell: output in order, names that stay, the last value by the prompt's printer
local reply, got = run "local x = 20\nprint('a', 1) io.write 'b' io.write 'c\\n'\nx + 1"
assert(reply.status == "ok" and reply.execution_count == 1 and got.stdout == "a\t1\nbc\n" and got.result == "21", got.stdout)
assert(got.kinds[1] == "status" and got.kinds[2] == "execute_input" and got.kinds[#got.kinds] == "status")
reply, got = run "x * 2"
assert(got.result == "40" and reply.execution_count == 2)
got = cell "accel.arange(4):view(2, 2)"
assert(got.result:find("i64 (2, 2) cpu", 1, true) and got.result:find("[2, 3]", 1, true), got.result)
got = cell "io.stderr:write 'careful\\n' os.execute 'echo by a child'"
assert(got.stderr == "careful\n" and got.stdout == "by a child\n")
got = cell("print 'quiet' 5", { silent = true })
assert(got.stdout == "" and got.result == nil)
got = cell("return x", { user_expressions = { good = "x + 2", bad = "x.y.z" } })
reply = run("x = 21", { user_expressions = { good = "x + 2", bad = "x.y.z" } })
assert(reply.user_expressions.good.data["text/plain"] == "23" and reply.user_expressions.bad.status == "error" and reply.execution_count == 6)

-- errors, with the cell's lines; cells that were sent before are aborted, later ones run
local later
reply, got = run("\nlocal function f() error 'deep' end\nf()", nil, function()
  later = send("shell", "execute_request", { code = "print 'never'", user_expressions = {} })
end)
assert(reply.status == "error" and reply.evalue == "In[7]:2: deep" and table.concat(reply.traceback, "\n"):find("In[7]:3: in main chunk", 1, true))
local aborted
repeat aborted = receive "shell" until aborted.parent.msg_id == later
assert(aborted.content.status == "aborted" or aborted.content.status == "ok") -- the message may come after the error
reply, got = run "print 'after'"
assert(reply.status == "ok" and got.stdout == "after\n")
reply = run "1 +"
assert(reply.status == "error" and reply.evalue:find "^In%[%d+%]:%d: unexpected symbol", reply.evalue)

-- forged messages are dropped, malformed ones change nothing
local forged = { header = message.header("execute_request", "test"), content = { code = "forged = true" } }
sockets.shell:send(message.pack("another key", {}, forged))
sockets.shell:send(message.pack("", {}, forged))
local replayed = message.pack(KEY, {}, { header = message.header("execute_request", "test"),
  content = { code = "count = (rawget(_G, 'count') or 0) + 1" } })
for _ = 1, 3 do sockets.shell:send(replayed) end
sockets.shell:send { "", "<IDS|MSG>" }
sockets.control:send { "\0\1\2", "x" }
sockets.stdin:send { ("x"):rep(100000) }
for _, content in ipairs { "code", "cursor_pos", "hist_access_type", "comm_id", "user_expressions", "pattern" } do
  for _, kind in ipairs { "execute_request", "complete_request", "inspect_request", "history_request", "comm_open", "is_complete_request",
    "what" } do
    send("shell", kind, { [content] = accel.json.array { 1 } })
    send("shell", kind, { [content] = -3 })
  end
end
got = cell "rawget(_G, 'forged'), count"
assert(got.result == "nil  1", got.result)
local err = read "err"
assert(err:find "dropped a message with a wrong signature" and err:find "without a signature" and err:find "sent before", err)

-- the prompt's own completion, help and commands
reply = ask("complete_request", { code = "local y = accel.arang", cursor_pos = 21 })
assert(reply.matches[1] == "accel.arange" and reply.cursor_start == 10 and reply.cursor_end == 21)
reply = ask("complete_request", { code = "print '\u{e9}'\nstring.re", cursor_pos = 19 })
assert(reply.matches[1] == "string.rep" and reply.cursor_start == 10, accel.inspect(reply))
reply = ask("inspect_request", { code = "x", cursor_pos = 1, detail_level = 0 })
assert(reply.found and reply.data["text/plain"] == "x: integer", accel.inspect(reply))
assert(ask("is_complete_request", { code = "if x then" }).status == "incomplete")
reply = ask("history_request", { hist_access_type = "search", pattern = "*stderr*", n = 5 })
assert(#reply.history == 1 and reply.history[1][3]:find "careful")
got = cell "%time x"
assert(got.result:find "^21\n", got.result)
reply = run ":quit"
assert(reply.status == "error" and reply.evalue:find "menu")
assert(next(ask("comm_info_request").comms) == nil)

-- values in other forms, progress that redraws a line, and questions
got = cell "accel.display({ { a = 1, b = 'x<y' }, { a = 2.5 } })"
assert(got.display["text/html"]:find("<td>x&lt;y</td>", 1, true) and got.display["text/html"]:find("<td>2.5</td>", 1, true))
got = cell "accel.display({ 1, 4, 9 }, { as = 'plot' })"
assert(got.display["image/svg+xml"]:find "^<svg" and got.display["text/plain"]:find "9")
got = cell "accel.display(accel.zeros(2, 3), { as = 'image' })"
assert(got.display["image/png"]:find "^iVBORw0KGgo")
got = cell "local bar = accel.util.Progress { label = 'fit' }\nbar:update(0.5, 5) bar:update(1, 10) bar:finish()"
assert(got.stderr:find "\rfit  50%%" and got.stderr:find "\rfit 100%%[^\r]*\n", got.stderr)
reply = run "io.read()"
assert(reply.evalue:find "takes no answers", reply.evalue)
got = cell("local name, n = io.read('l', 'n')\nname .. n + 1", { allow_stdin = true }, function()
  for _, answer in ipairs { "you", "6" } do
    assert(receive "stdin".header.msg_type == "input_request")
    send("stdin", "input_reply", { value = answer })
  end
end)
assert(got.result == '"you7"', got.result)

-- an interrupt leaves a loop that catches every error, and names stay
local began
reply, got = run("while true do pcall(function() while true do end end) end", nil, function()
  began = accel.clock()
  assert(ask("interrupt_request", {}, "control").status == "ok")
end)
assert(reply.status == "error" and reply.ename == "interrupted" and accel.clock() - began < 30)
got = cell "x"
assert(got.result == "21")

-- live ranks: output and values by rank, names that stay, errors, commands of the prompt
reply, got = run "%%ranks 3\nlocal r = dist.get_rank()\nprint 'all of them'\nlocal s = accel.tensor { 1.0 * r }\ndist.all_reduce(s)\ns:item() + r"
assert(reply.status == "ok" and got.stdout == "all of them\n", got.stdout)
assert(got.result == "[rank 0] 3\n[rank 1] 4\n[rank 2] 5", got.result)
got = cell "%%ranks\nprint(r)"
assert(got.stdout == "[rank 0] 0\n[rank 1] 1\n[rank 2] 2\n", got.stdout)
got = cell "%%ranks\n@1 r"
assert(got.result == "[rank 1] 1", got.result)
reply = run "%%ranks\nif r == 1 then error 'no' end"
assert(reply.status == "error" and table.concat(reply.traceback, "\n"):find("[rank 1] In[", 1, true), table.concat(reply.traceback, "\n"))
reply, got = run("%%ranks\nif r > 0 then dist.barrier() end", nil, function()
  accel.console.poll({}, 0.2)
  ask("interrupt_request", {}, "control")
end)
assert(reply.status == "error" and reply.evalue:find "interrupted")
got = cell "%%ranks\ndist.barrier()\nr"
assert(got.result == "[rank 0] 0\n[rank 1] 1\n[rank 2] 2", got.result)
got = cell "x" -- the ordinary cells' process is another one
assert(got.result == "21")
reply = run "%%ranks\nif r == 1 then os.exit(3) end\ndist.barrier()"
assert(reply.status == "error")
reply = run "%%ranks nine"
assert(reply.status == "error" and reply.evalue:find "expected a number of ranks")
reply, got = run "%%ranks 2\nrawget(_G, 'r')"
assert(reply.status == "ok")
assert(run "%%ranks stop".status == "ok")
reply = run "%%ranks\n1"
assert(reply.status == "error" and reply.evalue:find "there are no ranks")

-- a process that dies is named, and another one takes its place
reply = run "os.exit(4)"
assert(reply.status == "error" and reply.evalue:find "exited with status 4", reply.evalue)
got = cell "rawget(_G, 'x')"
assert(got.result == nil)
got = cell "1"
assert(got.result == "1")

reply = ask("shutdown_request", { restart = false }, "control")
assert(reply.status == "ok" and reply.restart == false)
local how, status = kernel:wait(30)
assert(how == "exit" and status == 0, read "err")

-- wrong connection files
local function refused(text, why)
  assert(accel.write_file("bad.json", text))
  local pipe = assert(io.popen(("'%s' jupyter kernel bad.json 2>&1"):format(exe)))
  local out = pipe:read "a"
  assert(not pipe:close() and out:find(why, 1, true), out)
end
refused("{", "not a JSON object")
refused("{}", "shell_port is missing")
connection.signature_scheme = "hmac-md5"
refused(accel.json.encode(connection), "signature_scheme is hmac-md5; expected hmac-sha256")
connection.signature_scheme, connection.transport = "hmac-sha256", "udp"
refused(accel.json.encode(connection), "transport is udp")
connection.transport, connection.ip = "ipc", "nowhere/k"
refused(accel.json.encode(connection), "jupyter kernel: bad.json: ZeroMQ: cannot listen at ipc://nowhere/k-")
connection.key = ""
refused(accel.json.encode(connection), "bad.json has no key: messages are not signed")
print "a kernel of notebooks: right"
