--- How data sets and functions reach the workers of a loader: threads with a separate Lua state, which share no table
--- and no closure with this one. A loader sends the name of a module, "my.module" or "my.module:entry", and plain
--- arguments. Tensors among them are shared, not copied. Used by accel.data.workers and accel.data.worker.
---
--- A data set (or a collate_fn that is an object) describes its construction in the method worker_spec(), which returns
--- { module = "my.module", args = { ... } }: the module's value, or its entry, is called with the arguments. These are
--- plain data, tensors, other such objects and lists of them.
local check = require "accel.util.check"
local checked = require "accel.util.checked"
local class = require "accel.util.class"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local specs = setmetatable({}, { __mode = "k" }) -- for objects of worker_dataset

--- Raises if there is no such module: require's own error would point here and list every folder twice.
local function expect_module(who, name)
  if package.loaded[name] ~= nil then return end
  for _, search in ipairs(package.searchers) do
    local loader = search(name)
    if type(loader) == "function" then return end
  end
  raise("%s: no module '%s': there is no %s.lua in a folder of package.path (%s)", who, name, name:gsub("%.", "/"),
    package.path)
end

--- The value that a name stands for.
local function find(who, name)
  local module, entry = name:match "^([^:]+):([^:]+)$"
  expect_module(who, module or name)
  local value = require(module or name)
  if not entry then return value end
  local found = type(value) == "table" and value[entry] or nil
  if found == nil then
    local near = type(value) == "table" and nearest(entry, value)
    raise("%s: module '%s' has no '%s'%s", who, module, entry, near and ("; did you mean '%s'?"):format(near) or "")
  end
  return found
end

local function is_callable(value)
  local meta = type(value) ~= "function" and getmetatable(value)
  return type(value) == "function" or type(meta) == "table" and meta.__call ~= nil
end

--- A function from a caller's value: itself, or the function of a name, "my.module:fn".
---@param who string
---@param what string "collate_fn"
---@param given string|function|table
---@return function|table
function M.callable(who, what, given)
  if type(given) ~= "string" then return check.callable(who, what, given) end
  local f = find(who, given)
  if not is_callable(f) then
    raise("%s: %s: '%s' is %s, not a function; a function of a module is named \"my.module:fn\"", who, what, given,
      check.shown(f))
  end
  return f
end

-- ---- packing ----

local pack

--- Something that is made again, or cannot be: no plain data.
local function is_object(value)
  if type(value) ~= "table" then return false end
  return specs[value] ~= nil or class.of(value) ~= nil or getmetatable(value) ~= nil and value.worker_spec ~= nil
end

--- An object or a function in plain data, at any depth, and the path to it. nil if there is none.
local function find_unfit(data, seen)
  seen[data] = true
  for key, value in next, data do
    local kind = type(value)
    if kind == "function" then return value, tostring(key) end
    if kind == "table" and not seen[value] then
      if (specs[value] or getmetatable(value)) and is_object(value) then return value, tostring(key) end
      local found, path = find_unfit(value, seen)
      if found ~= nil then return found, tostring(key) .. "." .. path end
    end
  end
end

local function expect_plain(data, what)
  local found, path = find_unfit(data, {})
  if type(found) == "function" then
    raise("%s contains a function, at '%s' of a table, which cannot be sent to a worker; give its name, \"my.module:fn\"",
      what, path)
  elseif found ~= nil then
    raise("%s contains an object, %s, at '%s' of a table, which cannot be sent to a worker; make it a separate argument, "
      .. "or an element of a list", what, check.shown(found), path)
  end
end

--- An argument as { kind, value }: "v" plain data, "o" an object, "l" a list of objects.
local function argument(value, what)
  if type(value) == "function" then
    raise("%s contains a function, which cannot be sent to a worker; give its name, \"my.module:fn\"", what)
  elseif is_object(value) then
    return { "o", pack(value, what) }
  elseif type(value) == "table" and not tensors.is_tensor(value) and is_object(value[1]) then
    local list = {}
    for i, entry in ipairs(value) do list[i] = pack(entry, what) end
    return { "l", list }
  end
  if type(value) == "table" then expect_plain(value, what) end
  return { "v", value }
end

local function pack_spec(spec, what)
  if type(spec) ~= "table" or type(spec.module) ~= "string" or spec.args ~= nil and type(spec.args) ~= "table" then
    raise("%s: worker_spec must return { module = \"my.module\", args = { ... } }", what)
  end
  local args, packed = spec.args or {}, {}
  local n = args.n or #args
  for i = 1, n do packed[i] = argument(args[i], ("%s (%s)"):format(what, spec.module)) end
  return { module = spec.module, args = packed, n = n }
