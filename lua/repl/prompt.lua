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
local function width() return math.max(40, math.min(80, terminal().width())) end

local function say(lines)
  if #lines > 0 then io.stdout:write(table.concat(lines, "\n"), "\n") end
  io.stdout:flush()
end

local function say_error(text, interactive)
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
  return ("accel %s, %d thread%s%s; :help tells more, Ctrl-D leaves"):format(accel._VERSION, accel.num_threads(),
    accel.num_threads() == 1 and "" or "s", extra or "")
end

--- The name of a misspelt command, or that there is none.
function M.unknown_command(name, more)
  local names = table.move(commands.names, 1, #commands.names, 1, {})
  for _, other in ipairs { "help", "doc", "save", "quit", table.unpack(more or {}) } do names[#names + 1] = other end
  local near = accel.nearest(name, names)
  return ("no command :%s%s"):format(name, near and ("; did you mean :%s?"):format(near) or "; :help lists them")
end

--- Writes the inputs that worked.
function M.save(inputs, path)
  if path == "" then return "the name of a file is missing: :save FILE" end
  local file, why = io.open(path, "w")
  if not file then return why end
  for _, text in ipairs(inputs) do file:write(text, "\n") end
  file:close()
  return nil, ("%d input%s in %s"):format(#inputs, #inputs == 1 and "" or "s", path)
end

--- Where a script stands, as the prompt's first line.
function M.pause_lines(frames, text)
  local lines = {}
  if text then lines[1] = text end
  local at = frames and frames:selected()
  lines[#lines + 1] = at and frames.title(at) .. " (:c or Ctrl-D goes on, :quit ends)" or nil
  return lines
end

---@class repl.PromptOptions
---@field frames? table of a script that stands here
---@field text? string to show first
---@field greet? boolean
---@field predefine? boolean
---@field stop_on_error? boolean

--- Until the end of input: true. "quit": the whole script is to end. false: an error stopped it.
---@param o repl.PromptOptions
function M.run(o)
  local session <close> = Session.new(o.frames)
  session.predefined = {}
  if o.predefine then M.predefine(session) end
  local inputs, paused = {}, o.frames ~= nil
  local reader <close> = Reader.new {
    complete = function(line, word)
      return complete.words(session, line, word, paused and { "c", "continue" } or nil)
    end,
    prompt = function()
      local at = session.frames and session.frames:selected()
      return (at and session.frames.place(at) or "") .. "> "
    end,
  }
  local interactive = reader.interactive
  if o.greet and interactive then say { M.banner() } end
  if paused or o.text then say(M.pause_lines(o.frames, o.text)) end

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
    elseif name == "quit" or name == "q" then
      return paused and "quit" or true
    elseif paused and (name == "c" or name == "continue") then
      return true
    elseif name == "save" then
      local why, done = M.save(inputs, rest)
      failed = why ~= nil
      if why then say_error(why, interactive) else say { done } end
    elseif name == "help" and rest == "" then
      say(commands.help_lines { paused = paused })
    elseif name == "help" or name == "doc" then
      failed = not accel.host_chunk("help").show(rest, width())
    elseif name then
      local r = commands.run(session, name, rest, line, width())
      failed = not r or not r.ok
      if failed then say_error(r and r.message or M.unknown_command(name), interactive)
      else say(r.lines) end
    else
      local r = session:evaluate(text, line)
      failed = not r.ok
      if r.ok then
        inputs[#inputs + 1] = text
        if r.n > 0 and not (r.n == 1 and r[1] == nil) then say(show.values(r, width())) else io.stdout:flush() end
      else
        report(r)
      end
    end
    if failed and o.stop_on_error then return false end
  end
end

return M
