-- Tables of Markdown in columns of a terminal: the last column wraps if necessary. Used by layout.lua.
local M = {}

local GAP <const> = "  "

local function columns_of(text) return utf8.len(text) or #text end

--- Text without the marks of links to pages, code and bold words.
---@param text string
---@return string
function M.unmarked(text)
  return (text:gsub("%[([^%]]*)%]%([^)]*%.md[^)]*%)", "%1"):gsub("`", ""):gsub("%*%*(.-)%*%*", "%1"))
end

--- Cells of a row, "| a | b |". "\|" is not a border.
---@param line string
---@return string[]
function M.cells(line)
  local cells = {}
  local inner = line:match "^%s*|(.-)|?%s*$":gsub("\\|", "\1")
  for cell in (inner .. "|"):gmatch "([^|]*)|" do
    cells[#cells + 1] = M.unmarked(cell:match "^%s*(.-)%s*$":gsub("\1", "|"))
  end
  return cells
end

local function is_rule(line) return line:find "^[%s|:-]+$" ~= nil end

--- Writes rows, lines that begin with "|", by put. wrap(put, text, width, head, indent) fills lines.
function M.put(put, wrap, rows, width)
  local list, widest = {}, {}
  for i, line in ipairs(rows) do
    if not is_rule(line) then
      local cells = M.cells(line)
      local empty = table.concat(cells) == ""
      if not empty then list[#list + 1] = { cells = cells, heading = i == 1 } end
      for k, cell in ipairs(cells) do widest[k] = math.max(widest[k] or 0, columns_of(cell)) end
    end
  end
  local before = 0 -- columns left of the last one
  for k = 1, #widest - 1 do before = before + widest[k] + #GAP end
  for _, row in ipairs(list) do
    local head = ""
    for k = 1, #widest - 1 do
      local cell = row.cells[k] or ""
      head = head .. cell .. (" "):rep(widest[k] - columns_of(cell)) .. GAP
    end
    if before <= width // 2 then
      if (row.cells[#widest] or "") == "" then put((head:gsub("%s+$", "")))
      else wrap(put, row.cells[#widest], width, head, (" "):rep(before)) end
      if row.heading then put(("-"):rep(math.min(width, before + widest[#widest]))) end
    else -- no room side by side: one below the other
      for k = 1, #widest do
        local cell = row.cells[k] or ""
        if cell ~= "" then wrap(put, cell, width, k > 1 and "    " or "", k > 1 and "    " or "  ") end
      end
    end
  end
end

return M
