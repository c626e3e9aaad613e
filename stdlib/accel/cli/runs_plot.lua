--- accel-run runs plot: curves of runs as text, one plot per series, several runs in one.
local command = require "accel.cli.command"
local opened = require "accel.cli.runs_store"
local plots = require "accel.track.plot"
local shown = require "accel.cli.runs_shown"

local PROGRAM <const> = "accel-run runs plot"

return function(...)
  local o, words = command.parse({
    name = PROGRAM, usage = "RUN ...", summary = "Draws curves of runs as text. The first run is a line, and others are marks on it.",
    opened.option, { "metric", "string", nil, "NAME", "only this series, or those that a pattern like 'val/*' means" },
    { "x", { "step", "time" }, "step", "WORD", "the horizontal axis; time: seconds since the run began" },
    { "smooth", "number", 0, "W", "exponential moving average; this weight, 0 to 1, for the previous value" },
    { "log", "flag", false, nil, "logarithms of the values" },
    { "system", "flag", false, nil, "include machine metrics" },
    { "height", "int", 12, "N", "lines of a plot", least = 2, excludes = "svg" },
    { "width", "int", nil, "N", "columns [the terminal's, 80 in a pipe]", least = 20, excludes = "svg" },
    { "ascii", "flag", false, nil, "no Braille characters", excludes = "svg" }, { "svg", "string", nil, "FILE", "write one series as SVG instead" },
  }, 1, 8, ...)
  if o.smooth < 0 or o.smooth >= 1 then
    return command.refuse(PROGRAM, "--smooth must lie in 0 .. 1, below 1, got %g", o.smooth)
  end
  local store <close> = opened.open(PROGRAM, o)
  if not store then return false end
  local runs = {}
  for i, word in ipairs(words) do
    runs[i] = opened.need(store.store:find(word))
    if not runs[i] then return false end
  end
  local tags, known = plots.tags(store.store, runs, o.metric, o.system)
  if #tags == 0 then
    local near = o.metric and require "accel.util.nearest"(o.metric, known)
    return command.refuse(PROGRAM, "%s%s", o.metric and ("no series '%s'"):format(o.metric) or "nothing was logged",
      near and ("; did you mean '%s'?"):format(near) or "")
  end
  local drawing = { width = o.width or shown.width(), height = o.height, axis = o.x,
    smooth = o.smooth, log = o.log }
  if o.ascii then drawing.utf8 = false end
  if o.svg then
    if #tags > 1 then return command.refuse(PROGRAM, "--svg takes one series; select one with --metric NAME: %s", table.concat(tags, ", ")) end
    local ok, message = require "accel.util.writer".file(o.svg, plots.svg(store.store, runs, tags[1], drawing))
    if not ok then return command.refuse(PROGRAM, "%s", message) end
    return true
  end
  for i, tag in ipairs(tags) do
    if i > 1 then print "" end
    command.say("%s", tag)
    io.write(plots.text(store.store, runs, tag, drawing))
  end
  return true
end
