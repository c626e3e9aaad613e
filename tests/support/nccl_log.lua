--- Runs a script on ranks whose NCCL is the stand-in (tests/cuda/twin/nccl.cpp), and reads the calls that it noted: for the tests of
--- tests/cuda/nccl_*.lua.
local accel = require "accel"
local process = accel.process

local M = {}

local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

---@class accel.tests.NcclCall
---@field rank integer of the communicator
---@field ranks integer members of it
---@field comm string name of the communicator, the same on all members
---@field kind string
---@field dtype string NCCL's number
---@field op string NCCL's number of the reduction
---@field root string
---@field count integer elements
---@field messages integer sends and receives in one group
---@field registered boolean
---@field stream integer streams of a process are numbered as they come; 0: none

--- The calls that a log has, in the order in which they began.
---@param path string
---@return accel.tests.NcclCall[]
function M.read(path)
  local calls = {}
  local l <close> = io.open(path)
  for line in l and l:lines() or function() end do
    local me, n, comm, kind, dtype, op, root, count, messages, registered, stream =
      line:match "^(%d)/(%d) (%S+) (%S+) type (%d+) op (%d+) root (%d+) count (%d+) messages (%d+) registered (%S+) stream (%d+)$"
    assert(me, line)
    calls[#calls + 1] = { rank = math.tointeger(me), ranks = math.tointeger(n), comm = comm, kind = kind, dtype = dtype, op = op, root = root,
      count = math.tointeger(count), messages = math.tointeger(messages), registered = registered == "yes", stream = math.tointeger(stream) }
  end
  return calls
end

--- What the ranks print, the exit code, and the calls of all ranks in the order in which they began.
---@param script string
---@param name string the script's first argument, which names the case
---@param ranks integer
---@param env? table<string, string>
---@param o? {args: string?, options: string?} more arguments; options of accel-run
---@return string text, integer code, accel.tests.NcclCall[] calls
function M.run(script, name, ranks, env, o)
  o = o or {}
  local out, log = ("%s/%s.out"):format(tmp, name), ("%s/%s.log"):format(tmp, name)
  os.remove(log)
  local words = { ("NCCL_TWIN_LOG='%s'"):format(log) }
  for key, value in accel.pairs(env or {}) do words[#words + 1] = ("%s='%s'"):format(key, value) end
  local command = ("env -u ACCEL_DEVICE %s timeout 120 '%s' --num-threads 1 --num-processes %d %s '%s' %s %s >'%s' 2>&1"):format(
    table.concat(words, " "), process.program(), ranks, o.options or "", script, name, o.args or "", out)
  local _, _, code = os.execute(command)
  local f <close> = assert(io.open(out))
  return f:read "a", code, M.read(log)
end

--- Of one member: its calls but for those of registers, in order; how many segments it registered and took back.
---@param calls accel.tests.NcclCall[]
---@param rank integer
---@return accel.tests.NcclCall[] list, integer known, integer taken
function M.of_rank(calls, rank)
  local list, known, taken = {}, 0, 0
  for _, c in ipairs(calls) do
    if c.rank == rank then
      if c.kind == "register" then known = known + 1
      elseif c.kind == "deregister" then taken = taken + 1
      else list[#list + 1] = c end
    end
  end
  return list, known, taken
end

--- The lines "loss RANK STEP VALUE" of a text, by "RANK STEP".
---@param text string
---@return table<string, number>
function M.losses(text)
  local list = {}
  for rank, step, loss in text:gmatch "loss (%d+) (%d+) (%-?[%d.]+)" do list[rank .. " " .. step] = tonumber(loss) end
  return list
end

--- Losses on devices are those of the host.
---@param name string
---@param text string what ran on devices printed
---@param host string
---@param n integer how many there are
function M.same_losses(name, text, host, n)
  local want, seen = M.losses(host), 0
  for key, loss in pairs(M.losses(text)) do
    seen = seen + 1
    assert(want[key] and math.abs(want[key] - loss) <= 2e-5 * want[key],
      ("%s: loss %s is %s, on the host %s"):format(name, key, loss, want[key]))
  end
  assert(seen == n, ("%s: %d losses, not %d\n%s"):format(name, seen, n, text))
end

return M
