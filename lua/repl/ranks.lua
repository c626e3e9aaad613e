-- The ranks of a prompt: requests to them and their answers, in the order of each rank's turns, their output, and which
-- of them wait, loop or die. The prompt is front.lua. Ranks answer by server.lua.
--
-- To a rank: { id, op = "eval" | "command" | "complete" | "tensors" | "part" | "end", ... }. From it: { hello },
-- then for each request any number of { id, out = text } and one { id, done = true, ok, lines, message, digest, ... }. A notebook's ranks
-- (lua/jupyter) also send { id, display = ... } and { id, input = true }, for on_message.
local accel = ...
local answers = accel.host_chunk "repl/answers"
local commands = accel.host_chunk "repl/commands"
local complete = accel.host_chunk "repl/complete"

--- A job is a request to some ranks, `targets`: `left` are those that have not answered, `answers` and `out` by rank.
local Ranks = setmetatable({}, { __index = accel.host_chunk "repl/health" })
Ranks.__index = Ranks

local PATIENCE, APART, EARLY = 1.0, 0.15, 0.3
Ranks.APART = APART

--- sockets: descriptors by local rank. segment: of the ranks' status pages. say(lines) and complain(text) write.
function Ranks.new(segment, sockets, interactive)
  local self = setmetatable({ ranks = {}, size = #sockets, pages = accel.console.pages(segment), open = {}, last_id = 0,
    interactive = interactive }, Ranks)
  for i, fd in ipairs(sockets) do self.ranks[i - 1] = { channel = accel.console.channel(fd), queue = {} } end
  return self
end

