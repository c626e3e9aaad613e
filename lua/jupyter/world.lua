-- The processes in which a kernel's cells run: one, or the ranks of `%%ranks N`. Each runs repl/server.lua, and the kernel is the prompt of
-- them all (repl/front.lua), so that a cell that loops, waits or dies never blocks the kernel. Used by kernel.lua.
--
-- A process connects to a socket in a folder of this user's own. Its standard output and error are pipes to the kernel.
local accel = ...
local Front = accel.host_chunk("repl/front").Front
local Ranks = accel.host_chunk "repl/ranks"
local answers = accel.host_chunk "repl/answers"
local commands = accel.host_chunk "repl/commands"

local World = setmetatable({}, { __index = Front })
World.__index = World

local START_SECONDS <const>, PATIENCE <const>, TURN <const>, INSISTS <const> = 120, 1.0, 0.15, 2
local CODE <const> = "require('accel').host_chunk('repl/server').cells(...)"

-- The page of a process that no launcher started.
local function page_of_one(self)
  local page = { rank = 0, pid = self.pid, state = "running", step = 0, missing = {}, stopped = false }
  if not self.ended then
    local how, status = self.process:wait(0)
    self.ended = how and (how == "signal" and ("killed by signal %d"):format(status) or ("exited with status %d"):format(status or 0))
  end
  if self.ended then page.state, page.ended = "dead", self.ended end
  return page
end

local function pages_of_one(self)
  local function nothing() end
  return { read = function() return { page_of_one(self) } end, resume = nothing, renew = nothing, close = nothing }
end

