-- The prompt at which a script of one rank stops, in its own process, as Python's pdb: opened by accel.breakpoint() or --pdb on a terminal
-- (attached.lua), there for all further stops. Its commands are those of accel-run attach (attach/commands.lua), for which it is the client
-- of one rank, 0.
local accel = ...
local prompt = accel.host_chunk "repl/prompt"
local stops = accel.host_chunk "repl/stops"
local own = accel.host_chunk "attach/commands"

local Console = {}
Console.__index = Console

function Console.new()
  return setmetatable({ size = 1, breaks = {}, watches = {}, notes = {}, last_stop = 0, state = { inputs = {}, kept = {} }, here = true },
    Console)
end

-- ---- as a client (attach/client.lua) ----

function Console:alive() return { 0 } end

--- The script continues when the command is done.
function Console:go(how, _, more)
  self.request = more or {}
  self.how = how
end

function Console:wait_for_ranks() end

function Console:stops_changed()
  for id, note in accel.pairs(stops.set_breaks(self.breaks, self.frames)) do self.notes[id] = note end
  stops.set_watches(self.watches)
end

function Console:say(lines) prompt.say(type(lines) == "string" and { lines } or lines) end

function Console:reason() return self.why.reason end

function Console:file() return (self.frames:selected().path:gsub("^[@=]", "")) end

-- ---- the prompt ----

--- Until a command lets the script continue: how, and its request.
function Console:run(why, frames)
  self.why, self.frames, self.how, self.request = why, frames, nil, {}
  accel.console.prompting(true)
  local done <close> = setmetatable({}, { __close = function() accel.console.prompting(false) end })
  if #self.breaks ~= #stops.breaks or #self.watches ~= #stops.watches then self:stops_changed() end -- a client was here meanwhile
  local at = frames:selected()
  local text = ("%s (%s)"):format(frames.title(at), why.text)
  if not self.told then text = text .. "\n:help lists the commands" .. (why.reason == "an error" and ", :c ends the script" or "") end
  self.told = true
  if why.message and why.reason ~= "an error" then text = why.message .. "\n" .. text end
  local lines = { text, accel.host_chunk "repl/source".line(at, prompt.width()) }
  local how = prompt.run { frames = frames, state = self.state, lines = lines, own = { self = self, commands = own.commands,
    help = own.help, names = own.names, ended = function() return self.how end } }
  if how == "detach" then self.breaks, self.watches = {}, {} end
  if type(how) == "string" then return how, {} end
  return self.how or "continue", self.request
end

return Console