function Ranks:alive()
  local list = {}
  for rank = 0, self.size - 1 do
    if not self.ranks[rank].dead then list[#list + 1] = rank end
  end
  return list
end

function Ranks:busy()
  local list = {}
  for rank = 0, self.size - 1 do
    if self.ranks[rank].job and not self.ranks[rank].dead then list[#list + 1] = rank end
  end
  return list
end

-- ---- jobs ----

function Ranks:start(rank, job)
  local r = self.ranks[rank]
  r.job = job
  r.since = accel.clock()
  job.request.id = job.id
  if not r.channel:send(accel.encode(job.request)) then self:died(rank) end
end

--- Sends a request to these ranks, or queues it after their current ones. Gives the job.
function Ranks:submit(request, line, targets)
  self.last_id = self.last_id + 1
  local job = { id = self.last_id, line = line, request = request, targets = targets, answers = {}, out = {}, left = {},
    began = accel.clock() }
  request.line, request.width = line, self:width()
  for _, rank in ipairs(targets) do
    job.left[rank], job.out[rank] = true, { n = 0 }
  end
  for _, rank in ipairs(targets) do
    local r = self.ranks[rank]
    if r.dead then job.left[rank] = nil
    elseif r.job then r.queue[#r.queue + 1] = job
    else self:start(rank, job) end
  end
  return job
end

-- The ranks' output: a line that all of them print is shown once. After a moment, a line that others lack is shown as
-- the rank's.
function Ranks:flush_output(job, final)
  if job.quiet then return end
  while true do
    local first, all, oldest = nil, true, nil
    for _, rank in ipairs(job.targets) do
      local line = job.out[rank][1]
      if line then
        first = first or line.text
        all = all and line.text == first
        oldest = oldest and math.min(oldest, line.at) or line.at
      elseif not self.ranks[rank].dead and not job.gone then
        all = false
      end
    end
    if not first then return end
    if all then
      self:say(#job.targets < self.size and answers.label(self, job.targets) .. first or first)
      for _, rank in ipairs(job.targets) do table.remove(job.out[rank], 1) end
    elseif final or accel.clock() - oldest > APART then
      for _, rank in ipairs(job.targets) do
        local line = table.remove(job.out[rank], 1)
        if line then self:say(answers.label(self, { rank }) .. line.text) end
      end
    else
      return
    end
  end
end

local function add_output(job, rank, text)
  local out = job.out[rank]
  text = (out.part or "") .. text
  out.part = nil
  while true do
    local line, rest = text:match "^([^\n]*)\n(.*)$"
    if not line then break end
    out[#out + 1] = { text = line, at = accel.clock() }
    text = rest
  end
  if text ~= "" then out.part = text end
end

local function close_output(job, rank)
  local out = job.out[rank]
  if out.part then
    out[#out + 1] = { text = out.part, at = accel.clock() }
    out.part = nil
  end
end

--- A rank's turn is over: the next thing in its queue.
function Ranks:next_of(rank)
  local r = self.ranks[rank]
  r.job = nil
  local job = table.remove(r.queue, 1)
  if job then self:start(rank, job) end
end

function Ranks:died(rank)
  local r = self.ranks[rank]
  if r.dead then return end
  r.dead = true
  if not self.over then
    local text = self:epitaph(rank)
    if r.left then self:say(text) else self:complain(text) end
  end
  r.channel:close()
  for _, job in ipairs { r.job, table.unpack(r.queue) } do
    job.left[rank] = nil
    close_output(job, rank)
  end
  r.job, r.queue = nil, {}
end

--- A rank is at the prompt and introduces itself.
function Ranks:arrived(rank, hello) self.ranks[rank].hello = hello end

--- Everything that a rank has sent.
function Ranks:take(rank)
  local r = self.ranks[rank]
  while not r.dead do
    local frame = r.channel:receive()
    if frame == nil then return end
    if frame == false then return self:died(rank) end
    local a = accel.decode(frame)
    local job = r.job
    if a.hello then
      self:arrived(rank, a)
    elseif job and a.id == job.id then
      if a.out then
        add_output(job, rank, a.out)
      elseif a.done then
        job.answers[rank], job.left[rank] = a, nil
        close_output(job, rank)
        self:next_of(rank)
        if job.background then
          job.late = job.late or { at = accel.clock() }
          table.insert(job.late, rank)
        end
      else
        self:on_message(rank, job, a)
      end
    end
  end
end

function Ranks:on_ready(i)
  self:take(i - 1)
  self:show_late()
end

--- Answers that arrived after the prompt had returned: several ranks' answers that arrive together are shown together.
function Ranks:show_late()
  local done = {}
  for id, job in accel.pairs(self.open) do
    local all = next(job.left) == nil
    self:flush_output(job, all)
    if job.late and (all or accel.clock() - job.late.at > APART) then
      table.sort(job.late)
      self:say(answers.show(self, job, job.late))
      job.late = nil
    end
    if job.background and all then done[#done + 1] = id end
  end
  for _, id in ipairs(done) do self:finished(self.open[id]) end
end

function Ranks:finished(job)
  self.open[job.id] = nil
  if #self:busy() == 0 then self.pages:resume() end
  if not job.quiet then self:mend(job) end
end

function Ranks:interrupted()
  for rank = 0, self.size - 1 do
    for _, job in ipairs(self.ranks[rank].queue) do job.left[rank] = nil end
    self.ranks[rank].queue = {}
  end
end

--- Until all targets have answered or the prompt has waited long enough (a script: until nothing can come). True:
--- all have.
function Ranks:wait(job, patience)
  local limit = accel.clock() + (patience or PATIENCE)
  while next(job.left) do
    local left = limit - accel.clock()
    if left <= 0 then
      if self.interactive or patience or self:is_stuck(job) then break end
      limit, left = accel.clock() + PATIENCE, PATIENCE
    end
    local what, i = accel.console.poll(self:channels(), math.min(left, APART))
    if what == "ready" then
      self:take(i - 1)
    elseif what == "break" then
      self:interrupted()
      limit = accel.clock() + PATIENCE
    end
    self:flush_output(job, next(job.left) == nil)
  end
  return next(job.left) == nil
end

function Ranks:channels()
  local list = {}
  for rank = 0, self.size - 1 do list[rank + 1] = self.ranks[rank].channel end
  return list
end

--- Runs a request on ranks and shows their answers.
function Ranks:run(request, line, targets)
  self:mend()
  local queued = {}
  for _, rank in ipairs(targets) do
    if self.ranks[rank].job then queued[#queued + 1] = rank end
  end
  if #queued > 0 then
    self:say(("%sstill busy; queued (press Ctrl-C to give up)"):format(answers.label(self, queued)))
  end
  local job = self:submit(request, line, targets)
  self.open[job.id] = job
  local all = self:wait(job)
  self:flush_output(job, all)
  local answered = {}
  for rank in accel.pairs(job.answers) do answered[#answered + 1] = rank end
  self:say(answers.show(self, job, answered))
  if all then
    self:finished(job)
  else
    job.background = true
    self:report_missing(job)
    self:mend(job)
  end
  local ok = all
  for _, rank in ipairs(targets) do
    local a = job.answers[rank]
    ok = ok and (a and a.ok or self.ranks[rank].left)
  end
  return ok, job
end

--- A request whose answers are not shown: list by rank. nil: not all arrived.
function Ranks:ask(request, line, targets)
  local job = self:submit(request, line, targets)
  job.quiet = true
  if not self:wait(job, self.interactive and 10 or 600) then return nil, job end
  return job.answers, job
end

--- An idle rank's answer, soon. nil: none answers.
function Ranks:peek(request)
  for _, rank in ipairs(self:alive()) do
    local r = self.ranks[rank]
    if not r.job then
      local job = self:submit(request, 0, { rank })
      job.quiet = true
      local limit = accel.clock() + EARLY
      while next(job.left) and accel.clock() < limit do
        if accel.console.poll({ r.channel }, EARLY) == "ready" then self:take(rank) else break end
      end
      return job.answers[rank]
    end
  end
end

-- TAB
function Ranks:complete(line, word)
  local _, code = commands.addressed(line)
  local a = self:peek { op = "complete", text = code, word = word, paused = self.paused }
  return a and complete.offer(a.lines, a.help, word, function(lines) self:say(lines) end) or {}
end

--- Waits until every rank has introduced itself, or is gone. They load the library meanwhile.
function Ranks:greet(seconds)
  local limit = accel.clock() + seconds
  while accel.clock() < limit do
    local missing = false
    for rank = 0, self.size - 1 do missing = missing or not (self.ranks[rank].hello or self.ranks[rank].dead) end
    if not missing then break end
    local what, i = accel.console.poll(self:channels(), 1)
    if what == "ready" then self:take(i - 1) end
  end
  return self.ranks[0].hello or {}
end

--- Lets all go: how is "continue" or "quit".
function Ranks:finish(how)
  self.over = true
  for rank = 0, self.size - 1 do
    local r = self.ranks[rank]
    if not r.dead then r.channel:send(accel.encode { op = "end", how = how }) end
  end
  self.pages:close()
end

return Ranks
