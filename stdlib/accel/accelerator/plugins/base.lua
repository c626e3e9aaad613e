--- Plugin: a Settings whose fields may come from the environment. A given value comes first, then the variable, then the
--- default. This is the base of the plugins and recipes in this folder. Their users find them by class.
local Settings = require "accel.accelerator.settings"
local class = require "accel.util.class"
local environment = require "accel.accelerator.environment"
local raise = require "accel.util.raise"

local M = {}

---@class accel.accelerator.Plugin : accel.accelerator.Settings
---@field _asked table<string, any> fields as they were given
local Plugin = Settings:extend "accel.accelerator.Plugin"
M.Plugin = Plugin

--- Variable of a field -> how its text is read: "bool", "int", "float", "text", "upper".
Plugin.env = {}

local readers = {}

function readers.text(text) return text end
function readers.upper(text) return text:upper() end

function readers.bool(text, who, name)
  local ok, value = pcall(environment.str_to_bool, text)
  if not ok then raise("%s: %s=%s in the environment is not a truth value; use true or false", who, name, text) end
  return value
end

function readers.int(text, who, name)
  local value = text:find "^%s*[-+]?%d+%s*$" and math.tointeger(tonumber((text:gsub("%+", ""))))
  if not value then raise("%s: %s=%s in the environment is not an integer", who, name, text) end
  return value
end

function readers.float(text, who, name)
  local value = tonumber(text)
  if not value then raise("%s: %s=%s in the environment is not a number", who, name, text) end
  return value + 0.0
end

--- The value of a variable, or the default if it is not set.
---@param who string
---@param name string
---@param kind string
---@param default any
function M.read(who, name, kind, default)
  local text = environment.get(name)
  if text == nil then return default end
  return readers[kind](text, who, name)
end

--- The name of a class without its prefix.
function M.short(cls) return cls.__name:match "[^.]*$" end

--- Given fields, with those of the environment added. cls.order names them in the order in which their variables are read.
---@param given? table fields by name
function Plugin:init(given, ...)
  local cls = class.of(self)
  local who = M.short(cls)
  if select("#", ...) > 0 or (given ~= nil and type(given) ~= "table") then raise("%s takes one table of fields", who) end
  local values = {}
  for key, value in next, given or {} do values[key] = value end
  for _, key in ipairs(cls.order) do
    local from = cls.env[key]
    if from and values[key] == nil then values[key] = M.read(who, from[1], from[2]) end
  end
  self._asked = values -- of the script or the environment, before any default
  Settings.init(self, values)
end

--- A class derived from Plugin. fields: list of { name, default, variable?, kind? }. A default of options.none is nil.
---@param name string
---@param fields table[]
---@param checks? table
function M.extend(name, fields, checks, base)
  local cls = (base or Plugin):extend("accel.accelerator." .. name)
  cls.defaults, cls.env, cls.order, cls.checks = {}, {}, {}, checks or {}
  for i, f in ipairs(fields) do
    cls.defaults[f[1]] = f[2]
    cls.order[i] = f[1]
    if f[3] then cls.env[f[1]] = { f[3], f[4] } end
  end
  return cls
end

return M
