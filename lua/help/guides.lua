-- The guides (lua/help/guides/*.md, beside the reference pages, or their sources where those are not built): their list,
-- one of them, and where words occur in them and in the pages. `p` is what pages.load gave, nil without pages. Used by
-- help.lua.
local accel = ...
local layout = accel.host_chunk "help/layout"
local pages = accel.host_chunk "help/pages"

local M = {}

local MOST_FOUND <const> = 12
local MOST_OF_EACH <const> = 4 -- of each of several words

-- { name =, title =, lines =, sections = { { title =, text = } } } of one guide.
local function parse(name, text)
  local guide = { name = name, title = name, lines = {}, sections = {} }
  local section, fenced = { title = "", text = {} }, false
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do
    guide.lines[#guide.lines + 1] = line
    if line:find "^```" then fenced = not fenced end
    local marks, heading = line:match "^(#+) (.*)$"
    if heading and not fenced then
      heading = heading:gsub("`", "")
      if marks == "#" then guide.title = heading end
      section = { title = marks ~= "#" and heading or "", text = {} }
      guide.sections[#guide.sections + 1] = section
    end
    section.text[#section.text + 1] = line
  end
  for _, s in ipairs(guide.sections) do s.text = table.concat(s.text, "\n"):lower() end
  return guide
end

-- The folder of the guides and their names, in the order of the pages' index or, without pages, of their names.
local function folder_and_names(p)
  local names = {}
  if p then
    for name in p.index:gmatch "%]%(guides/([%w_-]+)%.md%)" do names[#names + 1] = name end
    return p.root .. "/guides", names
  end
  local root = pages.folder("start.md", { "../../../reference/guides", "../../doc/accel/reference/guides",
    "accel/../../lua/help/guides" })
  return root, root and pages.files(root, ".md") or names
end

local alone = {} -- guides without pages

--- All guides.
---@param p? table
---@return table[]
function M.all(p)
  local owner = p or alone
  if owner.guides then return owner.guides end
  owner.guides = {}
  local root, names = folder_and_names(p)
  for _, name in ipairs(names) do
    local text = pages.read(root .. "/" .. name .. ".md")
    if text then table.insert(owner.guides, parse(name, text)) end
  end
  return owner.guides
end

--- Their names and titles.
function M.list(p, width)
  local lines, longest = { "Guides; help guide NAME shows one:", "" }, 0
  for _, guide in ipairs(M.all(p)) do longest = math.max(longest, #guide.name) end
  for _, guide in ipairs(M.all(p)) do
    local head = ("  %-" .. longest .. "s  "):format(guide.name)
    for i, line in ipairs(layout.wrap(guide.title, width - #head)) do
      lines[#lines + 1] = (i == 1 and head or (" "):rep(#head)) .. line
    end
  end
  return lines
end

--- One guide; nil and why not.
function M.show(p, name, width)
  local names = {}
  for _, guide in ipairs(M.all(p)) do
    if guide.name == name:lower() then return layout.plain(guide.lines, width) end
    names[#names + 1] = guide.name
  end
  local near = accel.nearest(name, names)
  return nil, ("there is no guide '%s'%s"):format(name, near and ("; did you mean guide %s?"):format(near)
    or "; accel-run help guide lists them")
end

-- ---- finding words ----
local function words_of(topic)
  local words = {}
  for word in topic:lower():gmatch "%S+" do words[#words + 1] = word end
  return words
end

-- Whether all words occur: in names anywhere, in text at the beginnings of words ("test" in tests, not in latest).
local function has_all(text, words, is_name)
  for _, word in ipairs(words) do
    local pattern = (not is_name and word:find "^%w" and "%f[%w]" or "") .. word:gsub("%p", "%%%0")
    if not text:find(pattern) then return false end
  end
  return true
end

--- What to ask for to read of these words: { topic =, title = }, the likeliest first; sections of guides, then pages.
---@return table[]
function M.find(p, topic)
  local words, found = words_of(topic), {}
  if #words == 0 then return found end
  for i, guide in ipairs(M.all(p)) do
    for k, section in ipairs(guide.sections) do
      local in_title = has_all((guide.title .. " " .. section.title):lower(), words)
      if in_title or has_all(section.text, words) then
        found[#found + 1] = { topic = "guide " .. guide.name, title = section.title ~= "" and section.title or guide.title,
          rank = (in_title and 0 or 400) + i * 20 + k }
      end
    end
  end
  for at, module in ipairs(p and p.order or {}) do
    for k, name in ipairs(p.modules[module].names) do
      local in_name = has_all(name:lower(), words, true)
      if in_name or has_all(table.concat(p.entries[name].lines, "\n"):lower(), words) then
        found[#found + 1] = { topic = name, title = "", rank = (in_name and 500 or 2000) + at * 50 + k / 100 }
      end
    end
  end
  table.sort(found, function(a, b) return a.rank < b.rank end)
  return found
end

--- Lines that say where words occur, in so many places at most; nil: nowhere.
---@return string[]?
function M.places(p, topic, width, most)
  local found, lines = M.find(p, topic), {}
  for i = 1, math.min(#found, most) do
    local head = "  help " .. found[i].topic
    if found[i].title ~= "" then head = ("%-28s  %s"):format(head, found[i].title) end
    lines[#lines + 1] = #head <= width and head or head:sub(1, width - 3) .. "..."
  end
  if #found > most then lines[#lines + 1] = ("  and %d more places"):format(#found - most) end
  return #found > 0 and lines or nil
end

--- The answer to words that are no name; nil: they occur nowhere. near: a name like them.
function M.search(p, topic, near, width)
  local places = M.places(p, topic, width, MOST_FOUND)
  if not places then return nil end
  local text = near and not topic:find " " and ("Nothing is named '%s'; did you mean %s? The words occur in:"):format(topic, near)
    or ("Nothing is named '%s'. The words occur in:"):format(topic)
  local lines = layout.wrap(text, width)
  lines[#lines + 1] = ""
  return table.move(places, 1, #places, #lines + 1, lines)
end

--- The answer to several words that occur nowhere together: where each of them does, its own page first; nil: none does.
function M.search_each(p, topic, width)
  local lines, any = layout.wrap(("No name and no page has all of '%s'. Each by itself:"):format(topic), width), false
  for word in topic:gmatch "%S+" do
    local entry = p and pages.find(p, word)
    local places = M.places(p, word, width, MOST_OF_EACH)
    if entry or places then any, lines[#lines + 1] = true, "" end
    if entry then lines[#lines + 1] = "  help " .. entry.name end
    for _, line in ipairs(places or {}) do
      if not entry or line ~= "  help " .. entry.name then lines[#lines + 1] = line end
    end
  end
  return any and lines or nil
end

return M
