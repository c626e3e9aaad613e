-- Commands of accel-run attach in addition to any prompt's: continuing, breakpoints and watches, positions of ranks. Each is called
-- with the client (client.lua), the rest of the line and its number. It returns whether it worked, otherwise the reason, and "detach"
-- as the third to leave.
local accel = ...
local jobs = accel.host_chunk "attach/jobs"

local own = {}

local function stops_changed(self)
  self.stops_version = self.stops_version + 1
  self:send_stops()
end

function own.continue(self)
  self:go("continue", self:alive())
  return true
end
own.c = own.continue

function own.step(self, rest)
  local count = rest == "" and 1 or math.tointeger(tonumber(rest))
  if not count or count < 1 then return false, (":step %s: not a number of steps"):format(rest) end
  local here = self:alive()
  self:go("step", here, { count = count })
  self:wait_for_ranks(here)
  return true
end

local function lines(mode)
  return function(self)
    local here = self:alive()
    self:go("line", here, { mode = mode })
    self:wait_for_ranks(here)
    return true
  end
end
own.next, own.into, own.out = lines "over", lines "in", lines "out"

own["break"] = function(self, rest, line)
  if rest == "" then
    for _, b in ipairs(self.breaks) do self:say(("%d  %s:%d%s"):format(b.id, b.file, b.line, b.condition and " if " .. b.condition or "")) end
    for _, w in ipairs(self.watches) do self:say(("%d  watch %s"):format(w.id, w.text)) end
    if #self.breaks + #self.watches == 0 then self:say "none; :break FILE:LINE [if EXPR] adds one" end
    return true
  end
  local place, condition = rest:match "^(%S+)%s+if%s+(.+)$"
  place = place or rest
  local file, number = place:match "^(.-):(%d+)$"
  if not file or file == "" then
    return false, ("stdin:%d: :break takes FILE:LINE [if EXPR], as in :break train.lua:31 if loss ~= loss"):format(line)
  end
  if condition then
    local f, why = load("return " .. condition, "=condition", "t")
    if not f then return false, why end
  end
  self.last_stop = self.last_stop + 1
  self.breaks[#self.breaks + 1] = { id = self.last_stop, file = file, line = math.tointeger(tonumber(number)), condition = condition }
  stops_changed(self)
  local b = self.breaks[#self.breaks]
  local note = self.notes[b.id] or {}
  if note.never then
    table.remove(self.breaks)
    stops_changed(self)
    return false, (":break %s: %s"):format(place, note.never)
  end
  if note.line then b.line = note.line end
  self:say(("breakpoint %d at %s:%d%s%s"):format(b.id, file, b.line, condition and " if " .. condition or "",
    note.line and (" (line %s holds no code)"):format(number) or note.pending and (" (pending: %s)"):format(note.pending) or ""))
  return true
end

function own.watch(self, rest)
  if rest == "" then return own["break"](self, "") end
  local f, why = load("return " .. rest, "=watch", "t")
  if not f then return false, why end
  self.last_stop = self.last_stop + 1
  self.watches[#self.watches + 1] = { id = self.last_stop, text = rest }
  stops_changed(self)
  self:say(("watch %d: stands after the step at which %s is true or, of a number or tensor, not finite"):format(self.last_stop, rest))
  return true
end

function own.delete(self, rest)
  local id = math.tointeger(tonumber(rest))
  for _, list in ipairs { self.breaks, self.watches } do
    for i, stop in ipairs(list) do
      if stop.id == id then
        table.remove(list, i)
        stops_changed(self)
        return true
      end
    end
  end
  return false, (":delete %s: no such breakpoint or watch; :break lists them"):format(rest)
end

function own.stacks(self, rest)
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
own.quit, own.q = own.detach, own.detach

local help = { -- lines of :help
  { ":c  :continue", "let the ranks continue training; Ctrl-C brings them back" },
  { ":step [N]", "let them make one step, or N" },
  { ":next :into :out", "continue to the next line, into calls, out of this function" },
  { ":break F:L [if E]", "stop at a line, on ranks with E true; alone: list breakpoints" },
  { ":watch EXPR", "stand after the step at which it is true, or not finite" },
  { ":delete N", "forget a breakpoint or a watch" },
  { ":stacks [all]", "each rank's current line, even inside a loop" },
  { ":detach", "leave; the ranks continue training (same as Ctrl-D)" },
}

return { commands = own, help = help }
