-- A tracker's server out of order for a minute while a script trains: nobody listens, then by turns answers are lost, a proxy's page answers,
-- it is slow and busy. No step waits, and in the end everything is there once.  tier: slow
--   accel-run tests/stdlib/track/outage_test.lua [SECONDS]
local accel = require "accel"
local core = require "accel.track.core"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
local support = require "track"
support.needs(core.http_library, core.rest_library)
local seconds = tonumber(arg[1]) or 60
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or core.current_folder()) .. "/outage-"))
local server = assert(core.http(0))
local port = server:port()
server:close()
server = nil

assert(accel.write_file(root .. "/s.lua", ([[local accel = require "accel"
local a = accel.Accelerator { log_with = "trackio" }
a:init_trackers("proj", { lr = 1 }, { trackio = { server_url = "http://127.0.0.1:%d", name = "r", outbox = "%s/box", finish_seconds = 120 } })
local slowest = 0
for i = 1, 10 * %d do
  local at = accel.clock()
  a:log({ loss = 1 / i }, i)
  slowest = math.max(slowest, accel.clock() - at)
  require "accel.track.core".pause(0.1)
end
a:end_training()
assert(accel.write_file("%s/slowest", tostring(slowest)))]]):format(port, root, seconds, root)))
os.execute(("TRACKIO_WRITE_TOKEN=secret '%s' '%s/s.lua' > '%s/log' 2>&1 &"):format(accel.process.program(), root, root))

local function json(value) return { status = 200, body = accel.json.encode(value), headers = { ["Content-Type"] = "application/json" } } end
local seen, steps, n, doubled, faults = {}, {}, 0, 0, {}
local function take(request)
  for _, log in ipairs(accel.json.decode(request:body()).logs or {}) do
    if seen[log.log_id] then
      doubled = doubled + 1
    else
      seen[log.log_id] = true
      if log.metrics.loss then
        assert(not steps[log.step] and log.metrics.loss == 1 / log.step, log.step)
        steps[log.step], n = true, n + 1
      end
    end
  end
  return json { data = accel.json.array {} }
end
local TURNS <const> = { "lost", "page", "slow" }

local began = accel.clock()
local function away() return accel.clock() - began < seconds / 4 end
local turn = 0
local function handler(request)
  local now
  if accel.clock() - began < seconds then
    now, turn = TURNS[turn % #TURNS + 1], turn + 1
    faults[now] = (faults[now] or 0) + 1
  end
  if now == "page" then return { status = 200, body = "<html>a proxy's page</html>" } end
  if now == "slow" then
    core.pause(1)
    return { status = 503, body = "busy" }
  end
  if request:path() ~= "/api/bulk_log" then return json {} end
  local answer = take(request)
  return now == "lost" and { status = 502, body = "the answer is lost" } or answer
end

local function ended() return io.open(root .. "/slowest") end
while not ended() and accel.clock() - began < seconds + 240 do
  if away() then
    core.pause(0.05)
  else
    server = server or assert(core.http(port))
    assert(server:poll(0.05, handler))
  end
end
local file = ended()
local log = io.open(root .. "/log"):read "a"
assert(file, log)
local slowest = file:read "n"
file:close()
assert(n == 10 * seconds and faults.lost and doubled > 0, ("%d entries, %s: %s"):format(n, accel.inspect(faults), log))
assert(slowest < 0.5, ("a server out of order held up a step for %.3f s"):format(slowest))
print(("%d entries, each once; %d came again and were told apart; %d requests failed; the slowest log took %.0f us"):format(n, doubled, turn,
  1e6 * slowest))
os.execute(("rm -rf '%s'"):format(root))
