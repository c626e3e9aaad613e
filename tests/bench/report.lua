-- Figures of the benches: statistics, the table (80 columns) and the JSON file. Used by harness.lua and the suites.
--
-- A row compares one figure of accel with that of its peers. Where a peer ran in several configurations the best one
-- counts (lowest median, or highest where more is better). `ratio` is how many times better accel is: the ratio of the
-- medians; `worst` that of the worst round, since both sides of a round saw the same machine.
local accel = require "accel"

local M = { suites = {}, -- what is written to the JSON file, by suite
  goals = true } -- false: sizes are not those that goals are for

local LABEL <const> = 31

--- Prints a line of the table, unless M.quiet: rows are then only kept.
local function say(text)
  if not M.quiet then print(text) end
end

function M.median(v)
  local s = table.move(v, 1, #v, 1, {})
  table.sort(s)
  local n = #s
  return n % 2 == 1 and s[(n + 1) // 2] or (s[n // 2] + s[n // 2 + 1]) / 2
end

function M.range(v) return math.min(table.unpack(v)), math.max(table.unpack(v)) end

--- Four figures, without an exponent where it can be had.
function M.number(x)
  if x ~= x or math.abs(x) == math.huge then return tostring(x) end
  local size = math.abs(x)
  if size >= 1e7 or (size < 1e-4 and size > 0) then return ("%.2e"):format(x) end
  if size >= 1000 then return ("%.0f"):format(x) end
  return (("%.4f"):format(x):gsub("^(-?[%d.]+)$", function(s)
    local digits = size >= 100 and 1 or size >= 10 and 2 or size >= 1 and 3 or 4
    return ("%." .. digits .. "f"):format(tonumber(s))
  end))
end

local function spread(v)
  local lo, hi = M.range(v)
  return ("[%s, %s]"):format(M.number(lo), M.number(hi))
end

local function summary(v)
  local lo, hi = M.range(v)
  return { median = M.median(v), min = lo, max = hi, values = accel.json.array(table.move(v, 1, #v, 1, {})) }
end

--- A copy of what is to be written, without numbers that JSON has not.
function M.finite(value)
  if type(value) == "number" then return value - value == 0 and value or accel.json.null end
  if type(value) ~= "table" or value == accel.json.null then return value end
  local copy = setmetatable({}, getmetatable(value))
  for key, v in next, value do copy[key] = M.finite(v) end
  return copy
end

--- A line of the table that is text: also kept for the JSON file.
function M.note(fmt, ...)
  local text = select("#", ...) > 0 and fmt:format(...) or fmt
  say(text)
  if M.suite then table.insert(M.suite.notes, text) end
end

--- Begins a suite: what follows belongs to it.
function M.begin(name, about)
  M.suite = { name = name, about = about, rows = accel.json.array {}, notes = accel.json.array {},
    skipped = accel.json.array {}, raw = accel.json.array {} }
  table.insert(M.suites, M.suite)
  say(("\n-- %s: %s"):format(name, about))
  say(("%-" .. LABEL .. "s %15s %16s %7s %7s"):format("", "accel", "peer", "ratio", "worst"))
end

-- ---- goals ----

-- {ratio =} times the peer, {most =} and {least =} in the row's unit. Returns the text, and how far off it is.
local function goal_text(goal, row)
  local wanted, got, more, shown
  if goal.ratio then
    wanted, got, more, shown = goal.ratio, row.ratio, true, ("%.2fx"):format(goal.ratio)
  else
    wanted, got, more = goal.most or goal.least, row.ours.median, goal.least ~= nil
    shown = ("%s %s %s"):format(more and ">=" or "<=", M.number(wanted), row.unit)
  end
  if not got then return ("goal %s  no ratio"):format(shown), nil end
  local met = more and got >= wanted or not more and got <= wanted
  if not met then
    local off = math.abs(more and 1 - got / wanted or got / wanted - 1)
    return ("goal %s  missed by %.0f %%"):format(shown, 100 * off), false
  end
  if goal.ratio and row.worst < 0.9 * wanted then return ("goal %s  unsteady"):format(shown), false end
  return ("goal %s  met"):format(shown), true
end

-- ---- rows ----

-- The peer that counts among {name = values}.
local function best_of(peers, higher)
  local best, at
  for name, v in accel.pairs(peers) do
    local m = M.median(v)
    if not best or (higher and m > at or not higher and m < at) then best, at = name, m end
  end
  return best
end

local function against(ours, theirs, higher)
  local worst = math.huge
  for i = 1, math.min(#ours, #theirs) do
    worst = math.min(worst, higher and ours[i] / theirs[i] or theirs[i] / ours[i])
  end
  local a, b = M.median(ours), M.median(theirs)
  return higher and a / b or b / a, worst
end

local function times(x) return ("%6s"):format((x >= 99.95 and "%.0fx" or "%.2fx"):format(x)) end

local function value(v, unit, width)
  return ("%" .. width .. "s"):format(("%s %s"):format(M.number(M.median(v)), unit))
end

--- Prints a row and keeps it.
---@param r table what, unit, ours (values by round), peers ({name = values}), higher (more is better), goal, share
---  (text behind it), differs ({peer = reason}: its losses are others, so that nothing may be compared)
---@return table kept
function M.row(r)
  local row = { what = r.what:gsub("^%s+", ""), unit = r.unit, higher_is_better = r.higher or false,
    ours = summary(r.ours) }
  local peers, best = {}, nil
  for name, v in accel.pairs(r.peers or {}) do
    if v and #v > 0 then
      peers[name] = v
      row.peers = row.peers or {}
      row.peers[name] = summary(v)
    end
  end
  best = best_of(peers, r.higher)
  local no = best and r.differs and r.differs[best]
  local first = ("%-" .. LABEL .. "s %s"):format(r.what:sub(1, LABEL), value(r.ours, r.unit, 15))
  local second = ("%-24s %22s"):format("", spread(r.ours))
  if best then
    row.best_peer = best
    first = first .. (" %16s"):format(value(peers[best], best:sub(1, 8), 16))
    second = second .. (" %16s"):format(spread(peers[best]))
    if no then
      row.not_comparable = no
      second = second .. " NOT COMPARABLE"
    else
      row.ratio, row.worst = against(r.ours, peers[best], r.higher)
      if row.ratio > 0 and row.ratio < math.huge and row.worst < math.huge then
        first = first .. (" %7s %7s"):format(times(row.ratio), times(row.worst))
      else -- one of them is none at all
        row.ratio, row.worst = nil, nil
      end
    end
  end
  if r.share then
    row.share = r.share
    first = best and first or first .. (" %s"):format(r.share)
    if best then second = second .. "  " .. r.share end
  end
  say((first:gsub("%s+$", "")))
  local goal
  if not M.goals then
    goal = nil
  elseif r.goal and no then
    row.met = false
  elseif r.goal then
    goal, row.met = goal_text(r.goal, row)
    row.goal = goal
  end
  if #r.ours > 1 or no then
    local one = goal and second .. "  " .. goal or second
    if #one <= 80 then
      say(one)
      goal = nil
    else
      say(second)
    end
  elseif r.share and best then
    say(("%-" .. LABEL .. "s %s"):format("", r.share))
  end
  if goal then say(("%-" .. LABEL .. "s   %s"):format("", goal)) end
  if M.suite then table.insert(M.suite.rows, row) end
  return row
end

--- Compares what both sides computed, number by number: the largest difference relative to accel's figure.
local function apart(ours, theirs)
  local most = #ours == #theirs and 0 or math.huge
  for i = 1, math.min(#ours, #theirs) do
    local d = math.abs(ours[i] - theirs[i]) / math.max(1e-12, math.abs(ours[i]))
    most = (d ~= d or d > most) and (d ~= d and math.huge or d) or most
  end
  return most
end

--- Prints the losses of all sides, the first and the last, and returns {peer = reason} for those that differ by more.
---@param got table by side: field -> list by round of lists of numbers
---@param tolerance number relative
---@param field? string "losses"
---@param what? string what the numbers are
function M.losses(got, tolerance, field, what)
  field, what = field or "losses", what or "losses"
  local ours = got.accel and got.accel[field]
  if not ours then return {} end
  local function ends(v) return ("%.5g .. %.5g"):format(v[1], v[#v]) end
  local differs, parts = {}, { ("accel %s"):format(ends(ours[1])) }
  local record = { accel = ours[1], tolerance = tolerance, relative_difference = {} }
  for name, figures in accel.pairs(got) do
    local theirs = name ~= "accel" and figures[field]
    if theirs then
      local most = 0
      for round = 1, math.min(#ours, #theirs) do most = math.max(most, apart(ours[round], theirs[round])) end
      record[name], record.relative_difference[name] = theirs[1], most < math.huge and most or nil
      parts[#parts + 1] = ("%s %s (%.1e)"):format(name, ends(theirs[1]), most)
      if not (most <= tolerance) then
        differs[name] = ("%s differ by %.2g, more than %g"):format(what, most, tolerance)
      end
    end
  end
  if #parts == 1 then parts[2] = "no peer to compare with" end
  local line = ("  %s (relative, %g allowed):"):format(what, tolerance)
  for _, part in ipairs(parts) do
    if #line + 2 + #part > 79 then
      M.note(line)
      line = "   "
    end
    line = line .. " " .. part .. ";"
  end
  M.note((line:gsub(";$", "")))
  for _, name in ipairs { "eager", "tuned", "single", "chunked", "compile" } do
    if differs[name] then M.note("  NOT COMPARABLE with %s: %s", name, differs[name]) end
  end
  if M.suite then M.suite[field] = record end
  return differs
end

--- What was left out, and why.
function M.skip(what, why)
  for _, s in ipairs(M.suite and M.suite.skipped or {}) do
    if s.what == what and s.why == why then return end
  end
  local text = ("  left out: %s: %s"):format(what, why)
  say(#text <= 80 and text or text:sub(1, 77) .. "...")
  if M.suite then table.insert(M.suite.skipped, { what = what, why = why }) end
end

return M
