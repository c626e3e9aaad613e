-- The prompt of several ranks, a separate process: it has the terminal and a socket to each rank of this machine
-- (ranks.lua), so that a rank that waits, loops or dies never blocks it. Started by the launcher (accel-run repl) or by
-- the first rank of a script (accel.repl()).
local accel = ...
local Ranks = accel.host_chunk "repl/ranks"
local Reader = accel.host_chunk "repl/reader"
local commands = accel.host_chunk "repl/commands"
local prompt = accel.host_chunk "repl/prompt"
local diff = accel.host_chunk "repl/diff"

local names = Ranks.names
local Front = setmetatable({}, { __index = Ranks })
Front.__index = Front

function Front:terminal() return require "accel.util.terminal" end
function Front:width() return math.max(40, math.min(80, self:terminal().width())) end

--- Writes lines above the prompt.
function Front:say(lines)
  if type(lines) == "string" then lines = { lines } end
  if #lines == 0 then return end
  if self.reader then self.reader.editor:hide() end
  io.stdout:write(table.concat(lines, "\n"), "\n")
  io.stdout:flush()
end

function Front:complain(text)
  text = accel.console.visible(text, true)
  if self.interactive then
    if self:terminal().colour(1) then text = "\27[31m" .. text .. "\27[0m" end
    return self:say(text)
  end
  io.stdout:flush()
  io.stderr:write(text, "\n")
end

-- ---- inputs ----

