-- accel-run attach: the prompt of several ranks (repl/front.lua) for a job that runs already. Ranks join it at a step on which they agree
-- (agree below), at breakpoints and watches, and continue training from it. Running ranks are "away". Each rank has two connections: one
-- for requests that are served at any time (jobs.lua), one for its prompt (repl/attached.lua).
local accel = ...
local jobs = accel.host_chunk "attach/jobs"
local Ranks = accel.host_chunk "repl/ranks"
local Reader = accel.host_chunk "repl/reader"
local commands = accel.host_chunk "repl/commands"
local own = accel.host_chunk "attach/commands"
local answers = accel.host_chunk "repl/answers"
local Front = accel.host_chunk("repl/front").Front

local names = Ranks.names
local Client = setmetatable({}, { __index = accel.host_chunk "attach/moves" })
Client.__index = Client

-- ---- which ranks are here ----

--- Those at the prompt.
function Client:alive()
  local list = {}
  for rank = 0, self.size - 1 do
    local r = self.ranks[rank]
    if not r.dead and not r.away then list[#list + 1] = rank end
  end
  return list
end

function Client:away()
  local list = {}
  for rank = 0, self.size - 1 do
    local r = self.ranks[rank]
    if not r.dead and r.away then list[#list + 1] = rank end
  end
  return list
end

--- A rank has stopped: it receives the current breakpoints and watches before any other request. One that came for these alone (deliver)
--- continues.
function Client:arrived(rank, hello)
  local r = self.ranks[rank]
  local brief = r.brief and hello.why.reason == "step" and not (r.agreed and hello.step >= r.agreed)
  r.hello, r.away, r.brief = hello, false, nil
  if not brief then r.agreed = nil end
  self.places[rank] = hello.at
  table.insert(brief and self.briefs or self.news, rank)
end

function Client:take(rank)
  Front.take(self, rank)
  while #self.briefs > 0 do
    local brief = { table.remove(self.briefs) }
    self:send_stops(brief)
    local r = self.ranks[brief[1]]
    local left = r.agreed and r.agreed - r.hello.step -- the ranks have agreed on a step meanwhile
    self:go(left and "step" or "continue", brief, { count = left })
  end
end

--- Messages since the last check, grouped by place and reason.
function Client:tell_news()
  if #self.news == 0 then return end
  local by_text, order = {}, {}
  for _, rank in ipairs(self.news) do
    local hello = self.ranks[rank].hello
    local text = ("at %s, after step %d%s"):format(hello.at, hello.step, hello.why.reason ~= "step" and " (" .. hello.why.text .. ")" or "")
    if not by_text[text] then
      by_text[text] = {}
      order[#order + 1] = text
    end
    table.insert(by_text[text], rank)
  end
  self.news = {}
  for _, text in ipairs(order) do
    local hello = self.ranks[by_text[text][1]].hello
    local lines = { answers.label(self, by_text[text]) .. text, hello.source }
    if hello.why.message and not (self.here and hello.why.reason == "an error") then -- the rank has printed it
      table.insert(lines, 1, answers.label(self, by_text[text]) .. hello.why.message)
    end
    self:say(lines)
  end
  self:follow { answers = {} }
  self:send_stops()
end

--- Breakpoints and watches to the ranks at the prompt that do not have the newest. ranks: only to these.
---@param ranks? integer[]
function Client:send_stops(ranks)
  local late = {}
  for _, rank in ipairs(ranks or self:alive()) do
    if self.ranks[rank].stops ~= self.stops_version and not self.ranks[rank].job then late[#late + 1] = rank end
  end
  if #late == 0 then return end
  local told = self:ask({ op = "breaks", list = self.breaks, errors = self.errors }, 0, late)
  for _, a in accel.pairs(told or {}) do
    for id, note in accel.pairs(a.notes or {}) do self.notes[id] = note end
  end
  self:ask({ op = "watches", list = self.watches }, 0, late)
  for _, rank in ipairs(late) do self.ranks[rank].stops = self.stops_version end
end

--- The breakpoints or watches are others now: ranks at the prompt know it when this returns, running ones from their next step on.
function Client:stops_changed()
  self.stops_version = self.stops_version + 1
  self:send_stops()
  self:deliver()
end

--- Why the ranks at the prompt are there: "an error" if one of them has failed.
function Client:reason()
  local reason
  for _, rank in ipairs(self:alive()) do
    local why = self.ranks[rank].hello.why.reason
    reason = why == "an error" and why or reason or why
  end
  return reason
end

--- The file at which the prompt stands. nil: ranks stand in different ones.
function Client:file() return self.at and self.at:match "^(.*):%d+$" end

-- Ctrl-C: stops the ranks' evaluation. If none evaluates, running ranks come to the prompt.
function Client:interrupted()
  Front.interrupted(self)
  local busy = self:busy()
  if #busy > 0 then self:each(busy, "interrupt")
  elseif #self:away() > 0 then self:pause() end
end

-- Collectives start again as soon as all ranks are here. Until then their state is not useful to the user.
function Client:mend(job)
  if #self:alive() == self.size then Front.mend(self, job) end
end

--- An input that assigns does so on all ranks that it was for, or on none.
function Client:run(request, line, targets)
  local ok, job = Front.run(self, request, line, targets)
  if ok or request.op ~= "eval" or not job or #targets == 1 then return ok, job end
  local done, failed = {}, {}
  for _, rank in ipairs(targets) do
    local a = job.answers[rank]
    if a then table.insert(a.ok and done or failed, rank) end
  end
  if #done == 0 or #failed == 0 then return ok, job end
  local undone = 0
  for _, a in accel.pairs(self:ask({ op = "undo" }, 0, done) or {}) do undone = math.max(undone, a.undone or 0) end
  if undone > 0 then
    self:say(("taken back on rank%s %s, since it failed on %s"):format(#done > 1 and "s" or "", names(done), names(failed)))
  end
  return ok, job
end

function Client:show_help()
  self:say(commands.help_lines { ranks = self.size > 1, paused = true, own = own.help })
end

function Client:input(text, line)
  local name, rest = commands.split(text)
  if name == "help" and rest == "" then
    self:show_help()
    return true
  end
  local command = name and own.commands[name]
  if command then
    local ok, why, how = command(self, rest or "", line)
    if why then self:complain(why) end
    return ok, how
  end
  if #self:alive() == 0 and name ~= "ranks" and name ~= "help" and name ~= "doc" and name ~= "sh" then
    self:complain "no rank is at the prompt: Ctrl-C brings them, :stacks shows their lines"
    return false
  end
  return Front.input(self, text, line)
end

function Client:show_ranks()
  local pages = self.pages:read()
  for rank = 0, self.size - 1 do
    local r, page = self.ranks[rank], self:page_of(pages, rank)
    if r.dead or not r.away then self:say(("rank %d  pid %d, step %d  %s"):format(rank, page.pid, page.step, r.dead and (page.ended or "gone")
      or r.job and self:activity(rank) or "at the prompt, " .. (self.places[rank] or "?")))
    else
      self:report_away { rank }
    end
  end
end

function Client:prompt_text()
  local here, away = self:alive(), self:away()
  if self.size == 1 then return #here == 1 and ("%s> "):format(self.at or "") or "(running)> " end
  if #here == 0 then return "[running]> " end
  local text = names(here)
  if #away > 0 then text = ("%s; %s running"):format(text, names(away)) end
  local busy = self:busy()
  if #busy > 0 then text = ("%s; %s busy"):format(text, #busy == #here and "all" or names(busy)) end
  return ("[%s] %s> "):format(text, self.at or "")
end

function Client:ended() return #self:alive() + #self:away() == 0 end

-- A prompt that the script opened: while ranks run, the terminal is theirs.
function Client:let_run()
  if #self:alive() > 0 then return end
  while #self:alive() == 0 and not self:ended() do
    if not self:gather() and not self:ended() then self:interrupted() end
  end
  self:tell_news()
  if self:reason() == "an error" and #self:away() > 0 then self:report_away(self:away()) end
end

function Client:loop()
  local ok = true
  while true do
    self:tell_news()
    if self.here then self:let_run() end
    if self:ended() then
      if not self.here then self:say "the job has ended" end
      return ok
    end
    local text, line = self.reader:read()
    local how
    if not text and line == "eof" and self:ended() then
      how = nil
    elseif not text and line == "eof" then
      if self.interactive then self:say "" end
      return ok
    elseif not text then
      self:interrupted()
    else
      local worked
      worked, how = self:input(text, line)
      ok = ok and (worked or self.interactive) or false
    end
    if how then return ok, how end
  end
end

-- Reports ends of ranks. The launcher handles them, and reports those of a script that opened this prompt.
function Client:died(rank)
  local r = self.ranks[rank]
  if r.dead then return end
  r.away = false
  local over = self.over
  self.over = over or self.here
  Front.died(self, rank)
  self.over = over
end

local function status_of(page) return page.signal > 0 and 128 + page.signal or page.exit_code end

--- The status with which the job has ended: of the rank that ended it. nil: it runs.
---@return integer?
function Client:status()
  if not self:ended() then return nil end
  local limit = accel.clock() + 1
  while true do
    local pages, reason = self.pages:read()
    local cause, unknown, worst = tonumber((reason or ""):match "rank (%d+)"), false, 0
    for _, page in ipairs(pages) do
      -- a launcher learns of the end a moment later than its peers
      unknown = unknown or page.state == "running" or (page.state == "failed" and status_of(page) == 0)
      if page.rank == cause and status_of(page) > 0 then return status_of(page) end
      worst = math.max(worst, status_of(page))
    end
    if not unknown then return worst end
    if accel.clock() > limit then return math.max(worst, 1) end
    accel.console.poll({}, 0.02)
  end
end

local M = { Client = Client }

-- In place of the connections of a rank that does not answer: it is stopped, say.
local silent = {
  send = function() return false end,
  receive = function() return nil end,
  ask = function() return nil, "no answer" end,
  close = function() end,
}

-- Parks a prompt at a rank. nil, why.
local function reach(self, r)
  if not r.folder and jobs.held(r.pid) then return nil, "no answer" end
  local control, why = jobs.connect(self.job, r.rank)
  if not control then return nil, why end
  local prompt, answer
  prompt, why = jobs.connect(self.job, r.rank)
  if prompt then answer, why = prompt:ask("prompt " .. control.id) end
  if answer ~= "parked" then return nil, answer == "busy" and "somebody is attached already" or why or answer end
  r.control, r.prompt, r.channel = control, prompt, prompt.channel
  return true
end

--- Ranks that did not answer so far are asked again. Whether there is one more.
function Client:reach_silent()
  local found = false
  for rank = 0, self.size - 1 do
    local r = self.ranks[rank]
    if not r.dead and r.control == silent and reach(self, r) then found = true end
  end
  if found and self.reader then self.reader.o.channels = self:channels() end
  return found
end

--- A client of a job, its prompts parked and no rank paused. only: one rank. nil, why.
function M.open(job, only, class)
  local self = setmetatable({ job = job, ranks = {}, size = 0, open = {}, last_id = 0, inputs = {}, places = {}, news = {},
    breaks = {}, watches = {}, notes = {}, told = {}, briefs = {}, stops_version = 0, last_stop = 0, paused = true,
    interactive = accel.isatty(0) }, class or Client)
  local why, found
  self.pages, why = jobs.pages(job)
  if not self.pages then return nil, why end
  -- by their numbers in the job. Those on unreachable machines count as gone. One alone is number 0.
  self.size = only and 1 or math.max(job.size, 1)
  for rank = 0, self.size - 1 do
    self.ranks[rank] = { channel = silent, control = silent, queue = {}, away = false, stops = 0, rank = only or rank, dead = true }
  end
  for _, rank in ipairs(job.list) do
    if not only or rank.rank == only then
      local r = self.ranks[only and 0 or rank.rank]
      r.away, r.dead, r.pid, r.folder = true, false, rank.pid, rank.folder
      local done
      done, why = reach(self, r)
      if not done and why ~= "no answer" then return nil, ("rank %d: %s"):format(rank.rank, why) end
      found = found or done
    end
  end
  if only and not job.ranks[only] then return nil, ("there is no rank %d"):format(only) end
  if not found then return nil, "no rank answers; accel-run stacks shows their lines" end
  return self
end

--- accel-run attach. options: rank (that one alone), here (a breakpoint opened this prompt, nothing is to be paused).
---@return boolean ok
---@return integer? status of the job, if it has ended
function M.run(job, options)
  local _ <close> = accel.console.session()
  local self, why = M.open(job, options.rank)
  if not self then
    io.stderr:write("accel-run attach: ", accel.console.visible(why), "\n")
    return false
  end
  local reader <close> = Reader.new {
    complete = function(line, word) return self:complete(line, word) end,
    prompt = function() return self:prompt_text() end,
    channels = self:channels(),
    on_ready = function(i)
      self:on_ready(i)
      if #self.news > 0 then self:tell_news() end
    end,
    over = function() return self:ended() end,
    on_time = function() self:show_late() end,
    seconds = function() return next(self.open) and Ranks.APART or nil end,
  }
  self.reader = reader
  self.here = options.here and self.interactive
  if self.here then
    self:say ":help lists the commands"
  elseif self.interactive then
    self:say(("%s: %s, %d rank%s; :help tells more, :detach leaves"):format(job.id, job.script, self.size, self.size == 1 and "" or "s"))
  end
  if options.here and not self.here then self:wait_for_ranks(self:away())
  elseif not options.here then self:pause() end
  local ok, how = self:loop()
  local status = self:status()
  self:go(how == "quit" and how or "detach", self:alive())
  self.over = true
  for rank = 0, self.size - 1 do self.ranks[rank].control:close() end
  return ok, status
end

return M
