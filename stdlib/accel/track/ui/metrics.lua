--- The last values of all runs of a store in Prometheus' text format, version 0.0.4, for /metrics of accel-run ui. Used by server.lua.
---
--- A family is one group: HELP, TYPE, then all its samples. Prometheus ends a scrape at a family that begins twice. Samples of a series
--- whose last value is not a number are NaN, so that an alert on NaN can fire.
local M = {}

M.CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

local escaped <const> = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }

--- A label's value. Bytes that are not UTF-8, which the format excludes, become U+FFFD.
local function label(s)
  local at = 1
  while true do
    local length, bad = utf8.len(s, at)
    if length then break end
    s = s:sub(1, bad - 1) .. "\u{FFFD}" .. s:sub(bad + 1)
    at = bad + 3
  end
  return (s:gsub('[\\"\n]', escaped))
end

--- A sample's value, as Go's ParseFloat reads it.
---@param x number? nil: not a number
---@return string
function M.value(x)
  if x == nil or x ~= x then return "NaN" end
  if x == math.huge then return "+Inf" elseif x == -math.huge then return "-Inf" end
  return ("%.17g"):format(x)
end

--- name, help, and the value that a family has for a series (nil: no sample).
local of_series <const> = {
  { "accel_value", "Last logged value of a series.", function(s) return M.value(s.last) end },
  { "accel_step", "Step of the last logged value of a series.", function(s) return s.last_step and ("%d"):format(s.last_step) end },
  { "accel_points_total", "Logged values of a series.", function(s) return ("%d"):format(s.n) end, "counter" },
  { "accel_not_finite_total", "Logged values of a series that are not finite.", function(s) return ("%d"):format(s.n - s.finite) end, "counter" },
}
local of_run <const> = {
  { "accel_running", "1 while a run is running, otherwise 0.", function(r) return r.status == "running" and "1" or "0" end },
  { "accel_run_started_seconds", "Time when a run began, in seconds since 1970.", function(r) return M.value(r.started) end },
}

local function family(out, row, kind)
  out[#out + 1] = ("# HELP %s %s"):format(row[1], row[2])
  out[#out + 1] = ("# TYPE %s %s"):format(row[1], kind or "gauge")
end

--- The page.
---@param store accel.track.Store
---@return string
function M.text(store)
  local out, labels = {}, {}
  local runs = assert(store:runs())
  for _, run in ipairs(runs) do
    labels[run.id] = ('run="%s",name="%s",project="%s"'):format(label(run.uid), label(run.name), label(run.project))
  end
  for _, row in ipairs(of_run) do
    family(out, row)
    for _, run in ipairs(runs) do out[#out + 1] = ("%s{%s} %s"):format(row[1], labels[run.id], row[3](run)) end
  end
  local series = assert(store:rows "SELECT run, tag, n, finite, last, last_step FROM series ORDER BY run DESC, tag")
  for _, s in ipairs(series) do s.labels = labels[s.run] and ('%s,tag="%s"'):format(labels[s.run], label(s.tag)) end
  for _, row in ipairs(of_series) do
    family(out, row, row[4])
    for _, s in ipairs(series) do
      local value = s.labels and row[3](s) -- a run may have come since
      if value then out[#out + 1] = ("%s{%s} %s"):format(row[1], s.labels, value) end
    end
  end
  return table.concat(out, "\n") .. "\n"
end

return M
