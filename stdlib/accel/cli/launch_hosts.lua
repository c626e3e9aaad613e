--- A launch over the machines of a hostfile: accel-run is started on each by ssh (or pdsh), with its number. accel-run launch calls it
--- if a configuration sets deepspeed_hostfile and several machines.
local accel = require "accel"
local host_name = require "accel.util.host_name"
local open_read = require("accel.file.core").open_read

local M = {}

--- Machines of a hostfile: "name slots=N" a line, # begins a comment. Filters of slots of one machine are not taken.
---@param path string
---@param include? string machines joined by @
---@param exclude? string
---@return string[]? hosts
---@return string? message
function M.read(path, include, exclude)
  local file, why = open_read(path)
  if not file then return nil, why end
  local only, without, hosts = {}, {}, {}
  for set, text in next, { [only] = include or "", [without] = exclude or "" } do
    if text:find(":", 1, true) then
      file:close()
      return nil, ("'%s' selects slots of a machine; name whole machines, name@name, or use gpu_ids"):format(text)
    end
    for name in text:gmatch "[^@]+" do set[name] = true end
  end
  for line in file:lines() do
    local name = line:gsub("#.*", ""):match "^%s*(%S+)"
    local ok, wrong = host_name(name or "none")
    if not ok then
      file:close()
      return nil, ("%s: %s"):format(path, wrong)
    end
    if name and not without[name] and (next(only) == nil or only[name]) then hosts[#hosts + 1] = name end
  end
  file:close()
  if #hosts == 0 then return nil, path .. ": no machines are left" end
  return hosts
end

local function quote(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

--- The command for the shell of a machine.
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

local kept_secret -- of this launch, the same for all of its attempts

--- The secret of a job over several machines, which travels on the standard input of ssh: arguments and environments of ssh are for all
--- to see. It has the same source as accel-run's, or is generated. nil: --insecure is among the options.
---@param own string[] options of accel-run. This function removes those it handles
---@return string? secret
---@return string? message
function M.secret(own)
  local path, kept, i = os.getenv "ACCEL_JOB_SECRET_FILE", {}, 1
  local insecure = false
  while own[i] do
    local name, value = own[i]:match "^%-%-([^=]+)=?(.*)$"
    name = name and name:gsub("_", "-")
    insecure = insecure or name == "insecure"
    if name == "job-secret-file" then
      if value == "" then i, value = i + 1, own[i + 1] end
      path = value
    else
      kept[#kept + 1] = own[i]
    end
    i = i + 1
  end
  for k = 1, math.max(#own, #kept) do own[k] = kept[k] end
  if os.getenv "ACCEL_INSECURE" == "1" and not insecure then
    insecure, own[#own + 1] = true, "--insecure" -- ssh passes no variables on
  end
  if insecure then return nil end
  local text = os.getenv "ACCEL_JOB_SECRET"
  if path and path ~= "" then
    if path == "-" then
      text = kept_secret or io.read "L" or "" -- a later attempt of a policy: standard input has been read
    else
      local file <close>, why = open_read(path)
      if not file then return nil, why .. "; create it, or leave --job-secret-file out" end
      text = file:read "a" or ""
    end
    text = text:gsub("[\r\n]+$", "")
    if text == "" then return nil, path .. ": expected a secret of one line" end
  end
  -- the other end reads one line. More bytes would become the script's standard input
  if text and text:find "[\r\n]" then return nil, (path and path ~= "" and path or "ACCEL_JOB_SECRET") .. ": expected a secret of one line" end
  if text == nil or text == "" then text = require("accel.track.environment").random_id(52) end -- 268 bits
  if #text > 4095 then return nil, "the secret has more than 4095 bytes; shorten it" end
  kept_secret = text
  return text
end

local POLL <const> = 0.1

--- Runs one command per machine until all end. The first that fails ends the others. Returns the exit status.
---@param remote string program: ssh or pdsh
---@param hosts string[]
---@param command fun(machine: integer): string of the machine's number, from 0
---@param input? string each command's standard input. pdsh passes none on
---@return integer status
---@return string? host that failed first
function M.run(remote, hosts, command, input)
  local running <close> = setmetatable({}, { __close = function(list)
    for _, p in next, list do p:close() end
  end })
  local name = remote:match "[^/]*$"
  for i, host in ipairs(hosts) do
    local argv = name == "pdsh" and { name, "-S", "-w", host, command(i - 1) } or { name, "-o", "BatchMode=yes", host, command(i - 1) }
    running[i] = accel.process.spawn(remote, argv, {}, nil, name ~= "pdsh" and input or nil)
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