end

--- The construction of `value`, a data set, as plain data. Raises if it cannot be sent, with the remedy.
---@param value table
---@param what string "DataLoader: num_workers = 2: the data set"
---@return table
function pack(value, what)
  local spec = specs[value]
  if not spec then
    if value.worker_spec == nil then
      raise("%s, %s, cannot be sent to a worker: put it into a module and use data.worker_dataset(\"my.module\", ...), or "
        .. "give it a method worker_spec() that returns { module = \"my.module\", args = { ... } }", what,
        check.shown(value))
    end
    spec = value:worker_spec()
  end
  return pack_spec(spec, what)
end
M.pack = pack

--- Whether a packed object is made by this entry of a module, or has one that is at any depth.
---@param packed table?
---@param name string
---@return boolean
function M.has(packed, name)
  if not packed or packed.module == name then return packed ~= nil end
  for _, entry in ipairs(packed.args or {}) do
    if entry[1] == "o" and M.has(entry[2], name) then return true end
    for _, object in ipairs(entry[1] == "l" and entry[2] or {}) do
      if M.has(object, name) then return true end
    end
  end
  return false
end

--- The same of a function: a name, or an object with worker_spec.
---@param given any
---@param what string
---@return table?
function M.pack_callable(given, what)
  if given == nil then return nil end
  if type(given) == "string" then return { name = given } end
  local collate = package.loaded["accel.data.collate"]
  if collate and checked.original(given) == collate.default_collate then return { name = "accel.data.collate:default_collate" } end
  if type(given) == "table" and (specs[given] or given.worker_spec) then return pack(given, what) end
  raise("%s is a function, which cannot be sent to a worker; put it into a module and give its name, \"my.module:fn\"", what)
end

-- ---- making it again ----

local unpack_spec

local function value_of(entry)
  local kind, value = entry[1], entry[2]
  if kind == "o" then return unpack_spec(value) end
  if kind == "v" then return value end
  local list = {}
  for i, packed in ipairs(value) do list[i] = unpack_spec(packed) end
  return list
end

local function construct(name, args, n)
  local value = find("data worker", name)
  if is_callable(value) then return (value(table.unpack(args, 1, n))) end
  if n > 0 then raise("data worker: '%s' is %s, which takes no arguments", name, check.shown(value)) end
  return value
end

function unpack_spec(packed)
  if packed.name then return find("data worker", packed.name) end
  local args = {}
  for i = 1, packed.n do args[i] = value_of(packed.args[i]) end
  return construct(packed.module, args, packed.n)
end

--- Recreates a packed object.
---@param packed table?
---@return any
function M.unpack(packed) return packed and unpack_spec(packed) or nil end

--- A data set that workers can create themselves: the class or the function that a module returns (or its entry,
--- "my.module:entry") is called with the arguments, here and in every worker. Workers do not see fields set in the data
--- set afterwards, such as `set.k = 1`.
--- example: local set = accel.data.worker_dataset("accel.data.list_dataset", { 5, 6, 7 }) return set:get(2) --> 6
---@param module string
---@param ... any plain data, tensors, data sets that can be sent
---@return table
function M.worker_dataset(module, ...)
  if type(module) ~= "string" then
    raise("worker_dataset: the first argument must be a module's name, got %s; a function or a class cannot be sent to a "
      .. "worker", check.shown(module))
  end
  local spec = { module = module, args = table.pack(...) }
  pack_spec(spec, "worker_dataset") -- raises for objects that cannot be sent
  local value = find("worker_dataset", module)
  if is_callable(value) then value = value(...) end
  local has = type(value) == "table" and value or {}
  if has.iterate == nil and (has.len == nil or has.get == nil and has.get_batch == nil) then
    raise("worker_dataset: '%s' gave %s, not a data set (methods len and get, or iterate)", module, check.shown(value))
  end
  specs[value] = spec
  return value
end

--- The name of a data set in messages: its class, and its module if known.
---@param dataset table
---@return string
function M.name_of(dataset)
  local spec, meta = specs[dataset], getmetatable(dataset)
  local name = type(meta) == "table" and rawget(meta, "__name")
  if type(name) ~= "string" then name = nil end
  if spec then return name and name ~= spec.module and ("%s (%s)"):format(name, spec.module) or spec.module end
  return name or "the data set"
end

return M
