-- Jobs that this user can inspect: the folders in which their ranks describe themselves (host/attach/folder.c), the status pages of a job,
-- and connections to its ranks, which answer requests of accel/attach.h. Used by client.lua, dap.lua and the commands ps, top, stacks.
local accel = ...
local Pages = accel.host_chunk "attach/pages"

local M = {}

local ANSWER_SECONDS <const> = 1.0 -- for which a rank that is looked at is waited for

--- The folder of all jobs.
function M.folder()
  local runtime = os.getenv "XDG_RUNTIME_DIR"
  if runtime and runtime:sub(1, 1) == "/" and #runtime < 160 then return runtime .. "/accel" end
  return ("/tmp/accel-%d"):format(accel.console.uid())
end

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

M.process_state, M.held = Pages.process_state, Pages.held

-- Start time of a process in ticks after boot, as in its description. nil: no process has this number.
local function start_of(pid)
  local text = read(("/proc/%d/stat"):format(pid))
  local rest = text and text:match "%) (.*)$"
  if not rest then return nil end
  local n = 3
  for word in rest:gmatch "%S+" do
    if n == 3 and (word == "Z" or word == "X") then return nil end
    if n == 22 then return math.tointeger(tonumber(word)) end
    n = n + 1
  end
end

-- A job's description: ranks by number. A folder whose ranks were killed, so that they could not tidy up, is removed, unless the job has begun
-- anew in it.
local function job_of(folder, id)
  local job = { id = id, folder = folder .. "/" .. id, ranks = {}, list = {} }
  local dead = false
  local names = accel.listdir(job.folder) or {}
  for _, name in ipairs(names) do
    local text = name:find "^rank%d+%.json$" and read(job.folder .. "/" .. name)
    local ok, rank = pcall(accel.json.decode, text or "null")
    if ok and type(rank) == "table" and math.type(rank.pid) == "integer" and math.type(rank.rank) == "integer" then
      if start_of(rank.pid) == rank.start then
        job.ranks[rank.rank] = rank
        job.list[#job.list + 1] = rank
      else
        dead = true
      end
    end
  end
  if #job.list == 0 then
    if dead then accel.console.attach.tidy(job.folder) end -- else its ranks are about to describe themselves
    return nil
  end
  table.sort(job.list, function(a, b) return a.rank < b.rank end)
  local first = job.list[1]
  job.script, job.began, job.size, job.first = first.script, first.began, first.ranks, first.rank
  return job
end

--- All jobs, the youngest last. A folder that other users could write to is ignored: /tmp belongs to everybody, and so may its entries.
function M.list()
  local folder, jobs = M.folder(), {}
  if not accel.console.is_private(folder) then return jobs end
  for _, id in ipairs(accel.listdir(folder) or {}) do
    local tunnel = id:match "^tunnel%-(%d+)"
    if id:find "^%x+$" then jobs[#jobs + 1] = job_of(folder, id)
    elseif tunnel and not M.process_state(tunnel) then -- of relay.lua, killed
      for _, name in ipairs(accel.listdir(folder .. "/" .. id) or {}) do os.remove(("%s/%s/%s"):format(folder, id, name)) end
      os.remove(folder .. "/" .. id)
    end
  end
  table.sort(jobs, function(a, b)
    if a.began ~= b.began then return a.began < b.began end
    return a.id < b.id
  end)
  return jobs
end

--- The job for a word of the command line: the prefix of its name, a rank's process, its script. Without a word, the only one.
---@return table? job
---@return string? why
function M.find(word)
  local jobs = M.list()
  if #jobs == 0 then return nil, "you have no running script; start one with accel-run SCRIPT" end
  local found = {}
  for _, job in ipairs(jobs) do
    local pid = false
    for _, rank in ipairs(job.list) do pid = pid or tostring(rank.pid) == word end
    if not word or job.id:sub(1, #word) == word or pid or job.script == word or job.script:match "[^/]*$" == word then
      found[#found + 1] = job
    end
  end
  if #found == 1 then return found[1] end
  local names = {}
  for _, job in ipairs(#found > 0 and found or jobs) do names[#names + 1] = ("%s (%s)"):format(job.id, job.script) end
  if #found == 0 then return nil, ("no job '%s'; choose from: %s"):format(word, table.concat(names, ", ")) end
  local several = word and ("'%s' means %d jobs"):format(word, #found) or ("%d jobs run here"):format(#found)
  return nil, ("%s; say which: %s"):format(several, table.concat(names, ", "))
end

--- The status pages of a job's ranks (pages.lua). nil, reason.
function M.pages(job) return Pages.open(job) end

--- The job for a word of the command line, as in find, with its ranks on other machines (relay.lua). hosts: names, "a,b". nil: those that
--- its ranks know of. Unreachable machines are reported on standard error.
---@return table? job
---@return string? why
function M.find_everywhere(word, hosts)
  local job, why = M.find(word)
  if not job then return nil, why end
  for _, reason in ipairs(accel.host_chunk("attach/relay").widen(job, hosts)) do
    io.stderr:write("accel-run: not reached: ", accel.console.visible(reason), "\n")
  end
  return job
end

-- ---- connections ----

local Connection = {}
Connection.__index = Connection

--- Sends a request, and waits for the answer with a limit. nil, reason: "gone", or "no answer" (from a stopped process). One that comes
--- later is passed over.
function Connection:ask(text, seconds)
  if not self.channel:send(text) then return nil, "gone" end
  local limit = accel.clock() + (seconds or 2)
  while true do
    local answer = self.channel:receive()
    if answer and self.owed == 0 then return answer end
    if answer then self.owed = self.owed - 1 end
    if answer == false then return nil, "gone" end
    local left = limit - accel.clock()
    if left <= 0 then
      self.owed = self.owed + 1
      return nil, "no answer"
    end
    if not answer then accel.console.poll({ self.channel }, left, false, true) end
  end
end

function Connection:close() self.channel:close() end
Connection.__close, Connection.__gc = Connection.close, Connection.close

--- The folder of a rank's sockets: the job's, or a tunnel's to its machine.
function M.folder_of(job, rank) return job.ranks[rank] and job.ranks[rank].folder or job.folder end

--- A job's token. nil: it has ended.
function M.token(folder) return read(folder .. "/token") end

--- A connection to a rank, authenticated by the token. nil, reason.
function M.connect(job, rank, seconds)
  local folder = M.folder_of(job, rank)
  local token = M.token(folder)
  if not token then return nil, "the job has ended" end
  local channel, why = accel.console.connect(folder, ("rank%d"):format(rank))
  if not channel then return nil, why end
  local self = setmetatable({ channel = channel, owed = 0 }, Connection)
  local answer
  answer, why = self:ask("hello " .. token, seconds)
  self.id = answer and answer:match "^ok (%d+)$"
  if self.id then return self end
  self:close()
  return nil, answer or why
end

--- The stacks of ranks, requested all at once: texts of a frame a line, by rank. For those that do not answer in time, the reason.
---@param ranks integer[]
---@param all? boolean functions of the library as well
---@return table<integer, string> stacks
---@return table<integer, string> whys
function M.stacks(job, ranks, all)
  local stacks, whys, asked, limit = {}, {}, {}, accel.clock() + ANSWER_SECONDS
  for _, rank in ipairs(ranks) do
    local folder = M.folder_of(job, rank)
    local token, channel, why = M.token(folder), accel.console.connect(folder, ("rank%d"):format(rank))
    if channel and token and channel:send("hello " .. token) and channel:send(all and "stacks all" or "stacks") then
      asked[#asked + 1] = { rank = rank, channel = channel, answers = 0 }
    else
      whys[rank] = why or "gone"
    end
  end
  while #asked > 0 and accel.clock() < limit do
    local channels = {}
    for i, a in ipairs(asked) do channels[i] = a.channel end
    local what, i = accel.console.poll(channels, limit - accel.clock(), false, true)
    local a = what == "ready" and asked[i]
    local answer = a and a.channel:receive()
    if answer then
      a.answers = a.answers + 1
      if a.answers == 2 then stacks[a.rank] = answer
      elseif not answer:find "^ok" then answer, whys[a.rank] = false, answer end
    end
    if a and (answer == false or stacks[a.rank]) then
      whys[a.rank] = not stacks[a.rank] and (whys[a.rank] or "gone") or nil
      a.channel:close()
      table.remove(asked, i)
    end
  end
  for _, a in ipairs(asked) do
    whys[a.rank] = "no answer"
    a.channel:close()
  end
  return stacks, whys
end

return M
