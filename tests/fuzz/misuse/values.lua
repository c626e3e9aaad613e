--- Wrong values for the misuse generator (tests/fuzz/misuse.lua): of every type of Lua, tensors in every state, objects that
--- earlier calls gave, and ways to spoil a list of arguments that was right.
local accel = require "accel"

local M = {}

-- ---- numbers from a seed: the generator's own, so that calls under test cannot disturb it ----
---@class misuse.Random
local Random = {}
Random.__index = Random

---@param seed integer
---@return misuse.Random
function M.random(seed) return setmetatable({ s = (seed * 2654435761 + 88172645463325252) | 1 }, Random) end

--- A whole number in 1..n.
function Random:int(n)
  local s = self.s
  s = s ~ (s << 13)
  s = s ~ (s >> 7)
  s = s ~ (s << 17)
  self.s = s
  return (s >> 11) % n + 1
end

function Random:chance(percent) return self:int(100) <= percent end
function Random:pick(list) return list[self:int(#list)] end

-- ---- values ----
local function raising() error("from a callback of the misuse generator", 0) end

-- A table whose every metamethod errs.
local function hostile()
  local meta = {}
  for _, name in ipairs { "__index", "__newindex", "__call", "__len", "__tostring", "__eq", "__lt", "__le", "__add", "__concat",
    "__pairs", "__unm", "__close" } do
    meta[name] = raising
  end
  return setmetatable({}, meta)
end

local function cyclic()
  local t = { 1 }
  t[2], t.self = t, t
  return t
end

local function deep()
  local t = {}
  for _ = 1, 300 do t = { t } end
  return t
end

local function lying_length() return setmetatable({ 1, 2 }, { __len = function() return 1 << 40 end }) end

local NUMBERS = { 0, 1, -1, 2, 3, -2, 5, 8, 2.5, -0.0, 1e-3, 1e300, 1 / 0, -1 / 0, 0 / 0, 1 << 31, -(1 << 31), 1 << 40, 2 ^ 53,
  math.maxinteger, math.mininteger }
-- No path that leads out of the working folder.
local STRINGS = { "", "x", "f32", "bf16", "i64", "float99", "cpu", "meta", "cuda:0", "mean", "sum", "none", "left", "reflect",
  "weight", "a\0b", "\xff\xfe", "%s%d%n", ("long"):rep(300), "1", "nan", "0x10", "true", "self", "__index", "no-such-file",
  "a = 1", "return 1", "{}", "[1, 2", "*", "**", "a,b" }
local KEYS = { 1, 2, -1, "x", "dim", "dtype", "device", "weight", "lr", "params", "n", "batch_size", "dataset", "op", "group",
  "reduction", "seed", 0.5, true }

local function tensor(r, opts)
  local shapes = { {}, { 1 }, { 3 }, { 2, 3 }, { 3, 2 }, { 0 }, { 2, 0 }, { 1, 1, 1 }, { 2, 3, 4 }, { 2, 2, 3, 3 }, { 1, 2, 1, 2, 1 } }
  local t = accel.ones(r:pick(shapes), opts)
  if r:chance(50) and t:is_floating_point() then t = t * (r:int(9) - 5) end
  return t
end

local makers = {
  function() return nil end,
  function(r) return r:chance(50) end,
  function(r) return r:pick(NUMBERS) end,
  function(r) return r:int(7) - 3 end,
  function(r) return r:pick(NUMBERS) end,
  function(r) return r:pick(STRINGS) end,
  function(r) return r:pick(STRINGS) end,
  function() return {} end,
  function(r) return { r:int(9) - 4, r:int(9) - 4 } end,
  function(r) return { r:pick(NUMBERS), r:pick(STRINGS), r:chance(50) } end,
  function(r) return { [r:pick(KEYS)] = r:pick(NUMBERS), [r:pick(KEYS)] = r:pick(STRINGS) } end,
  function(r) return { tensor(r), tensor(r), r:pick { 1, "x", false } } end,
  function(r) return { tensor(r), tensor(r) } end,
  cyclic, deep, hostile, lying_length,
  function() return function() end end,
  function() return raising end,
  function() return function(...) return ... end end,
  function() return coroutine.yield end,
  function() return print ~= nil and math.sin or nil end,
  function() return coroutine.create(function() coroutine.yield(1) end) end,
  function() return io.tmpfile() end,
  function(r) return tensor(r) end,
  function(r) return tensor(r, { dtype = r:pick { "f64", "f16", "bf16" } }) end,
  function(r) return tensor(r, { dtype = r:pick { "i64", "i32", "u8", "i8", "i16" } }) end,
  function(r) return tensor(r, { dtype = "bool" }) end,
  function(r) return tensor(r, { device = "meta" }) end,
  function(r) return tensor(r, { requires_grad = true }) end,
  function(r) return tensor(r, { requires_grad = true }) * 2 end,
  function() return accel.ones(2, 1):expand(2, 3) end,
  function() return accel.arange(24):view(2, 3, 4):transpose(1, 3) end,
  function()
    local t = accel.ones(2, 3)
    t:release()
    return t
  end,
  function() return accel.nn.Linear end,
}

-- ---- objects that calls gave ----
local KEEP = 400
local pool, born = {}, 0

--- Keeps an object for later calls; an old one makes room.
function M.keep(r, x)
  local kind = type(x)
  if kind ~= "table" and kind ~= "userdata" and kind ~= "function" or rawequal(x, pool) then return end
  if accel.is_tensor(x) and not pcall(function() assert(x:numel() <= 4096) end) then return end
  born = born + 1
  pool[#pool < KEEP and #pool + 1 or r:int(KEEP)] = x
end

function M.drop() pool = {} end

--- Any value.
---@param r misuse.Random
function M.any(r)
  if #pool > 0 and r:chance(35) then return r:pick(pool) end
  return r:pick(makers)(r)
end

-- ---- spoiling ----
local function copy(t)
  local c = {}
  for k, v in next, t do c[k] = v end
  local meta = getmetatable(t)
  return type(meta) == "table" and setmetatable(c, meta) or c
end

-- An entry of a table of options or a list is changed, added or taken away; tensors and objects stay as they are.
local function spoil_table(r, t)
  local c, keys = copy(t), {}
  for k in next, c do keys[#keys + 1] = k end
  table.sort(keys, function(a, b)
    local ta, tb = type(a), type(b)
    if ta ~= tb then return ta < tb end
    return (ta == "string" or ta == "number") and a < b
  end)
  local way, key, value = r:int(4), #keys > 0 and r:pick(keys) or r:pick(KEYS), M.any(r)
  if way == 1 then value = nil elseif way == 2 then key = r:pick(KEYS) end
  rawset(c, key, value)
  return c
end

--- A list of arguments that worked, with one to three things wrong with it (or none, now and then).
---@param r misuse.Random
---@param args table packed
---@return table packed
function M.spoil(r, args)
  local out = table.move(args, 1, args.n, 1, { n = args.n })
  for _ = 1, r:pick { 0, 1, 1, 1, 2, 3 } do
    local i, way = r:int(math.max(out.n, 1)), r:int(8)
    if way <= 4 then
      out[i], out.n = M.any(r), math.max(out.n, i)
      if out[i] == nil and i == out.n and r:chance(50) then out.n = i - 1 end
    elseif way == 5 then -- one more
      out.n = out.n + 1
      out[out.n] = M.any(r)
    elseif way == 6 and out.n > 0 then -- one less
      out[out.n], out.n = nil, out.n - 1
    elseif way == 7 and out.n > 1 then
      local j = r:int(out.n)
      out[i], out[j] = out[j], out[i]
    elseif type(out[i]) == "table" and (getmetatable(out[i]) == nil or r:chance(20)) then
      out[i] = spoil_table(r, out[i])
    end
  end
  return out
end

--- A list of n arguments of any kind.
function M.wild(r, n)
  local out = { n = n }
  for i = 1, n do out[i] = M.any(r) end
  return out
end

-- ---- telling what was called ----
local function told(v)
  local kind = type(v)
  if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(v) end
  if kind == "string" then return #v > 40 and ("%q.."):format(v:sub(1, 40)) or ("%q"):format(v) end
  if accel.is_tensor(v) then
    local ok, text = pcall(function()
      return ("%s(%s)%s%s"):format(v.dtype, table.concat(v.shape, ","), v.device == "cpu" and "" or v.device,
        v.requires_grad and " grad" or "")
    end)
    return ok and text or "released tensor"
  end
  local meta = kind == "table" and getmetatable(v)
  local name = type(meta) == "table" and rawget(meta, "__name")
  if type(name) == "string" then return name end
  if kind == "table" and not meta then
    local parts, n = {}, 0
    for k, x in next, v do
      n = n + 1
      if n > 4 then break end
      local key = (type(k) == "string" or type(k) == "number") and tostring(k) or type(k)
      parts[n] = ("[%s]=%s"):format(key, type(x) == "table" and "{..}" or told(x))
    end
    return "{" .. table.concat(parts, " ") .. "}"
  end
  return kind
end

--- "name(1, f32(2,3), {..})".
function M.text(name, args)
  local parts = {}
  for i = 1, args.n do parts[i] = told(args[i]) end
  return ("%s(%s)"):format(name, table.concat(parts, ", "))
end

return M
