-- A rank at a prompt that is another process (front.lua): executes the requests on its socket, one after the other, and
-- returns text. Requests and answers are tables by accel.encode. See front.lua for their fields.
local accel = ...
local Session = accel.host_chunk "repl/session"
local commands = accel.host_chunk "repl/commands"
local complete = accel.host_chunk "repl/complete"
local show = accel.host_chunk "repl/show"
local prompt = accel.host_chunk "repl/prompt"
local tensors = accel.host_chunk "repl/tensors"

local cells = accel.host_chunk "repl/cells"
local rich = accel.host_chunk "repl/rich"

local M = {}

-- ---- output of inputs ----

-- print and io.write go to the prompt, which shows equal output of all ranks once.
local function capture(send)
  local old = { print = print, write = io.write }
  rawset(_G, "print", function(...)
    local parts = table.pack(...)
    for i = 1, parts.n do parts[i] = tostring(parts[i]) end
    send(table.concat(parts, "\t") .. "\n")
  end)
  function io.write(...)
    if io.output() ~= io.stdout then return old.write(...) end
    local parts = table.pack(...)
    for i = 1, parts.n do
      if type(parts[i]) ~= "string" and type(parts[i]) ~= "number" then return old.write(...) end -- its error
    end
    send(table.concat(parts))
    return io.stdout
  end
  return function()
    rawset(_G, "print", old.print)
    io.write = old.write
  end
end

-- io.read asks the prompt, which asks its user. `ask() -> line or false`: nobody answers.
local function capture_reads(ask)
  local files = getmetatable(io.stdin).__index
  local old = { read = io.read, method = files.read }
  local function read(...)
    local results, formats = {}, table.pack(...)
    for i = 1, math.max(1, formats.n) do
      local format = tostring(formats[i] or "l"):gsub("^%*", ""):sub(1, 1)
      if format ~= "l" and format ~= "L" and format ~= "n" then
        accel.process.raise("unsupported", ("io.read: a notebook has no format '%s' for questions; use l, L or n"):format(tostring(formats[i])))
      end
      local line = ask()
      if not line then accel.process.raise("unsupported", "io.read: this notebook's program takes no answers; give the value in the cell") end
      if format == "n" then line = tonumber(line) elseif format == "L" then line = line .. "\n" end
      results[i] = line
    end
    return table.unpack(results, 1, math.max(1, formats.n))
  end
  function io.read(...)
    if io.input() == io.stdin then return read(...) end
    return old.read(...)
  end
  function files.read(file, ...)
    if file == io.stdin then return read(...) end
    return old.method(file, ...)
  end
  return function() io.read, files.read = old.read, old.method end
end

-- ---- tensors, for :diff and for telling answers apart ----

local function flat(t)
  return t:detach():to("cpu"):contiguous():view(-1)
end

