-- Reference pages and guides (Markdown) for a terminal: text broken at `width` columns, indented code broken at valid
-- places of Lua, commands broken at valid places of a shell (help/shell.lua), tables in columns (help/table.lua). Used by
-- help.lua.
local accel = ...
local shell = accel.host_chunk "help/shell"
local tables = accel.host_chunk "help/table"

local M = {}

local SET_IN <const> = "    "
local RULES <const> = { "=", "-", "~" } -- under headings, by depth

local function columns_of(text) return utf8.len(text) or #text end

-- Words of `text` in lines of `width` columns: the first begins with `head`, the others with `indent`.
local function wrap(put, text, width, head, indent)
  local line, empty = head, true
  for word in text:gmatch "%S+" do
    if not empty and columns_of(line) + 1 + columns_of(word) > width then
      put(line)
      line, empty = indent, true
    end
    line, empty = line .. (empty and "" or " ") .. word, false
  end
  if not empty then put(line) end
end

-- ---- code ----
local function set(words)
  local all = {}
  for word in words:gmatch "%S+" do all[word] = true end
  return all
end

-- Words that need a following word, and words that continue the preceding ones.
local open_words = set "and or not local return in for function if while until elseif goto"
local inner_words = set "and or do then in end else elseif until"

-- Whether a statement begins after the blank at i: an operand stands on both sides.
local function statement(line, i)
  local before, word = line:sub(1, i - 1), line:match("^[%a_][%w_]*", i + 1)
  if not word or inner_words[word] or not before:find "[%w_%)%]}\"']$" then return false end
  return not open_words[before:match "[%a_][%w_]*$" or ""]
end

