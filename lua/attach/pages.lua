-- The status pages of a job's ranks as one list, on any machine: those that one launcher started share a segment, others have one each, and
-- a tunnel (relay.lua) provides other machines' pages. Used by jobs.lua.
local accel = ...

local Pages = {}
Pages.__index = Pages

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

--- The state letter of a process, "R", "S", "T" (stopped), "t" (held by a debugger) ... nil: it is gone.
local function process_state(pid)
  local letter = (read(("/proc/%d/stat"):format(pid)) or ""):match "%) (%a)"
  return letter ~= "Z" and letter ~= "X" and letter or nil
end
Pages.process_state = process_state

--- The reason why a process of this machine cannot run: "is stopped; kill -CONT 7 lets it continue". nil: nothing.
function Pages.held(pid)
  local letter = process_state(pid)
  if letter == "T" then return ("is stopped; kill -CONT %d lets it continue"):format(pid) end
  if letter == "t" then
    local tracer = (read(("/proc/%d/status"):format(pid)) or ""):match "TracerPid:%s+(%d+)"
    return ("is held by a debugger%s"):format(tracer and tracer ~= "0" and (" (pid %s)"):format(tracer) or "")
  end
end

-- ---- of another machine ----

local Remote = {}
Remote.__index = Remote

function Remote:ask(text)
  local limit = accel.clock() + 2
  if not self.channel or not self.channel:send(text) then return {} end
  while accel.clock() < limit do
    local bytes = self.channel:receive()
    if bytes == false then return {} end
    if bytes then return accel.decode(bytes) end
    accel.console.poll({ self.channel }, limit - accel.clock(), false, true)
  end
  return {}
end

function Remote:read()
  local answer = self:ask "read"
  return answer.pages or {}, answer.abort
end
function Remote:resume() self:ask "resume" end
function Remote:renew() self:ask "renew" end
function Remote:close() if self.channel then self.channel:close() end end

-- ---- all of them ----

--- nil, why there are none.
function Pages.open(job)
  local self = setmetatable({ parts = {}, ranks = {}, local_pids = {} }, Pages)
  local covered, why = {}, "no rank has any"
  for _, rank in ipairs(job.list) do
    self.ranks[#self.ranks + 1] = rank.rank
    if rank.folder then
      if not covered[rank.folder] then
        self.parts[#self.parts + 1] = setmetatable({ channel = accel.console.connect(rank.folder, "pages") }, Remote)
      end
      covered[rank.folder] = true
    elseif not covered[rank.rank] then
      local part, reason = accel.console.pages(("/proc/%d/fd/%d"):format(rank.pid, rank.segment))
      if part then
        self.parts[#self.parts + 1] = part
        for _, page in ipairs(part:read()) do covered[page.rank] = true end
      else
        why = reason
      end
    end
  end
  if #self.parts == 0 then return nil, why end
  return self
end

--- The content of each rank's page, in the order of ranks. held and memory (KiB) of living ones. The reason for which collectives were
--- stopped.
function Pages:read()
  local by_rank, list, abort_reason = {}, {}, nil
  for _, part in ipairs(self.parts) do
    local pages, reason = part:read()
    for _, page in ipairs(pages) do
      if not by_rank[page.rank] then
        by_rank[page.rank] = page
        if getmetatable(part) ~= Remote and page.state == "running" then
          page.held = Pages.held(page.pid) or page.stopped and "is stopped" or nil
          page.memory = math.tointeger(tonumber((read(("/proc/%d/status"):format(page.pid)) or ""):match "VmRSS:%s+(%d+)"))
        end
        list[#list + 1] = page
      end
    end
    abort_reason = abort_reason or reason
  end
  table.sort(list, function(a, b) return a.rank < b.rank end)
  return list, abort_reason
end

--- One rank's page, of a list that read gave.
function Pages.of(list, rank)
  for _, page in ipairs(list) do
    if page.rank == rank then return page end
  end
end

--- Asks the launcher of an elastic job for n ranks ("scale"), or for a rank to leave ("leave"). nil, why.
function Pages:ask(what, n)
  if #self.parts ~= 1 or getmetatable(self.parts[1]) == Remote then return nil, "it is not a job of one machine" end
  return self.parts[1][what](self.parts[1], n)
end

local function each(name)
  return function(self)
    for _, part in ipairs(self.parts) do part[name](part) end
  end
end
Pages.resume, Pages.renew, Pages.close = each "resume", each "renew", each "close"
Pages.__gc, Pages.__close = Pages.close, Pages.close

return Pages