-- Waits until every rank has connected and introduced itself. nil, why.
local function greet(self, listener)
  local limit, waiting = accel.clock() + START_SECONDS, {}
  local n = 0
  while n < self.size do
    local list = { listener, table.unpack(waiting) }
    local what, i = accel.console.poll(list, 0.1)
    if what == "ready" and i == 1 then waiting[#waiting + 1] = listener:accept()
    elseif what == "ready" then
      local channel = table.remove(waiting, i - 1)
      local frame = channel:receive()
      local hello = frame and accel.decode(frame)
      if hello then
        self.ranks[hello.rank] = { channel = channel, queue = {}, hello = hello }
        n = n + 1
      end
    end
    self.kernel:pass_output(self)
    local how = what ~= "ready" and self.process:wait(0)
    if how then return nil, "it ended while it started" end
    if accel.clock() > limit then return nil, ("it did not start within %d seconds"):format(START_SECONDS) end
  end
  return true
end

--- Starts the processes. kernel: whose streams they write to, with turn(seconds), pass_output(world), display(world, bundle),
--- ask(world, rank, text). nil, why.
function World.launch(kernel, size)
  local self = setmetatable({ kernel = kernel, size = size, ranks = {}, open = {}, last_id = 0, inputs = {}, places = {}, interactive = false },
    World)
  local program, where = accel.process.program()
  if not program then return nil, ("accel-run is not at %s"):format(where) end
  local why
  self.folder, why = accel.mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/accel-notebook-")
  if not self.folder then return nil, why end
  local listener = accel.console.listen(self.folder, "cells")
  local out, out_end = accel.console.pipe()
  local err, err_end = accel.console.pipe()
  self.pipes = { { fd = out, name = "stdout" }, { fd = err, name = "stderr" } }
  local words = { program }
  if size > 1 then table.move({ "--num-processes", tostring(size) }, 1, 2, 2, words) end
  table.move({ "-e", CODE, self.folder }, 1, 3, #words + 1, words)
  self.process = accel.process.spawn(program, words, { ACCEL_WORLD = false }, nil, nil, { out_end, err_end })
  self.pid = self.process:pid()
  accel.console.close(out_end)
  accel.console.close(err_end)
  local ok
  ok, why = greet(self, listener)
  listener:close()
  os.remove(self.folder .. "/cells")
  os.remove(self.folder)
  if not ok then
    self:close()
    return nil, why
  end
  local hello = self.ranks[0].hello
  self.pages = size > 1 and accel.console.pages(("/proc/%d/fd/%d"):format(hello.pid, hello.segment)) or pages_of_one(self)
  return self
end

--- Ends the processes: at their next step, or after two seconds.
function World:close()
  if self.over then return end
  self.over = true
  for rank = 0, self.size - 1 do
    local r = self.ranks[rank]
    if r and not r.dead then
      r.channel:send(accel.encode { op = "end", how = "quit" })
      r.channel:close()
      r.dead = true
    end
  end
  if not self.ended and not self.process:wait(0.5) then self.process:close() end
  self.ended = self.ended or "ended"
  self.kernel:pass_output(self)
  for _, pipe in ipairs(self.pipes) do
    if pipe.fd then accel.console.close(pipe.fd) end
    pipe.fd = nil
  end
  if self.pages then self.pages:close() end
end

--- Ctrl-C for all of them: a loop of steps ends at its next one, other code at once. A second Ctrl-C follows if the cell still runs after
--- two seconds: it leaves every pcall.
function World:interrupt()
  if self.ended or #self:busy() == 0 then return end
  self.process:signal(2)
  self.insists = accel.clock() + INSISTS
end

local function insist(self)
  if not self.insists or accel.clock() < self.insists then return end
  self.insists = nil
  if not self.ended then self.process:signal(2) end
end

-- ---- as a prompt (repl/front.lua) ----

function World:width() return 80 end

function World:say(lines)
  if type(lines) == "string" then lines = { lines } end
  if #lines > 0 then self.kernel:stream("stdout", table.concat(lines, "\n") .. "\n") end
end

function World:complain(text)
  self.complaint = self.complaint or text
  if self.complaint ~= text then self.kernel:stream("stderr", text .. "\n") end
end

--- A message of a rank that is neither output nor an answer.
function World:on_message(rank, job, a)
  if a.display then
    self:flush_output(job, false)
    self.kernel:pass_output(self)
    self.kernel:display(self, rank, job, a.display)
  elseif a.input then
    self:flush_output(job, true)
    self.kernel:pass_output(self)
    self.kernel:ask(self, rank, self.size > 1 and answers.label(self, { rank }) or "")
  end
end

--- The reply to a question of a rank. nil: nobody answers.
function World:reply(rank, text)
  local r = self.ranks[rank]
  if not r.dead then r.channel:send(accel.encode { op = "input", text = text or false }) end
end

--- Until all targets have answered. Ranks that wait for one that has answered are named once.
function World:wait(job, patience)
  local limit, told = accel.clock() + (patience or PATIENCE), false
  while next(job.left) and not self.over do
    self.kernel:turn(TURN)
    insist(self)
    self:flush_output(job, next(job.left) == nil)
    if accel.clock() > limit then
      if patience then break end
      if not told and self.size > 1 and self:is_stuck(job) then
        told, self.told_interrupt = true, true
        self:report_missing(job)
        self:say "interrupt the kernel to give up"
      end
      limit = accel.clock() + PATIENCE
    end
  end
  self.insists = nil
  return next(job.left) == nil
end

local function failure_of(a)
  local lines = {}
  for line in ((a.trace or a.message) .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = accel.console.visible(line, true) end
  return { name = a.code or "error", message = a.message:match "[^\n]*", trace = lines }
end

--- Runs a request on ranks. Its value is in self.result, an error in self.failure.
function World:run(request, line, targets)
  self:mend()
  if request.op == "eval" then request = { op = "cell", text = request.text, name = self.name, rich = self.size == 1 } end
  local job = self:submit(request, line, targets)
  self.open[job.id] = job
  self:wait(job)
  self:flush_output(job, true)
  self.kernel:pass_output(self)
  local answered, failed = {}, nil
  for rank, a in accel.pairs(job.answers) do
    answered[#answered + 1] = rank
    if not a.ok then failed = failed or a end
  end
  if #answered < #targets and not failed then failed = { message = self.complaint or "the process has ended" } end
  self.complaint = nil
  if failed then
    self.failure = failure_of(failed)
    if self.size > 1 and #answered > 0 then self.failure.trace = answers.show(self, job, answered) end
  elseif self.size == 1 then
    self.result = #job.answers[targets[1]].lines > 0 and job.answers[targets[1]] or nil
  else
    local lines = answers.show(self, job, answered)
    self.result = #lines > 0 and { lines = lines } or nil
  end
  self:finished(job)
  return failed == nil, job
end

--- A cell that is a command of a prompt or code. `:sh` runs where the cells run, and pages of help are the cell's output.
function World:input(text, line)
  local name, rest = commands.split(text)
  if name == "sh" then return (self:run({ op = "command", name = name, rest = rest }, line, { self:alive()[1] })) end
  if name == "quit" or name == "save" then
    self.failure = { name = "error", message = (":%s: a notebook has its own menu for this"):format(name), trace = {} }
    return false
  end
  if (name == "help" or name == "doc") and rest ~= "" then
    local a = self:peek { op = "kind", text = rest }
    local lines, why = commands.explanation(rest, a and a.kind, a and a.own, self:width())
    if lines then self:say(lines) else self:complain(why) end
    return lines ~= nil
  end
  return (Front.input(self, text, line))
end

--- Runs a cell: whether it worked, its value {lines, data}, or its failure {name, message, trace}.
---@return boolean ok
---@return table? result
---@return table? failure
function World:execute(text, name)
  self.name, self.result, self.failure, self.complaint = name, nil, nil, nil
  text = commands.normal(text):gsub("%s+$", "")
  if text == "" then return true end
  local command = text:find "^:%a"
  local ok = self:input(command and text:match "^%s*(.*)$" or text, 1)
  if not ok and not self.failure then
    local message = self.complaint or "it failed"
    self.failure = { name = "error", message = message, trace = { message } }
  end
  return ok, self.result, self.failure
end

--- Whether a process has ended, so that a new world is needed.
function World:is_over() return #self:alive() < self.size end

World.names = Ranks.names

return World