-- Possible breaks of a line of Lua: { at =, rank = }, at: the first character of the rest. A statement ranks 3, a place
-- after a comma 2, any other blank 1, less inside brackets. There is none inside strings. Also returns the start of a
-- comment.
local function breaks(line)
  local list, depth, i, comment = {}, 0, 1, nil
  local indent = #line:match "^%s*"
  while i <= #line do
    local c = line:sub(i, i)
    if not comment and (c == '"' or c == "'") then
      local from = i
      i = i + 1
      while i <= #line and line:sub(i, i) ~= c do i = i + (line:sub(i, i) == "\\" and 2 or 1) end
      if i > #line then i = from end -- no string: an apostrophe
    elseif not comment and line:sub(i, i + 1) == "--" then
      comment = i
      list[#list + 1] = { at = i, rank = 3 }
    elseif c:find "[%(%[{]" then
      depth = depth + 1
      if c == "(" and not comment and line:find("^[^%s%)]", i + 1) then list[#list + 1] = { at = i + 1, rank = 0.05 } end
    elseif c:find "[%)%]}]" then
      depth = depth - 1
    elseif c == " " and i > indent and line:find("^[^ ]", i + 1) and not line:find("^%-%-", i + 1) then
      local rank = line:sub(i - 1, i - 1):find "[,;]" and 2 or 1
      if not comment and depth <= 0 and statement(line, i) then rank = 3 end
      list[#list + 1] = { at = i + 1, rank = (comment and 1 or rank) - (rank < 3 and math.min(depth, 9) / 10 or 0) }
    end
    i = i + 1
  end
  return list, comment
end

-- One line of code as several of at most `width` columns, those after the first set in by two more.
local function code(put, line, width)
  local indent = line:match "^%s*"
  local first = true
  while columns_of(line) > width do
    local list, comment = breaks(line)
    local best
    for _, b in ipairs(list) do
      local length = columns_of((line:sub(1, b.at - 1):gsub("%s+$", "")))
      if length > #indent and length <= width then
        local rank = length * 3 < width and 0 or b.rank
        if not best or rank >= best.rank then best = { at = b.at, rank = rank, statement = b.rank == 3 } end
      end
    end
    if not best then break end
    put((line:sub(1, best.at - 1):gsub("%s+$", "")))
    local mark = comment and best.at > comment and "-- " or ""
    local more = (best.statement or not first) and "" or "  "
    if best.statement and not first then indent = line:match "^%s*" end
    line = indent .. more .. mark .. line:sub(best.at)
    if more ~= "" then indent = indent .. more end
    first = best.statement and first
  end
  put(line)
end

-- ---- text that has its own lines ----
-- A full line continues in the next one: the next word would not have fitted.
local function goes_on(line, next_line)
  if not next_line or next_line == "" or line == "" or #line < 80 then return false end
  if next_line:find "^%s" or next_line:find "^[%w_ ]+:%s" or line:find "%S   +%S" then return false end
  return #line + 1 + #next_line:match "^%S+" > 100
end

local function block(put, lines, width)
  local i = 1
  while i <= #lines do
    local line = lines[i]
    while goes_on(lines[i], lines[i + 1]) do
      i = i + 1
      line = line .. " " .. lines[i]
    end
    if columns_of(line) <= width then
      put(line)
    else
      local indent = line:match "^%s*"
      -- columns of a table stay as in the first line
      local head = line:match "^(%s*.-%S   +)%S" or indent
      if #head >= width // 2 then head = indent end
      wrap(put, line:sub(#head + 1), width, head, #head > #indent and (" "):rep(#head) or indent .. "  ")
    end
    i = i + 1
  end
end

-- ---- pages ----
--- Lines of a page for a terminal.
---@param lines string[]
---@param width integer
---@return string[]
function M.plain(lines, width)
  local out, blank = {}, true
  local held, rows, fence, fenced = {}, {}, nil, {}
  local function put(line)
    if line == "" and blank then return end
    blank = line == ""
    out[#out + 1] = line
  end
  local function set_in(line) put(line == "" and "" or SET_IN .. line) end
  local function flush()
    if #rows > 0 then tables.put(put, wrap, rows, width) end
    rows = {}
    if #held == 0 then return end
    local text = table.concat(held, " ")
    held = {}
    local head = text:match "^%s*[-*] " or text:match "^%s*%d+%. " or text:match "^%s*"
    wrap(put, text:sub(#head + 1), width, head, (" "):rep(#head))
  end
  local function heading(marks, text)
    flush()
    put ""
    put(text)
    put(RULES[math.min(#marks, #RULES)]:rep(columns_of(text)))
    put ""
  end
  for _, line in ipairs(lines) do
    if line:find "^```" then
      flush()
      if not fence then
        fence, fenced = line:sub(4), {}
      else
        if fence == "sh" then
          shell.put(set_in, wrap, fenced, width - #SET_IN)
        elseif fence == "text" then
          block(set_in, fenced, width - #SET_IN)
        elseif fence == "c" then
          for _, c in ipairs(fenced) do block(set_in, { c }, width - #SET_IN) end
        else
          for _, c in ipairs(fenced) do code(set_in, c, width - #SET_IN) end
        end
        fence = nil
      end
    elseif fence then
      fenced[#fenced + 1] = line
    else
      local text = tables.unmarked(line)
      local marks, title = text:match "^(#+) (.*)$"
      if #rows > 0 ~= (line:find "^|" ~= nil) or text == "" or text:find "^%s*[-*] " or text:find "^%s*%d+%. " then flush() end
      if marks then heading(marks, title)
      elseif line:find "^|" then rows[#rows + 1] = line
      elseif text == "" then put ""
      else held[#held + 1] = #held > 0 and text:match "^%s*(.*)$" or text end
    end
  end
  flush()
  while out[#out] == "" do out[#out] = nil end
  return out
end

--- Text in lines.
---@param text string
---@param width integer
---@param indent? string of all lines but the first
---@return string[]
function M.wrap(text, width, indent)
  local out = {}
  wrap(function(line) out[#out + 1] = line end, text, width, "", indent or "")
  return out
end

--- Names side by side.
---@param names string[]
---@param width integer
---@return string[]
function M.columns(names, width)
  local out = {}
  wrap(function(line) out[#out + 1] = line end, table.concat(names, " "), width, "  ", "  ")
  return out
end

return M
