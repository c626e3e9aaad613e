-- Shell commands in a terminal's width: a line that is too long is broken so that a copy of it is the same command.
-- Used by layout.lua.
local M = {}

local NARROWEST <const> = 24 -- columns for a comment next to its command

local function columns_of(text) return utf8.len(text) or #text end

-- Possible breaks of a line and the start of its comment. quote: the quotation that the line begins in, or none. Breaks
-- are { at = the first character of the rest, rank =, whole = }: `whole` after an operator, after which the shell
-- continues by itself. There are none in quotations, $( ) and backquotes.
local function scan(line, quote)
  local list, comment, depth, i = {}, nil, 0, 1
  while i <= #line do
    local c = line:sub(i, i)
    if c == "\\" and quote ~= "'" then
      i = i + 1
    elseif quote then
      if c == quote then quote = nil end
    elseif c == "'" or c == '"' or c == "`" then
      quote = c
    elseif c == "(" then
      depth = depth + 1
    elseif c == ")" then
      depth = depth - 1
    elseif c == "#" and (i == 1 or line:find("^%s", i - 1)) then
      comment = i
      break
    elseif c == " " and depth <= 0 and line:find("^[^%s#]", i + 1) and line:sub(1, i):find "%S" then
      local whole = line:find("^[&|;]", i - 1) ~= nil
      list[#list + 1] = { at = i + 1, whole = whole, rank = whole and 3 or line:find("^%-", i + 1) and 2 or 1 }
    end
    i = i + 1
  end
  return list, comment, quote
end

-- The last break of the highest rank that leaves room for the end of the line. The first one if nothing fits. nil:
-- there is none.
local function best_of(list, line, width, indent)
  local best, first
  for _, b in ipairs(list) do
    local length = columns_of((line:sub(1, b.at - 1):gsub("%s+$", ""))) + (b.whole and 0 or 2)
    if length > #indent + 2 then first = first or b end
    if length > #indent and length <= width then
      local rank = length * 3 < width and 0 or b.rank
      if not best or rank >= best.rank then best = { at = b.at, whole = b.whole, rank = rank } end
    end
  end
  return best or first
end

local function command(put, line, width, quote)
  local indent, more = line:match "^%s*", "  "
  while columns_of(line) > width do
    local best = best_of((scan(line, quote)), line, width, indent)
    if not best then break end
    put((line:sub(1, best.at - 1):gsub("%s+$", "")) .. (best.whole and "" or " \\"))
    indent, more, quote = indent .. more, "", nil
    line = indent .. line:sub(best.at)
  end
  put(line)
end

--- Writes lines by put. wrap(put, text, width, head, indent) fills lines.
---@param put fun(line: string)
---@param wrap function
---@param lines string[]
---@param width integer
function M.put(put, wrap, lines, width)
  local quote, heredoc
  for _, line in ipairs(lines) do
    local before = quote
    local comment
    if heredoc then
      if line:match "^%s*(.-)%s*$" == heredoc then heredoc = nil end
      put(line)
      goto continue
    end
    _, comment, quote = scan(line, quote)
    heredoc = not before and line:match "<<%-?%s*['\"]?([%w_]+)" or nil
    if columns_of(line) <= width then
      put(line)
    elseif comment then
      local head = line:sub(1, comment - 1)
      local text = line:sub(comment):match "^#*%s*(.*)$"
      local blank = (" "):rep(columns_of(head))
      if not head:find "%S" or columns_of(head) + NARROWEST <= width then
        wrap(put, text, width, head .. "# ", blank .. "# ")
      else
        local above = head:match "^%s*" .. "# "
        wrap(put, text, width, above, above)
        command(put, (head:gsub("%s+$", "")), width, before)
      end
    else
      command(put, line, width, before)
    end
    ::continue::
  end
end

return M