local function digest_of(values)
  local parts = {}
  for i = 1, values.n do
    local t = values[i]
    if accel.is_tensor(t) and t.device ~= "meta" then
      local ok, digest = pcall(accel.no_grad, function() return accel.console.digest(flat(t)) end)
      parts[#parts + 1] = ok and digest or "?"
    end
  end
  return table.concat(parts, " ")
end

-- ---- requests ----

local handlers = {}
M.handlers = handlers

local function answer(r, lines)
  return { ok = r.ok, lines = lines, message = r.message, interrupted = r.interrupted }
end

function handlers.eval(session, q)
  local r = session:evaluate(q.text, q.line)
  if not r.ok then r.message = commands.with_hint(session, q.text, r.message) end
  if not r.ok then return answer(r, {}) end
  local nothing = show.is_nothing(r)
  local a = answer(r, nothing and {} or show.values(r, q.width))
  if not nothing then a.digest = digest_of(r) end
  return a
end

-- A cell of a notebook: its inputs in order, up to one that fails. The value is the last one's, with its other forms if they are wanted.
function handlers.cell(session, q)
  local r, shows
  session.name = q.name
  for _, input in ipairs(cells.inputs(q.text)) do
    r, shows = session:evaluate(input.text, input.line), input.shows
    if not r.ok then
      local a, code = answer(r, {}), type(r.value) == "table" and r.value.code
      a.message = r.message:gsub("^=?%[?string.-:", "stdin:")
      a.trace, a.code = r.deep and r.trace or a.message, type(code) == "string" and code or nil
      return a
    end
  end
  if not r or not shows or show.is_nothing(r) then return { ok = true, lines = {} } end
  local a = answer(r, show.values(r, q.width))
  a.digest = digest_of(r)
  if q.rich and r.n == 1 then a.data = rich.bundle(r[1], q.width) end
  return a
end

function handlers.command(session, q)
  local r = commands.run(session, q.name, q.rest, q.line, q.width)
  if not r then return { ok = false, lines = {}, message = commands.unknown(q.name, q.line, { "diff", "ranks", "continue" }) } end
  local digest = r.values and digest_of(r.values) or nil
  local at = session.frames and session.frames:selected()
  return { ok = r.ok, lines = r.ok and r.lines or {}, message = r.message, digest = digest,
    at = at and session.frames.place(at) or nil }
end

function handlers.reset()
  local next_group, why = accel.console.reset()
  return { ok = next_group ~= nil, lines = {}, message = why, next_group = next_group }
end

function handlers.resume(_, q)
  accel.console.resume(q.next_group)
  return { ok = true, lines = {} }
end

function handlers.kind(session, q)
  local kind, own = commands.kind(session, q.text)
  return { ok = true, lines = {}, kind = kind, own = own }
end

function handlers.complete(session, q)
  local words, help = complete.words(session, q.text, q.word, { "diff", "ranks", q.paused and "continue" or nil })
  return { ok = true, lines = words, help = help }
end

-- Parameters of the modules here and their gradients.
local function trained(session)
  local list = {}
  for _, item in ipairs(tensors.parameters(session)) do
    list[#list + 1] = item
    if item.tensor.grad then list[#list + 1] = { name = item.name .. ".grad", tensor = item.tensor.grad } end
  end
  return list
end

function handlers.tensors(session, q)
  local r = q.text ~= "" and session:evaluate("return " .. q.text, q.line) or { ok = true }
  if not r.ok then return answer(r, {}) end
  local list, told = q.text ~= "" and tensors.of(r[1]) or trained(session), {}
  for i, item in ipairs(list) do
    item.flat = accel.no_grad(flat, item.tensor)
    told[i] = { name = item.name, dtype = item.tensor.dtype, shape = { table.unpack(item.tensor.shape) },
      digest = accel.console.digest(item.flat) }
  end
  session.compared = list
  return { ok = true, lines = {}, tensors = told, kind = q.text == "" and "no module among the variables" or show.type(r[1]) }
end

function handlers.part(session, q)
  local item = session.compared and session.compared[q.index]
  if not item then return { ok = false, lines = {}, message = "nothing is compared" } end
  return { ok = true, lines = {}, part = item.flat:narrow(1, q.first, q.count):clone() }
end

-- For a notebook: io.read asks, accel.display shows, and a single process writes to pipes that the kernel reads.
local function capture_notebook(send, channel, alone)
  local uncapture = alone and function() end or capture(function(text) send { out = text } end)
  local unread = capture_reads(function()
    send { input = true }
    while true do
      local frame = channel:receive()
      if frame == false then return false end
      if frame then return accel.decode(frame).text end
      accel.console.poll({ channel })
    end
  end)
  accel.console.notebook = true
  M.display = function(bundle)
    io.stdout:flush()
    send { display = bundle }
  end
  return function()
    accel.console.notebook, M.display = nil, nil
    unread()
    uncapture()
  end
end

--- Serves until the prompt is gone ("gone") or decides how the script continues ("continue", "quit", ...). The deciding request is the
--- second result. hello: the first message to the prompt.
local function serve(channel, session, hello)
  local id = 0
  local function send(t)
    t.id = id
    local ok, bytes = pcall(accel.encode, t)
    if not ok then bytes = accel.encode { id = id, done = true, ok = false, lines = {}, message = tostring(bytes) } end
    return channel:send(bytes)
  end
  send(hello)
  M.serving = true
  local uncapture = hello.notebook and capture_notebook(send, channel, hello.ranks == 1) or capture(function(text) send { out = text } end)
  local function release()
    M.serving = false
    uncapture()
  end
  local restore <close> = setmetatable({}, { __close = release })
  while true do
    local frame = channel:receive()
    if frame == false then return "gone" end
    if not frame then
      accel.console.poll({ channel }) -- Ctrl-C is for ranks that are at something
    else
      local q = accel.decode(frame)
      if type(q) ~= "table" then return "gone" end
      if q.op == "end" then return q.how, q end
      id = q.id
      if q.op == "eval" or q.op == "command" or q.op == "cell" then accel.console.at(("%s:%d"):format(q.name or "stdin", q.line)) end
      local ok, a = pcall(handlers[q.op] or function() error("no request " .. tostring(q.op)) end, session, q)
      if not ok then
        if type(a) == "table" and a.code == "interrupted" then error(a, 0) end
        a = { ok = false, lines = {}, message = tostring(a) }
      end
      a.done = true
      accel.console.attach.tell_abort()
      io.stdout:flush()
      if not send(a) then return "gone" end
    end
  end
end

M.serve = serve

--- A rank of accel-run repl.
function M.run(place)
  local channel <close> = accel.console.channel(place.console)
  local session <close> = Session.new()
  prompt.predefine(session)
  serve(channel, session, { hello = true, rank = place.rank, ranks = place.ranks, threads = accel.num_threads() })
  return true
end

--- A process of a notebook's kernel (lua/jupyter/world.lua), which listens in the folder: alone, or a rank of several.
function M.cells(folder)
  require "accel"
  local place = accel.console.place() or { rank = 0, ranks = 1 }
  local channel <close> = assert(accel.console.connect(folder, "cells"))
  local session <close> = Session.new()
  prompt.predefine(session)
  io.stdout:setvbuf(place.ranks == 1 and "no" or "line")
  if place.rank == 0 then accel.console.prompting(true) end -- the launcher leaves Ctrl-C to the kernel
  local pid = require "lfs".symlinkattributes("/proc/self", "target")
  serve(channel, session, { hello = true, notebook = true, rank = place.rank, ranks = place.ranks, threads = accel.num_threads(),
    pid = math.tointeger(tonumber(pid)), segment = place.segment })
end

--- accel.repl() on several ranks: all of them come here, the first one opens the prompt. "quit": the script is to
--- end.
function M.pause(place, frames, text)
  local dist = require "accel.dist"
  if M.serving then accel.process.raise("state", "repl: this rank stands at a prompt already") end
  if not place or not place.console or (place.rank == 0 and #place.fronts == 0) then
    accel.process.raise("unsupported", ("repl: rank %d of %d has no line to a prompt: on several ranks accel.repl() "
      .. "needs accel-run --num-processes on one machine, with 64 ranks at most"):format(dist.get_rank(),
      dist.get_world_size()))
  end
  accel.console.meet()
  local channel = M.channel or accel.console.channel(place.console)
  M.channel = channel -- there may be a next time
  local session <close> = Session.new(frames)
  local front
  if place.rank == 0 then
    io.stdout:flush()
    accel.console.prompting(true)
    front = M.open_front(place)
  end
  local done <close> = setmetatable({}, { __close = function()
    if place.rank ~= 0 then return end
    accel.console.prompting(false)
    if front then front:close() end
  end })
  local at = frames and frames:selected()
  local how = serve(channel, session, { hello = true, rank = place.rank, ranks = place.ranks, paused = true,
    at = at and frames.place(at) or "?", lines = prompt.pause_lines(frames, text) })
  if front then front:wait(5) end -- it has the terminal until then
  return how == "quit" and "quit" or "continue"
end

function M.open_front(place)
  local program, where = accel.process.program()
  if not program then
    accel.process.raise("not_found", ("repl: accel-run, which is the prompt, is not at %s"):format(where))
  end
  local list, keep = {}, { place.segment }
  for i, fd in ipairs(place.fronts) do list[i], keep[i + 1] = ("%d"):format(fd), fd end
  local fds = ("segment=%d,front=%s"):format(place.segment, table.concat(list, ":"))
  return accel.process.spawn(program, { program, "repl:front", fds }, { ACCEL_WORLD = "none" }, keep)
end

return M
