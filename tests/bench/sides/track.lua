-- Time of logging, in microseconds per scalar on the calling thread, and seconds until a million are in the file. Prints one JSON object.
--   accel-run track.lua --folder DIR [--quick]
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { folder = "." }
local N <const> = o.quick and 20000 or 1000000
local r = {}

local folder = assert(accel.mkdtemp(o.folder .. "/track-"))

local BLOCK <const> = 2000

--- log(i) n times (N), and then flush: microseconds a call in the fastest block of calls, seconds in all.
local function timed(log, flush, n)
  local began, best = accel.clock(), math.huge
  for at = 0, (n or N) - BLOCK, BLOCK do
    local t = accel.clock()
    for i = at + 1, at + BLOCK do log(i) end
    best = math.min(best, accel.clock() - t)
  end
  assert(flush())
  return best / BLOCK * 1e6, accel.clock() - began
end

local writer = accel.track.SummaryWriter(folder .. "/events")
r.events, r.written = timed(function(i) writer:add_scalar("loss", 1 / i, i) end, function() return writer:flush() end)
assert(writer:close())
if require "accel.track.core".sqlite() then
  local run = accel.track.Run { dir = folder, system = false }
  r.store, r.stored = timed(function(i) run:log_scalar("loss", 1 / i, i) end, function() return run:flush() end)
  r.log = timed(function(i) run:log({ loss = 1 / i, lr = 0.1, acc = 0.5 }, i) end, function() return run:flush() end, N // 10)
  assert(run:finish())
end
side.finish(r)
