-- Alerts: NaN, infinities, losses that run away and stalls are told once, to a hook, to a webhook that fails at first, and to the store; a
-- hook that raises ends the run.  tier: every change
--   accel-run tests/stdlib/track/alerts_test.lua
local accel = require "accel"
local core = require "accel.track.core"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local says = ranks.fails
local version, message = core.sqlite()
if not version then
  print("skip: " .. message)
  os.exit(77)
end
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/alerts-"))

local told = {}
local function hook(alert) told[#told + 1] = ("%s@%s %s"):format(alert.title, alert.step or "", alert.level) end
local run = accel.track.Run { dir = root, name = "r", system = false, alerts = { hook = hook } }
run:log({ loss = 1, other = 1 / 0 }, 1)
run:log({ loss = 0 / 0, other = 1 / 0 }, 2)
run:log({ loss = 0 / 0, other = 1 }, 3)
run:log({ loss = 1, other = -1 / 0 }, 4) -- again, after finite values
for i = 5, 40 do run:log({ loss = 1, lr = i }, i) end
for i = 41, 80 do run:log({ loss = 10, lr = 1000 * i }, i) end -- lr is not a loss
for i = 81, 150 do run:log({ loss = 1 }, i) end
for i = 151, 200 do run:log({ val = { loss = 5 }, loss = 20 }, i) end
local all = table.concat(told, "\n")
assert(told[1] == "other is inf@1 error" and told[2] == "loss is nan@2 error" and told[3] == "other is -inf@4 error", all)
assert(#told == 5 and told[4]:find "^loss diverges@4%d error" and told[5]:find "^loss diverges@15%d error", all)
run:finish()
local store = accel.track.Store(root)
local records = assert(store:records(store:runs()[1], "alert"))
assert(#records == 5 and records[1].meta.level == "error")

run = accel.track.Run { dir = root, system = false, alerts = { nan = false, divergence = 0, hook = hook } }
for i = 1, 100 do run:log({ loss = i > 50 and 0 / 0 or i * i }, i) end
assert(#told == 5, "rules that are off")
run:finish()
run = accel.track.Run { dir = root, system = false, alerts = { hook = function() error "enough" end } }
says("enough", run.log, run, { loss = 0 / 0 }, 1)
run:finish "failed"
says("unknown option 'stall_second'; did you mean", accel.track.Run, { dir = root, alerts = { stall_second = 3 } })
says("webhook must be an address", accel.track.Run, { dir = root, alerts = { webhook = "mail" } })
says("divergence must be above 1", accel.track.Run, { dir = root, alerts = { divergence = 0.5 } })

-- ---- stall and webhook ----
if core.http_library() and core.rest_library() then
  local server, got, n = assert(core.http(0)), {}, 0
  local function handler(request)
    n = n + 1
    if n == 1 then return { status = 500, body = "not yet" } end
    got[#got + 1] = accel.json.decode(request:body())
    return { status = 200, body = "ok" }
  end
  told = {}
  run = accel.track.Run { dir = root, name = "hooked", project = "p", system = false,
    alerts = { hook = hook, webhook = ("http://127.0.0.1:%d/x"):format(server:port()), stall_seconds = 1.5 } }
  run:log({ loss = 0 / 0 }, 7)
  run:alert("by hand", "words", { level = "info", step = 8 })
  local until_ = accel.clock() + 60
  repeat assert(server:poll(0.05, handler)) until #got >= 3 or accel.clock() > until_
  assert(#got == 3, #got)
  assert(got[1].title == "loss is nan" and got[1].run == "hooked" and got[1].project == "p" and got[1].level == "error" and got[1].step == 7)
  assert(got[1].text:find("[error] hooked: loss is nan", 1, true) and got[2].title == "by hand" and got[2].message == "words")
  assert(got[3].title == "the run stalls" and got[3].message:find "nothing was logged for %d+ s")
  core.pause(1)
  run:log({ loss = 1 }, 9)
  assert(told[#told] == "the run stalls@ warn", table.concat(told, "\n"))
  run:finish()
  records = assert(store:records(store:find "hooked", "alert"))
  assert(#records == 3, #records)
  server:close()
end
