--- The Markdown of the reference pages and guides as HTML: headings with anchors, paragraphs, lists, tables, code. Used by
--- site.lua.
local M = {}

--- Text that stands between tags.
---@param text string
---@return string
function M.escape(text) return (text:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" })) end

local escape = M.escape

-- `code`, **bold**, [text](address) inside of a line. Addresses of pages, "x.md#y", become "x.html#y".
local function inline(text)
  local held = {}
  local function hold(html)
    held[#held + 1] = html
    return ("\1%d\2"):format(#held)
  end
  text = text:gsub("`([^`]+)`", function(code) return hold("<code>" .. escape(code) .. "</code>") end)
  text = text:gsub("%[([^%]]+)%]%(([^%)%s]+)%)", function(label, address)
    if not address:find "^%a+:" then address = address:gsub("%.md%f[#\0]", ".html") end
    return hold('<a href="' .. escape(address) .. '">') .. label .. hold "</a>"
  end)
  text = escape(text):gsub("%*%*(.-)%*%*", "<b>%1</b>")
  repeat
    local n
    text, n = text:gsub("\1(%d+)\2", function(i) return held[math.tointeger(tonumber(i))] end)
  until n == 0
  return text
end

--- The anchor of a heading: a name stays as it is, a method follows its class, other words are joined by dashes.
---@param level integer
---@param text string
---@param entry? string the heading of level 3 above it
---@return string
function M.anchor(level, text, entry)
  local plain = text:gsub("`", "")
  if level == 4 then
    local method = plain:match "^[:.][%w_]+"
    if method and entry then return entry .. method end
  end
  if plain:find "^[%w_.:]+$" then return plain end
  return (plain:lower():gsub("%b()", ""):gsub("%[", ""):gsub("[^%w]+", "-"):gsub("^%-", ""):gsub("%-$", ""))
end

local function cells_of(line)
  local cells = {}
  for cell in (line:match "^%s*|(.-)|?%s*$":gsub("\\|", "\3") .. "|"):gmatch "([^|]*)|" do
    cells[#cells + 1] = inline((cell:match "^%s*(.-)%s*$":gsub("\3", "|")))
  end
  return cells
end

local function put_table(put, rows)
  put "<table>"
  for i, line in ipairs(rows) do
    if not line:find "^[%s|:-]+$" or i == 1 then
      local cells, tag = cells_of(line), i == 1 and "th" or "td"
      if i > 1 or table.concat(cells):find "%S" then
        for k, cell in ipairs(cells) do cells[k] = ("<%s>%s</%s>"):format(tag, cell, tag) end
        put("<tr>" .. table.concat(cells) .. "</tr>")
      end
    end
  end
  put "</table>"
end

--- A page as HTML and its sections: { level =, title =, anchor =, text = plain text below the heading }.
---@param markdown string
---@return string html
---@return table[] sections
function M.page(markdown)
  local out, sections = {}, {}
  local held, rows, fence, entry = {}, {}, nil, nil
  local open = {} -- lists that are open: { tag =, indent = }
  local entries = {} -- headings of level 3, whose anchors are their names
  for name in markdown:gmatch "\n### (%S+)" do entries[name] = true end
  local function put(line) out[#out + 1] = line end
  local function note(text)
    local s = sections[#sections]
    if s and text ~= "" then s.text[#s.text + 1] = text end
  end
  local function flush()
    if #rows > 0 then put_table(put, rows) end
    rows = {}
    if #held == 0 then return end
    local text = table.concat(held, " ")
    held = {}
    put(#open > 0 and inline(text) or "<p>" .. inline(text) .. "</p>")
  end
  local function close_lists(indent)
    flush()
    while #open > 0 and open[#open].indent > indent do
      put("</li></" .. open[#open].tag .. ">")
      open[#open] = nil
    end
  end
  local function item(indent, tag, text)
    close_lists(indent)
    if #open > 0 and open[#open].indent == indent then
      put "</li>"
    else
      put("<" .. tag .. ">")
      open[#open + 1] = { tag = tag, indent = indent }
    end
    put "<li>"
    held[1] = text
  end
  for line in (markdown .. "\n"):gmatch "([^\n]*)\n" do
    local marks, title = line:match "^(#+) (.*)$"
    local indent, dash = line:match "^(%s*)[-*] (.*)$"
    local number_indent, number = line:match "^(%s*)%d+%. (.*)$"
    if fence then
      if line:find "^```" then
        put "</code></pre>"
        fence = nil
      else
        put(escape(line))
        note(line)
      end
    elseif line:find "^```" then
      close_lists(-1)
      fence = line:sub(4)
      put(('<pre><code class="%s">'):format(escape(fence:match "^%w*")))
    elseif marks then
      close_lists(-1)
      local level, anchor = #marks, nil
      anchor = M.anchor(level, title, entry)
      if level == 3 then entry = anchor end
      if level < 3 and entries[anchor] then anchor = anchor .. "-section" end -- a family with an op of its name
      put(('<h%d id="%s">%s<a class="anchor" href="#%s">#</a></h%d>'):format(level, escape(anchor), inline(title),
        escape(anchor), level))
      sections[#sections + 1] = { level = level, title = title:gsub("`", ""):gsub("%[(.-)%]%b()", "%1"), anchor = anchor,
        text = {} }
    elseif line == "" then
      flush()
      if #open > 0 then open[#open].blank = true end
    elseif dash or number then
      item(#(indent or number_indent), dash and "ul" or "ol", dash or number)
      note(dash or number)
    elseif line:find "^|" then
      if #rows == 0 then close_lists(-1) end
      rows[#rows + 1] = line
      note(line)
    elseif not line:find "^<!%-%-" then
      if #rows > 0 or #open > 0 and open[#open].blank and not line:find "^%s" then close_lists(-1) end
      if #open > 0 then open[#open].blank = nil end
      held[#held + 1] = line:match "^%s*(.*)$"
      note(line)
    end
  end
  close_lists(-1)
  for _, s in ipairs(sections) do s.text = table.concat(s.text, " ") end
  -- the text of a block begins at the end of its tag
  return (table.concat(out, "\n"):gsub('(<pre><code class="%w*">)\n', "%1"):gsub("\n</code></pre>", "</code></pre>")), sections
end

return M
