--- A launch over the machines of a hostfile: accel-run is started on each by ssh (or pdsh), with its number. Called by accel-run launch
--- where a configuration names deepspeed_hostfile and several machines.
local accel = require "accel"

local M = {}

--- Machines of a hostfile: "name slots=N" a line, # begins a comment. Filters of slots of one machine are not taken.
---@param path string
---@param include? string machines joined by @
---@param exclude? string
---@return string[]? hosts
---@return string? message
function M.read(path, include, exclude)
  local file, why = io.open(path, "rb")
  if not file then return nil, why end
  local only, without, hosts = {}, {}, {}
  for set, text in next, { [only] = include or "", [without] = exclude or "" } do
    if text:find(":", 1, true) then
      file:close()
      return nil, ("'%s' names slots of a machine; name whole machines, name@name, or say gpu_ids"):format(text)
    end
    for name in text:gmatch "[^@]+" do set[name] = true end
  end
  for line in file:lines() do
    local name = line:gsub("#.*", ""):match "^%s*(%S+)"
    if name and not without[name] and (next(only) == nil or only[name]) then hosts[#hosts + 1] = name end
  end
  file:close()
  if #hosts == 0 then return nil, path .. ": no machines are left" end
  return hosts
end

local function quote(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

--- What the shell of a machine runs.
---@param argv string[]
---@param env table<string, string>
---@param dir string
---@return string
function M.shell(argv, env, dir)
  local words = { "cd", quote(dir), "&&", "exec", "env" }
  for name, value in accel.pairs(env) do words[#words + 1] = quote(name .. "=" .. value) end
  for _, word in ipairs(argv) do words[#words + 1] = quote(word) end
  return table.concat(words, " ")
end

local POLL <const> = 0.1

--- Runs one command per machine to the end of all; the first that fails ends the others. Returns the exit status.
---@param remote string program: ssh or pdsh
---@param hosts string[]
---@param command fun(machine: integer): string of the machine's number, from 0
---@return integer status
---@return string? host that failed first
function M.run(remote, hosts, command)
  local running <close> = setmetatable({}, { __close = function(list)
    for _, p in next, list do p:close() end
  end })
  local name = remote:match "[^/]*$"
  for i, host in ipairs(hosts) do
    local argv = name == "pdsh" and { name, "-S", "-w", host, command(i - 1) } or { name, "-o", "BatchMode=yes", host, command(i - 1) }
    running[i] = accel.process.spawn(remote, argv, {})
  end
  local sent = false
  while next(running) do
    for i, p in accel.pairs(running) do
      local how, number = p:wait(POLL)
      local signal = p:interrupted()
      if how then
        running[i] = nil
        local status = how == "exit" and number or 128 + number
        if status ~= 0 then
          io.stderr:write(("accel-run launch: machine %d (%s) ended with status %d\n"):format(i - 1, hosts[i], status))
          return status, hosts[i]
        end
      elseif signal and not sent then
        sent = true
        for _, other in next, running do other:signal(signal) end
      end
    end
  end
  return 0
end

return M
