--- Environment variables as Accelerate reads them: ACCELERATE_* flags and numbers. Used by state.lua, logging.lua
--- and the constructor of Accelerator.
---
--- Lua cannot change the environment of its process. patch_environment and clear_environment therefore lay a table over
--- it, and all of accel.accelerator reads it through M.get. os.getenv and child processes do not see it.
local check = require "accel.util.check"
local guard = require "accel.util.guard"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local M = {}

-- Name -> value, or false: not set. With `hidden`, only the overlay counts as set.
local overlay, hidden = {}, false

local truthy = { y = true, yes = true, t = true, ["true"] = true, on = true, ["1"] = true }
local falsy = { n = true, no = true, f = true, ["false"] = true, off = true, ["0"] = true }

--- A variable of the environment, or of the overlay on it. nil if it is not set.
---@param name string
---@return string?
function M.get(name)
  local value = overlay[name]
  if value ~= nil then return value or nil end
  if hidden then return nil end
  return os.getenv(name)
end

--- The boolean of a word: y, yes, t, true, on, 1, or n, no, f, false, off, 0, in any case.
--- example: accel.accelerator.str_to_bool "Yes", accel.accelerator.str_to_bool "0" --> true, false
---@param word string
---@return boolean
function M.str_to_bool(word)
  local plain = type(word) == "string" and word:lower() or nil
  if truthy[plain] then return true end
  if falsy[plain] then return false end
  raise("str_to_bool: %s is not a truth value; use yes, true, on, 1 or no, false, off, 0", check.shown(word))
end

--- Whether a variable of the environment is true. The default if it is not set.
--- example: accel.accelerator.parse_flag_from_env("NOT_SET", true) --> true
---@param name string
---@param default? boolean false
---@return boolean
function M.parse_flag_from_env(name, default, ...)
  check.surplus("parse_flag_from_env", ...)
  if default ~= nil and type(default) ~= "boolean" then raise("parse_flag_from_env: default must be a boolean, got %s", check.shown(default)) end
  local word = M.get(name)
  if word == nil then return default or false end
  local plain = word:lower()
  if not truthy[plain] and not falsy[plain] then
    raise("%s=%s in the environment is not a truth value; use yes, true, on, 1 or no, false, off, 0", name, word)
  end
  return truthy[plain] or false
end

--- The first of several variables that holds a number from 0 on, or the default.
--- example: accel.accelerator.get_int_from_env({ "NOT_SET", "NOT_SET_EITHER" }, 1) --> 1
---@param names string[]
---@param default any
---@return integer
function M.get_int_from_env(names, default, ...)
  check.surplus("get_int_from_env", ...)
  for _, name in ipairs(names) do
    local text = M.get(name)
    if text ~= nil then
      local value = math.tointeger(tonumber(text))
      if not value then raise("%s=%s in the environment must be an integer", name, text) end
      if value >= 0 then return value end
    end
  end
  return default
end

--- A variable of the environment as text. The default if it is not set.
--- example: accel.accelerator.parse_choice_from_env("NOT_SET", "no") --> "no"
---@param name string
---@param default? string "no"
---@return string
function M.parse_choice_from_env(name, default, ...)
  check.surplus("parse_choice_from_env", ...)
  if default ~= nil and type(default) ~= "string" then raise("parse_choice_from_env: default must be a string, got %s", check.shown(default)) end
  return M.get(name) or default or "no"
end

--- The value of a variable, one of the words in lower case. nil if it is not set.
---@param name string
---@param words string[]
---@return string?
function M.word(name, words)
  local value = M.get(name)
  if value == nil then return nil end
  for _, word in ipairs(words) do
    if value:lower() == word then return word end
  end
  local near = nearest(value, words)
  raise("%s=%s in the environment must be one of %s%s", name, value, table.concat(words, ", "),
    near and ("; did you mean '%s'?"):format(near) or "")
end

--- The names of variables that begin with a prefix, of the environment and of the overlay on it, sorted.
---@param prefix string
---@return string[]
function M.names(prefix)
  local list, seen = {}, {}
  local function add(name)
    if M.get(name) ~= nil and not seen[name] then list[#list + 1], seen[name] = name, true end
  end
  for _, name in ipairs(require "accel".process.variables(prefix)) do add(name) end
  for name in next, overlay do
    if name:sub(1, #prefix) == prefix then add(name) end
  end
  table.sort(list)
  return list
end

local function replaced(new, hide, fn, ...)
  local old, was_hidden = overlay, hidden
  overlay, hidden = new, hide
  return guard(function() overlay, hidden = old, was_hidden end, fn, ...)
end

--- Variables that hold until the end of a block, `local _ <close> = patch_environment { my_flag = 1 }`, or while
--- fn(...) runs. Names become upper case, values become text. Only accel.accelerator sees them (Lua cannot set the
--- process's own).
--- example: local A = accel.accelerator return A.patch_environment({ aflag = true }, A.parse_flag_from_env, "AFLAG")
---   --> true
---@param variables table<string, string|number|boolean>
---@param fn? function
---@param ... any
function M.patch_environment(variables, fn, ...)
  if type(variables) ~= "table" then
    raise("patch_environment: expected table of variables, got %s", check.shown(variables))
  end
  local new = {}
  for name, value in next, overlay do new[name] = value end
  for name, value in next, variables do
    if type(name) ~= "string" then raise("patch_environment: %s is not a name of a variable", check.shown(name)) end
    new[name:upper()] = tostring(value)
  end
  return replaced(new, hidden, fn, ...)
end

--- An empty environment until the end of a block, or while fn(...) runs. Used like patch_environment.
--- example: local A = accel.accelerator return A.clear_environment(A.get_int_from_env, { "HOME" }, -1) --> -1
---@param fn? function
---@param ... any
function M.clear_environment(fn, ...) return replaced({}, true, fn, ...) end

--- A function like fn that leaves no ACCELERATE_* variable changed.
--- example: accel.accelerator.purge_accelerate_environment(function(x) return x + 1 end)(1) --> 2
---@param fn function
---@return function
function M.purge_accelerate_environment(fn)
  check.callable("purge_accelerate_environment", "fn", fn)
  return function(...) return M.patch_environment({}, fn, ...) end
end

return M
