--- Texts of accel-run runs: tables that fit the terminal (80 columns in a pipe), numbers, times.
local accel = require "accel"
local terminal = require "accel.util.terminal"

local M = {}

local visible = terminal.visible

--- Columns that lines may have.
---@return integer
function M.width() return math.min(terminal.width(), 160) end

local function length(s) return utf8.len(s) or #s end
local function cut(s, n)
  if length(s) <= n then return s end
  local last = utf8.offset(s, n - 1)
  return (last and utf8.len(s) and s:sub(1, utf8.offset(s, n - 1) - 1) or s:sub(1, n - 2)) .. ".."
end

--- Prints rows of columns, as wide as their content. If a line would be too long, the columns in `elastic` shrink. The last column
--- is cut.
---@param rows string[][]
---@param elastic? integer[]
function M.table(rows, elastic)
  local widths, total = {}, 0
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do row[i] = visible((text:gsub("[\r\n\t]+", " "))) end
    for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, length(text)) end
  end
  for _, w in ipairs(widths) do total = total + w + 2 end
  local over = total - 2 - M.width()
  for _ = 1, math.max(over, 0) do
    local widest
    for _, i in ipairs(elastic or {}) do
      if widths[i] > 8 and (not widest or widths[i] > widths[widest]) then widest = i end
    end
    if not widest then break end
    widths[widest] = widths[widest] - 1
  end
  for _, row in ipairs(rows) do
    local line = {}
    for i, text in ipairs(row) do
      text = (i == #row and not elastic) and text or cut(text, widths[i])
      line[i] = i == #row and text or text .. (" "):rep(widths[i] - length(text))
    end
    print(cut((table.concat(line, "  "):gsub("%s+$", "")), M.width()))
  end
end

--- A name and its values, if any.
---@param title string
---@param values table<string, any>
function M.section(title, values)
  if next(values) == nil then return end
  print("\n" .. visible(title))
  local rows = {}
  for key, value in accel.pairs(values) do
    rows[#rows + 1] = { "  " .. key, type(value) == "table" and accel.json.encode(value) or tostring(value) }
  end
  M.table(rows, { 1 })
end

--- Nine characters or less: 0.0125, 1.25e-07, -
---@param x number?
---@return string
function M.number(x)
  if x == nil then return "-" end
  if math.tointeger(x) and math.abs(x) < 1e7 then return ("%d"):format(math.tointeger(x)) end
  return ("%.4g"):format(x)
end

--- "1:02:03", "4.2 s"
---@param seconds number
---@return string
function M.duration(seconds)
  if seconds < 60 then return ("%.1f s"):format(math.max(0, seconds)) end
  local s = math.floor(seconds)
  if s < 3600 then return ("%d:%02d"):format(s // 60, s % 60) end
  return ("%d:%02d:%02d"):format(s // 3600, s // 60 % 60, s % 60)
end

local headings <const> = { text = "Texts", image = "Images", histogram = "Histograms", table = "Tables", artifact = "Artifacts",
  alert = "Alerts" }

--- The heading above records of a kind.
---@param kind string
---@return string
function M.heading(kind) return headings[kind] or kind end

--- One line about a record.
---@param r table of Store:records
---@return string
function M.record(r)
  local meta, at, tag = r.meta, r.step and ("step %d"):format(r.step) or "", visible(r.tag)
  if r.kind == "text" or r.kind == "alert" then
    local level = meta.level and meta.level .. ": " or ""
    return cut(terminal.format("%s%s, %s: %s", level, tag, at, (tostring(r.data or ""):gsub("%s+", " "))), M.width() - 2)
  elseif r.kind == "image" then return terminal.format("%s, %s: %sx%s", tag, at, meta.width, meta.height)
  elseif r.kind == "artifact" then return terminal.format("%s: %s%s", tag, meta.path, meta.bytes and (", %d bytes"):format(meta.bytes) or "") end
  return ("%s, %s"):format(tag, at)
end

--- A list of tables with numbers that JSON takes: others become text.
---@param list table[]
---@return table[]
function M.plain(list)
  local out = {}
  for i, row in ipairs(list) do
    out[i] = {}
    for key, value in next, row do
      out[i][key] = type(value) == "number" and value - value ~= 0 and tostring(value) or value
    end
  end
  return out
end

return M
