-- A rank's part of `accel-run attach`: it stops at a step, at a breakpoint or after an error, with a prompt that is another process
-- (lua/attach/client.lua). Called by accel.step() (bindings/lac_attach.c) on a client's request, by accel.breakpoint(), by the line hook of
-- breakpoints, and by the host after an error with --pdb.
--
-- The prompt's requests are server.lua's, and: { op = "breaks", list = { { id, file, line, condition }, ... } }, { op = "watches", list =
-- { { id, text }, ... } }, { op = "undo" }, { op = "stack" }, { op = "variables", ... } (variables.lua), and { op = "end", how =
-- "continue" | "step" | "line" | "detach", count, mode }.
local accel = ...
local Frames = accel.host_chunk "repl/frames"
local Session = accel.host_chunk "repl/session"
local server = accel.host_chunk "repl/server"
local variables = accel.host_chunk "repl/variables"
local places = accel.host_chunk "repl/places"
local attach = accel.console.attach

local M = { breaks = {}, watches = {} }

local PATIENCE <const> = 5 -- seconds for which a client may leave data unread. Then it counts as gone, and the script continues

-- ---- the position ----

-- Nothing that the prompt asked for holds any more.
local function forget()
  M.breaks, M.watches, M.by_line, M.stepping = {}, {}, nil, nil
  attach.every_step(false)
  M.hook_lines()
  if M.channel then M.channel:close() end
  M.channel = nil
end

--- Stops with the prompt of the connected client, until it lets the script continue. Without one nothing happens. level: of the selected
--- function, as the caller counts. why: {reason, text} for people and adapters.
---@return boolean stood
function M.stand(why, level)
  local there, fd = attach.stand()
  if not there then return false end
  if fd then
    forget() -- of a client before this one
    M.channel = accel.console.channel(fd)
    M.channel:patience(PATIENCE)
  end
  if not M.channel then
    attach.go(false)
    return false
  end
  local frames = Frames.capture(level + 1)
  if #frames.list == 0 then
    attach.go(true)
    return false
  end
  if why.own ~= false then frames:select_own() end
  local place = accel.console.place() or { rank = 0, ranks = 1 }
  local at = frames:selected()
  attach.prompt(true)
  accel.console.at(frames.place(at))
  M.stepping = nil
  -- in a coroutine: while a line hook runs, hooks are off in its own thread, and Ctrl-C at the prompt is one
  local serve = coroutine.create(function()
    local session <close> = Session.new(frames)
    local _ <close> = setmetatable({}, { __close = function() attach.interruptible(false) end }) -- before the session ends
    attach.interruptible(true)
    return server.serve(M.channel, session, { hello = true, rank = place.rank, ranks = place.ranks, paused = true, at = frames.place(at),
      why = why, step = accel.step_count(), pid = accel.process.pid and accel.process.pid() or nil })
  end)
  local ok, how, request = coroutine.resume(serve)
  if not ok then coroutine.close(serve) end
  attach.prompt(false)
  if not ok then
    attach.go(false)
    forget()
    error(how, 0)
  end
  if how == "gone" or how == "detach" or how == "quit" then
    forget()
    attach.go(false)
    return true
  end
  attach.go(true)
  if how == "step" then attach.pause_at(accel.step_count() + math.max(1, request.count or 1)) end
  if how == "line" then M.stepping = { mode = request.mode, height = at.from_bottom, library = at.library } end
  M.hook_lines()
  return true
end

-- ---- steps ----

-- The value of a text in the function that is selected, without a session: nil, why.
local function value_of(text, frames)
  local env = setmetatable({}, { __index = function(_, name)
    local found, value = frames:get(name)
    if found then return value end
    return rawget(_G, name)
  end })
  local f, why = load("return " .. text, "=stdin", "t", env)
  if not f then return nil, why end
  return pcall(f)
end

-- Whether a watch triggers: true, or a number or a tensor that is not finite.
local function alarming(value)
  if value == true then return true end
  if type(value) == "number" then return value ~= value or value == math.huge or value == -math.huge end
  if accel.is_tensor(value) and value.device ~= "meta" then
    return accel.no_grad(function() return not value:detach():isfinite():all():item() end)
  end
  return false
end

--- After a step: pause, a client has requested it here. gone, the client of this prompt is gone.
function M.step(pause, gone)
  if gone then forget() end
  if pause then
    M.stand({ reason = "step", text = ("step %d"):format(accel.step_count()) }, 2)
    return
  end
  if #M.watches == 0 then return end
  local frames = Frames.capture(2)
  if #frames.list == 0 then return end
  frames:select_own()
  for _, watch in ipairs(M.watches) do
    local ok, value = value_of(watch.text, frames)
    if ok and alarming(value) then
      M.stand({ reason = "watch", id = watch.id, text = ("%s: %s"):format(watch.text,
        accel.inspect(value, { depth = 1, width = 60, items = 4 }):gsub("%s*\n%s*", " ")) }, 2)
      return
    end
  end
end

-- ---- breakpoints ----

local function hit(line, source)
  for _, b in ipairs(M.by_line and M.by_line[line] or {}) do
    if places.same_file(source, b.file) then
      if not b.condition then return b end
      local frames = Frames.capture(3)
      local ok, value = value_of(b.condition, frames)
      if not ok then return b, ("its condition fails: %s"):format(tostring(value)) end
      if value then return b end
    end
  end
