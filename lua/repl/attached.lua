-- A rank stops at a step, at a breakpoint or after an error, with a prompt: of a client of `accel-run attach` (lua/attach/client.lua), else
-- in this process (console.lua). Called by accel.step() (bindings/attach/lac_attach.c) on a client's request, by accel.breakpoint(), by the hook of
-- stops.lua, and by the host after an error with --pdb.
--
-- A client's requests are server.lua's, and: { op = "breaks", list = { { id, file, line, condition }, ... } }, { op = "watches", list =
-- { { id, text }, ... } }, { op = "undo" }, { op = "stack" }, { op = "variables", ... } (variables.lua), and { op = "end", how =
-- "continue" | "step" | "line" | "detach" | "quit", count, mode, line }.
local accel = ...
local Frames = accel.host_chunk "repl/frames"
local Session = accel.host_chunk "repl/session"
local server = accel.host_chunk "repl/server"
local stops = accel.host_chunk "repl/stops"
local variables = accel.host_chunk "repl/variables"
local opening = accel.host_chunk "repl/opening"
local attach = accel.console.attach

local M = {}

local PATIENCE <const> = 5 -- seconds for which a client may leave data unread. Then it counts as gone, and the script continues

-- ---- the position ----

-- Nothing that a client asked for holds any more.
local function forget()
  stops.forget()
  if M.channel then M.channel:close() end
  M.channel = nil
  opening.closed()
end

-- The prompt of the connected client, until it lets the script continue: how, and the deciding request. nil: there is no client.
local function serve(why, frames)
  if not attach.job() then return nil end
  local there, fd = attach.stand()
  if not there then return nil end
  if fd then -- the client before this one is gone
    stops.forget()
    if M.channel then M.channel:close() end
    M.channel = accel.console.channel(fd)
    M.channel:patience(PATIENCE)
  end
  if not M.channel or #frames.list == 0 then
    attach.go(M.channel ~= nil)
    return M.channel and "continue" or nil
  end
  local at, place = frames:selected(), accel.console.place() or { rank = 0, ranks = 1 }
  -- in a coroutine: while a line hook runs, hooks are off in its own thread, and Ctrl-C at the prompt is one
  local run = coroutine.create(function()
    local session <close> = Session.new(frames, M.names)
    local _ <close> = setmetatable({}, { __close = function() attach.interruptible(false) end }) -- before the session ends
    attach.interruptible(true)
    return server.serve(M.channel, session, { hello = true, rank = place.rank, ranks = place.ranks, paused = true, at = frames.place(at),
      why = why, step = accel.step_count(), pid = accel.process.pid and accel.process.pid() or nil,
      source = accel.host_chunk "repl/source".line(at) })
  end)
  local ok, how, request = coroutine.resume(run)
  if not ok then coroutine.close(run) end
  local stays = ok and how ~= "gone" and how ~= "detach" and how ~= "quit"
  if not stays then forget() end
  attach.go(stays)
  if not ok then error(how, 0) end
  return how, request
end

-- The prompt in this process, if it was opened. The same results.
local function ask(why, frames)
  local console = M.console
  if not console or #frames.list == 0 then return nil end
  attach.console(true)
  for name, value in next, M.names or {} do console.state.kept[name] = value end
  local run = coroutine.create(console.run)
  local ok, how, request = coroutine.resume(run, console, why, frames)
  if not ok then coroutine.close(run) end
  if not ok then error(how, 0) end
  return how, request
end

--- Stops with a prompt, until it lets the script continue. Without one nothing happens. level: of the selected function, as the caller
--- counts. why: {reason, text} for people and adapters.
---@return boolean stood
function M.stand(why, level)
  if M.standing then return false end -- code of the prompt does not stop in turn
  local frames = Frames.capture(level + 1)
  if #frames.list > 0 then
    if why.own ~= false then frames:select_own() end
    accel.console.at(frames.place(frames:selected()))
  end
  local at = frames:selected()
  stops.stepping = nil
  M.standing = true
  attach.prompt(true)
  accel.console.look.quiet(true) -- ops of the prompt are not the script's
  local done <close> = setmetatable({}, { __close = function()
    accel.console.look.quiet(false)
    M.standing = false
    attach.prompt(false)
  end })
  local how, request = serve(why, frames)
  if not how then how, request = ask(why, frames) end
  if not how then return false end
  if how == "quit" and why.reason ~= "an error" then os.exit(0) end
  if how == "detach" then
    stops.forget()
    attach.console(false) -- Ctrl-C ends the script
  end
  if how == "step" then stops.after_steps(math.max(1, request.count or 1)) end
  if how == "line" then stops.step_lines(request, at) end
  stops.hook()
  return true
