--- Writes the reference pages: every op with its formula, shapes, dtypes and examples, every other function, every class
--- and function of the training library, and the guides. It also writes all of it as a site, OUT/html. Run by the build
--- (target `reference`):
---   accel-run lua/gen/reference.lua SOURCE GENERATED OUT
--- GENERATED is the folder with ops.md and ops.json from accel-opgen. Pages are replaced only when their text changes.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local dtypes = require "reference.dtypes"
local folders = require "accel.util.folders"
local headers = require "reference.headers"
local markdown = require "reference.markdown"
local options = require "reference.options"
local program = require "reference.program"
local site = require "reference.site"
local stdlib = require "reference.stdlib"
local stubs = require "reference.stubs"

local source, generated, out = arg[1], arg[2], arg[3]
if not out then
  io.stderr:write "usage: accel-run lua/gen/reference.lua SOURCE GENERATED OUT\n"
  os.exit(2)
end

local function read(path)
  local f = io.open(path, "rb")
  local text = f and f:read "a"
  if f then f:close() end
  return text
end

local pages = {} -- pages of the site

local function write(name, text)
  local page = name:match "^(.*)%.md$"
  if page then
    pages[#pages + 1] = { name = page, markdown = text, label = page:match "[^/]+$",
      kind = page == "index" and "index" or page:find "^guides/" and "guide" or page:find "^program/" and "program" or "reference" }
  end
  local path = out .. "/" .. name
  if read(path) == text then return end
  local f = assert(io.open(path, "wb"))
  assert(f:write(text))
  assert(f:close())
end