end

local function on_line(_, line)
  local stepping = M.stepping
  if not stepping and not (M.by_line and M.by_line[line]) then return end
  local info = debug.getinfo(2, "S")
  if info.source:find "^=lua/" then return end
  if stepping and (stepping.library or not Frames.is_library(info.source)) then
    local height = Frames.height(2)
    if stepping.mode == "in" or (stepping.mode == "over" and height <= stepping.height)
      or (stepping.mode == "out" and height < stepping.height) then
      M.stand({ reason = stepping.reason or "line", text = stepping.reason and "before its first line" or "after a step of lines", own = false }, 2)
      return
    end
  end
  local b, trouble = hit(line, info.source)
  if b then M.stand({ reason = "breakpoint", id = b.id, text = ("breakpoint %d"):format(b.id) .. (trouble and ": " .. trouble or ""),
    own = false }, 2) end
end

--- The line hook is there while there is something to look for, on the thread that stands and on coroutines that are made from then on.
function M.hook_lines()
  local wanted = M.stepping ~= nil or next(M.breaks) ~= nil
  if wanted == (M.hooked ~= nil) then return end
  if wanted then
    local create, wrap = coroutine.create, coroutine.wrap
    M.hooked = { create = create, wrap = wrap }
    debug.sethook(on_line, "l")
    local function hooking(f)
      return function(...)
        debug.sethook(on_line, "l")
        return f(...)
      end
    end
    function coroutine.create(f) return create(hooking(f)) end
    function coroutine.wrap(f) return wrap(hooking(f)) end
  else
    debug.sethook()
    coroutine.create, coroutine.wrap = M.hooked.create, M.hooked.wrap
    M.hooked = nil
  end
end

--- Also returns remarks on each: notes, by id (places.lua). One at a line without code is met at the next that has some.
function server.handlers.breaks(session, q)
  local notes = {}
  M.breaks, M.by_line = q.list, {}
  for _, b in ipairs(q.list) do
    local ok, note = pcall(places.look, b, session.frames)
    if not ok then note = {} end -- a file that cannot be read
    notes[b.id] = note
    local line = note.line or b.line
    M.by_line[line] = M.by_line[line] or {}
    table.insert(M.by_line[line], b)
  end
  return { ok = true, lines = {}, notes = notes }
end

function server.handlers.watches(_, q)
  M.watches = q.list
  attach.every_step(#q.list > 0)
  return { ok = true, lines = {} }
end

function server.handlers.undo(session)
  return { ok = true, lines = {}, undone = session:undo() }
end

server.handlers.stack = variables.stack
server.handlers.variables = variables.list
server.handlers.evaluate_at = variables.evaluate

-- ---- accel.breakpoint, errors ----

-- No client is connected: on a terminal this process opens one, otherwise it prints how to.
local function invite(what, frames)
  local job = attach.job()
  if not job then
    accel.process.raise("unsupported", "breakpoint: nothing can attach to this process: it is for scripts that accel-run runs, with ACCEL_ATTACH=1")
  end
  local place = accel.console.place() or { rank = 0, ranks = 1 }
  io.stdout:flush()
  local first = not place.local_ranks or place.local_ranks == 1 or place.rank % place.local_ranks == 0
  local program = accel.process.program()
  local terminal = first and program and accel.isatty(0) and accel.isatty(2)
  if terminal then
    return accel.process.spawn(program, { program, "attach", "--here", job }, { ACCEL_WORLD = "none" }, {})
  end
  io.stderr:write(("accel: rank %d has stopped at %s (%s); accel-run attach %s opens its prompt\n"):format(place.rank, frames, what, job))
end

--- accel.breakpoint([condition]): see lua/meta/system.lua.
function M.breakpoint(level, what)
  local frames = Frames.capture(level + 1)
  if #frames.list == 0 then return end
  frames:select_own()
  local why = { reason = what or "breakpoint()", text = what or "accel.breakpoint()", own = what ~= nil and true or nil }
  if M.stand(why, level + 1) then return end
  attach.prompt(true)
  accel.console.at(frames.place(frames:selected()))
  local front = invite(why.text, frames.place(frames:selected()))
  if front then accel.console.prompting(true) end -- Ctrl-C of this terminal is the prompt's
  local done <close> = setmetatable({}, { __close = function()
    attach.prompt(false)
    if not front then return end
    accel.console.prompting(false)
    front:close()
  end })
  if attach.wait() then M.stand(why, level + 1) end
  if front then front:wait(5) end
end

--- Before the first line of a script, with ACCEL_ATTACH_WAIT: waits for a client, and stands at that line.
function M.entry()
  attach.wait()
  M.stepping = { mode = "in", height = 0, reason = "entry" }
  M.hook_lines()
end

--- With --pdb: an error is about to end the script, whose frames are still there.
function M.post_mortem(err, text)
  if type(err) == "table" and err.code == "interrupted" then return end
  io.stdout:flush()
  io.stderr:write("accel-run: ", accel.console.visible(text:match "^[^\n]*"), "\n")
  M.breakpoint(2, "an error")
end

return M
