--- Settings: a record with declared fields, defaults and checks, made from one table of named values. The base of
--- kwargs handlers (handlers.lua) and of configurations (configuration.lua).
---
--- A subclass declares, as data:
---   defaults    field -> default. options.none: nil, any type
---   checks      field -> function(who, name, value) that returns the value to keep or raises
---   positional  fields that may stand before the table
local check = require "accel.util.check"
local class = require "accel.util.class"
local nearest = require "accel.util.nearest"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

---@class accel.accelerator.Settings
local Settings = class("accel.accelerator.Settings")

Settings.defaults, Settings.checks, Settings.positional = {}, {}, {}

local function short(cls) return cls.__name:match "[^.]*$" end

local function named(cls, ...)
  local given, n = {}, select("#", ...)
  for i = 1, n do
    local value = select(i, ...)
    if i == n and type(value) == "table" and not class.of(value) and getmetatable(value) == nil then
      for key, v in next, value do
        if given[key] ~= nil then raise("%s: %s is given twice", short(cls), tostring(key)) end
        given[key] = v
      end
    elseif value ~= nil then
      local name = cls.positional[i]
      if not name then
        raise("%s: expected one table of settings%s, got %s", short(cls), options.listed(cls.defaults),
          check.shown(value))
      end
      given[name] = value
    end
  end
  return given
end

function Settings:init(...)
  local cls = class.of(self)
  local who, given = short(cls), named(cls, ...)
  local values = options(who, given, cls.defaults)
  for key, checker in next, cls.checks do
    if values[key] ~= nil then values[key] = checker(who, key, values[key]) end
  end
  for key, value in next, values do
    if type(value) == "table" and value == cls.defaults[key] then value = table.move(value, 1, #value, 1, {}) end
    rawset(self, key, value) -- a default that is a table is a list or empty. Each record has its own copy
  end
  if require("accel.util.no_effect_reasons")[cls.__name] then
    local differs = {}
    for key in next, self:to_kwargs() do differs[key] = true end
    no_effect(cls.__name, differs)
  end
end

--- Absent fields may be set later. Undeclared names are errors, except a script's private ones, "_mine".
function Settings.__newindex(self, key, value)
  local cls = class.of(self)
  if cls.defaults[key] == nil and not (type(key) == "string" and key:sub(1, 1) == "_") then
    local near = type(key) == "string" and nearest(key, cls.defaults)
    raise("%s has no field '%s'%s", short(cls), tostring(key), near and ("; did you mean '%s'?"):format(near)
      or options.listed(cls.defaults))
  end
  rawset(self, key, value)
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in next, a do
    if not same(value, b[key]) then return false end
  end
  for key in next, b do
    if a[key] == nil then return false end
  end
  return true
end

--- The fields that differ from their defaults, as a plain table.
---@return table
function Settings:to_kwargs()
  local out = {}
  for key, default in next, class.of(self).defaults do
    local value = rawget(self, key)
    if default == options.none then default = nil end
    if not same(value, default) then out[key] = value end
  end
  return out
end

--- All fields, as a plain table; fields without a value are missing.
--- example: accel.accelerator.AutocastKwargs { enabled = false }:to_dict() --> { enabled = false }
---@return table
function Settings:to_dict()
  local out = {}
  for key in next, class.of(self).defaults do out[key] = rawget(self, key) end
  return out
end

function Settings.__tostring(self)
  local cls, parts = class.of(self), {}
  for key in next, cls.defaults do
    parts[#parts + 1] = ("%s=%s"):format(key, check.shown(rawget(self, key)))
  end
  table.sort(parts)
  return ("%s(%s)"):format(short(cls), table.concat(parts, ", "))
end

--- A boolean.
function Settings.boolean(who, name, value)
  if type(value) ~= "boolean" then raise("%s: %s must be a boolean, got %s", who, name, check.shown(value)) end
  return value
end

--- A string that is not empty.
function Settings.text(who, name, value)
  if type(value) ~= "string" or value == "" then
    raise("%s: %s must be a string, got %s", who, name, check.shown(value))
  end
  return value
end

return Settings
