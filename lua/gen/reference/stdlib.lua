--- The training library's public names with their comments: every class and function reachable from `accel`, found by
--- walking the tables themselves. Documentation and examples come from the LuaCATS comments above them. Used by the
--- reference page and its test.
local checked = require "accel.util.checked"
local folders = require "accel.util.folders"
local lfs = require "lfs"
local options = require "reference.options"

local M = {}

local function read(path)
  local f = io.open(path, "rb")
  local text = f and f:read "a"
  if f then f:close() end
  return text
end

local files = {} -- path -> list of lines

local function lines_of(path)
  if files[path] == nil then
    local text, list = read(path), {}
    for line in (text or ""):gmatch "([^\n]*)\n" do list[#list + 1] = line end
    files[path] = list
  end
  return files[path]
end

-- ---- comments ----
-- Whether an annotation ends inside the braces of a type, so that the next line belongs to it.
local function unclosed(annotation)
  local _, opened = annotation:gsub("{", "")
  local _, closed = annotation:gsub("}", "")
  return opened > closed
end

-- A block of comment lines sorted out: {text = {...}, examples = {...}, annotations = {...}}. An example extends to the
-- line with its arrow, an annotation over the indented lines below it. Both keep their lines. A type in braces is one line.
local function sort_out(lines)
  local doc = { text = {}, examples = {}, annotations = {} }
  local open, annotated = nil, false -- column of the continuing example, and whether an annotation may continue
  for _, line in ipairs(lines) do
    local annotation = line:match "^%s*%-%-%-@(.*)$"
    local example = line:match "^%s*%-%-%-?%s*example: (.*)$"
    local indent, rest = line:match "^%s*%-%-%-?(%s*)(.-)%s*$"
    if annotation then
      doc.annotations[#doc.annotations + 1], open, annotated = annotation, nil, true
    elseif example or open then
      local n = #doc.examples + (example and 1 or 0)
      if example then open = #indent + 2 end
      local set_in = (" "):rep(math.max(0, #indent - open))
      doc.examples[n] = example or doc.examples[n] .. "\n" .. set_in .. rest
      annotated = false
      if doc.examples[n]:find("-->", 1, true) then open = nil end
    elseif annotated and unclosed(doc.annotations[#doc.annotations]) then
      doc.annotations[#doc.annotations] = doc.annotations[#doc.annotations] .. " " .. rest
    elseif annotated and #indent >= 2 then
      doc.annotations[#doc.annotations] = doc.annotations[#doc.annotations] .. "\n" .. indent:sub(2) .. rest
    else
      doc.text[#doc.text + 1], annotated = line:match "^%s*%-%-%-? ?(.*)$", false
    end
  end
  while doc.text[#doc.text] == "" do doc.text[#doc.text] = nil end
  return doc
end

M.sort_out = sort_out

-- Comment lines that end above line n.
local function above(path, n)
  local lines, list = lines_of(path), {}
  local i = n - 1
  while i > 0 and lines[i]:match "^%s*%-%-%-" do i = i - 1 end
  for k = i + 1, n - 1 do list[#list + 1] = lines[k] end
  return list
end

local function head(path)
  local list = {}
  for _, line in ipairs(lines_of(path)) do
    if not line:match "^%-%-" then break end
    list[#list + 1] = line
  end
  return sort_out(list)
end

-- Every "---@class NAME" below a folder: NAME -> {path, line, base}, and how many a file has.
local function annotated(root)
  local classes, per_file = {}, {}
  for _, path in ipairs(folders.files(root, ".lua")) do
    for n, line in ipairs(lines_of(path)) do
      local name, base = line:match "^%-%-%-@class%s+([%w_.]+)%s*:?%s*([%w_.]*)"
      if name and not classes[name] then
        classes[name] = { path = path, line = n, base = base ~= "" and base or nil }
        per_file[path] = (per_file[path] or 0) + 1
      end
    end
  end
  return classes, per_file
end

-- What the head of a file says, where the comment of one of its classes does not: of its only class, and of the classes of a model family,
-- which are made from one description.
local function from_head(doc, path)
  local h = head(path)
  if #doc.text == 0 then doc.text = h.text end
  if #doc.examples == 0 then doc.examples = h.examples end
  doc.path = doc.path or path
  return doc
end

local function class_doc(found, alone)
  local lines, list = lines_of(found.path), above(found.path, found.line)
  for i = found.line, #lines do
    if not lines[i]:match "^%-%-%-" then break end
    list[#list + 1] = lines[i]
  end
  local doc = sort_out(list)
  return alone and from_head(doc, found.path) or doc
end

-- ---- functions ----
local function signature(f)
  local info, names = debug.getinfo(f, "u"), {}
  for i = 1, info.nparams do names[i] = debug.getlocal(f, i) end
  if info.isvararg then names[#names + 1] = "..." end
  return names
end

local function function_doc(f)
  f = checked.original(f)
  local info = debug.getinfo(f, "S")
  if info.what == "C" or info.source:sub(1, 1) ~= "@" then return nil end
  local path = info.source:sub(2)
  local doc = sort_out(above(path, info.linedefined))
  doc.path, doc.params = path, signature(f)
  doc.arguments = options.arguments(f)
  doc.declared = options.declared(lines_of(path), info.linedefined, info.lastlinedefined)
  return doc
end

-- Methods that are documented, the class's own, by name.
local function methods(class)
  local list = {}
  for name, f in next, class do
    if type(f) == "function" and type(name) == "string" and not name:match "^_" and name ~= "init"
      and name ~= "alloc" then
      local doc = function_doc(f)
      if doc and #doc.text > 0 then
        doc.name = name
        list[#list + 1] = doc
      end
    end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

M.function_doc, M.methods = function_doc, methods

-- ---- the walk ----
local function names_of(t)
  local meta, set, list = getmetatable(t), {}, {}
  local listed = type(meta) == "table" and rawget(meta, "__names")
  for name in next, type(listed) == "table" and listed or t do set[name] = true end
  for name in next, t do set[name] = true end
  for name in next, set do
    if type(name) == "string" and not name:match "^_" then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

local function is_module(t, isclass)
  local meta = getmetatable(t)
  if type(meta) == "table" and rawget(meta, "__names") then return true end
  for _, v in next, t do
    if type(v) == "function" or isclass(v) then return true end
  end
  return false
end

-- An enumeration: a table of strings that stands under its "---@class".
local function enum_doc(found, name, value)
  local doc, members = class_doc(found, false), {}
  for key, text in next, value do members[#members + 1] = ("- `%s`: `%q`"):format(key, text) end
  table.sort(members)
  doc.text[#doc.text + 1] = ""
  table.move(members, 1, #members, #doc.text + 1, doc.text)
  doc.name, doc.kind, doc.path, doc.ops = name, "module", found.path, {}
  return doc
end

local function is_enum(t)
  for _, text in next, t do
    if type(text) ~= "string" then return false end
  end
  return next(t) ~= nil
end

--- Gives each class the entries of those it is built on, the nearest first: `bases`.
function M.add_bases(entries)
  local by_class = {}
  for _, e in ipairs(entries) do
    if e.class then by_class[e.class] = e end
  end
  for _, e in ipairs(entries) do
    local meta = e.class and getmetatable(e.class)
    local above_it = meta and rawget(meta, "__index")
    e.bases = {}
    while type(above_it) == "table" do
      e.bases[#e.bases + 1] = by_class[above_it]
      meta = getmetatable(above_it)
      above_it = meta and rawget(meta, "__index")
    end
  end
end

--- Entries {name = "accel.nn.Linear", kind = "class" | "function" | "module", class =, base =, bases =, path =, text =,
--- examples =, annotations =, params =, methods =, arguments = and declared = (see reference.options), ops = of a
--- module} of one module ("nn"), sorted by name, and a list of names that could not be loaded.
---@param accel table
---@param root string the folder stdlib/accel
---@param module string
---@return table[] entries
---@return string[] failures
function M.entries(accel, root, module)
  local class, is_op = accel.util.class, {}
  for _, op in ipairs(accel.ops()) do is_op[op.name] = true end
  local annotations, per_file = annotated(root)
  local entries, failures, seen = {}, {}, {}
  local function add_class(name, value, family)
    local found = annotations[name] or annotations[tostring(value.__name)]
    local doc = found and class_doc(found, per_file[found.path] == 1) or sort_out {}
    doc.name, doc.kind, doc.class, doc.methods = name, "class", value, methods(value)
    doc.base, doc.path = found and found.base, found and found.path
    if family then from_head(doc, root .. "/models/" .. family:gsub("%.", "/") .. ".lua") end
    doc.params = type(value.init) == "function" and signature(value.init) or {}
    doc.constructor = type(value.init) == "function" and function_doc(value.init) or nil
    doc.declared = options.of_class(value) or doc.constructor and doc.constructor.declared
    doc.arguments = doc.constructor and doc.constructor.arguments
    entries[#entries + 1] = doc
  end
  local function add_module(name, parent, t) -- its file's head, and which of its functions are ops
    local meta = getmetatable(parent)
    local homes = type(meta) == "table" and rawget(meta, "__names")
    local key = name:match "[^.]+$"
    local file = ("%s/%s/%s"):format(root, name:gsub("^accel%.", ""):match("^(.*)%."):gsub("%.", "/"),
      type(homes) == "table" and homes[key] or key)
    local path = read(file .. ".lua") and file .. ".lua" or file .. "/init.lua"
    local doc = head(path)
    if #doc.text == 0 then doc = sort_out { "--- Fields of " .. name .. "." } end
    doc.name, doc.kind, doc.path, doc.ops = name, "module", path, {}
    for _, op in ipairs(names_of(t)) do
      if is_op[op] and rawequal(t[op], accel[op]) then doc.ops[#doc.ops + 1] = op end
    end
    entries[#entries + 1] = doc
  end
  local function walk(prefix, t)
    for _, name in ipairs(names_of(t)) do
      local full = prefix .. "." .. name
      local ok, value = pcall(function() return t[name] end)
      if not ok then
        failures[#failures + 1] = full .. ": " .. tostring(value)
      elseif class.isclass(value) then
        local homes = not seen[value] and full:find "^accel%.models%.%w+$" and rawget(getmetatable(t), "__names")
        if not seen[value] then add_class(full, value, homes and homes[name]) end
        seen[value] = true
      elseif type(value) == "function" then
        local doc = not seen[value] and function_doc(value)
        if doc then
          doc.name, doc.kind = full, "function"
          entries[#entries + 1] = doc
        end
        seen[value] = true
      elseif type(value) == "table" and not seen[value] and is_module(value, class.isclass) then
        seen[value] = true
        add_module(full, t, value)
        walk(full, value)
      elseif type(value) == "table" and not seen[value] and annotations[full] and is_enum(value) then
        seen[value] = true
        entries[#entries + 1] = enum_doc(annotations[full], full, value)
      end
    end
  end
  walk("accel." .. module, accel[module])
  M.add_bases(entries)
  table.sort(entries, function(a, b) return a.name < b.name end)
  return entries, failures
end

--- Names of the modules below stdlib/accel: folders with an init.lua.
---@param root string
---@return string[]
function M.modules(root)
  local list = {}
  for _, name in ipairs(folders.names(root)) do
    if lfs.attributes(root .. "/" .. name .. "/init.lua", "mode") == "file" then list[#list + 1] = name end
  end
  return list
end

return M
