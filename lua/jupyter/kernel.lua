-- A Jupyter kernel: the sockets and requests of a notebook, over ZeroMQ. The cells run in other processes (world.lua), so that the kernel
-- answers at any time. Started by stdlib/accel/cli/jupyter.lua.
--
-- Requests: execute complete inspect is_complete history kernel_info comm_info interrupt shutdown. A message that is malformed or not signed
-- with the key of the connection file is dropped, and the first of each kind is reported on standard error.
local accel = ...
local World = accel.host_chunk "jupyter/world"
local cells = accel.host_chunk "repl/cells"
local commands = accel.host_chunk "repl/commands"
local message = accel.host_chunk "jupyter/message"
local lfs = require "lfs"
local array = accel.json.array

local Kernel = {}
Kernel.__index = Kernel

local BREAKS <const> = "[^%s\"'`@$><=;|&{}()%[%]+%-*/%%^#~,!?]*" -- as the editor of a prompt divides words
local STREAM_BYTES <const>, TOGETHER <const> = 1 << 20, 0.01

-- ---- messages ----

--- Sends a message on a socket ("shell", "control", "iopub", "stdin").
function Kernel:send(socket, ids, kind, content, parent, metadata)
  self.sockets[socket]:send(message.pack(self.key, ids, { header = message.header(kind, self.session), parent = parent, metadata = metadata,
    content = content }))
end

function Kernel:publish(kind, content, metadata)
  if self.quiet and kind ~= "status" then return end
  self:send("iopub", { "kernel." .. kind }, kind, content, self.parent, metadata)
end

-- The next message of a socket. nil: none.
function Kernel:receive(socket)
  while true do
    local frames = self.sockets[socket]:receive()
    if not frames then return nil end
    local m, why = message.unpack(self.key, frames)
    if m and self.seen[m.signature] and self.key ~= "" then m, why = nil, "a message that was sent before" end
    if m then
      self.seen[m.signature] = true
      return m
    end
    if not self.told[why] then
      self.told[why] = true
      io.stderr:write(("accel-run jupyter: dropped %s\n"):format(why))
    end
  end
end

-- ---- output of cells ----

--- Text of a cell on "stdout" or "stderr". A character whose last bytes are still to come waits for them.
function Kernel:stream(name, text)
  text = (self.parts[name] or "") .. text
  self.parts[name] = nil
  local cut = text:match "()[\xC2-\xF4][\x80-\xBF]*$"
  local need = cut and (text:byte(cut) >= 0xF0 and 4 or text:byte(cut) >= 0xE0 and 3 or 2)
  if cut and #text - cut + 1 < need then
    self.parts[name] = text:sub(cut)
    text = text:sub(1, cut - 1)
  end
  if text ~= "" then self:publish("stream", { name = name, text = message.utf8(text) }) end
end

-- Reads a pipe that has something.
local function pass(self, pipe)
  local text = accel.console.read_input(pipe.fd)
  if text then return self:stream(pipe.name, text) end
  accel.console.close(pipe.fd)
  pipe.fd = nil
end

--- Passes everything on that the processes have written.
function Kernel:pass_output(world)
  local passed = 0
  repeat
    local any = false
    for _, pipe in ipairs(world.pipes) do
      if pipe.fd and self.zmq:wait({ pipe.fd }, 0)[1] then
        pass(self, pipe)
        any, passed = true, passed + 1
      end
    end
  until not any or passed > STREAM_BYTES >> 12
end

--- A value that a cell shows. Ranks that show the same are one.
function Kernel:display(world, rank, job, bundle)
  job.shown = job.shown or {}
  local key = accel.json.encode(bundle)
  if world.size > 1 then
    if job.shown[key] and job.shown[key] ~= rank then return end
    if not job.shown[key] and next(job.shown) then self:stream("stdout", ("[rank %d]\n"):format(rank)) end
    job.shown[key] = rank
  end
  self:publish("display_data", { data = bundle, metadata = {}, transient = {} }, {})
end

-- ---- questions of io.read ----

