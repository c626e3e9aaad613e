--- Tables of accel-run ps and top, which fit the terminal: a table of fixed columns and a last one that takes the rest of the line. On a
--- narrow terminal the least important columns are left out.
local visible = require("accel.util.terminal").visible

local M = {}

local LAST <const> = 12 -- characters at least for the last column

--- The columns that fit. columns: { title, width, importance } each, the last one { title }. Those of the lowest importance are
--- dropped first.
---@param columns table[]
---@param width integer
---@return boolean[] shown by column
function M.choose(columns, width)
  local shown, used = {}, LAST
  for i = 1, #columns - 1 do
    shown[i] = true
    used = used + columns[i][2] + 1
  end
  while used > width do
    local least
    for i = 1, #columns - 1 do
      if shown[i] and (not least or columns[i][3] < columns[least][3]) then least = i end
    end
    if not least then break end
    shown[least] = false
    used = used - columns[least][2] - 1
  end
  return shown
end

--- Texts as a line of limited length: numbers and times are right-aligned. The last text is cut off if it does not fit, at its beginning if
--- it is a path (path = true in its column).
---@param columns table[]
---@param shown boolean[]
---@param texts string[]
---@param width integer
---@return string
function M.line(columns, shown, texts, width)
  local parts = {}
  for i, text in ipairs(texts) do texts[i] = visible(text) end
  for i = 1, #columns - 1 do
    if shown[i] then parts[#parts + 1] = (columns[i].left and "%%-%ds" or "%%%ds"):format(columns[i][2]):format(texts[i]) end
  end
  local head, last = table.concat(parts, " "), texts[#columns]
  local room = width - #head - 2
  if columns[#columns].path and #last > room and room > 1 then last = "~" .. last:sub(1 - room) end
  return M.cut(("%s  %s"):format(head, last), width)
end

--- A line of at most so many characters.
function M.cut(text, width)
  text = visible(text)
  return #text > width and text:sub(1, width - 1) .. "~" or text
end

--- The head of a table.
function M.head(columns, shown, width)
  local titles = {}
  for i, c in ipairs(columns) do titles[i] = c[1] end
  return M.line(columns, shown, titles, width)
end

return M
