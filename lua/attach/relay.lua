-- Ranks of other machines, reached by a command that runs a program there: ssh, or ACCEL_ATTACH_SSH. Nothing listens on a network address.
-- Bytes go through the connection that the command makes.
--
--   client  --sockets in a folder of this machine--  tunnel  --pipe--  ssh HOST accel-run attach --serve  --the ranks' sockets--  ranks
--
-- The tunnel is a process per machine, a child of the client. Its folder is private and has the form of a job's: a socket for each rank
-- there, the token, and a socket `pages` that returns the ranks' status pages. The two ends exchange tables by accel.encode: once, first, {
-- hello = { ranks, token } } or { refused = why }. Then { open = id, rank } or { open = id, pages = true }, { id, data }, { close = id }.
local accel = ...
local host_name = require "accel.util.host_name"
local jobs = accel.host_chunk "attach/jobs"

local M = {}

local COME_SECONDS <const> = 15 -- for the other end of a tunnel to say something

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function own_pid()
  local file <close> = assert(io.open "/proc/self/stat")
  return file:read "n"
end

local function parameter(name)
  for _, p in ipairs(accel.params()) do
    if p.name == name then return p.value end
  end
end

-- All messages of a channel, in order. false at its end.
local function messages(channel)
  return function()
    local bytes = channel:receive()
    if bytes == false then return false end
    return bytes and accel.decode(bytes) or nil
  end
end

