-- The guides (lua/help/guides/*.md, next to the reference pages, or their sources if those are not built): their list,
-- one guide, and a search in them and in the pages. `p` is the result of pages.load, nil without pages. Used by
-- help.lua.
local accel = ...
local layout = accel.host_chunk "help/layout"
local pages = accel.host_chunk "help/pages"

local M = {}

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

--- One guide. nil and the reason if there is none.
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

return M
