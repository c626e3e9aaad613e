-- Commands of a stopped script's prompt in addition to any prompt's: continuing, breakpoints and watches, positions of ranks. Each is
-- called with the client (client.lua, or lua/repl/console.lua for the process's own prompt), the rest of the line and its number. It
-- returns whether it worked, otherwise the reason, and "detach" or "quit" as the third to leave.
local accel = ...
local jobs = accel.host_chunk "attach/jobs"

local own = {}

local FAILED <const> = "the script has failed here and cannot continue; :c ends it"

-- Why no line can be run from here. nil: it can.
local function stuck(self) return self:reason() == "an error" and FAILED or nil end

function own.continue(self)
  self:go("continue", self:alive())
  return true
end

function own.step(self, rest)
  local count = rest == "" and 1 or math.tointeger(tonumber(rest))
  if not count or count < 1 then return false, (":step %s: not a number of steps"):format(rest) end
  if stuck(self) then return false, stuck(self) end
  local here = self:alive()
  self:go("step", here, { count = count })
  self:wait_for_ranks(here)
  return true
end

local function lines(self, request)
  if stuck(self) then return false, stuck(self) end
  local here = self:alive()
  self:go("line", here, request)
  self:wait_for_ranks(here)
  return true
end

for name, mode in next, { next = "over", into = "in", out = "out", ["return"] = "return" } do
  own[name] = function(self) return lines(self, { mode = mode }) end
end

own["until"] = function(self, rest)
  local line = rest ~= "" and math.tointeger(tonumber(rest)) or nil
  if rest ~= "" and not line then return false, (":until %s: not the number of a line"):format(rest) end
  return lines(self, { mode = "until", line = line })
end

function own.jump()
  return false, "Lua cannot continue at another line, so that there is no :jump; :break stops at one, an assignment changes a variable"
end

-- "train.lua:31", "31" (in the file at which the script stands), or "function NAME".
local function place_of(self, text)
  local name = text:match "^function%s+([%a_][%w_.:]*)$"
  if name then return { name = name:match "[%w_]+$" } end
  local file, number = text:match "^(.-):?(%d+)$"
  if not number then return nil end
  if file == "" then file = self:file() end
  return file and { file = file, line = math.tointeger(tonumber(number)) } or nil
end

local function shown(b) return b.name and "function " .. b.name or ("%s:%d"):format(b.file, b.line) end
local function condition_of(b) return b.condition and " if " .. b.condition or "" end

own["break"] = function(self, rest, line)
  if rest == "" then
    for _, b in ipairs(self.breaks) do self:say(("%d  %s%s"):format(b.id, shown(b), condition_of(b))) end
    for _, w in ipairs(self.watches) do self:say(("%d  watch %s"):format(w.id, w.text)) end
    if #self.breaks + #self.watches == 0 then self:say "none; :break FILE:LINE [if EXPR] adds one" end
    return true
  end
  local place, condition = rest:match "^(.-)%s+if%s+(.+)$"
  place = place or rest
  local b = place_of(self, place)
  if not b then
    return false, ("stdin:%d: :break takes FILE:LINE, LINE or function NAME, then [if EXPR], as in "
      .. ":break train.lua:31 if loss ~= loss"):format(line)
  end
  if condition then
    local f, why = load("return " .. condition, "=condition", "t")
    if not f then return false, why end
  end
  self.last_stop = self.last_stop + 1
  b.id, b.condition = self.last_stop, condition
  self.breaks[#self.breaks + 1] = b
  self:stops_changed()
  local note = self.notes[b.id] or {}
  if note.never then
    table.remove(self.breaks)
    self:stops_changed()
    return false, (":break %s: %s"):format(place, note.never)
  end
  local asked = b.line
  b.line = note.line or b.line
  self:say(("breakpoint %d at %s%s%s"):format(b.id, shown(b), condition_of(b),
    note.line and (" (line %d holds no code)"):format(asked) or note.pending and (" (pending: %s)"):format(note.pending) or ""))
  return true
end

function own.watch(self, rest)
  if rest == "" then return own["break"](self, "") end
  local f, why = load("return " .. rest, "=watch", "t")
  if not f then return false, why end
  self.last_stop = self.last_stop + 1
  self.watches[#self.watches + 1] = { id = self.last_stop, text = rest }
  self:stops_changed()
  self:say(("watch %d: stands after the step at which %s is true or, of a number or tensor, not finite"):format(self.last_stop, rest))
  return true
end

function own.delete(self, rest)
  local id = math.tointeger(tonumber(rest))
  for _, list in ipairs { self.breaks, self.watches } do
    for i, stop in ipairs(list) do
      if stop.id == id then
        table.remove(list, i)
        self:stops_changed()
        return true
      end
    end
  end
  return false, (":delete %s: no such breakpoint or watch; :break lists them"):format(rest)
end

function own.stacks(self, rest)
  if not self.job then return false, "there is one rank, which stands here; :bt prints its stack" end
  local alive = {}
  for rank = 0, self.size - 1 do
    if not self.ranks[rank].dead then alive[#alive + 1] = self.ranks[rank].rank end
  end
  local stacks = jobs.stacks(self.job, alive, rest == "all")
  for rank = 0, self.size - 1 do
    local text = stacks[self.ranks[rank].rank]
    if not self.ranks[rank].dead then
      self:say(("rank %d"):format(rank))
      if text and text ~= "" then self:say((text:gsub("\n$", "")))
      else self:report_away { rank } end
    end
  end
  return true
end

function own.detach() return true, nil, "detach" end

--- Of a prompt that the script opened: the script ends. Else the prompt.
function own.quit(self) return true, nil, self.here and "quit" or "detach" end

local help = { -- lines of :help
  { ":c  :continue", "let the script continue; Ctrl-C stops it again" },
  { ":step [N]", "let it make one training step, or N" },
  { ":next :into :out", "run to the next line, into a call, out of this function" },
  { ":until [LINE]", "run to a later line of this function: out of a loop" },
  { ":return", "run until this function returns, and print its values" },
  { ":break F:L [if E]", "stop at a line, or at `function NAME`, on ranks with E true;" },
  { "", "E may use rank, world_size and step; alone: list them" },
  { ":watch EXPR", "stand after the step at which it is true, or not finite" },
  { ":delete N", "forget a breakpoint or a watch" },
  { ":stacks [all]", "each rank's current line, even inside a loop" },
  { ":detach", "leave; the script continues (same as Ctrl-D)" },
  { ":quit", "leave; a script that opened this prompt ends" },
}

local names = {}
for name in next, own do names[#names + 1] = name end
table.sort(names)

return { commands = own, help = help, names = names }