-- ---- ops: accel-opgen's page, with a line on dtypes below each gradient ----
local function ops_page()
  local list = accel.json.decode(assert(read(generated .. "/ops.json"))).ops
  local by_name, families, n = {}, {}, 0
  for _, op in ipairs(list) do
    if not op.hidden then
      by_name[op.name] = op
      local family = op.file:match "^[^/]+"
      families[family] = families[family] or {}
      table.insert(families[family], op.name)
      n = n + 1
    end
  end
  local lines, current = {}, nil
  for line in assert(read(generated .. "/ops.md")):gmatch "([^\n]*)\n" do
    current = line:match "^### (%S+)$" or current
    lines[#lines + 1] = line
    if line:match "^Gradient: " and by_name[current] then
      local text = dtypes.line(accel, by_name[current])
      if text then
        lines[#lines] = text
        lines[#lines + 1] = line
      end
    end
  end
  return table.concat(lines, "\n") .. "\n", families, n
end

-- ---- classes and functions ----
-- Parameters as they are called: those a function hands to accel.nn.arguments have defaults.
local function parameters(entry)
  local list, named = {}, {}
  for _, argument in ipairs(entry.params[#entry.params] == "..." and entry.arguments or {}) do named[argument[1]], named.opts = true, true end
  for i, name in ipairs(entry.params) do
    if name == "..." and entry.arguments then
      for _, argument in ipairs(entry.arguments) do
        local default = argument[2] ~= nil and options.shown(argument[2])
        list[#list + 1] = argument[1] .. (default and " = " .. default or "")
      end
    elseif not named[name] and (name ~= "self" or i > 1) then
      list[#list + 1] = name
    end
  end
  return table.concat(list, ", ")
end

local function call_of(entry)
  for _, a in ipairs(entry.arguments and {} or entry.annotations) do
    local params = a:match "^overload fun(%b())"
    if params then return entry.name .. params end
  end
  return ("%s(%s)"):format(entry.name, parameters(entry))
end

local function put_method(put, m)
  put(("\n#### `%s%s(%s)`\n"):format(m.params[1] == "self" and ":" or ".", m.name, parameters(m)))
  put(markdown.text(m.text))
  put ""
  markdown.annotations(put, m.annotations, "param", nil, m.declared)
  markdown.returns(put, m.annotations)
  if #m.examples > 0 then put("\n" .. markdown.examples(m.examples)) end
end

-- Inherited members of a class: names, or their number.
local function put_inherited(put, entry)
  local seen = {}
  for _, m in ipairs(entry.methods) do seen[m.name] = true end
  for _, base in ipairs(entry.bases or {}) do
    local names = {}
    for _, m in ipairs(base.methods) do
      if not seen[m.name] then names[#names + 1] = ("`%s%s`"):format(m.params[1] == "self" and ":" or ".", m.name) end
      seen[m.name] = true
    end
    local n = #names
    local list = n <= 16 and table.concat(names, " ") or ("%d methods"):format(n)
    if n > 0 then put(("\nInherited from `%s`: %s."):format(base.name:gsub("^accel%.", ""), list)) end
  end
end

local function put_entry(put, entry)
  put(("\n### %s\n"):format((entry.name:gsub("^accel%.", ""))))
  if entry.base then put(("Base: `%s`.\n"):format(entry.base)) end
  put(markdown.text(entry.text))
  if entry.kind == "module" then
    if #entry.examples > 0 then put("\n" .. markdown.examples(entry.examples)) end
    if #entry.ops > 0 then put("\nFurther ops: `" .. table.concat(entry.ops, "` `") .. "`.") end
    return
  end
  put("\n```lua\n" .. call_of(entry) .. "\n```\n")
  if entry.arguments then put "Arguments by position, or by name in a table at the end.\n" end
  local from = entry.constructor or entry
  local annotations = {}
  for _, a in ipairs(from.annotations) do
    if not (entry.arguments and a:find "^param %.%.%.") then annotations[#annotations + 1] = a end
  end
  markdown.annotations(put, annotations, "param", nil, entry.declared)
  if entry.kind == "function" then markdown.returns(put, entry.annotations) end
  markdown.annotations(put, entry.annotations, "field", "Fields:")
  if #entry.examples > 0 then put("\n" .. markdown.examples(entry.examples)) end
  for _, m in ipairs(entry.methods or {}) do put_method(put, m) end
  if entry.methods then put_inherited(put, entry) end
end

local function module_page(module)
  local entries, failures = stdlib.entries(accel, source .. "/stdlib/accel", module)
  for _, why in ipairs(failures) do io.stderr:write("reference: ", why, "\n") end
  local lines = {}
  local function put(line) lines[#lines + 1] = line end
  local init = read(("%s/stdlib/accel/%s/init.lua"):format(source, module)) or ""
  local about = {}
  for line in init:gmatch "([^\n]*)\n" do
    local text = line:match "^%-%-%-? ?(.*)$"
    if not text then break end
    about[#about + 1] = text
  end
  put(("# accel.%s\n"):format(module))
  put(markdown.text(about))
  local counts, titles = { class = 0, ["function"] = 0, module = 0 },
    { module = "Modules", class = "Classes", ["function"] = "Functions" }
  for _, kind in ipairs { "module", "class", "function" } do
    local first = true
    for _, entry in ipairs(entries) do
      if entry.kind == kind then
        if first then put("\n## " .. titles[kind]) end
        first = false
        put_entry(put, entry)
        counts[kind] = counts[kind] + 1
      end
    end
  end
  local native = stubs.modules[module]
  if native then
    local list = stubs.entries(source .. "/lua/meta", stdlib.sort_out, { native })
    stubs.put(list, put)
    counts["function"] = counts["function"] + #list
  end
  return (table.concat(lines, "\n") .. "\n"):gsub("\n\n\n+", "\n\n"), counts, entries
end

-- Names of the guides: in the order of the list of guides in the README, then those that it leaves out.
local function guide_names()
  local names, seen = {}, {}
  local function add(name)
    if not seen[name] then names[#names + 1] = name end
    seen[name] = true
  end
  for name in (read(source .. "/README.md") or ""):gmatch "lua/help/guides/([%w_-]+)%.md" do add(name) end
  for _, path in ipairs(folders.files(source .. "/lua/help/guides", ".md")) do add(path:match "([^/]*)%.md$") end
  return names
end

-- ---- all pages ----
for _, folder in ipairs { "guides", "program", "html/guides", "html/program", "man/man1" } do
  assert(accel.makedirs(out .. "/" .. folder))
end
markdown.aliases = options.aliases { source .. "/lua/meta/core.lua", source .. "/lua/meta/dist.lua" }
local index = { "# Reference\n", "Generated from signatures, comments and the library itself; the tests run every example.\n" }
index[#index + 1] = "## Guides\n"
for _, name in ipairs(guide_names()) do
  local guide = assert(read(("%s/lua/help/guides/%s.md"):format(source, name)))
  write(("guides/%s.md"):format(name), guide)
  index[#index + 1] = ("- [%s](guides/%s.md): %s"):format(name, name, guide:match "^# ([^\n]+)")
end
local version = accel._VERSION
local topics = accel.host_chunk "help/topics"
local commands = program.commands(topics)
write("program/commands.md", program.page(commands))
index[#index + 1] = ("\n## [Commands](program/commands.md): %d"):format(#commands)
do
  local names = {}
  for _, name in ipairs(folders.names(source .. "/examples")) do
    if name:find "%.lua$" then names[#names + 1] = name end
  end
  write("program/examples.md", program.examples(source .. "/examples", names))
  index[#index + 1] = ("\n## [Examples](program/examples.md): %d"):format(#names)
end
for name, page in pairs(program.man(commands, topics, (accel.params()), version)) do write("man/man1/" .. name, page) end
local text, families, n_ops = ops_page()
write("ops.md", text)
index[#index + 1] = ("\n## [Ops](ops.md): %d\n"):format(n_ops)
for family, names in pairs(families) do
  local links = {}
  for i, name in ipairs(names) do links[i] = ("[%s](ops.md#%s)"):format(name, name) end
  index[#index + 1] = ("- **%s**: %s"):format(family, table.concat(links, " "))
end
do
  local entries = stubs.entries(source .. "/lua/meta", stdlib.sort_out)
  write("core.md", stubs.page(entries))
  local names = {}
  for _, e in ipairs(entries) do names[#names + 1] = (e.name:gsub("^accel%.", ""):gsub("^Tensor[.:]", "x:")) end
  index[#index + 1] = ("\n## [accel](core.md): %d other than ops\n"):format(#entries)
  index[#index + 1] = table.concat(names, " ")
end
for _, module in ipairs(stdlib.modules(source .. "/stdlib/accel")) do
  local ok, page, counts, entries = pcall(module_page, module)
  if ok then
    write(module .. ".md", page)
    index[#index + 1] = ("\n## [accel.%s](%s.md): %d classes, %d functions\n"):format(module, module, counts.class,
      counts["function"])
    local names = {}
    for _, e in ipairs(entries) do
      if e.kind == "class" then names[#names + 1] = e.name:match("^accel%." .. module .. "%.(.*)$") end
    end
    index[#index + 1] = table.concat(names, " ")
  else
    io.stderr:write("reference: accel.", module, ": ", tostring(page), "\n")
  end
end
do
  local page, n = require "accel.config.describe".page()
  write("configurations.md", page)
  index[#index + 1] = ("\n## [Keys of configurations](configurations.md): %d keys and flags of launches\n"):format(n)
end
do
  local page, functions, types = headers.page(source .. "/host/include/accel")
  write("embed.md", page)
  index[#index + 1] = ("\n## [Embedding, in C](embed.md): %d functions, %d types\n"):format(functions, types)
end
write("index.md", table.concat(index, "\n") .. "\n")
for name, page in pairs(site.files(pages, accel.host_chunk "help/search", version, accel.json.encode)) do write("html/" .. name, page) end
for _, name in ipairs { "site.css", "site.js" } do write("html/" .. name, assert(read(here .. "/reference/site/" .. name))) end
