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
local Client = setmetatable({}, { __index = Front })
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

--- A rank has stopped: it receives the current breakpoints and watches before any other request.
function Client:arrived(rank, hello)
  local r = self.ranks[rank]
  r.hello, r.away = hello, false
  self.places[rank] = hello.at
  self.news[#self.news + 1] = rank
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
  for _, text in ipairs(order) do self:say(answers.label(self, by_text[text]) .. text) end
  self:follow { answers = {} }
  self:send_stops()
end

--- Breakpoints and watches to the ranks at the prompt that do not have the newest.
function Client:send_stops()
  local late = {}
  for _, rank in ipairs(self:alive()) do
    if self.ranks[rank].stops ~= self.stops_version and not self.ranks[rank].job then late[#late + 1] = rank end
  end
  if #late == 0 then return end
  local told = self:ask({ op = "breaks", list = self.breaks }, 0, late)
  for _, a in accel.pairs(told or {}) do
    for id, note in accel.pairs(a.notes or {}) do self.notes[id] = note end
  end
  self:ask({ op = "watches", list = self.watches }, 0, late)
  for _, rank in ipairs(late) do self.ranks[rank].stops = self.stops_version end
end

-- ---- coming and going ----

-- Requests to these ranks' control connections. Returns a list of answers by rank.
local function each(self, ranks, text)
  local list = {}
  for _, rank in ipairs(ranks) do list[rank] = self.ranks[rank].control:ask(text) or "gone" end
  return list
end

--- Ranks that stopped for a pause which others reached too late continue.
function Client:release(ranks)
  local limit = accel.clock() + 2
  for _, rank in ipairs(ranks) do
    local r = self.ranks[rank]
    while r.away and not r.dead and accel.clock() < limit do
      local what, i = accel.console.poll(self:channels(), 0.05)
      if what == "ready" then self:take(i - 1) end
    end
    if not r.away and not r.dead and r.hello.why.reason == "step" then
      for i = #self.news, 1, -1 do
        if self.news[i] == rank then table.remove(self.news, i) end
      end
      self:go("continue", { rank })
    end
  end
end

--- All ranks that run agree to stand after a step that none has made yet. Those that would be late let it be for all, and a later one is tried.
--- Ranks that were let go stand until they have read it, and one that came to a prompt by itself is about to say so: both are waited for.
function Client:agree()
  local margin, tries, limit = 2, 0, accel.clock() + 5
  self:reach_silent()
  while tries < 24 do
    local running, furthest, standing = {}, 0, false
    for rank, text in accel.pairs(each(self, self:away(), "status")) do
      local what, step = text:match "^(%a+) (%d+)$"
      furthest = math.max(furthest, tonumber(step) or 0)
      if what == "step" then running[#running + 1] = rank end
      standing = standing or what == "paused"
    end
    if standing and accel.clock() < limit then
      local what, i = accel.console.poll(self:channels(), 0.02)
      if what == "ready" then self:take(i - 1)
      elseif what == "break" then return true end
    else
      tries = tries + 1
      local late, armed, stand = false, {}, {}
      for rank, text in accel.pairs(each(self, running, ("pause %d"):format(furthest + margin))) do
        late = late or text:find "^late" ~= nil
        if text == "armed" then armed[#armed + 1] = rank end
      end
      if not late then return true end
      for rank, text in accel.pairs(each(self, armed, "cancel")) do
        if text == "none" then stand[#stand + 1] = rank end
      end
      self:release(stand)
      margin = margin * 2
    end
  end
  return false
end

--- Waits until the stopped ranks are here. Ctrl-C lets them arrive later.
function Client:wait_for_ranks(ranks)
  local told, began = false, accel.clock()
  while true do
    local missing = {}
    for _, rank in ipairs(ranks) do
      if self.ranks[rank].away and not self.ranks[rank].dead then missing[#missing + 1] = rank end
    end
    if #missing == 0 then break end
    local what, i = accel.console.poll(self:channels(), 0.25)
    if what == "ready" then self:take(i - 1)
    elseif what == "break" then break end
    if not told and accel.clock() - began > 1 then
      told = true
      self:report_away(missing)
      self:say "they come to the prompt after the step; Ctrl-C continues without them"
    end
    if not self.interactive and told and #self:alive() > 0 and accel.clock() - began > 5 then break end
  end
  self:tell_news()
end

-- The current activity of ranks that are not here.
function Client:report_away(ranks)
  local pages = self.pages:read()
  for _, rank in ipairs(ranks) do
    local page = self:page_of(pages, rank)
    local what = page.stopped and ("is stopped (SIGSTOP), last seen at %s"):format(page.at or "?")
      or page.waits and "waits in " .. page.waits .. self.for_whom(page.missing)
      or ("runs, last seen at %s, step %d"):format(page.at or "?", page.step)
    self:say(answers.label(self, { rank }) .. what)
  end
end

--- Lets ranks at the prompt continue.
function Client:go(how, ranks, more)
  self:send_stops()
  local request = { op = "end", how = how }
  for key, value in accel.pairs(more or {}) do request[key] = value end
  for _, rank in ipairs(ranks) do
    local r = self.ranks[rank]
    if not r.job then
      r.away = true
      if not r.channel:send(accel.encode(request)) then self:died(rank) end
    end
  end
  self.pages:resume()
end

function Client:pause()
  local away = self:away()
  if not self:agree() then self:complain "the ranks never reach a common step; :stacks shows their lines" end
  self:wait_for_ranks(away)
end

-- Ctrl-C: stops the ranks' evaluation. If none evaluates, running ranks come to the prompt.
function Client:interrupted()
  Front.interrupted(self)
  local busy = self:busy()
  if #busy > 0 then each(self, busy, "interrupt")
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
  local list = commands.help_lines { ranks = self.size > 1, paused = true }
  local shown = {}
  for _, text in ipairs(list) do
    if not text:find "^%s*:c%s" and not text:find "^%s*:quit" and not text:find "^%s*:save" then shown[#shown + 1] = text end
  end
  for _, row in ipairs(own.help) do shown[#shown + 1] = ("%-18s %s"):format(row[1], row[2]) end
  self:say(shown)
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
  if #self:alive() == 0 and name ~= "ranks" and name ~= "help" and name ~= "doc" then
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

function Client:loop()
  local ok = true
  while true do
    self:tell_news()
    if #self:alive() + #self:away() == 0 then
      self:say "the job has ended"
      return ok
    end
    local text, line = self.reader:read()
    local how
    if not text and line == "eof" then
      if self.interactive then self:say "" end
      return ok
    elseif not text then
      self:interrupted()
    else
      local worked
      worked, how = self:input(text, line)
      ok = ok and (worked or self.interactive) or false
    end
    if how then return ok end
  end
end

-- Reports ends of ranks. The launcher handles them.
function Client:died(rank)
  local r = self.ranks[rank]
  if r.dead then return end
  r.away = false
  Front.died(self, rank)
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
    breaks = {}, watches = {}, notes = {}, told = {}, stops_version = 0, last_stop = 0, paused = true,
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
    on_time = function() self:show_late() end,
    seconds = function() return next(self.open) and Ranks.APART or nil end,
  }
  self.reader = reader
  if self.interactive then
    self:say(("%s: %s, %d rank%s; :help tells more, :detach leaves"):format(job.id, job.script, self.size, self.size == 1 and "" or "s"))
  end
  if options.here then self:wait_for_ranks(self:away())
  else self:pause() end
  local ok = self:loop()
  self:go("detach", self:alive())
  self.over = true
  for rank = 0, self.size - 1 do self.ranks[rank].control:close() end
  return ok
end

return M