-- One end of a tunnel: connections by id, one link for all of them. on.link(message) handles other messages of the link. on.data(id, bytes)
-- handles a connection's bytes. more: channels for which on.more(i) is called. Ends with the link, or when a function gives false.
local function carry(link, open, on, more)
  while true do
    local list, ids = { link }, {}
    for i, channel in ipairs(more) do list[i + 1] = channel end
    for id, channel in accel.pairs(open) do
      list[#list + 1] = channel
      ids[#list] = id
    end
    local what, i = accel.console.poll(list)
    if what == "ready" and i == 1 then -- Ctrl-C ("break") is the client's
      local next_message, m = messages(link), nil
      repeat
        m = next_message()
        if m == false then return end
        if m and m.data and open[m.id] then open[m.id]:send(m.data)
        elseif m and m.close and open[m.close] then
          open[m.close]:close()
          open[m.close] = nil
        elseif m then
          on.link(m)
        end
      until not m
    elseif what == "ready" and ids[i] then
      local id = ids[i]
      local bytes = open[id]:receive()
      if bytes then
        if not link:send(accel.encode { id = id, data = bytes }) then return end
      elseif bytes == false then
        open[id]:close()
        open[id] = nil
        if not link:send(accel.encode { close = id }) then return end
      end
    elseif what == "ready" and on.more(i - 1) == false then
      return
    end
  end
end

--- accel-run attach --serve JOB, on the machine that was reached: the job's ranks over standard input and output.
function M.serve(word)
  local _ <close> = accel.console.session()
  local link <close> = accel.console.channel(0, 1)
  local job, why = jobs.find(word)
  if not job then
    link:send(accel.encode { refused = why })
    return false
  end
  local pages = jobs.pages(job)
  link:send(accel.encode { hello = { ranks = job.list, token = jobs.token(job.folder) } })
  local open = {}
  local looks = {} -- connections that ask for pages
  carry(link, open, {
    link = function(m)
      if m.open and m.rank then
        open[m.open] = accel.console.connect(job.folder, ("rank%d"):format(m.rank))
        if not open[m.open] then link:send(accel.encode { close = m.open }) end
      elseif m.open then
        looks[m.open] = true
      elseif m.data and looks[m.id] and pages then
        if m.data == "renew" then pages:renew() elseif m.data == "resume" then pages:resume() end
        local list, abort_reason = pages:read()
        link:send(accel.encode { id = m.id, data = accel.encode { pages = list, abort = abort_reason } })
      elseif m.close then
        looks[m.close] = nil
      end
    end,
  }, {})
  return true
end

--- accel-run attach --tunnel FD --hosts HOST JOB, on the client's machine: see above. The client receives the folder's path over FD, and
--- ends the tunnel by closing it.
function M.tunnel(id, fd, host)
  assert(host_name(host))
  local _ <close> = accel.console.session()
  local client <close> = accel.console.channel(fd)
  local ours, theirs = accel.console.pair()
  local program = accel.process.program()
  local remote = ("p=%s; [ -x \"$p\" ] || p=accel-run; exec \"$p\" attach --serve %s"):format(quoted(program), id)
  local command = ("trap '' INT; exec %s %s %s <&%d >&%d"):format(parameter "ACCEL_ATTACH_SSH", quoted(host), quoted(remote), theirs, theirs)
  local _ <close> = accel.process.spawn("/bin/sh", { "sh", "-c", command }, { ACCEL_WORLD = "none" }, { theirs })
  accel.console.channel(theirs):close()
  local link <close> = accel.console.channel(ours)
  local what = accel.console.poll({ link }, COME_SECONDS)
  local first = what == "ready" and link:receive()
  local hello = first and accel.decode(first) or {}
  if not hello.hello then
    client:send(accel.encode { refused = hello.refused or first == false and "the command has ended" or "no answer" })
    return false
  end
  local folder = accel.console.private_folder(jobs.folder(), ("tunnel-%d"):format(own_pid()))
  local listeners, ranks, open, last = {}, {}, {}, 0
  local _ <close> = setmetatable({}, { __close = function() -- removes it
    for _, name in ipairs(accel.listdir(folder) or {}) do os.remove(folder .. "/" .. name) end
    os.remove(folder)
  end })
  accel.write_file(folder .. "/token", hello.hello.token)
  for i, rank in ipairs(hello.hello.ranks) do
    listeners[i] = accel.console.listen(folder, ("rank%d"):format(rank.rank))
    ranks[i] = rank.rank
  end
  listeners[#listeners + 1] = accel.console.listen(folder, "pages")
  listeners[#listeners + 1] = client
  client:send(accel.encode { folder = folder, ranks = hello.hello.ranks })
  carry(link, open, {
    link = function() end,
    more = function(i)
      if i == #listeners then return client:receive() ~= false end
      local channel = listeners[i]:accept()
      if not channel then return end
      last = last + 1
      open[last] = channel
      return link:send(accel.encode { open = last, rank = ranks[i], pages = ranks[i] == nil or nil })
    end,
  }, listeners)
  return true
end

-- A tunnel to a host, and its greeting. nil, reason.
local function dig(job, host)
  local ours, theirs = accel.console.pair()
  local program = accel.process.program()
  local process = accel.process.spawn(program, { program, "attach", "--tunnel", ("%d"):format(theirs), "--hosts", host, job.id },
    { ACCEL_WORLD = "none" }, { theirs })
  accel.console.channel(theirs):close()
  local channel = accel.console.channel(ours)
  accel.console.poll({ channel }, COME_SECONDS + 2)
  local bytes = channel:receive()
  local said = bytes and accel.decode(bytes) or { refused = "no answer" }
  if said.refused then
    channel:close()
    process:close()
    return nil, said.refused
  end
  return { process = process, channel = channel, folder = said.folder, ranks = said.ranks, host = host }
end

--- Adds the ranks of other machines to a job. hosts: names, "a,b". nil: those that its ranks know of.
---@return string[] whys of hosts that were not reached
function M.widen(job, hosts)
  local whys, list = {}, {}
  if not hosts and #job.list >= job.size then return whys end
  for host in (hosts or job.list[1].hosts or ""):gmatch "[^,%s]+" do
    local name, wrong = host_name(host) -- other machines sent their names
    list[#list + 1], whys[#whys + 1] = name, wrong
  end
  job.tunnels = {}
  for _, host in ipairs(list) do
    local tunnel, why = dig(job, host)
    if not tunnel then
      whys[#whys + 1] = ("%s: %s"):format(host, why)
    else
      job.tunnels[#job.tunnels + 1] = tunnel
      for _, rank in ipairs(tunnel.ranks) do
        if not job.ranks[rank.rank] then
          rank.folder, rank.host = tunnel.folder, host
          job.ranks[rank.rank] = rank
          job.list[#job.list + 1] = rank
        end
      end
    end
  end
  table.sort(job.list, function(a, b) return a.rank < b.rank end)
  return whys
end

return M
