--- accel.deepcopy(value): a copy of nested Lua data, tensors and modules that shares nothing with the original.
---
--- Objects reachable by several paths are copied once, so that ties and cycles are kept. A tensor's copy is a leaf of
--- the same dtype, device and requires_grad. A parameter's copy is a parameter with a copy of its gradient. History is
--- not copied, and views of one storage become separate tensors. Hooks are not copied, except those that belong to a
--- module's computation (weight_norm). Functions, classes, loaded Lua modules and other userdata are shared.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local class = require "accel.util.class"
local ordered = require "accel.util.ordered"
local tensors = require "accel.util.tensors"

local copy

local function copy_tensor(t, memo)
  local new = t:detach():clone()
  if Parameter.is(t) then
    new = Parameter(new, t.requires_grad)
  elseif t.is_leaf and t.requires_grad then
    new:requires_grad_(true)
  end
  memo[t] = new
  local grad = t.is_leaf and t.grad
  if grad then new.grad = grad:detach():clone() end
  return new
end

--- The raw fields of a table other than those in `but`.
local function copy_fields(t, new, memo, but)
  for key, value in next, t do
    if not (but and but[key]) then rawset(new, copy(key, memo), copy(value, memo)) end
  end
end

local own = { _order = true, _kinds = true, _tensors = true, _hooks = true }

local function copy_module(m, memo)
  local cls = class.of(m)
  local new = setmetatable({}, cls)
  memo[m] = new
  local order = {} -- not by table.move, which nothing interrupts when a list claims to be endless
  for i, key in ipairs(m._order) do order[i] = key end
  rawset(new, "_order", order)
  local kinds = {}
  for key, kind in next, m._kinds do kinds[key] = kind end
  rawset(new, "_kinds", kinds)
  copy_fields(m, new, memo, own)
  local fallback = rawget(m, "_tensors")
  if fallback then
    local copied = class.fallback(new)
    rawset(new, "_tensors", copied)
    -- In order of registration, so that every rank makes the tensors in the same order.
    for _, key in ipairs(m._order) do
      local t = rawget(fallback, key)
      if t ~= nil then rawset(copied, key, copy(t, memo)) end
    end
    for key, t in next, fallback do
      if rawget(copied, key) == nil then rawset(copied, key, copy(t, memo)) end
    end
  end
  local hooks = rawget(m, "_hooks")
  rawset(new, "_hooks", hooks and hooks:copied() or nil)
  return new
end

local function copy_table(t, memo)
  if Module.is_module(t) then
    local m = t:_itself()
    memo[t] = memo[m] or copy_module(m, memo)
    return memo[t]
  end
  if memo.loaded[t] or class.isclass(t) then return t end
  if ordered.is(t) then
    local new = ordered()
    memo[t] = new
    for key, value in ordered.iterate(t) do new[key] = copy(value, memo) end
    return new
  end
  local meta = getmetatable(t)
  if meta ~= nil and type(meta) ~= "table" then return t end -- a locked one: not ours to copy
  local new = setmetatable({}, meta)
  memo[t] = new
  copy_fields(t, new, memo)
  return new
end

function copy(value, memo)
  local kind = type(value)
  if kind ~= "table" and kind ~= "userdata" then return value end
  local known = memo[value]
  if known ~= nil then return known end
  if kind == "table" then return copy_table(value, memo) end
  if tensors.is_tensor(value) then return copy_tensor(value, memo) end
  return value
end

--- A copy of nested Lua data, tensors and modules that shares nothing with the original. Objects reachable by several
--- paths are copied once. A tensor's copy is a leaf with the same requires_grad, and a parameter's has a copy of its
--- gradient. Hooks are not copied. Functions, classes and other userdata are shared.
--- example: local a = { x = accel.ones(1) } local b = accel.deepcopy(a) b.x:fill_(5) return a.x, b.x --> { 1 }, { 5 }
---@generic T
---@param value T
---@return T
return function(value)
  local loaded = {}
  for _, module in next, package.loaded do
    if type(module) == "table" then loaded[module] = true end
  end
  local _ <close> = accel.no_grad()
  return copy(value, { loaded = loaded })
end
