--- What every public class, function and method of a folder of stdlib takes: the names of its options, with types and defaults,
--- as annotations and declarations in the code give them. Read by the reader of the reference pages (lua/gen/reference), so that an
--- option which has a row on a page is swept. Used by option_sweep.lua.
---
--- An entry: {name = "accel.optim.SGD" | "accel.optim.Optimizer:step", kind = "class" | "function" | "method", target =, order = names of
--- positional parameters, by_name = true where these, but for the first `lead`, may be given in the table, too, open = true: more may follow ("..."),
--- takes_table = true: a table of options may be the last argument, options = {name -> {name =, type =, default = text, place =}}, path =}.
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$"
local root = os.getenv "ACCEL_TEST_SRC" or here .. "/../.."
package.path = root .. "/lua/gen/?.lua;" .. package.path
local accel = require "accel"
local options = require "reference.options"
local stdlib = require "reference.stdlib"
local stubs = require "reference.stubs"

local M = { root = root }

local TABLES = { opts = true, o = true, options = true, given = true, kwargs = true }

local function add(entry, name, more)
  local option = entry.options[name] or { name = name }
  for key, value in pairs(more) do
    if option[key] == nil then option[key] = value end
  end
  entry.options[name] = option
end

--- What "param NAME? TYPE ..." adds.
local function read_param(entry, text, aliases)
  local name, mark, rest = text:match "^param%s+([%w_%.]+)(%??)%s+(.*)$"
  if not name then return end
  local kind, _, list = options.parse(rest, aliases)
  if #list > 0 or TABLES[name] then entry.takes_table = true end
  for _, o in ipairs(list) do add(entry, o.name, { type = o.type, default = o.default, named = true }) end
  if #list == 0 and mark == "?" and not TABLES[name] then add(entry, name, { type = kind, place = true }) end
end

local function read(entry, doc, aliases)
  local documented = false
  for _, text in ipairs(doc.annotations or {}) do
    read_param(entry, text, aliases)
    documented = documented or text:find "^param %.%.%.[ ?]" ~= nil
  end
  for _, name in ipairs(doc.params or {}) do
    if name == "..." then entry.open = documented -- else it is what check.surplus refuses
    elseif TABLES[name] then entry.takes_table = true
    elseif name ~= "self" then entry.order[#entry.order + 1] = name end
  end
  if doc.arguments then
    local declared, before = {}, entry.order
    for _, argument in ipairs(doc.arguments) do declared[argument[1]] = true end
    entry.order, entry.by_name, entry.open, entry.takes_table = {}, true, false, true
    for _, name in ipairs(before) do -- inputs, which the table does not take
      if not declared[name] then entry.order[#entry.order + 1] = name end
    end
    entry.lead = #entry.order
    for _, argument in ipairs(doc.arguments) do
      entry.order[#entry.order + 1] = argument[1]
      add(entry, argument[1], { default = argument[2] ~= nil and options.shown(argument[2]) or nil, place = true })
      local o = entry.options[argument[1]]
      o.kind = argument[2] ~= nil and type(argument[2]) or nil
    end
  end
  for name, default in pairs(doc.declared or {}) do
    entry.takes_table = true
    add(entry, name, { default = default or nil, named = true })
  end
end

--- accel, with the files of a folder that has no name of its own there (shard) as a table: accel.shard.plan.
local function with_files(folder)
  if getmetatable(accel).__names[folder] then return accel end
  local files = {}
  for _, file in ipairs(assert(accel.listdir(root .. "/stdlib/accel/" .. folder))) do
    local name = file:match "^([%w_]+)%.lua$"
    local value = name and require("accel." .. folder .. "." .. name)
    if type(value) == "function" then value = { [name] = value } end
    files[name or false] = type(value) == "table" and value or nil
  end
  return setmetatable({ [folder] = files }, { __index = accel })
end

--- The entries of one folder ("optim"), sorted by name.
---@param folder string
---@return table[]
function M.entries(folder)
  local home = with_files(folder)
  local list, failures = stdlib.entries(home, root .. "/stdlib/accel", folder)
  assert(#failures == 0, table.concat(failures, "\n"))
  local aliases = options.aliases { root .. "/lua/meta/core.lua" }
  local entries = {}
  local function entry_of(name, kind, target, doc, more)
    local entry = { name = name, kind = kind, target = target, path = doc.path, order = {}, options = {} }
    if more then -- of a class: its comment, the constructor's, and the defaults it keeps
      read(entry, { annotations = doc.annotations }, aliases)
      read(entry, { annotations = more.annotations, params = more.params, arguments = doc.arguments, declared = doc.declared }, aliases)
    else
      read(entry, doc, aliases)
    end
    entries[#entries + 1] = entry
  end
  for _, e in ipairs(list) do
    if e.kind == "class" then
      entry_of(e.name, "class", e.class, e, e.constructor or { annotations = {}, params = e.params })
      for _, m in ipairs(e.methods) do
        entry_of(e.name .. ":" .. m.name, m.params[1] == "self" and "method" or "function", e.class[m.name], m)
      end
    elseif e.kind == "function" then
      local at = home
      for key in e.name:gsub("^accel%.", ""):gmatch "[^.]+" do at = at[key] end
      entry_of(e.name, "function", at, e)
    end
  end
  return entries
end

--- The methods of a class that no name of `accel` leads to, since a function returns its objects: as entries of a folder.
---@param name string "accel.profiler.Averages"
---@param class table
---@return table[]
function M.of_class(name, class)
  local aliases, entries = options.aliases { root .. "/lua/meta/core.lua" }, {}
  for _, doc in ipairs(stdlib.methods(class)) do
    local entry = { name = name .. ":" .. doc.name, kind = "method", target = class[doc.name], path = doc.path, order = {}, options = {} }
    read(entry, doc, aliases)
    entries[#entries + 1] = entry
  end
  return entries
end

--- Functions and methods that come from C or stand in accel itself, from the stubs in lua/meta: "accel.tensor", "Tensor:backward".
---@param files string[] of lua/meta
---@return table[]
function M.stubs(files)
  local aliases = options.aliases { root .. "/lua/meta/core.lua", root .. "/lua/meta/dist.lua" }
  local entries = {}
  for _, e in ipairs(stubs.entries(root .. "/lua/meta", stdlib.sort_out, files)) do
    if not e.field then
      local entry = { name = e.name, kind = e.name:find ":" and "method" or "function", target = stubs.find(accel, e.name), order = {}, options = {} }
      local params = {}
      for name in e.call:match "%((.*)%)":gmatch "[%w_.]+" do params[#params + 1] = name end
      read(entry, { annotations = e.annotations, params = params }, aliases)
      entries[#entries + 1] = entry
    end
  end
  return entries
end

--- What "default = text" stands for; nil where it is not a literal.
function M.value_of(text)
  if text == nil then return nil end
  local f = load("return " .. text, "=default", "t", { math = math, inf = math.huge })
  local ok, value = pcall(f or error)
  if ok then return value end
end

return M
