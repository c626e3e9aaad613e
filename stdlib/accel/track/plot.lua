--- Curves of runs in a store as text or SVG: accel.plot and `accel-run runs plot`.
local accel = require "accel"
local options = require "accel.util.options"
local plot = require "accel.util.plot"
local raise = require "accel.util.raise"

local M = {}

--- Names of series that runs have, in order: those matching a pattern ("loss", "val/*"), without machine metrics by default.
---@param store accel.track.Store
---@param runs table[]
---@param pattern? string
---@param system? boolean
---@return string[] tags, string[] all
function M.tags(store, runs, pattern, system)
  local seen, out, all = {}, {}, {}
  local match = pattern and "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", ".*") .. "$"
  for _, run in ipairs(runs) do
    for _, s in ipairs(store:series(run) or {}) do
      if not seen[s.tag] then
        seen[s.tag], all[#all + 1] = true, s.tag
        if match and s.tag:find(match) or not match and (system or not s.tag:find "^system/") then out[#out + 1] = s.tag end
      end
    end
  end
  table.sort(out)
  return out, all
end

local drawing <const> = { width = options.none, height = 12, utf8 = options.none, axis = "step", smooth = 0, log = false }

--- The same series of several runs as accel.util.plot takes them.
local function curves(store, runs, tag, o)
  local out = {}
  for _, run in ipairs(runs) do
    for _, s in ipairs(store:series(run) or {}) do
      if s.tag == tag then
        local c = assert(store:curve(s.id, { axis = o.axis == "time" and "wall" or "step", points = 2000 }))
        local mean
        for i, y in ipairs(c.y) do
          if y == y then
            mean = mean and o.smooth * mean + (1 - o.smooth) * y or y
            c.y[i] = mean
          end
          if o.log then c.y[i] = c.y[i] > 0 and math.log(c.y[i], 10) or 0 / 0 end
          if o.axis == "time" then c.x[i] = c.x[i] - run.started end
        end
        out[#out + 1] = { name = run.name, x = c.x, y = c.y }
      end
    end
  end
  return out
end

--- One series of runs, as text.
---@param store accel.track.Store
---@param runs table[] rows of Store:runs
---@param tag string
---@param opts? {width: integer?, height: integer?, utf8: boolean?, axis: "step"|"time"?, smooth: number?, log: boolean?}
---@return string
function M.text(store, runs, tag, opts)
  local o = options("plot", opts, drawing)
  return plot.text(curves(store, runs, tag, o), { width = o.width, height = o.height, utf8 = o.utf8,
    xlabel = o.axis == "time" and "s" or "step" })
end

--- One series of runs, as SVG.
---@return string
function M.svg(store, runs, tag, opts)
  local o = options("plot", opts, drawing)
  return plot.svg(curves(store, runs, tag, o), { title = tag, xlabel = o.axis == "time" and "s" or "step",
    ylabel = o.log and "log10" or "" })
end

--- accel.plot: the curves of a run as text, which it also prints. In a notebook it shows them as SVG.
---@param where accel.track.Run|string a run, or the folder of a store
---@param opts? {run: string?, metric: string?, width: integer?, height: integer?, axis: string?, smooth: number?, log: boolean?, print: boolean?}
---   axis: "step" or "time". run: which one of a folder's ("last"). metric: a name or pattern, default: all
---@return string
function M.plot(where, opts)
  local o = options("plot", opts, { run = "last", metric = options.none, width = options.none, height = 12, utf8 = options.none,
    axis = "step", smooth = 0, log = false, print = true })
  local is_run = type(where) == "table" and where.path and where.id
  if not is_run and type(where) ~= "string" then raise "plot: expected a Run or the folder of a run store" end
  if is_run and where.writer then where:flush() end
  local store = accel.track.Store(is_run and where.path or where)
  local run, message = store:find(is_run and where.id or o.run)
  if not run then raise("plot: %s", message) end
  local out, show = {}, o.print and accel.host_chunk("repl/server").display or nil
  for _, tag in ipairs((M.tags(store, { run }, o.metric))) do
    out[#out + 1] = tag .. "\n" .. M.text(store, { run }, tag, { width = o.width, height = o.height, utf8 = o.utf8, axis = o.axis,
      smooth = o.smooth, log = o.log })
    if show then
      show { ["text/plain"] = out[#out], ["image/svg+xml"] = M.svg(store, { run }, tag, { axis = o.axis, smooth = o.smooth, log = o.log }) }
    end
  end
  store:close()
  local text = #out > 0 and table.concat(out, "\n") or "(nothing to plot)\n"
  if o.print and (not show or #out == 0) then io.write(text) end
  return text
end

return M