--- "@0,2 x" -> ranks, "x". nil, reason: there are no such ranks.
function Front:targets(text, line)
  local list, code = commands.addressed(text)
  if list and code == "" then return nil, ("stdin:%d: nothing is to be run on '@%s'"):format(line, list) end
  if not list or list == "all" then return self:alive(), code end
  local set, targets = {}, {}
  for part in (list .. ","):gmatch "%s*([^,]*),"  do
    local a, b = part:match "^(%d+)%s*%-%s*(%d+)%s*$"
    a = tonumber(a or part)
    b = tonumber(b) or a
    if not a or b >= self.size or a > b then
      return nil, ("stdin:%d: '@%s': ranks are 0 to %d, as in @0,2 or @0-1 or @all"):format(line, list, self.size - 1)
    end
    for rank = math.tointeger(a), math.tointeger(b) do set[rank] = true end
  end
  for rank in accel.pairs(set) do
    if self.ranks[rank].dead then return nil, ("stdin:%d: rank %d is gone"):format(line, rank) end
    targets[#targets + 1] = rank
  end
  return targets, code
end

function Front:show_ranks()
  local pages, abort_reason = self.pages:read()
  local lines = {}
  for rank = 0, self.size - 1 do
    local r, page = self.ranks[rank], pages[rank + 1]
    local what = r.dead and (page.ended or "gone") or r.job and self:activity(rank) or "at the prompt"
    if r.job then what = what .. (" (%.1f s)"):format(accel.clock() - r.since) end
    local step = page.step > 0 and (", step %d"):format(page.step) or ""
    lines[#lines + 1] = ("rank %d  pid %d%s  %s"):format(rank, page.pid, step, what)
  end
  if abort_reason then lines[#lines + 1] = "collectives were stopped: " .. abort_reason:gsub("^stopped: ", "") end
  self:say(lines)
end

-- One input: whether it worked. The second result ends the prompt: "continue" or "quit".
function Front:input(text, line)
  local name, rest = commands.split(text)
  if name == "on" or name == "all" then name = nil end
  if name == "quit" then return true, "quit" end
  if self.paused and name == "continue" then return true, "continue" end
  if name == "ranks" then
    self:show_ranks()
    return true
  elseif name == "save" then
    local why, done = prompt.save(self.inputs, rest)
    if why then self:complain(why) else self:say(done) end
    return why == nil
  elseif name == "help" and rest == "" then
    self:say(commands.help_lines { ranks = true, paused = self.paused })
    return true
  elseif name == "help" or name == "doc" then
    local a = self:peek { op = "kind", text = rest }
    local found, why = commands.explain(rest, a and a.kind, a and a.own, self:width(), function(lines) self:say(lines) end)
    if why then self:complain(why) end
    return found == true
  end
  if name == "sh" then
    local r = commands.run(nil, name, rest)
    if not r.ok then self:complain(r.message) end
    return r.ok
  end
  local targets, code = self:targets(text, line)
  if not targets then
    self:complain(code)
    return false
  end
  if #targets == 0 then return false end
  local command, argument = commands.split(code)
  if command == "diff" then return diff.run(self, argument, line, targets) end
  local ok, job
  if command then
    ok, job = self:run({ op = "command", name = command, rest = argument }, line, targets)
    self:follow(job)
  else
    ok = self:run({ op = "eval", text = code }, line, targets)
    if ok then self.inputs[#self.inputs + 1] = code end
  end
  return ok
end

-- The prompt names the selected function. If ranks have selected different ones it names only the ranks.
function Front:follow(job)
  if not self.paused then return end
  for rank, answer in accel.pairs(job.answers) do self.places[rank] = answer.at or self.places[rank] end
  local at
  for _, rank in ipairs(self:alive()) do
    local place = self.places[rank] or self.stands
    if at and at ~= place then
      self.at = nil
      return
    end
    at = place
  end
  self.at = at
end

function Front:prompt_text()
  local busy, alive = self:busy(), self:alive()
  local text = names(alive)
  if #busy > 0 then text = ("%s; %s busy"):format(text, #busy == #alive and "all" or names(busy)) end
  return ("[%s] %s> "):format(text, self.at or "")
end

function Front:loop()
  while true do
    if #self:alive() == 0 then
      local in_order = true
      for rank = 0, self.size - 1 do in_order = in_order and self.ranks[rank].left end
      if not in_order then self:complain "no rank is left" end
      return in_order
    end
    if self.paused and #self:alive() < self.size then return false end -- the launcher ends the job
    local text, line = self.reader:read()
    local ok, how = true, nil
    if not text and line == "eof" then
      if self.interactive then self:say "" end
      return true, "continue"
    elseif not text then
      self:interrupted()
    else
      ok, how = self:input(text, line)
    end
    if how then return true, how end
    if not ok and not self.interactive and not self.paused then return false end
  end
end

local M = { Front = Front }

--- accel-run repl:front segment=FD,front=FD:FD. False: a script on standard input failed, or no rank is left.
function M.run(fds)
  local segment, list = tostring(fds):match "^segment=(%d+),front=([%d:]+)$"
  if not segment then
    io.stderr:write "accel-run: repl:front is for accel-run itself; use accel-run --num-processes N repl\n"
    return false
  end
  local guard <close> = accel.console.session()
  local sockets = {}
  for fd in list:gmatch "%d+" do sockets[#sockets + 1] = math.tointeger(tonumber(fd)) end
  local self = setmetatable(Ranks.new(math.tointeger(tonumber(segment)), sockets, accel.isatty(0)), Front)
  self.inputs = {}
  local hello = self:greet(60)
  self.paused, self.at, self.stands, self.places = hello.paused, hello.at, hello.at, {}
  local reader <close> = Reader.new {
    complete = function(line, word) return self:complete(line, word) end,
    prompt = function() return self:prompt_text() end,
    channels = self:channels(),
    on_ready = function(i) self:on_ready(i) end,
    on_time = function() self:show_late() end,
    seconds = function() return next(self.open) and Ranks.APART or nil end,
  }
  self.reader = reader
  if self.paused then self:say(hello.lines)
  elseif self.interactive and #self:alive() > 0 then self:say { prompt.banner((", %d ranks"):format(self.size)) } end
  local ok, how = self:loop()
  self:finish(how or "continue")
  return ok
end

return M
