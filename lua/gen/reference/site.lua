--- The guides and reference pages as a site of static HTML, OUT/html: one page for each Markdown page, an index for the
--- search that runs in the browser, no network. Used by reference.lua.
local html = require "reference.html"

local M = {}

local PAGE <const> = [[
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title><link rel="stylesheet" href="%ssite.css"></head>
<body data-root="%s"><nav><a class="home" href="%sindex.html">accel</a> <span class="version">%s</span>
<input id="search" type="search" placeholder="Search  ( / )" autocomplete="off">
%s</nav><main><div id="results" hidden></div><article>
%s
</article></main><script src="%ssearch-index.js"></script><script src="%ssearch-words.js"></script>
<script src="%ssite.js"></script></body></html>
]]

local MOST_TEXT <const> = 2000 -- bytes of a section that can be searched

local function link(root, page, text, current)
  return ('<li><a%s href="%s%s.html">%s</a></li>'):format(current == page and ' class="here"' or "", root, page,
    html.escape(text))
end

local function navigation(pages, root, current)
  local parts = {}
  for _, group in ipairs { { "Guides", "guide" }, { "Program", "program" }, { "Reference", "reference" } } do
    parts[#parts + 1] = ("<h2>%s</h2><ul>"):format(group[1])
    for _, page in ipairs(pages) do
      if page.kind == group[2] then parts[#parts + 1] = link(root, page.name, page.label, current) end
    end
    parts[#parts + 1] = "</ul>"
  end
  return table.concat(parts, "\n")
end

-- A list of the sections of a guide, above its text.
local function contents(sections)
  local parts = {}
  for _, s in ipairs(sections) do
    if s.level == 2 then parts[#parts + 1] = ('<li><a href="#%s">%s</a></li>'):format(html.escape(s.anchor), html.escape(s.title)) end
  end
  return #parts > 1 and '<ul class="contents">' .. table.concat(parts) .. "</ul>" or ""
end

local function label_of(page) return (page.kind == "guide" and "guide " or "") .. page.label end

-- The argument of accel-run help that shows a section, or the page that it is on.
local function topic_of(page, section)
  if page.kind == "guide" then return "guide " .. page.label end
  if page.kind == "program" then return section.level == 2 and (section.title:match "^accel%-run (%S+)" or section.title) or page.label end
  if section.level == 4 then return section.anchor end
  return section.level == 3 and section.title or page.label
end

--- pages: { name = "nn" or "guides/data", label =, kind = "guide", "reference" or "index", markdown = }. encode: JSON.
--- Gives the files: name -> text.
---@param pages table[]
---@param search table lua/help/search.lua: words that mean the same
---@param version string of accel, on every page
---@param encode fun(value: any): string
---@return table<string, string>
function M.files(pages, search, version, encode)
  local files, index = {}, {}
  for _, page in ipairs(pages) do
    local root = page.name:find "/" and "../" or ""
    local body, sections = html.page(page.markdown)
    if page.kind == "guide" then body = body:gsub("</h1>", function(tag) return tag .. contents(sections) end, 1) end
    files[page.name .. ".html"] = PAGE:format(html.escape(page.label .. " - accel"), root, root, root, html.escape(version),
      navigation(pages, root, page.name), body, root, root, root)
    for _, s in ipairs(page.kind ~= "index" and sections or {}) do
      local text = s.text:gsub("%s+", " "):gsub("`", ""):sub(1, MOST_TEXT)
      while not utf8.len(text) do text = text:sub(1, -2) end
      local title = s.level == 4 and s.anchor or s.title -- a method stands with its class
      index[#index + 1] = { title, page.name .. ".html#" .. s.anchor, label_of(page), text, topic_of(page, s) }
    end
  end
  files["search-index.js"] = "const SEARCH_INDEX = " .. encode(index) .. ";\n"
  files["search-words.js"] = "const SEARCH_WORDS = " .. encode { groups = search.groups, ignored = search.ignored } .. ";\n"
  return files
end

return M
