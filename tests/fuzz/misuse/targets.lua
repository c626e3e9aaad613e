--- What the misuse generator calls: every function, class and method that can be reached from `accel` (the walk of the reference
--- pages and the LuaCATS stubs), the metamethods of every object, and for each the argument lists that its documented examples
--- call it with.
local accel = require "accel"
local examples = require "reference.examples"
local stdlib = require "reference.stdlib"
local stubs = require "reference.stubs"

local M = {}

--- Not called: they start programs, wait for people, or end a process by design. Their arguments are checked by tests of their own.
M.left_out = {
  ["accel.launch"] = "starts ranks",
  ["accel.process.spawn"] = "starts programs",
  ["accel.repl"] = "waits for a person",
  ["accel.console."] = "the terminal's side of it: waits too",
  ["accel.accelerator.debug_launcher"] = "starts ranks",
  ["accel.accelerator.notebook_launcher"] = "starts ranks",
}

--- End the process when the command line is wrong.
M.exits = { ["accel.util.cli.fail"] = true }

-- Whether a table gives the sizes of a model: without them most families have billions of parameters.
local function has_sizes(config)
  if type(config) ~= "table" then return false end
  for _, key in ipairs { "hidden_size", "n_embd", "d_model", "hidden_sizes", "embed_dim" } do
    local size = rawget(config, key)
    if type(size) == "number" and size < 1000 then return true end
  end
  return false
end

--- Whether a call would build a model by the defaults of its family: even on meta each takes minutes of collections in a heap that calls
--- have filled. Also a method that takes a configuration, called with another table.
---@param target table
---@param args table packed
function M.builds_large(target, args)
  local name, method = target.name:match "^accel%.models%.(%w+):?(.*)$"
  if not name then return false end
  local class = target.class or target.holder
  if method == "" then
    local is_model = type(class) == "table" and rawget(class, "schema") ~= nil or type(class) == "table" and class.schema ~= nil
    return is_model and not has_sizes(args[1])
  end
  return (method == "build" or method == "from_config" or method == "part") and not has_sizes(args[2]) and not has_sizes(args[1])
end

local KEPT_CALLS = 12
local recorded = {} -- target name -> list of packed argument lists

---@class misuse.Target
---@field name string
---@field holder table? where the function stands, under `key`
---@field key string?
---@field f function? when nothing holds it
---@field class table? calls of it make objects
---@field method boolean? the first argument is an object
---@field examples string[]

local list, by_name = {}, {}

