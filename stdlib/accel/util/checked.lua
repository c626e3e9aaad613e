--- Argument checks from annotations: a public function with a check in front of it that follows from its `---@param` lines (type,
--- nil, options of a table). The messages are those of ops. It is called when public names are looked up (util/lazy.lua, accel
--- itself) and when objects are made (util/class.lua), so that the library's own calls of its files pass no check.
---
--- The check is Lua code that is made when a name is first used. It stands at the function's own file and line, so that tracebacks,
--- help and editors lead to the function, and it ends in a tail call. Required arguments may also be given by name in a table.
--- Required arguments may also be given by name in a table. If a value does not have its declared type, the function is called
--- first: its own message is better, and a value that it accepts passes. An error of Lua inside the library becomes a message about
--- the argument.
---
--- Lua drops arguments that have no parameter, and a misplaced option with them. The check of a function without `...` looks at three
--- places after the last parameter, and raises if a script filled one. Inside the library a base class may pass more than an override
--- takes. A function with `...` checks its own arguments (check.surplus). The first parameter of a method, self, must be an object of its
--- class: a dot in the place of a colon is an error that says so.
local annotations = require "accel.util.annotations"
local class = require "accel.util.class"
local isclass, class_of_metatable, base_of = class.isclass, class.of_metatable, class.base -- the module's own get checks as well

local M = {}

local originals = setmetatable({}, { __mode = "k" }) -- checked function -> the function itself
local made = setmetatable({}, { __mode = "k" }) -- function -> the checked one, so that all names of a function lead to one
local seen = setmetatable({}, { __mode = "k" }) -- modules and classes that have their checks

--- Aliases of the stubs that are more than a table: every value but nil passes, and the function checks the rest.
local LOOSE <const> = { ["accel.Device"] = true, ["accel.DType"] = true, ["accel.ParamList"] = true, ["accel.dist.Op"] = true,
  ["accel.nn.sizes"] = true, ["accel.LaunchPolicy"] = true }

local function callable(v)
  local meta = debug.getmetatable(v)
  return type(meta) == "table" and meta.__call ~= nil and meta.__name ~= "accel.Tensor" -- which has it for x:mT()
end

-- Metatables of tables -> true: one look-up distinguishes an object from every other value.
local objects = setmetatable({}, { __mode = "k", __index = function(t, meta)
  local is = type(meta) == "table" and meta ~= getmetatable ""
  if is then t[meta] = true end
  return is
end })

-- Metatables of the objects that have a method -> true: those of its class and the classes below it, and of any other class that took
-- the function over. One look-up tells `object:method()` from `object.method()`. The classes themselves are metatables: `Class:extend()`.
local function owners_of(cls, name, f)
  return setmetatable({}, { __mode = "k", __index = function(t, meta)
    local owner = class_of_metatable(meta)
    while owner do
      if owner == cls or originals[rawget(owner, name)] == f then
        t[meta] = true
        return true
      end
      owner = base_of(owner)
    end
    return nil
  end })
end

-- What the code of checks calls.
local NAMES <const> = "_type, _number, _integer, _getmetatable, _callable, _objects, _raw"
local function helpers(...) return type, math.type, math.tointeger, getmetatable, callable, objects, rawget, ... end

-- Lua code that is true for a value of one type, without alternatives. nil: for any value.
local test_of
function test_of(kind)
  if kind:find "^[\"'`]" or kind == "string" then return '_type(V) == "string"' end
  if kind == "integer" then return '(_number(V) == "integer" or _number(V) and _integer(V))' end
  if kind == "number" then return "_number(V)" end
  if kind == "boolean" then return "V == true or V == false" end
  if kind == "nil" then return "V == nil" end
  if kind == "userdata" or kind == "thread" then return ('_type(V) == "%s"'):format(kind) end
  if kind == "true" or kind == "false" then return "V == " .. kind end
  if kind:find "%[%]$" then -- of a list the first element, too; objects may answer indices by an error
    local inner = not kind:find "^%(" and test_of(kind:sub(1, -3))
    if not inner then return '_type(V) == "table"' end
    return ('(_type(V) == "table" and (_raw(V, 1) == nil or %s))'):format((inner:gsub("%f[%w]V%f[%W]", "_raw(V, 1)")))
  end
  if kind:find "^table<string," then return '(_type(V) == "table" and _raw(V, 1) == nil)' end
  if kind == "table" or kind:find "^table<" or kind:find "^{" then return '_type(V) == "table"' end
  if kind == "function" or kind:find "^fun%(" then return '(_type(V) == "function" or _callable(V))' end
  if kind == "accel.Tensor" then return '_type(V) == "userdata"' end
  if kind == "accel.nn.Module" then return "_objects[_getmetatable(V)]" end
  if LOOSE[kind] or kind:find "^accel%.config%." then return "V ~= nil" end
  if kind:find "^accel%." then return '(_type(V) == "table" or _type(V) == "userdata")' end
  return nil
