--- The thread of alerts.lua: reads the run's store twice a second, posts its alerts to the webhook and detects a stall.
local accel = require "accel"
local core = require "accel.track.core"

local PAUSE <const>, TRIES <const> = 0.5, 5

local function message_of(url, run, alert)
  local level = accel.json.decode(alert.meta or "{}").level or "warn"
  local text = ("[%s] %s: %s%s"):format(level, run.name, alert.tag, alert.data ~= "" and " (" .. alert.data .. ")" or "")
  if url:find("discord", 1, true) then return { content = text } end
  return { text = text, title = alert.tag, message = alert.data, level = level, run = run.name, run_id = run.uid, project = run.project,
    step = alert.step, host = run.host, time = alert.wall }
end

return function(setup, endpoint)
  local store = assert(core.open_store(setup.path, true))
  local run = store:rows("SELECT id, uid, name, project, host, started FROM runs WHERE uid=?", setup.uid)[1]
  local last, tries, next_try, stalled = 0, 0, 0, false
  local function post()
    local list = store:rows("SELECT id, tag, step, wall, meta, data FROM records WHERE run=? AND kind='alert' AND id>? ORDER BY id",
      run.id, last) or {}
    for _, alert in ipairs(list) do
      local status, answer = core.request { method = "POST", url = setup.webhook, body = accel.json.encode(message_of(setup.webhook, run, alert)),
        headers = { "Content-Type: application/json" }, seconds = 10 }
      if not status or status >= 300 then
        tries = tries + 1
        next_try = accel.clock() + 2 ^ tries / 4
        if tries < TRIES then return false end
        endpoint:send { warn = ("'%s' does not reach the webhook: %s"):format(alert.tag, status and "status " .. status or answer) }
      end
      last, tries = alert.id, 0
    end
    return true
  end
  while true do
    local now = store:rows("SELECT status, (SELECT max(last_wall) FROM series WHERE run=runs.id AND tag NOT LIKE 'system/%') AS logged"
      .. " FROM runs WHERE id=?", run.id)
    local state = now and now[1]
    if now and not state then return end -- the run was removed
    if state and setup.stall > 0 and state.status == "running" then
      local quiet = core.now() - math.max(state.logged or 0, run.started)
      if quiet > setup.stall and not stalled then
        stalled = true
        local text = ("nothing was logged for %.0f s"):format(quiet)
        store:rows("INSERT INTO records(run,kind,tag,step,wall,meta,data) VALUES(?,'alert','the run stalls',0,?,'{\"level\":\"warn\"}',?)",
          run.id, core.now(), text)
        endpoint:send { title = "the run stalls", text = text, level = "warn" }
      elseif quiet <= setup.stall then stalled = false end
    end
    local sent = not setup.webhook or accel.clock() >= next_try and post()
    if sent and state and state.status ~= "running" then break end
    core.pause(PAUSE)
  end
  store:close()
  endpoint:send { done = true }
end
