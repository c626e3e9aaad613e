--- Alerts: watches a run's logged values for NaN and infinity, diverging losses, and stalls. Notifies a hook and a webhook. Made by
--- accel.track.Run { alerts = ... }. A thread (alerts_thread.lua) reads the run's store, so that neither a slow webhook nor a step that
--- hangs is in its way.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local terminal = require "accel.util.terminal"

local ALIVE_SECONDS <const>, CLOSE_SECONDS <const>, DECAY <const> = 1, 5, 0.9

local declared <const> = { nan = true, divergence = 3, metric = "loss", warmup = 20, stall_seconds = 0, webhook = options.none, hook = options.none }

--- The rules. nan: an alert once a series has NaN or an infinity (again after finite values). divergence: an alert once the moving average
--- (weight 0.9) of a series whose name contains `metric` exceeds its minimum by this factor, after `warmup` values. 0: none. stall_seconds:
--- an alert once nothing was logged for that long. 0: none. webhook: an address that gets every alert of the run, including run:alert's, as
--- JSON (Slack's `text`, Discord's `content`, and title, level, run, project, step, value). hook: a function of
--- { title, text, level, name, step, value }, called when the value is logged. An error in it ends the run. For a stall it is called at the
--- next logged value.
--- example: local run = accel.track.Run { dir = accel.mkdtemp "/tmp/x", alerts = { hook = function(a) TITLE = a.title end } }
---   run:log({ loss = 0 / 0 }, 3) run:finish() return TITLE --> "loss is nan"
---@class accel.track.Alerts
local Alerts = class "accel.track.Alerts"

---@param run accel.track.Run
---@param opts true|{nan: boolean?, divergence: number?, metric: string?, warmup: integer?, stall_seconds: number?, webhook: string?, hook: any}
function Alerts:init(run, opts, ...)
  local o = options("alerts", opts == true and {} or opts, declared, ...)
  if o.hook ~= nil and type(o.hook) ~= "function" then raise("alerts: hook must be a function, got %s", check.shown(o.hook)) end
  if o.webhook ~= nil and not tostring(o.webhook):find "^https?://" then
    raise("alerts: webhook must be an address (https://...), got %s", check.shown(tostring(o.webhook):sub(1, 8) .. "..."))
  end
  if o.divergence ~= 0 and not (o.divergence > 1) then raise("alerts: divergence must be above 1, or 0, got %g", o.divergence) end
  if o.stall_seconds < 0 then raise("alerts: stall_seconds must not be negative, got %g", o.stall_seconds) end
  if o.webhook then
    local version, message = require("accel.track.core").rest_library()
    if not version then raise("alerts: webhook: %s", message) end
  end
  self.run, self.o, self.series, self.next_look = run, o, {}, 0
  if o.webhook or o.stall_seconds > 0 then
    self.worker = accel.worker.start("accel.track.alerts_thread", { path = run.path, uid = run.id, webhook = o.webhook, stall = o.stall_seconds },
      { name = "accel-alerts" })
  end
end

local function tell(self, title, text, level, name, step, value)
  self.run:alert(title, text, { level = level, step = step })
  if self.o.hook then self.o.hook { title = title, text = text, level = level, name = name, step = step, value = value } end
end

--- Looks at a value that is logged.
---@param name string
---@param x number
---@param step integer
function Alerts:look(name, x, step)
  local o, s = self.o, self.series[name]
  if not s then
    s = { n = 0, watched = o.divergence > 0 and name:find(o.metric, 1, true) ~= nil }
    self.series[name] = s
  end
  if x - x ~= 0 then
    if o.nan and not s.bad then
      s.bad = true
      local shown = x ~= x and "nan" or x > 0 and "inf" or "-inf"
      tell(self, ("%s is %s"):format(name, shown), ("step %d"):format(step), "error", name, step, x)
    end
    return
  end
  s.bad = false
  if not s.watched then return end
  s.n = s.n + 1
  s.mean = s.mean and DECAY * s.mean + (1 - DECAY) * x or x
  if s.n < o.warmup then return end
  if not s.least or s.mean < s.least then s.least = s.mean end
  if s.least <= 0 then return end
  if not s.away and s.mean > o.divergence * s.least then
    s.away = true
    tell(self, ("%s diverges"):format(name), ("step %d: its average is %.4g, after %.4g at best"):format(step, s.mean, s.least), "error",
      name, step, x)
  elseif s.away and s.mean < (1 + o.divergence) / 2 * s.least then
    s.away = false
  end
end

--- Called once a second, when values are logged: reports the thread's messages.
function Alerts:alive()
  if not self.worker or accel.clock() < self.next_look then return end
  self.next_look = accel.clock() + ALIVE_SECONDS
  local ok, event = self.worker:receive(0)
  if ok == nil then
    io.stderr:write(("accel: alerts: their thread ended: %s\n"):format(tostring(event)))
    self.worker:close()
    self.worker = nil
  elseif ok and event.warn then io.stderr:write("accel: alerts: ", terminal.visible(event.warn), "\n")
  elseif ok and self.o.hook then self.o.hook(event) end
end

--- After the run's end is written: gives the webhook a few seconds.
function Alerts:close()
  local worker = self.worker
  self.worker = nil
  if not worker then return end
  local until_ = accel.clock() + CLOSE_SECONDS
  while accel.clock() < until_ do
    local ok, event = worker:receive(0.1)
    if ok == nil then break end
    if ok and event.warn then io.stderr:write("accel: alerts: ", terminal.visible(event.warn), "\n") end
    if ok and event.done then break end
  end
  worker:close()
end

return Alerts