--- A rank asks for a line.
function Kernel:ask(world, rank, text)
  if not self.allow_stdin then return world:reply(rank, nil) end
  self.questions[#self.questions + 1] = { world = world, rank = rank, text = text }
  if #self.questions == 1 then self:put_question() end
end

function Kernel:put_question()
  self:send("stdin", self.ids, "input_request", { prompt = self.questions[1].text, password = false }, self.parent)
end

function Kernel:answered(m)
  local q = table.remove(self.questions, 1)
  if not q then return end
  q.world:reply(q.rank, tostring(m.content.value or ""))
  if self.questions[1] then self:put_question() end
end

-- ---- waiting ----

local function each_world(self)
  return coroutine.wrap(function()
    for _, name in ipairs { "one", "many" } do
      if self[name] then coroutine.yield(self[name], name) end
    end
  end)
end

--- Serves the sockets that never wait for a cell, and the processes, for at most so long. with_shell: returns once it has a message.
function Kernel:turn(seconds, with_shell)
  local list, whose = { self.sockets.control, self.sockets.hb, self.sockets.stdin }, { "control", "hb", "stdin" }
  local function add(thing, of)
    list[#list + 1], whose[#whose + 1] = thing, of
  end
  if with_shell then add(self.sockets.shell, "shell") end
  for world in each_world(self) do
    for _, pipe in ipairs(world.pipes) do
      if pipe.fd then add(pipe.fd, { pipe = pipe }) end
    end
    for rank = 0, world.size - 1 do
      local r = world.ranks[rank]
      if not r.dead then add(r.channel:fd(), { world = world, rank = rank }) end
    end
  end
  local ready, broken = self.zmq:wait(list, seconds)
  if broken then self:interrupt() end
  self:check_parent()
  for i, of in ipairs(whose) do
    if ready[i] and type(of) == "table" and of.pipe and of.pipe.fd then
      accel.console.poll({}, TOGETHER, false, true) -- writes of one line are one message
      pass(self, of.pipe)
    end
  end
  for i, of in ipairs(whose) do
    if ready[i] and type(of) == "table" and of.world then of.world:take(of.rank) end
  end
  if ready[2] then
    local frames = self.sockets.hb:receive()
    if frames then self.sockets.hb:send(frames) end
  end
  if ready[1] then self:serve "control" end
  local m = ready[3] and self:receive "stdin"
  if m and m.header.msg_type == "input_reply" then self:answered(m) end
  return with_shell and ready[4] == true
end

--- A kernel ends with the program that started it, and by SIGTERM. A cell is then stopped.
function Kernel:check_parent()
  local parent = self.parent_process
  if self.over or not accel.interrupted() and not (parent and parent > 1 and not lfs.attributes("/proc/" .. parent)) then return end
  self.over = true
  for world in each_world(self) do world:close() end
end

function Kernel:interrupt()
  self.questions = {}
  for world in each_world(self) do world:interrupt() end
end

-- ---- worlds ----

-- The process of ordinary cells.
function Kernel:world_of_one()
  if self.one and self.one:is_over() then
    self.one:close()
    self.one = nil
  end
  local why
  if not self.one then
    self.one, why = World.launch(self, 1)
    if not self.one then accel.process.raise("peer", "the process of the cells cannot be started: " .. why) end
  end
  return self.one
end

-- The ranks of %%ranks WORD. nil, why.
function Kernel:world_of_many(word)
  local n = math.tointeger(tonumber(word))
  local many = self.many
  if many and (many:is_over() or n and n ~= many.size or word == "stop") then
    many:close()
    self.many = nil
  end
  if word == "stop" then return nil end
  if word ~= "" and (not n or n < 1) then return nil, ("%%%%ranks %s: expected a number of ranks, or stop"):format(word) end
  if not self.many and not n then return nil, "%%ranks: there are no ranks; write their number, as in %%ranks 3" end
  if not self.many then
    local why
    self.many, why = World.launch(self, n)
    if not self.many then return nil, ("%%%%ranks %d: %s"):format(n, why) end
  end
  return self.many
end

--- The code of a cell and the word after its %%ranks. nil: it has none.
local function magic(code)
  local word, rest = code:match "^%s*%%%%ranks[ \t]*([^\n]-)%s*\n(.*)$"
  if not word then word, rest = code:match "^%s*%%%%ranks[ \t]*([^\n]-)%s*$", "" end
  if not word then return code end
  return "\n" .. rest, word -- lines keep their numbers
end

local function failed(text) return { name = "error", message = text, trace = { text } } end

-- Runs a cell: ok, result, failure, world.
function Kernel:run(code, name)
  local text, word = magic(code)
  if not word then
    local other = text:match "^%s*%%%%(%a+)"
    if other then return false, nil, failed(("%%%%%s: this kernel has %%%%ranks N only"):format(other)) end
    local one = self:world_of_one()
    return one:execute(text, name)
  end
  local world, why = self:world_of_many(word)
  if why then return false, nil, failed(why) end
  if not world then return true end
  return world:execute(text, name)
end

-- The world in which names of this code are looked up, and the code.
function Kernel:world_for(code)
  local text, word = magic(code)
  return word and self.many or self:world_of_one(), word and code:gsub("^[^\n]*\n", "\n", 1) or text
end

-- ---- requests ----

local serve = {}

local function bundle_of(result)
  local data = result.data or {}
  data["text/plain"] = data["text/plain"] or table.concat(result.lines, "\n")
  for kind, text in next, data do data[kind] = message.utf8(text) end
  return data
end

-- Expressions that a client wants with the reply, by name.
function Kernel:expressions(wanted)
  local out = {}
  for name, text in accel.pairs(type(wanted) == "table" and wanted or {}) do
    local world = self:world_of_one()
    local got = world:ask({ op = "cell", text = tostring(text), name = "stdin" }, 1, { 0 })
    local a = got and got[0]
    if a and a.ok then out[name] = { status = "ok", data = bundle_of(a), metadata = {} }
    else
      local why = a and a.message or "no answer"
      out[name] = { status = "error", ename = "error", evalue = message.utf8(why), traceback = array { message.utf8(why) } }
    end
  end
  return out
end

function serve.execute_request(self, m)
  local c = m.content
  local code = type(c.code) == "string" and c.code or ""
  local silent = c.silent == true
  local stored = not silent and c.store_history ~= false
  if stored then
    self.count = self.count + 1
    self.history[#self.history + 1] = { line = self.count, code = code }
  end
  self.quiet, self.allow_stdin, self.ids, self.questions, self.parts = silent, c.allow_stdin == true, m.ids, {}, {}
  self:publish("execute_input", { code = code, execution_count = self.count })
  local done, ok, result, failure = pcall(self.run, self, code, ("In[%d]"):format(self.count))
  if not done then ok, failure = false, failed(tostring(ok)) end
  local reply
  if ok then
    if result then self:publish("execute_result", { execution_count = self.count, data = bundle_of(result), metadata = {} }) end
    if self.history[#self.history] and stored and result then self.history[#self.history].output = table.concat(result.lines, "\n") end
    reply = { status = "ok", execution_count = self.count, payload = array {}, user_expressions = self:expressions(c.user_expressions) }
  else
    local trace = array {}
    for i, line in ipairs(#failure.trace > 0 and failure.trace or { failure.message }) do trace[i] = message.utf8(line) end
    reply = { ename = failure.name, evalue = message.utf8(failure.message), traceback = trace }
    self:publish("error", reply)
    reply = { status = "error", execution_count = self.count, ename = reply.ename, evalue = reply.evalue, traceback = trace }
  end
  self.quiet, self.allow_stdin = false, false
  if not ok and c.stop_on_error ~= false then -- what a client has sent already; later cells come from somebody who knows of the error
    for later in function() return self:receive "shell" end do
      later.aborted = later.header.msg_type == "execute_request"
      table.insert(self.waiting, later)
    end
  end
  return reply
end

-- The code before the cursor, and after it.
local function around(c)
  local code = type(c.code) == "string" and c.code or ""
  local n = math.tointeger(c.cursor_pos) or #code
  local at = utf8.len(code) and utf8.offset(code, math.max(0, math.min(n, utf8.len(code))) + 1) or #code + 1
  return code:sub(1, at - 1), code:sub(at)
end

function serve.complete_request(self, m)
  local before = around(m.content)
  local stop = utf8.len(before) or #before
  local world, text = self:world_for(before)
  text = text:gsub("%-%-[^\n]*\n", "\n") -- comments may have quotation marks
  local word = text:match("(" .. BREAKS .. ")$")
  local a = world:peek { op = "complete", text = text, word = word }
  return { status = "ok", matches = array(a and a.lines or {}), cursor_start = stop - #word, cursor_end = stop, metadata = {} }
end

function serve.inspect_request(self, m)
  local before, after = around(m.content)
  local world = self:world_for(before .. after)
  local name = before:match "[%w_.:]*$" .. after:match "^[%w_]*"
  if name == "" then name = before:match "([%w_.:]+)%s*[({][^()]*$" or "" end
  name = name:gsub("^[.:]+", ""):gsub("[.:]+$", "")
  local a = name ~= "" and world:peek { op = "kind", text = name }
  local lines = name ~= "" and commands.explanation(name, a and a.kind, a and a.own, 80) or nil
  local data = lines and { ["text/plain"] = message.utf8(table.concat(lines, "\n")) } or {}
  return { status = "ok", found = lines ~= nil, data = data, metadata = {} }
end

function serve.is_complete_request(_, m)
  local status, indent = cells.state((magic(tostring(m.content.code or ""))))
  return { status = status, indent = indent }
end

function serve.history_request(self, m)
  local c, list = m.content, array {}
  local kind, first, last = c.hist_access_type, 1, #self.history
  local n = math.tointeger(c.n) or 1000
  if kind == "tail" then first = math.max(1, last - n + 1)
  elseif kind == "range" then
    first, last = math.max(1, math.tointeger(c.start) or 1), math.min(last, (math.tointeger(c.stop) or last + 1) - 1)
  end
  local pattern = kind == "search" and tostring(c.pattern or "*"):gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0")
  pattern = pattern and "^" .. pattern:gsub("%*", ".*"):gsub("%?", ".") .. "$"
  for i = first, last do
    local entry = self.history[i]
    if not pattern or entry.code:find(pattern) then
      list[#list + 1] = array { 1, entry.line, c.output and array { entry.code, entry.output or accel.json.null } or entry.code }
    end
  end
  if pattern then
    while #list > n do table.remove(list, 1) end
  end
  return { status = "ok", history = list }
end

function serve.kernel_info_request()
  return { status = "ok", protocol_version = message.VERSION, implementation = "accel", implementation_version = accel._VERSION,
    banner = ("accel %s, Lua 5.4; %%%%ranks N runs a cell on N ranks, :help lists commands"):format(accel._VERSION),
    language_info = { name = "lua", version = "5.4", mimetype = "text/x-lua", file_extension = ".lua", pygments_lexer = "lua",
      codemirror_mode = "lua", nbconvert_exporter = "script" },
    help_links = array {} }
end

function serve.comm_info_request() return { status = "ok", comms = {} } end

-- Comms are of widgets, which this kernel lacks: an opened one is closed.
function serve.comm_open(self, m)
  if type(m.content.comm_id) == "string" then self:publish("comm_close", { comm_id = m.content.comm_id, data = {} }) end
end
function serve.comm_msg() end
function serve.comm_close() end

function serve.interrupt_request(self)
  self:interrupt()
  return { status = "ok" }
end

function serve.shutdown_request(self, m)
  self.over = true
  for world in each_world(self) do world:interrupt() end
  return { status = "ok", restart = m.content.restart == true }
end

--- Serves the messages of a socket that have arrived.
function Kernel:serve(socket)
  for m in function() return socket == "shell" and table.remove(self.waiting, 1) or self:receive(socket) end do
    local kind = m.header.msg_type
    local parent = self.parent
    self.parent = m.header
    self:publish("status", { execution_state = "busy" })
    local ok, reply
    if m.aborted then ok, reply = true, { status = "aborted", execution_count = self.count }
    elseif serve[kind] then ok, reply = pcall(serve[kind], self, m)
    else
      ok, reply = true, nil
      io.stderr:write(("accel-run jupyter: no request '%s'\n"):format(accel.console.visible(kind)))
    end
    if not ok then
      if type(reply) == "table" and reply.code == "interrupted" then error(reply, 0) end
      local why = message.utf8(tostring(reply))
      reply = { status = "error", ename = "error", evalue = why, traceback = array { why } }
    end
    if reply then self:send(socket, m.ids, kind:gsub("_request$", "_reply"), reply, m.header) end
    self:publish("status", { execution_state = "idle" })
    if parent and socket == "control" then self.parent = parent end -- a cell may run
    if self.over then return end
  end
end

-- ---- the start ----

--- A connection file: {transport, ip, shell_port, ..., key, signature_scheme}. nil, why.
local function read_connection(path)
  local file <close>, why = io.open(path, "rb")
  if not file then return nil, why end
  local ok, c = pcall(accel.json.decode, file:read "a")
  if not ok or type(c) ~= "table" then return nil, ("%s is not a JSON object"):format(path) end
  for _, name in ipairs { "shell", "control", "iopub", "stdin", "hb" } do
    if not math.tointeger(c[name .. "_port"]) then return nil, ("%s: %s_port is missing"):format(path, name) end
  end
  c.transport, c.ip, c.key = c.transport or "tcp", c.ip or "127.0.0.1", c.key or ""
  if c.transport ~= "tcp" and c.transport ~= "ipc" then
    return nil, ("%s: transport is %s; expected tcp or ipc"):format(path, tostring(c.transport))
  end
  if type(c.key) ~= "string" or c.key ~= "" and c.signature_scheme ~= "hmac-sha256" then
    return nil, ("%s: signature_scheme is %s; expected hmac-sha256"):format(path, tostring(c.signature_scheme))
  end
  return c
end

local M = { Kernel = Kernel }

--- Serves a notebook until it asks for an end. nil, why: the connection file is of no use, or its addresses are taken.
---@param path string
---@return boolean? ok
---@return string? why
function M.run(path)
  local c, why = read_connection(path)
  if not c then return nil, why end
  if c.key == "" then
    io.stderr:write(("accel-run jupyter: %s has no key: messages are not signed, and anyone who reaches its ports can run code\n"):format(path))
  end
  local _ <close> = accel.console.session() -- Ctrl-C interrupts cells
  local zmq <close> = accel.console.zmq()
  local self = setmetatable({ zmq = zmq, key = c.key, session = message.uuid(), sockets = {}, seen = {}, told = {}, parts = {}, questions = {},
    history = {}, count = 0, ids = {}, waiting = {}, parent_process = math.tointeger(tonumber(os.getenv "JPY_PARENT_PID")) }, Kernel)
  for name, kind in accel.pairs { shell = "router", control = "router", stdin = "router", iopub = "pub", hb = "rep" } do
    local port = math.tointeger(c[name .. "_port"])
    local address = c.transport == "tcp" and ("tcp://%s:%d"):format(c.ip, port) or ("ipc://%s-%d"):format(c.ip, port)
    local open, socket = pcall(zmq.open, zmq, kind, address)
    if not open then return nil, ("%s: %s"):format(path, (tostring(socket):gsub("^[^ ]*:%d+: ", ""))) end
    self.sockets[name] = socket
  end
  self:publish("status", { execution_state = "starting" })
  self:world_of_one()
  while not self.over do
    if self:turn(1, true) then self:serve "shell" end
  end
  for world in each_world(self) do world:close() end
  for _, socket in accel.pairs(self.sockets) do socket:close() end
  return true
end

return M
