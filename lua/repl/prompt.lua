-- The prompt of one process: accel-run repl, and accel.repl() in a script. Reads with reader.lua, evaluates with
-- session.lua.
local accel = ...
local Session = accel.host_chunk "repl/session"
local Reader = accel.host_chunk "repl/reader"
local commands = accel.host_chunk "repl/commands"
local complete = accel.host_chunk "repl/complete"
local show = accel.host_chunk "repl/show"

local M = {}

local function terminal() return require "accel.util.terminal" end
--- Columns that values may take.
function M.width() return math.max(40, math.min(80, terminal().width())) end
local width = M.width

--- Prints lines.
function M.say(lines)
  if #lines > 0 then io.stdout:write(table.concat(lines, "\n"), "\n") end
  io.stdout:flush()
end
local say = M.say

local function say_error(text, interactive)
  text = accel.console.visible(text, true)
  if interactive and terminal().colour(1) then text = "\27[31m" .. text .. "\27[0m" end
  local out = interactive and io.stdout or io.stderr
  io.stdout:flush()
  out:write(text, "\n")
  out:flush()
end

-- Names that every session at a terminal begins with.
local PREDEFINED = { accel = true, nn = true, optim = true, data = true, dist = true }

function M.predefine(session)
  rawset(session.kept, "accel", require "accel")
  for name in next, PREDEFINED do
    if name ~= "accel" then rawset(session.kept, name, require("accel")[name]) end
  end
  session.predefined = PREDEFINED
end

function M.banner(extra)
  return ("accel %s, %d thread%s%s; :help explains more, Ctrl-D leaves"):format(accel._VERSION, accel.num_threads(),
    accel.num_threads() == 1 and "" or "s", extra or "")
end

--- Notes whether the inputs' writes to standard output, by io.write and similar functions, end a line: w:end_line()
--- ends it if they do not. To be closed.
function M.note_writes()
  local files, open = getmetatable(io.stdout).__index, false
  local old = { write = io.write, method = files.write, print = print }
  local function note(...)
    local last = select("#", ...) > 0 and tostring((select(-1, ...)))
    if last and last ~= "" then open = last:sub(-1) ~= "\n" end
  end
  local function write(...)
    if io.output() == io.stdout then note(...) end
    return old.write(...)
  end
  local function method(file, ...)
    if file == io.stdout then note(...) end
    return old.method(file, ...)
  end
  local function print_line(...)
    open = false
    return old.print(...)
  end
  io.write, files.write = write, method
  rawset(_G, "print", print_line)
  local function close() -- the script's own replacements stay
    if io.write == write then io.write = old.write end
    if files.write == method then files.write = old.method end
    if rawget(_G, "print") == print_line then rawset(_G, "print", old.print) end
  end
  local function end_line()
    if open then old.method(io.stdout, "\n") end
    open = false
  end
  return setmetatable({ end_line = end_line }, { __close = close })
end

--- Writes the inputs that worked.
function M.save(inputs, path)
  if path == "" then return "the name of a file is missing: :save FILE" end
  local ok, why = accel.write_file(path, #inputs > 0 and table.concat(inputs, "\n") .. "\n" or "")
  if not ok then return why end
  return nil, ("%d input%s in %s"):format(#inputs, #inputs == 1 and "" or "s", path)
end

--- The position of a script, as the prompt's first line.
function M.pause_lines(frames, text)
  local lines = {}
  if text then lines[1] = text end
  local at = frames and frames:selected()
  lines[#lines + 1] = at and frames.title(at) .. " (:c or Ctrl-D continues, :quit ends)" or nil
  return lines
end

---@class repl.PromptOptions
---@field frames? table of a script that stands here
---@field text? string to show first
---@field lines? string[] the first lines, in place of the position and text
---@field greet? boolean
---@field predefine? boolean
---@field stop_on_error? boolean
---@field state? table {inputs, kept} of a prompt that opens again and again: its reader and session names stay there
---@field own? {self: table, commands: table<string, function>, help: table, names: string[], ended: fun(): string?} further commands

-- Reads inputs for the session of `state`, which may be a later one than when it was made.
local function new_reader(state, names)
  local reader
  local function above(lines)
    reader.editor:hide()
    say(lines)
  end
  reader = Reader.new {
    complete = function(line, word)
      local words, help = complete.words(state.session, line, word, names)
      return complete.offer(words, help, word, above)
    end,
    prompt = function()
      local frames = state.session.frames
      return (frames and frames.place(frames:selected()) or "") .. "> "
    end,
  }
  return reader
end

--- Until the end of input: true. "quit": the whole script is to end. false: an error stopped it.
---@param o repl.PromptOptions
function M.run(o)
  local state = o.state or { inputs = {} }
  local session <close> = Session.new(o.frames, state.kept)
  if o.predefine then M.predefine(session) end
  local inputs, paused, own = state.inputs, o.frames ~= nil, o.own or { commands = {} }
  state.session = session
  local reader = state.reader or new_reader(state, own.names or paused and { "continue" } or nil)
  if o.state then state.reader = reader end
  local _ <close> = not o.state and reader or nil
  local interactive = reader.interactive
  if o.greet and interactive then say { M.banner() } end
  if o.lines then say(o.lines) elseif paused or o.text then say(M.pause_lines(o.frames, o.text)) end

  local written <close> = M.note_writes()

  local function report(r)
    say_error(r.deep and r.trace or r.message, interactive)
  end

  while true do
    local text, line = reader:read()
    local name, rest
    if text then name, rest = commands.split(text) end
    local failed = false
    if not text and line == "eof" then
      if interactive then say { "" } end
      return true
    elseif not text then -- Ctrl-C at the prompt: the line is gone, that is all
      failed = false
    elseif name and own.commands[name] then
      written:end_line()
      local ok, why, how = own.commands[name](own.self, rest, line)
      failed = not ok
      if why then say_error(why, interactive) end
      if how or own.ended() then return how or true end
    elseif name == "quit" then
      return paused and "quit" or true
    elseif paused and name == "continue" then
      return true
    elseif name == "save" then
      local why, done = M.save(inputs, rest)
      failed = why ~= nil
      if why then say_error(why, interactive) else say { done } end
    elseif name == "help" and rest == "" then
      say(commands.help_lines { paused = paused, own = own.help })
    elseif name == "help" or name == "doc" then
      local kind, mine = commands.kind(session, rest)
      local found, why = commands.explain(rest, kind, mine, width(), say)
      failed = not found
      if why then say_error(why, interactive) end
    elseif name then
      local r = commands.run(session, name, rest, line, width())
      failed = not r or not r.ok
      if interactive or (r and #r.lines > 0) then written:end_line() end
      if failed then say_error(r and r.message or commands.unknown(name, line, own.names or paused and { "continue" } or nil), interactive)
      else say(r.lines) end
    elseif text:find "^%s*@" then
      failed = true
      say_error(("stdin:%d: @ runs an input on some of several ranks, but there is only one process"):format(line),
        interactive)
    else
      local r = session:evaluate(text, line)
      failed = not r.ok
      local shown = r.ok and not show.is_nothing(r) and show.values(r, width()) or {}
      if interactive or #shown > 0 then written:end_line() end
      if r.ok then
        inputs[#inputs + 1] = text
        say(shown)
      else
        r.message = commands.with_hint(session, text, r.message)
        report(r)
      end
    end
    if failed and o.stop_on_error then return false end
  end
end

return M
