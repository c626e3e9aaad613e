-- Figures that are kept: what `accel-run bench --save FILE` writes and `--against FILE` reads. One small file per kind of machine;
-- tests/bench/history has those of this project, and a folder stands for the file in it that is named after this machine. The time
-- line is the file's history in git.
--
-- The file is JSON, { format = "accel-bench", version = 1, kind, machine, rows = { ["BENCH: ROW"] = row } }. A row has
--   unit, higher      as in the table; higher: more is better
--   values            accel's figure in each round
--   peers             { name = figures of the same rounds }, so that ratios keep their spread
--   ratio             { peer, median, min, max }: of the best peer to accel
--   yard              { figure = values }: how fast the machine itself was in these rounds (sides/yardstick.c)
--   commit, date, accel, threads, quick
-- Saving replaces the rows that were measured and keeps all others. Later versions may add fields; a change of meaning raises `version`.
local accel = require "accel"
local children = require "children"
local report = require "report"

local M = { VERSION = 1, FORMAT = "accel-bench" }

--- What figures may be compared between machines: vendor, best instructions, CPUs. facts: of machine.lua.
---@param facts table
---@return string such as "intel-amx-2"
function M.kind(facts)
  local cpu, flags = facts.cpu:lower(), " " .. (facts.flags or "") .. " "
  local vendor = cpu:match "intel" or cpu:match "amd" or cpu:match "apple" or cpu:match "neoverse" or "cpu"
  local best = "plain"
  for _, entry in ipairs { { "asimd", "neon" }, { "avx2", "avx2" }, { "avx512f", "avx512" }, { "avx512_bf16", "avx512bf16" },
    { "amx_bf16", "amx" } } do
    if flags:find(" " .. entry[1] .. " ", 1, true) then best = entry[2] end
  end
  return ("%s-%s-%d"):format(vendor, best, facts.cpus)
end

--- The file that a path means: itself, or in a folder the one of this kind of machine.
---@param path string
---@param kind string
---@return string
function M.file(path, kind)
  return accel.listdir(path) and ("%s/%s.json"):format(path:gsub("/+$", ""), kind) or path
end

--- The contents of a file; nil and what is wrong with it.
---@param path string
---@return table? file, string? message, boolean? missing
function M.read(path)
  local f <close>, why, code = io.open(path, "rb")
  if not f then return nil, why, code == 2 end
  local ok, data = pcall(accel.json.decode, f:read "a" or "")
  if not ok or type(data) ~= "table" then return nil, ("%s: not a file of accel-run bench --save"):format(path) end
  if data.format ~= M.FORMAT then return nil, ("%s: not a file of accel-run bench --save"):format(path) end
  if data.version ~= M.VERSION then
    return nil, ("%s: version %s; this program reads version %d, measure it again"):format(path, tostring(data.version), M.VERSION)
  end
  return data
end

--- The commit of the tree that holds these files, with + where it has changes; "unknown" outside of git.
function M.commit(here)
  local git = "git -C " .. children.quote(here) .. " "
  local id = children.capture(git .. "rev-parse --short=12 HEAD 2>/dev/null")
  id = id and id:match "%x+"
  if not id then return "unknown" end
  local changed = children.capture(git .. "status --porcelain --untracked-files=no 2>/dev/null")
  return changed and changed:find "%S" and id .. "+" or id
end

-- Five digits are more than any round repeats.
local function short(values)
  local out = {}
  for i, x in ipairs(values) do out[i] = tonumber(("%.5g"):format(x)) end
  return accel.json.array(out)
end

--- The rows of the suites of report.lua, by name, as the file has them.
---@param suites table[]
---@param options table threads, quick
---@param here string
---@return table<string, table> rows
function M.rows(suites, options, here)
  local rows, id, date = {}, M.commit(here), os.date "!%Y-%m-%dT%H:%M:%SZ"
  for _, suite in ipairs(suites) do
    local yard = {}
    for _, raw in ipairs(suite.raw) do
      if raw.side == "yardstick" then
        for key, values in accel.pairs(raw.figures) do
          if key:find "_ns$" then yard[key] = short(values) end
        end
      end
    end
    for _, row in ipairs(suite.rows) do
      local ours = row.ours.values
      local kept = { unit = row.unit, higher = row.higher_is_better, values = short(ours), commit = id, date = date, yard = yard,
        accel = accel._VERSION, threads = options.threads, quick = options.quick }
      for name, peer in accel.pairs(row.peers or {}) do
        kept.peers = kept.peers or {}
        kept.peers[name] = short(peer.values)
      end
      if row.ratio then
        local theirs, ratios = row.peers[row.best_peer].values, {}
        for i = 1, math.min(#ours, #theirs) do ratios[i] = row.higher_is_better and ours[i] / theirs[i] or theirs[i] / ours[i] end
        local lo, hi = report.range(ratios)
        kept.ratio = { peer = row.best_peer, median = report.median(ratios), min = lo, max = hi }
      end
      local name = ("%s: %s"):format(suite.name, row.what)
      while rows[name] do name = name .. "'" end -- a bench may have a title twice
      rows[name] = kept
    end
  end
  return rows
end

--- Writes the rows into a file, which keeps its other rows. Returns true, or nil and why not.
---@param path string
---@param facts table
---@param rows table<string, table>
---@return boolean? ok, string? message
function M.save(path, facts, rows)
  local kind = M.kind(facts)
  path = M.file(path, kind)
  local data, why, missing = M.read(path)
  if not data and not missing then return nil, why end
  if data and data.kind ~= kind then
    return nil, ("%s holds figures of another kind of machine, %s; this is %s: name another file"):format(path, data.kind, kind)
  end
  data = data or { format = M.FORMAT, version = M.VERSION, kind = kind, rows = {} }
  data.machine = { cpu = facts.cpu, cpus = facts.cpus, kernel = facts.kernel, memory_bytes = facts.memory_bytes }
  local names, lines = {}, {}
  for name, row in pairs(rows) do data.rows[name] = row end
  for name in pairs(data.rows) do names[#names + 1] = name end
  table.sort(names)
  -- One line a row, so that a diff shows what changed.
  for i, name in ipairs(names) do
    lines[i] = ("    %s: %s"):format(accel.json.encode(name), accel.json.encode(report.finite(data.rows[name])))
  end
  local head = {}
  for _, key in ipairs { "format", "version", "kind", "machine" } do
    head[#head + 1] = ("  %s: %s,\n"):format(accel.json.encode(key), accel.json.encode(report.finite(data[key])))
  end
  return accel.write_file(path, ('{\n%s  "rows": {\n%s\n  }\n}\n'):format(table.concat(head), table.concat(lines, ",\n")))
end

return M
