-- What the gate has reached: the file of results, figures and their table. For gate.lua; goals.lua has what is asked.
--
-- The file: { version, seed, workers = { id = { runs, seconds, units, credit, skipped, counts = { name = { sum, most, last } } } },
--   failures = { { worker, seed, n, seconds, why, log, commit } }, runs = { the last 2,000: time, worker, seed, n, seconds, result, counts } }
-- Every run changes it once, so that a gate that is stopped loses nothing.
local accel = require "accel"

local M = {}

local VERSION <const>, KEPT <const> = 1, 2000

--- Reads the file; a missing one is an empty one.
---@param path string
---@return table? results, string? message
function M.read(path)
  local file <close> = io.open(path, "rb")
  if not file then return { version = VERSION, seed = os.time() % 1000000 * 1000, workers = {}, failures = {}, runs = {} } end
  local ok, r = pcall(accel.json.decode, file:read "a")
  if not ok or type(r) ~= "table" or r.version ~= VERSION then
    return nil, ("%s: not a file of results of this gate; move it away"):format(path)
  end
  return r
end

function M.write(path, r)
  r.failures, r.runs = accel.json.array(r.failures), accel.json.array(r.runs)
  return accel.write_file(path, accel.json.encode(r, { pretty = true }) .. "\n")
end

function M.worker(r, id)
  r.workers[id] = r.workers[id] or { runs = 0, seconds = 0.0, units = 0, credit = 0.0, counts = {} }
  return r.workers[id]
end

--- Adds a run: counts of a run that failed are not added.
---@param r table
---@param run table worker, seed, n, seconds (asked), spent, result, counts, why, log, commit
function M.add(r, run)
  local w = M.worker(r, run.worker)
  w.runs, w.seconds, w.skipped = w.runs + 1, w.seconds + run.spent, run.result == "skipped" and run.why or nil
  if run.result == "passed" then
    w.units = w.units + (run.n or 1)
    for name, x in pairs(run.counts) do
      local c = w.counts[name] or { sum = 0, most = x, last = x }
      w.counts[name] = { sum = c.sum + x, most = math.max(c.most, x), last = x }
    end
  end
  for i = #r.failures, 1, -1 do -- this one passes now
    local f = r.failures[i]
    if run.result ~= "late" and f.worker == run.worker and f.seed == run.seed then table.remove(r.failures, i) end
  end
  if run.result == "failed" then
    table.insert(r.failures, { worker = run.worker, seed = run.seed, n = run.n, seconds = run.seconds, why = run.why, log = run.log,
      commit = run.commit })
  end
  table.insert(r.runs, { time = os.date "!%Y-%m-%dT%H:%M:%SZ", worker = run.worker, seed = run.seed, n = run.n, seconds = run.spent,
    result = run.result, counts = run.counts, commit = run.commit })
  while #r.runs > KEPT do table.remove(r.runs, 1) end
end

-- ---- figures ----

--- Where a figure stands: what was reached, nil where nothing has been measured; and whether that is what is asked.
---@param r table
---@param figure table of goals.lua
---@return number? reached, boolean met, number asked
function M.figure(r, figure)
  local asked = figure.want or figure.floor or figure.most_seen or figure.last or figure.most
  local reached
  for _, name in ipairs(figure.of or {}) do
    local id, count = name:match "^(.-)%.(.*)$"
    local c = r.workers[id] and r.workers[id].counts[count]
    if figure.want and c then reached = (reached or 0) + c.sum
    elseif figure.floor then reached = math.min(reached or math.huge, c and c.sum or 0)
    elseif figure.most_seen and c then reached = math.max(reached or 0, c.most)
    elseif figure.most and c then reached = math.max(reached or 0, c.last)
    elseif figure.last and c then reached = math.min(reached or math.huge, c.last) end
  end
  if figure.most then return reached, reached ~= nil and reached <= asked, asked end
  return reached, reached ~= nil and reached >= asked, asked
end

--- Workers of a figure.
function M.workers_of(figure)
  local ids = {}
  for _, name in ipairs(figure.of or {}) do ids[#ids + 1] = name:match "^(.-)%." end
  return ids
end

local function number(x)
  if not x then return "-" end
  if x >= 1e9 then return ("%.3g"):format(x) end
  if math.type(x) == "float" and x ~= x // 1 then return ("%.1f"):format(x) end
  local text, n = ("%d"):format(x // 1), nil
  repeat text, n = text:gsub("^(%d+)(%d%d%d)", "%1,%2") until n == 0
  return text
end

local function verdict(r, figure, reached, met, asked)
  if not figure.of then return "no test yet" end
  local skipped, tried
  for _, id in ipairs(M.workers_of(figure)) do
    for _, f in ipairs(r.failures) do
      if f.worker == id then return ("FAILED: %s, seed %d"):format(id, f.seed) end
    end
    local w = r.workers[id]
    skipped, tried = w and w.skipped or skipped, tried or w and w.runs > 0
  end
  if met then return "reached" end
  if not reached then return skipped and "skipped: " .. skipped or tried and "nothing counted" or "not run yet" end
  if figure.most then return "missed" end
  return ("%.2g %%"):format(100 * reached / asked)
end

--- The table, in Markdown.
---@param r table
---@param goals table[]
---@return string
function M.table(r, goals)
  local lines = { "| goal | | figure asked | reached so far | verdict |", "|---|---|---|---|---|" }
  for _, goal in ipairs(goals) do
    for i, figure in ipairs(goal.figures) do
      local reached, met, asked = M.figure(r, figure)
      lines[#lines + 1] = ("| %s | %s | %s%s %s | %s | %s |"):format(i == 1 and goal[1] or "", i == 1 and goal[2] or "",
        figure.most and "<= " or "", number(asked), figure[1], number(reached), verdict(r, figure, reached, met, asked))
    end
  end
  return table.concat(lines, "\n")
end

return M