end

-- The alternatives of a type, "a|b[]|{c: d}", and whether nil is among them.
function M.alternatives(kind)
  local list, depth, from = {}, 0, 1
  for i = 1, #kind do
    local c = kind:sub(i, i)
    if c:find "[%(%[{<]" then depth = depth + 1 elseif c:find "[%)%]}>]" then depth = depth - 1 end
    if c == "|" and depth == 0 then
      list[#list + 1] = kind:sub(from, i - 1)
      from = i + 1
    end
  end
  list[#list + 1] = kind:sub(from)
  local optional = false
  for i, one in ipairs(list) do
    one = one:match "^%s*(.-)%s*$"
    if one:find "%?$" then one, optional = one:sub(1, -2), true end
    list[i] = one
  end
  return list, optional
end

--- Lua code that checks whether V has a type. nil: every value has it.
---@param kind string
---@param optional boolean?
---@return string?
local function condition(kind, optional)
  local list, nils = M.alternatives(kind)
  if kind:find "^fun%(" or kind:find "^{" and kind:find "}$" then list = { kind } end -- "|" of an inner type
  local parts = {}
  for i, one in ipairs(list) do
    parts[i] = test_of(one)
    if not parts[i] then return nil end
  end
  if optional or nils then table.insert(parts, 1, "V == nil") end -- without a call: most optional arguments are left out
  return table.concat(parts, " or ")
end

-- ---- options ----
local tests = {} -- type -> function(value) -> boolean

local function tester(kind)
  local test = tests[kind]
  if test == nil then
    local code = condition(kind)
    test = code and load(("local %s = ...; return function(V) return %s end"):format(NAMES, code), "=check")(helpers()) or false
    tests[kind] = test
  end
  return test
end

-- A function that returns the error in the values of a table of options. The function itself refuses undeclared names.
local function options_check(who, param)
  local known = {}
  return function(given)
    if getmetatable(given) then return nil end -- an object in the place of options: the function's to refuse
    for key, value in next, given do
      local test = known[key]
      if test == nil and type(key) == "string" then
        local kind, default = annotations.option(param, key)
        test = kind and tester(kind) or false
        known[key], known[key .. " ="] = test, default
      end
      if test and value ~= false and not test(value) and known[key .. " ="] ~= tostring(value) then
        return require "accel.util.checked_faults".option(who, key, annotations.option(param, key), value)
      end
    end
  end
end

-- ---- functions ----
local function signature(f)
  local info, names = debug.getinfo(f, "u"), {}
  for i = 1, info.nparams do names[i] = debug.getlocal(f, i) end
  return names
end

--- The function with its check before it. The function itself if its comment declares nothing checkable.
---@param f function
---@param who string the name in messages: "Linear"
---@param of_class? string the name of the class whose init it is
---@param base? any the method of a base class that this one overrides
---@param cls? table the class of the method
---@return function
function M.wrap(f, who, of_class, base, cls)
  if made[f] then return made[f] end
  local info = debug.getinfo(f, "S")
  if info.what == "C" or originals[f] then return f end
  local params = annotations.of(f, of_class)
  local names, open = signature(f), debug.getinfo(f, "u").isvararg
  local owners = cls and names[1] == "self" and owners_of(cls, who, f)
  if next(params) == nil and open and not owners then return f end
  local lines, nested, bound = {}, {}, {}
  if owners then nested[1], bound[1] = owners, "_owners" end
  local more_than = {} -- an override may get as many arguments as the method of the base class takes
  local room = type(base) == "function" and debug.getinfo(M.original(base), "u").nparams - #names or 0
  for i = math.max(1, room + 1), open and 0 or 3 do more_than[#more_than + 1] = ("_%d ~= nil"):format(i) end
  if #more_than > 0 then lines[1] = ("if %s then _surplus(_1, _2, _3) end"):format(table.concat(more_than, " or ")) end
  for i, name in ipairs(names) do
    local param = params[name]
    local code = param and condition(annotations.kind(param), param.optional)
    if name == "self" and not of_class then
      code = owners and "_owners[_getmetatable(V)] or _owners[V]" or '_type(V) == "table" or _type(V) == "userdata"'
    end
    if code then
      lines[#lines + 1] = ("if not (%s) then return _bad(%d, ARGS) end"):format(code:gsub("%f[%w]V%f[%W]", name), i)
    end
    if param and annotations.has_options(param) then
      nested[#nested + 1] = options_check(who, param)
      bound[#bound + 1] = "_options" .. #nested
      lines[#lines + 1] = ("if _type(%s) == 'table' then local _why = _options%d(%s) if _why then return _bad(_why, ARGS) end end")
        :format(name, #nested, name)
    end
  end
  if #lines == 0 then return f end
  local list = table.concat(names, ", ") .. (open and (#names > 0 and ", ..." or "...") or "")
  local more = open and "" or (#names > 0 and ", " or "") .. "_1, _2, _3"
  local code = ("\n"):rep(info.linedefined - 1)
    .. ("local _f, _bad, _surplus, %s%s = ...; return function(%s) %s return _f(%s) end"):format(NAMES,
      #bound > 0 and ", " .. table.concat(bound, ", ") or "", list .. more, table.concat(lines, " "):gsub("ARGS", list), list)
  local checked
  local function bad(what, ...)
    return require "accel.util.checked_faults".handle(checked, f, who, signature(f), annotations.of(f, of_class), what, ...)
  end
  local make, why = load(code, info.source, "t")
  if not make then error(who .. ": " .. why, 0) end
  local function surplus(...) require "accel.util.checked_faults".surplus(who, signature(f), base, ...) end
  checked = make(f, bad, surplus, helpers(table.unpack(nested)))
  originals[checked], made[f] = f, checked
  return checked
end

--- Adds checks to the functions of a table: a module's functions, or the methods of a class. Names with an underscore and
--- constructors stay as they are, and forward, which Module's call looks at.
---@param t table
---@param base? table the class that t builds on
---@return table t
function M.all(t, base)
  local names = {}
  for key, f in next, t do
    if type(key) == "string" and type(f) == "function" and not key:find "^_" and key ~= "init" and key ~= "alloc" and key ~= "forward"
      and not originals[f] and debug.getinfo(f, "S").what ~= "C" then
      names[#names + 1] = key
    elseif type(key) == "string" and not key:find "^_" and class.isclass(f) then
      M.public(f, key)
    end
  end
  for _, key in ipairs(names) do -- a stand-in makes the check when it is first called
    local f = t[key]
    local put = made[f] or function(...)
      local checked = M.wrap(f, key, nil, base and base[key], isclass(t) and t or nil)
      if originals[rawget(t, key)] == f then t[key] = checked end -- a script may have put its own there
      return checked(...)
    end
    originals[put], t[key] = f, put
  end
  return t
end

--- The methods of the classes that a public one builds on.
---@param cls table
function M.bases(cls)
  local meta = getmetatable(cls)
  local base = meta and meta.__index
  if class.isclass(base) then M.bases(base) end
  M.all(cls, class.isclass(base) and base or nil)
end

--- A public value with its checks: a function, a class, or a module that is a plain table of functions.
---@param value any
---@param name string
---@return any
function M.public(value, name)
  if type(value) == "function" then return M.wrap(value, name) end
  if type(value) ~= "table" or seen[value] then return value end
  seen[value] = true
  local meta = getmetatable(value)
  if class.isclass(value) then
    class.publish(value)
    local base = meta and meta.__index
    if class.isclass(base) then M.bases(base) end
    M.all(value, class.isclass(base) and base or nil)
  elseif meta == nil or type(meta) == "table" and rawget(meta, "__names") then
    M.all(value)
  elseif type(meta) == "table" and type(rawget(meta, "__call")) == "function" then -- a module that is called, with itself first
    if debug.getinfo(meta.__call, "u").nparams > 0 then meta.__call = M.wrap(meta.__call, name) end
    M.all(value)
  end
  return value
end

--- The function inside a checked one. Any other value is unchanged.
function M.original(f) return originals[f] or f end

return M
