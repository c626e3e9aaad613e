--- accel-run runs tail: the last values of a run, a line for each step. --follow waits for more of them.
local accel = require "accel"
local command = require "accel.cli.command"
local core = require "accel.track.core"
local opened = require "accel.cli.runs_store"
local shown = require "accel.cli.runs_shown"

local PROGRAM <const> = "accel-run runs tail"
local POLL_SECONDS <const> = 0.5

--- Lines of steps from points of several series, in the order of logging.
local function print_points(points)
  local steps, by = {}, {}
  for _, p in ipairs(points) do
    local at = by[p.step]
    if not at then
      at = { step = p.step }
      by[p.step], steps[#steps + 1] = at, at
    end
    at[#at + 1] = ("%s %s"):format(p.tag, p.value and shown.number(p.value) or "nan")
  end
  for _, at in ipairs(steps) do command.say("step %-8d %s", at.step, table.concat(at, "  ")) end
  io.stdout:flush()
end

return function(...)
  local o, words = command.parse({
    name = PROGRAM, usage = "RUN", summary = "Prints the last values of a run.", opened.option,
    { "lines", "int", 10, "N", "steps to begin with", least = 0 }, { "follow", "flag", false, nil, "wait for more until the run ends" },
    { "metric", "string", nil, "NAME", "only this series, or those that a pattern like 'val/*' means" },
    { "system", "flag", false, nil, "include machine metrics" },
  }, 1, 1, ...)
  local store <close>, run = opened.run(PROGRAM, o, words[1])
  if not run then return false end
  local seen, plots = {}, require "accel.track.plot" -- seen: points of each series that were printed
  local function fresh(first)
    local taken, points = {}, {}
    for _, tag in ipairs((plots.tags(store.store, { run }, o.metric, o.system))) do taken[tag] = true end
    for _, s in ipairs(opened.need(store.store:series(run)) or {}) do
      local from = first and math.max(0, s.n - o.lines) or seen[s.id] or 0
      if taken[s.tag] and s.n > from then
        local list = opened.need(store.store:rows("SELECT step, seq, wall, value FROM points WHERE series=? AND step>=? AND seq>=?"
          .. " ORDER BY seq", s.id, first and from > 0 and s.last_step - 50 * o.lines or math.mininteger, from)) or {}
        for _, p in ipairs(list) do
          p.tag = s.tag
          points[#points + 1] = p
        end
        seen[s.id] = s.n
      end
    end
    table.sort(points, function(a, b)
      if a.step ~= b.step then return a.step < b.step end
      return a.tag < b.tag
    end)
    if first then
      local steps, last = 0, nil
      for i = #points, 1, -1 do
        if points[i].step ~= last then steps, last = steps + 1, points[i].step end
        if steps > o.lines then
          points = table.move(points, i + 1, #points, 1, {})
          break
        end
      end
    end
    print_points(points)
  end
  fresh(true)
  accel.on_interrupt "flag"
  while o.follow do
    local now = opened.need(store.store:find(run.uid))
    if not now then return false end
    if now.status ~= "running" then
      fresh(false)
      command.say("%s: %s", now.name, now.status)
      break
    end
    core.pause(POLL_SECONDS)
    fresh(false)
    if accel.interrupted() then break end
  end
  return true
end
