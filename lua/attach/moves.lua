-- Ranks of a job that run or stand at the prompt of accel-run attach: how they come to it, receive breakpoints and continue. The part of
-- client.lua that asks for steps and waits for ranks. Each rank has `away`, whether it runs, `brief`, whether it stops only to receive
-- breakpoints, and `agreed`, the step after which it is to stand with the others.
local accel = ...
local Ranks = accel.host_chunk "repl/ranks"
local answers = accel.host_chunk "repl/answers"
local Front = accel.host_chunk("repl/front").Front

-- Seconds: for which running ranks may take to get breakpoints before the prompt returns; in which ranks that stop together come, at first
-- after a start.
local DELIVERY <const>, TOGETHER <const>, FIRST <const> = 0.5, 0.015, 0.3

local names = Ranks.names
local Moves = setmetatable({}, { __index = Front })
Moves.__index = Moves

--- Requests to these ranks' control connections. Returns a list of answers by rank.
function Moves:each(ranks, text)
  local list = {}
  for _, rank in ipairs(ranks) do list[rank] = self.ranks[rank].control:ask(text) or "gone" end
  return list
end

--- Ranks that stopped for a pause which others reached too late continue.
function Moves:release(ranks)
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
function Moves:agree()
  local margin, tries, limit = 2, 0, accel.clock() + 5
  self:reach_silent()
  while tries < 24 do
    local running, furthest, standing = {}, 0, false
    for rank, text in accel.pairs(self:each(self:away(), "status")) do
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
      for rank, text in accel.pairs(self:each(running, ("pause %d"):format(furthest + margin))) do
        late = late or text:find "^late" ~= nil
        if text == "armed" then
          armed[#armed + 1] = rank
          self.ranks[rank].agreed = furthest + margin
        end
      end
      if not late then return true end
      for rank, text in accel.pairs(self:each(armed, "cancel")) do
        if text == "none" then stand[#stand + 1] = rank else self.ranks[rank].agreed = nil end
      end
      self:release(stand)
      margin = margin * 2
    end
  end
  return false
end

-- Asks a running rank to stop after its next step, before it makes one more. One that was let go a moment ago may not have read it.
local function stop_soon(self, rank)
  local r, limit, status = self.ranks[rank], accel.clock() + DELIVERY, nil
  repeat
    status = r.control:ask "status" or ""
    local stands = status:find "^paused" ~= nil
    if stands and accel.console.poll({ r.channel }, 0.005) == "ready" then self:take(rank) end
    if not r.away or r.stops == self.stops_version then return false end -- it has them
  until not stands or accel.clock() > limit
  local step, margin = status:match "^step (%d+)$", 1
  while step and margin < 1000 do
    local answer = r.control:ask(("pause %d"):format(tonumber(step) + margin)) or ""
    if answer == "armed" then return true end
    step, margin = answer:match "^late (%d+)$", margin * 4
  end
  return false
end

--- Running ranks stop at their next step for the newest breakpoints and watches, each by itself, and continue. Those that make no step
--- within a moment get them later.
function Moves:deliver()
  local asked = {}
  for _, rank in ipairs(self:away()) do
    local r = self.ranks[rank]
    local before = r.brief -- it may stand already, for others
    r.brief = true
    if stop_soon(self, rank) or before and r.brief then asked[#asked + 1] = rank else r.brief = nil end
  end
  local limit, late = accel.clock() + DELIVERY, nil
  repeat
    late = {}
    for _, rank in ipairs(asked) do
      if self.ranks[rank].brief then late[#late + 1] = rank end
    end
    local left = limit - accel.clock()
    if #late > 0 and left > 0 then
      local what, i = accel.console.poll(self:channels(), left)
      if what == "ready" then self:take(i - 1) end
    end
  until #late == 0 or left <= 0
  if #late > 0 then self:say(("rank%s %s: from the next step on"):format(#late > 1 and "s" or "", names(late))) end
end

-- Whether each of these ranks waits in a collective.
function Moves:all_wait(ranks)
  local pages = self.pages:read()
  for _, rank in ipairs(ranks) do
    if not self:page_of(pages, rank).waits then return false end
  end
  return true
end

--- Waits until a rank has stopped, and a moment for those that come along. False: the job has ended, or Ctrl-C.
function Moves:gather()
  local limit
  local patience = self.gathered and TOGETHER or FIRST
  self.gathered = true
  while #self:alive() + #self:away() > 0 do
    local here, away = #self:alive(), self:away()
    if here > 0 and #away == 0 then return true end
    limit = limit or here > 0 and accel.clock() + patience or nil
    if limit and accel.clock() >= limit or here > 0 and self:all_wait(away) then return true end
    local what, i = accel.console.poll(self:channels(), limit and limit - accel.clock() or nil)
    if what == "ready" then self:take(i - 1)
    elseif what == "break" then return false end
  end
  return false
end

--- Waits until the stopped ranks are here. Ctrl-C lets them arrive later.
function Moves:wait_for_ranks(ranks)
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
function Moves:report_away(ranks)
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
function Moves:go(how, ranks, more)
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

function Moves:pause()
  local away = self:away()
  if not self:agree() then self:complain "the ranks never reach a common step; :stacks shows their lines" end
  self:wait_for_ranks(away)
end

return Moves
