-- The ranks' answers, as lines: equal ones once, different ones side by side if they fit, otherwise one below the
-- other. Used by front.lua.
local accel = ...

local M = {}

--- "[all] ", "[rank 1] ", "[ranks 0, 2] ". "" for a world of one rank.
function M.label(front, ranks)
  if front.size == 1 then return "" end
  if #ranks == #front:alive() and #ranks > 1 then return "[all] " end
  return ("[rank%s %s] "):format(#ranks > 1 and "s" or "", front.names({ table.unpack(ranks) }))
end

local function text_of(a)
  if a.ok then return table.concat(a.lines, "\n") end
  return a.message
end

-- {ranks =, lines =, ok =} for each different answer, by the lowest rank.
local function group(job, ranks)
  local groups, by_key = {}, {}
  for _, rank in ipairs(ranks) do
    local a = job.answers[rank]
    local text = text_of(a)
    local key = ("%s\0%s\0%s"):format(a.ok, text, a.ok and a.digest or "")
    local g = by_key[key]
    if not g then
      g = { ranks = {}, ok = a.ok, text = text, digest = a.digest, lines = {} }
      for line in (text .. "\n"):gmatch "([^\n]*)\n" do g.lines[#g.lines + 1] = line end
      if text == "" then g.lines = {} end
      by_key[key] = g
      groups[#groups + 1] = g
    end
    g.ranks[#g.ranks + 1] = rank
  end
  return groups
end

local function longest(lines)
  local n = 0
  for _, line in ipairs(lines) do n = math.max(n, utf8.len(line) or #line) end
  return n
end

local function pad(line, n) return line .. (" "):rep(n - (utf8.len(line) or #line)) end

-- Several answers of several lines side by side. nil if they are too wide.
local function side_by_side(front, groups, width)
  local columns, total, rows = {}, 0, 0
  if #groups < 2 then return nil end
  for i, g in ipairs(groups) do
    if #g.lines < 2 or not g.ok then return nil end
    local lines = { (M.label(front, g.ranks):gsub(" $", "")), table.unpack(g.lines) }
    columns[i] = { lines = lines, width = longest(lines) }
    total, rows = total + columns[i].width + (i > 1 and 3 or 0), math.max(rows, #lines)
  end
  if total > width then return nil end
  local out = {}
  for row = 1, rows do
    local parts = {}
    for i, column in ipairs(columns) do parts[i] = pad(column.lines[row] or "", column.width) end
    out[row] = table.concat(parts, "   "):gsub("%s+$", "")
  end
  return out
end

--- Lines for the answers of these ranks.
---@return string[]
function M.show(front, job, ranks)
  local groups = group(job, ranks)
  local out, colour = {}, front.interactive and front:terminal().colour(1)
  local silent = #groups == 1 and groups[1].ok and #groups[1].lines == 0 and not job.background
  if #groups == 0 or silent then return out end
  local beside = side_by_side(front, groups, front:width())
  for _, g in ipairs(beside and {} or groups) do
    local label = M.label(front, g.ranks)
    if #g.lines == 0 then g.lines = { "done, no value" } end
    for i, line in ipairs(g.ok and {} or g.lines) do g.lines[i] = accel.console.visible(line, true) end
    if not g.ok and colour then
      for i, line in ipairs(g.lines) do g.lines[i] = "\27[31m" .. line .. "\27[0m" end
    end
    if label ~= "" and #g.lines > 1 then
      out[#out + 1] = (label:gsub(" $", ""))
      table.move(g.lines, 1, #g.lines, #out + 1, out)
    else
      out[#out + 1] = label .. g.lines[1]
      table.move(g.lines, 2, #g.lines, #out + 1, out)
    end
  end
  out = beside or out
  local tensors = 0
  for _, g in ipairs(groups) do tensors = tensors + ((g.digest or "") ~= "" and 1 or 0) end
  if tensors > 1 then out[#out + 1] = "(these tensors differ: `:diff _` shows the differences)" end
  return out
end

return M