end
stops.stand = M.stand

--- After a step: pause, a client has requested it here. gone, the client of this prompt is gone.
function M.step(pause, gone)
  if gone then forget() end
  if not pause and #stops.watches == 0 and not stops.pause_step then return end
  local frames = Frames.capture(2)
  if #frames.list == 0 then return end
  frames:select_own()
  local why = stops.at_step(pause, frames)
  if why then M.stand(why, 2) end
end

-- ---- requests ----

function server.handlers.breaks(session, q)
  stops.set_errors(q.errors)
  return { ok = true, lines = {}, notes = stops.set_breaks(q.list, session.frames) }
end

function server.handlers.watches(_, q)
  stops.set_watches(q.list)
  return { ok = true, lines = {} }
end

function server.handlers.undo(session)
  return { ok = true, lines = {}, undone = session:undo() }
end

server.handlers.stack = variables.stack
server.handlers.variables = variables.list
server.handlers.bytes = variables.bytes
server.handlers.evaluate_at = variables.evaluate
server.handlers.set_variable = variables.set
server.handlers.complete_at = variables.complete
server.handlers.sources = variables.sources

-- ---- accel.breakpoint, errors ----

-- Stops at the function at `level`, and opens a prompt if there is none: in this process on a terminal, or a client, or somebody else does.
local function stop(why, level)
  if Frames.capture(level + 1).list[1] == nil or M.stand(why, level + 1) then return end
  local function here(at)
    M.console = M.console or accel.host_chunk "repl/console".new()
    M.stand(why, at + 1)
  end
  if opening.in_process() then
    here(level + 1)
    return
  end
  local frames = Frames.capture(level + 1)
  frames:select_own()
  attach.prompt(true)
  local done <close> = setmetatable({}, { __close = function() attach.prompt(false) end })
  accel.console.at(frames.place(frames:selected()))
  if opening.client(why.text, frames.place(frames:selected()), forget) then M.stand(why, level + 1)
  elseif opening.piped() then here(level + 1) end
end

--- accel.breakpoint([condition]): see lua/meta/system.lua. level: of its caller, as this function's caller counts.
function M.breakpoint(level, header)
  if stops.steps_in(level + 1) then return end
  stop({ reason = "breakpoint()", text = header and "accel.pdb.set_trace()" or "accel.breakpoint()", message = header }, level + 1)
end

--- Called by the host (bindings/attach/lac_look.c) after `:nan on`: an op has made the first NaN. inputs: its tensors.
function M.nan(text, inputs)
  M.names = { inputs = inputs }
  stop({ reason = "nan", text = text }, 2)
  M.names = nil
end

--- Called by the host (bindings/attach/lac_attach.c) after Ctrl-C, in a process with a prompt.
function M.interrupted() M.stand({ reason = "interrupt", text = "Ctrl-C" }, 2) end

--- Before the first line of a script, with ACCEL_ATTACH_WAIT: waits for a client, and stands at that line.
function M.entry()
  attach.wait()
  stops.stepping = { mode = "in", height = 0, reason = "entry" }
  stops.hook()
end

--- With --pdb: an error is about to end the script, whose frames are still there.
function M.post_mortem(err, text)
  if type(err) == "table" and err.code == "interrupted" then return end
  io.stdout:flush()
  local message = accel.console.visible(text:match "^[^\n]*")
  io.stderr:write("accel-run: ", message, "\n")
  stop({ reason = "an error", text = "an error", message = message, own = true }, 2)
end

return M
