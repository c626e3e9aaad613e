-- `accel-run bench --against`: which rows differ from those of before, beyond the noise of both. Used by run.lua and the tests.
--
-- Before is a file of --save, or another build of accel-run, whose sides take turns with ours in every round. A row gets the shift of its
-- figure (statistics.lua) as a ratio, positive where it is slower now, and one of the verdicts
--   slower, faster   the whole interval is beyond MARGIN on one side
--   same             the whole interval is within RESOLUTION: a difference of 5 % would show
--   unclear          anything else: the rounds spread too widely to see 5 %, or are too few
-- The interval holds at 99 % for all rows of a table together (Bonferroni), so that ten tables of equal builds are expected to hold no
-- difference. Against a file, a row with a peer is compared by its ratio to that peer, which takes what the machine did out of it; a row
-- without one by its figure, with the interval widened by
-- what the yardstick may have moved between the two times (sides/yardstick.c).
local report = require "report"
local statistics = require "statistics"

local M = {}

local CONFIDENCE <const>, RESOLUTION <const> = 0.99, math.log(1.05)
local MARGIN <const> = math.log(1.01) -- what two builds of one source may differ in, by where their code lies
M.ROUNDS = 19 -- with which 5 % shows where rounds spread by 1 % and one of 50 is disturbed

local function logs(values)
  local out = {}
  for i, x in ipairs(values) do out[i] = math.log(x) end
  return out
end

--- The peer that both have, and the logarithms of our figure over its one; without one of our figure alone.
local function sample(row, peer)
  local theirs, out = peer and row.peers[peer], {}
  for i, x in ipairs(row.values) do
    if theirs and not theirs[i] then break end
    out[i] = math.log(theirs and x / theirs[i] or x)
  end
  return out
end

local function common_peer(a, b)
  local first = a.ratio and a.ratio.peer
  if first and a.peers[first] and b.peers and b.peers[first] then return first end
end

--- How far the machine itself moved between two rows, as logarithms: the ends of an interval that holds 0, since a row need not follow
--- the machine at all. nil where it is not known.
local function drift(a, b)
  local least, most, known = 0, 0, false
  for key, x in pairs(a.yard or {}) do
    local y = b.yard and b.yard[key]
    if y then
      local moved, low, high = statistics.unpaired(logs(x), logs(y), 1 - CONFIDENCE)
      known, least, most = true, math.min(least, low or moved), math.max(most, high or moved)
    end
  end
  if known then return least, most end
end

--- Compares one row. Values that are not above zero have no ratio.
---@param before table a row of history.lua
---@param now table
---@param how "paired"|"unpaired"
---@param alpha number
---@return table result {verdict, change, low, high (logarithms), why}
function M.row(before, now, how, alpha)
  for _, row in ipairs { before, now } do
    for _, x in ipairs(row.values) do
      if not (type(x) == "number" and x > 0 and x < math.huge) then
        return { verdict = "unclear", why = "a figure that is not above zero has no ratio" }
      end
    end
  end
  if before.unit ~= now.unit then return { verdict = "unclear", why = ("its unit was %s"):format(before.unit) } end
  if before.threads ~= now.threads then return { verdict = "unclear", why = ("it was measured with %d threads"):format(before.threads) } end
  if (before.quick or false) ~= (now.quick or false) then return { verdict = "unclear", why = "one of them was measured with --quick" } end
  local change, low, high, why
  local least, most = 0, 0 -- what the machine may explain
  if how == "paired" then
    change, low, high = statistics.paired(logs(before.values), logs(now.values), alpha)
  else
    local peer = common_peer(before, now)
    change, low, high = statistics.unpaired(sample(before, peer), sample(now, peer), alpha)
    if not peer then
      least, most = drift(before, now)
      if not least then least, most, why = -RESOLUTION, RESOLUTION, "no peer and no yardstick: install a C compiler" end
    end
  end
  if now.higher then
    change = -change
    if low then low, high = -high, -low end
  end
  if not low then
    return { verdict = "unclear", change = change, why = ("needs %d rounds"):format(statistics.rounds(alpha,
      how == "unpaired" and #before.values or nil)) }
  end
  low, high = low - most, high - least
  local verdict = "unclear"
  if low > MARGIN then verdict = "slower"
  elseif high < -MARGIN then verdict = "faster"
  elseif low > -RESOLUTION and high < RESOLUTION then verdict = "same" end
  if verdict == "unclear" and not why then
    local moved = most > -least and most or least
    why = math.abs(moved) > RESOLUTION / 2 and ("the machine itself moved by up to %+.0f %%"):format(100 * (math.exp(moved) - 1)) or nil
  end
  return { verdict = verdict, change = change, low = low, high = high, why = why }
end

--- Compares all rows that both have.
---@param before table<string, table> rows by name
---@param now table<string, table>
---@param how "paired"|"unpaired"
---@return table[] results in the order of their names, each with `name`, `before`, `now`
---@return string[] missing names that are only in `now`
function M.rows(before, now, how)
  local names, missing, results = {}, {}, {}
  for name in pairs(now) do table.insert(before[name] and names or missing, name) end
  table.sort(names)
  table.sort(missing)
  for i, name in ipairs(names) do
    local r = M.row(before[name], now[name], how, (1 - CONFIDENCE) / #names)
    r.name, r.before, r.now = name, before[name], now[name]
    results[i] = r
  end
  return results, missing
end

local function percent(x) return x and ("%+.1f"):format(100 * (math.exp(x) - 1)) or "" end

local function figure(row) return ("%s %s"):format(report.number(report.median(row.values)), row.unit) end

--- Prints the table and returns how many rows are slower.
---@param results table[]
---@param missing string[]
---@param title string what they are compared with
---@return integer slower
function M.show(results, missing, title)
  print("\nagainst " .. title)
  print(("%-33s %11s %11s %7s %-14s"):format("change in %, + is slower", "before", "now", "change", "verdict"))
  local count = { slower = 0, faster = 0, same = 0, unclear = 0 }
  for _, r in ipairs(results) do
    count[r.verdict] = count[r.verdict] + 1
    print(("%-33s %11s %11s %7s %s"):format(r.name:sub(1, 33), figure(r.before), figure(r.now), percent(r.change), r.verdict))
    local range = r.low and ("[%s, %s]"):format(percent(r.low), percent(r.high)) or ""
    if r.low or r.why then print((("  %-54s %s"):format(r.why or "", range):gsub("%s+$", ""))) end
  end
  for _, name in ipairs(missing) do print(("%-33s not measured before"):format(name:sub(1, 33))) end
  print(("%d slower, %d faster, %d same, %d unclear; intervals: %.0f %% for all rows together"):format(count.slower, count.faster,
    count.same, count.unclear, 100 * CONFIDENCE))
  return count.slower
end

return M
