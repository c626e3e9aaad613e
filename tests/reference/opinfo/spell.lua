-- How accel spells the ops of PyTorch's test database: find(entry) returns a function of (args, kwargs), or nil where accel has no
-- counterpart. Most are calls of the op with the same name: its signature says which arguments are dims and positions, which count from
-- 1 here. What is spelled otherwise stands in opinfo/special.lua.
local accel = require "accel"

local M = { ellipsis = setmetatable({}, { __tostring = function() return "..." end }), slice = {} }

M.random = {}
for name in ("empty empty_like new_empty rand_like randn randn_like randint multinomial nn.functional.dropout nn.functional.dropout2d "
  .. "nn.functional.dropout3d nn.functional.alpha_dropout bernoulli exponential cauchy geometric log_normal uniform randint_like poisson"):gmatch "%S+" do M.random[name] = true end

-- Parameters of an op: {name=, type=} in order.
local signatures = {}
for _, op in ipairs(accel.ops()) do
  if not op.hidden then
    local list = {}
    for name, type in op.signature:match "^[%w_]+(%b())":gmatch "([%w_]+)!?:%s*(%a+)" do list[#list + 1] = { name = name, type = type } end
    signatures[op.name] = list
  end
end
M.signatures = signatures

local function dim(d)
  if type(d) == "number" then return d >= 0 and d + 1 or d end
  if type(d) == "table" then
    local r = {}
    for i, v in ipairs(d) do r[i] = dim(v) end
    return r
  end
  return d
end
M.dim = dim

local function convert(v, type_)
  if type_ == "dim" or type_ == "dims" or type_ == "pos" then return dim(v) end
  return v
end

-- Names of PyTorch's parameters where accel's differ, by op; "*": any op.
local renamed = {
  ["*"] = { input = "x", self = "x", size = "shape", dims = "dim" },
}

--- A call of fn by the signature of op.
local function caller(name, fn)
  local params = signatures[name]
  local by_name = {}
  for i, p in ipairs(params) do by_name[p.name] = i end
  return function(args, kwargs)
    local given, n = {}, args.n
    while n > #params and not args[n] do n = n - 1 end -- None or False of an option that accel does not have changes nothing
    for i = 1, n do
      local p = params[i]
      if not p then error({ missing = ("argument %d of %s"):format(i, name) }, 0) end
      given[i] = convert(args[i], p.type)
    end
    local named
    for key, v in pairs(kwargs) do
      local here = by_name[key] and key or renamed["*"][key]
      local at = here and by_name[here]
      if not at and v then error({ missing = ("option %s of %s"):format(key, name) }, 0) end
      if at then
        named = named or {}
        named[here] = convert(v, params[at].type)
      end
    end
    if named then
      n = n + 1
      given[n] = named
    end
    return fn(table.unpack(given, 1, n))
  end
end

local special -- loaded late: it uses what is above

local function plain(name)
  if signatures[name] then return caller(name, accel[name]) end
end

function M.find(entry)
  special = special or require "opinfo.special"
  local found = special[entry.full] or special[entry.op]
  if found == false then return nil end
  if found then return found end
  local prefix = entry.op:match "^(.*)%.[^.]*$"
  if prefix and prefix ~= "nn.functional" and prefix ~= "linalg" and prefix ~= "special" then return nil end
  local names = { entry.op, table.unpack(entry.aliases or {}) }
  for _, name in ipairs(names) do
    local found_ = plain(name:match "([^.]*)$")
    if found_ then return found_ end
  end
end

--- The in-place form, where accel has one.
function M.inplace(entry)
  local name = entry.op:match "([^.]*)$"
  if special[entry.full] ~= nil or special[entry.op] ~= nil then return nil end
  local fn = rawget(accel, name .. "_")
  if not (fn and signatures[name]) then return nil end
  return caller(name, fn)
end

--- For opinfo/special.lua: the plain call of an accel op.
M.plain = plain
M.caller = caller

return M