local function add(target)
  if by_name[target.name] or M.left_out[target.name] or M.left_out[target.name:match "^accel%.%w+%." or ""] then return end
  by_name[target.name] = target
  target.examples = target.examples or {}
  list[#list + 1] = target
end

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end

-- ---- finding ----
-- Of the families that a description makes, one of each kind: the others have the same methods.
local homes, SAMPLE <const> = require("accel.models.families").homes, { mistral = true, bart = true, roberta = true, dinov2 = true }

local function add_class(name, class, found)
  local home = homes[name:match "^accel%.models%.(%w+)$" or ""]
  if home and not SAMPLE[home:match "[%w_]+$"] then return end
  add { name = name, class = class, holder = class, key = "init", examples = found }
  for _, key in ipairs(M.sorted_keys(class)) do
    if type(class[key]) == "function" and key ~= "init" then
      add { name = name .. ":" .. key, holder = class, key = key, method = true, examples = found }
    end
  end
end

function M.sorted_keys(t)
  local keys = {}
  for key in next, t do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end

-- Functions of a table, by name; classes among them too.
local function add_functions(prefix, t, found)
  local meta = getmetatable(t)
  for name in next, type(meta) == "table" and rawget(meta, "__names") or {} do pcall(function() return t[name] end) end
  for _, key in ipairs(M.sorted_keys(t)) do
    local value = rawget(t, key)
    if type(value) == "function" and not stubs.private[key] then
      add { name = prefix .. "." .. key, holder = t, key = key, examples = found[prefix .. "." .. key] }
    end
  end
end

local SUBMODULES = { "nn", "optim", "data", "dist", "models", "text", "util", "accelerator", "amp", "metrics", "autograd", "track",
  "config" }

--- Every target, in an order that is the same in every run, and how many examples were found.
---@param source string the source tree
---@param build string the build folder
---@return misuse.Target[]
function M.collect(source, build)
  local found = {}
  for _, op in ipairs(accel.json.decode(read(build .. "/gen/ops.json")).ops) do
    found["accel." .. op.name], found["Tensor:" .. op.name] = op.examples, op.examples
  end
  local files = { table.unpack(stubs.files) }
  for _, file in pairs(stubs.modules) do files[#files + 1] = file end
  local entries = stubs.entries(source .. "/lua/meta", stdlib.sort_out, files)
  for _, entry in ipairs(entries) do found[entry.name] = entry.examples end

  for _, module in ipairs(stdlib.modules(source .. "/stdlib/accel")) do
    local known = accel[module] ~= nil and stdlib.entries(accel, source .. "/stdlib/accel", module) or {}
    for _, entry in ipairs(known) do
      local lines = { table.unpack(entry.examples) }
      for _, m in ipairs(entry.methods or {}) do table.move(m.examples, 1, #m.examples, #lines + 1, lines) end
      found[entry.name] = lines
      if entry.kind == "class" then add_class(entry.name, entry.class, lines) end
    end
  end
  local seen = {}
  local function walk(prefix, t, depth)
    if type(t) ~= "table" or seen[t] or depth > 4 then return end
    seen[t] = true
    add_functions(prefix, t, found)
    for _, key in ipairs(M.sorted_keys(t)) do
      local value = rawget(t, key)
      if type(value) == "table" and not accel.util.class.isclass(value) and key ~= "Tensor" and not key:match "^_" then
        walk(prefix .. "." .. key, value, depth + 1)
      end
    end
  end
  for _, name in ipairs(SUBMODULES) do walk("accel." .. name, accel[name], 1) end
  walk("accel", accel, 0)
  for _, key in ipairs(M.sorted_keys(accel.Tensor)) do
    if type(accel.Tensor[key]) == "function" then
      add { name = "Tensor:" .. key, holder = accel.Tensor, key = key, method = true, examples = found["Tensor:" .. key] }
    end
  end
  -- what the stubs promise and no table showed
  for _, entry in ipairs(entries) do
    local f = not entry.field and stubs.find(accel, entry.name)
    if type(f) == "function" then
      add { name = entry.name, f = f, method = entry.name:find(":", 1, true) ~= nil, examples = entry.examples }
    end
  end
  M.add_metamethods()
  return list
end

--- Metamethods and methods of native objects: what getmetatable hands out (metatables are locked, so that __gc is out of reach),
--- and what indexing finds.
function M.add_metamethods()
  local objects = {
    Tensor = accel.ones(2), Generator = accel.Generator and accel.Generator(1) or nil, Scope = accel.scope(), Guard = accel.no_grad(),
    DLPack = accel.ones(1):to_dlpack(), Hook = accel.ones(1, { requires_grad = true }):register_hook(print),
    Group = accel.dist.group.WORLD, Work = accel.dist.barrier { async_op = true }, Blob = accel.process.blob and accel.process.blob "x",
    Shape = accel.ones(1).shape,
  }
  for _, name in ipairs(M.sorted_keys(objects)) do
    local meta = getmetatable(objects[name]) -- a name where it is locked
    if type(meta) == "table" then
      for _, key in ipairs(M.sorted_keys(meta)) do
        local value = meta[key]
        if type(value) == "function" then add { name = name .. "@" .. key, f = value, method = true } end
      end
    end
    for _, method in ipairs { "close", "keep", "remove", "wait", "is_completed", "rank", "size", "ranks", "seed", "manual_seed",
      "get_state", "set_state", "path", "read" } do
      local ok, value = pcall(function() return objects[name][method] end)
      if ok and type(value) == "function" and name ~= "Tensor" then
        add { name = name .. "@" .. method, f = value, method = true }
      end
    end
  end
  objects.Scope:close()
  objects.Guard:close()
end

-- ---- recording ----
--- Runs examples while every function of the targets notes its arguments; keep(object) gets those that classes made.
---@param targets misuse.Target[] whose functions are watched
---@param lines string[]
---@param keep fun(object)
function M.record(targets, lines, keep)
  local undo = {}
  for _, target in ipairs(targets) do
    local holder, key = target.holder, target.key
    local f = holder and rawget(holder, key)
    if type(f) == "function" then
      local calls, old = {}, recorded[target.name]
      recorded[target.name] = calls
      undo[#undo + 1] = function()
        rawset(holder, key, f)
        if #calls == 0 then recorded[target.name] = old end
      end
      rawset(holder, key, function(...)
        local from = target.class and 2 or 1
        if #calls < KEPT_CALLS then calls[#calls + 1] = table.pack(select(from, ...)) end
        if target.class or target.method then keep((...)) end
        return f(...)
      end)
    end
  end
  for _, line in ipairs(lines) do pcall(examples.run, accel, line) end
  for i = #undo, 1, -1 do undo[i]() end
end

--- Argument lists that worked.
---@return table[]
function M.calls(target) return recorded[target.name] or {} end

function M.forget() recorded = {} end

--- The function of a target, as it stands now.
function M.callable(target)
  if target.class then return target.class end
  return target.f or target.holder[target.key]
end

return M
