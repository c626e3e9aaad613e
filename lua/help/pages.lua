-- The reference pages that the build writes (lua/gen/reference.lua), parsed: modules, entries, methods, and the lookup
-- of a topic. Used by help.lua.
local accel = ...

local M = {}

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end
M.read = read

--- The library's folder, "share/lua/5.4". nil: not found.
local function library()
  local init = package.searchpath("accel", package.path)
  return init and init:match "^(.*)/accel/init%.lua$"
end

--- The first of these folders near the library that has the file: in a build, in an installation, in a source tree.
---@param file string
---@param places string[]
---@return string?
function M.folder(file, places)
  local base = library()
  for _, place in ipairs(base and places or {}) do
    local path = base .. "/" .. place
    if read(path .. "/" .. file) then return path end
  end
end

--- The files of a folder whose names end so, in the order of their names, without the end.
---@param folder string
---@param ending string
---@return string[]
function M.files(folder, ending)
  local names = {}
  for _, name in ipairs(accel.listdir(folder) or {}) do
    if name:sub(-#ending) == ending then names[#names + 1] = name:sub(1, -#ending - 1) end
  end
  return names
end

--- The reason why there are no pages, and the command that writes them, if there is one.
---@return string
---@return string? command
function M.missing()
  local build = (library() or ""):match "^(.*)/share/lua/[^/]+$"
  if build and read(build .. "/CMakeCache.txt") then
    return "the reference pages are not built yet", ("cmake --build %s --target reference"):format(build)
  end
  return "the reference pages are not installed here; an installation has them in share/doc/accel/reference"
end

-- One page: about = lines, names = of its entries. Entries: { name =, module =, lines =, methods = { { name = ":step",
-- call = ":step(closure)", lines = } }, inherited = names of classes }.
local function parse(all, name, text)
  local module = { about = {}, names = {} }
  local into, entry = module.about, nil
  for line in text:gmatch "([^\n]*)\n" do
    local heading, method = line:match "^### (%S+)$", line:match "^#### `(.*)`$"
    local field, base = line:match "^%- `x%.([%w_]+)`: ", line:match "^Inherited from `([^`]+)`"
    if heading then
      entry = { module = name, name = heading, lines = {}, methods = {}, inherited = {} }
      into = entry.lines
      if not all.entries[heading] then all.entries[heading] = entry end
      module.names[#module.names + 1] = heading
    elseif method and entry then
      into = {}
      entry.methods[#entry.methods + 1] = { name = method:match "^[:.][%w_]+", call = method, lines = into }
    elseif base and entry then
      entry.inherited[#entry.inherited + 1] = base
      entry.inheritance = entry.inheritance or {}
      table.move({ line, "" }, 1, 2, #entry.inheritance + 1, entry.inheritance)
    elseif line:match "^## " then
      into = entry and {} or module.about
    else
      into[#into + 1] = line
      if field and name == "core" then
        local full = "Tensor." .. field
        all.entries[full] = { module = name, name = full, lines = { line }, methods = {}, inherited = {} }
      end
    end
  end
  return module
end

local cache

--- { modules = { name = }, entries = { name = }, order = names of modules, root = the folder, index = its index.md }. nil:
--- there are no pages.
---@param root? string the folder
function M.load(root)
  if cache and not root then return cache end
  root = root or M.folder("index.md", { "../../../reference", "../../doc/accel/reference", "../build/dev/reference",
    "../build/release/reference" })
  if not root then return nil end
  local all = { modules = {}, entries = {}, order = {}, root = root, index = read(root .. "/index.md") }
  for name in all.index:gmatch "%]%(([%w_]+)%.md%)" do
    local text = not all.modules[name] and read(root .. "/" .. name .. ".md")
    if text then
      all.modules[name] = parse(all, name, text)
      all.order[#all.order + 1] = name
    end
  end
  cache = all
  return all
end

-- ---- finding ----
-- Selects one of several modules: public ones take precedence over their implementation.
local last = { amp = 1, dist = 1, accelerator = 2, util = 3, embed = 4, configurations = 5 }

local function same(a, b) return a == b end
local function alike(a, b) return a:lower() == b:lower() end

-- Entries whose name ends with `name`, the likeliest first.
local function ending(p, name, equal)
  local list = {}
  for at, module in ipairs(p.order) do
    for _, full in ipairs(p.modules[module].names) do
      local entry = p.entries[full]
      if entry.module == module and (equal(full, name) or equal(full:match "[.:]([^.:]+)$" or full, name)) then
        list[#list + 1] = { entry = entry, rank = (last[module] or 0) * 100 + at }
      end
    end
  end
  table.sort(list, function(a, b) return a.rank < b.rank end)
  for i, found in ipairs(list) do list[i] = found.entry end
  return list
end

local function method_of(p, entry, member, depth)
  for _, m in ipairs(entry.methods) do
    if m.name:sub(2) == member then
      return { name = entry.name .. m.call:match "^[:.][%w_]+", call = entry.name .. m.call, lines = m.lines, methods = {} }
    end
  end
  for _, base in ipairs(depth < 8 and entry.inherited or {}) do
    local found = p.entries[base] and method_of(p, p.entries[base], member, depth + 1)
    if found then return found end
  end
end

--- All methods of this name: "optim.Optimizer:step", ...
---@return string[]
function M.methods(p, member)
  local list = {}
  for _, module in ipairs(p.order) do
    for _, full in ipairs(p.modules[module].names) do
      for _, m in ipairs(p.entries[full].methods) do
        if m.name:sub(2) == member then list[#list + 1] = full .. m.name end
      end
    end
  end
  return list
end

--- The entry of a topic, and others of its name, or nil.
---@return table? entry
---@return table[] others
function M.find(p, topic)
  local name = topic:gsub("^accel%.", ""):gsub("%(%)?$", "")
  local others = {}
  local function note(list, entry)
    for _, e in ipairs(list) do
      if e ~= entry and not p.modules[e.name] then others[#others + 1] = e end
    end
    return entry, others
  end
  local entry = p.entries[name]
  if entry then return note(name:find "[.:]" and {} or ending(p, name, alike), entry) end
  local owner, member = name:match "^([%w_.]+)[:.]([%w_]+)$"
  if owner and (#owner == 1 or owner:lower() == "tensor") then -- x:sum, t.shape
    local own = p.entries["Tensor:" .. member] or p.entries["Tensor." .. member] or p.entries[member]
    if own then return own, others end
  end
  if p.entries["Tensor:" .. name] or p.entries["Tensor." .. name] then
    return p.entries["Tensor:" .. name] or p.entries["Tensor." .. name], others
  end
  for _, equal in ipairs { same, alike } do
    local list = ending(p, name, equal)
    if #list > 0 then return note(equal == same and ending(p, name, alike) or list, list[1]) end
  end
  if not owner then return nil, others end
  -- a module's name for an entry of another module: nn.functional.relu, autograd.Function
  local value = accel
  local function part(key) return type(value) == "table" and value[key] or nil end
  for key in name:gmatch "[%w_]+" do
    local known, inner = pcall(part, key) -- names with something else in their place raise
    value = known and inner or nil
  end
  if value ~= nil and p.entries[member] and rawequal(value, accel[member]) then return p.entries[member], others end
  local class = M.find(p, owner)
  return class and method_of(p, class, member, 0), others
end

-- accel's names of Python's modules, the longest names first.
local PYTHON <const> = {
  { "torch.utils.data", "data" }, { "torch.cuda.amp", "amp" }, { "torch.distributed", "dist" }, { "torch.special" }, { "torch.linalg" }, { "torch" },
  { "accelerate.utils" }, { "accelerate" }, { "transformers" }, { "F", "nn.functional" },
}

--- accel's name for one with Python's module before it, torch.nn.Linear, and its last part. nil: it has none.
---@param topic string
---@return string? name "nn.Linear"
---@return string? last "Linear"
function M.of_python(topic)
  for _, row in ipairs(PYTHON) do
    local rest = topic:sub(1, #row[1] + 1) == row[1] .. "." and topic:sub(#row[1] + 2)
    if rest and rest ~= "" then return row[2] and row[2] .. "." .. rest or rest, rest:match "[^.]*$" end
  end
end

--- The known name nearest to a topic.
---@return string?
function M.nearest(p, topic)
  local names, full = {}, {}
  for name in next, p.entries do
    names[#names + 1], full[name] = name, name
  end
  for _, module in ipairs(p.order) do -- last parts of names, unless they are names themselves
    for _, name in ipairs(p.modules[module].names) do
      local form = name:match "[.:]([^.:]+)$" or name
      names[#names + 1], full[form] = form, full[form] or name
    end
  end
  for name in next, p.modules do
    names[#names + 1], full[name] = name, name
  end
  local wanted = topic:gsub("^accel%.", "")
  local owner = wanted:match "^([%w_.]+)[:.][%w_]+$"
  local class = owner and M.find(p, owner)
  while class do -- a method of that class, or of those it is built on
    for _, m in ipairs(class.methods) do
      local form = owner .. m.name
      names[#names + 1], full[form] = form, form
    end
    class = class.inherited and p.entries[class.inherited[1] or ""]
  end
  table.sort(names)
  local near = accel.nearest(wanted, names)
  return near and full[near]
end

return M
