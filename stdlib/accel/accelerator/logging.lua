--- get_logger(name): lines for people from several ranks, each once. A logger writes on the main process only, on all
--- of them, or on all in the order of their ranks. Messages begin with the rank.
---
---   local logger = accel.accelerator.get_logger("train", "INFO")
---   logger:info("loss %.3f", loss:item())
---   logger:warning("rows %d", #rows, { main_process_only = false })
---   logger:info("ready", { in_order = true })
local caller = require "accel.util.caller"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local environment = require "accel.accelerator.environment"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local levels = { DEBUG = 10, INFO = 20, WARNING = 30, ERROR = 40, CRITICAL = 50 }
local NAMES <const> = { "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL" }

-- Explicit levels, by name of the logger. The root's level applies to all others.
local set, root = {}, levels.WARNING

--- The destination of records: stderr, unless set_handler changes it.
local function to_stderr(record)
  io.stderr:write(("%s:%s:%s\n"):format(record.level, record.name, record.message))
end

local handler = to_stderr

--- The function that gets every logged record, { level, name, message, file, line, rank }. nil: stderr.
---@param fn? fun(record: table)
function M.set_handler(fn)
  if fn ~= nil then check.callable("set_handler", "fn", fn) end
  handler = fn or to_stderr
end

local function level_of(who, word)
  return levels[check.word(who, "level", type(word) == "string" and word:upper() or word, NAMES)]
end

--- The level of the logger itself, or of the nearest one above it, "a" for "a.b", or of the root.
local function threshold(name)
  while name do
    if set[name] then return set[name] end
    name = name:match "^(.*)%.[^.]*$"
  end
  return root
end

--- The script's line that logs.
local function script_line()
  local info = caller()
  if not info then return "?", 0 end
  return info.short_src, info.currentline
end

--- example: local logger = accel.accelerator.get_logger("quiet", "ERROR") return logger:is_enabled_for "INFO" --> false
---@class accel.accelerator.Logger
---@field name string
local Logger = class("accel.accelerator.Logger")

function Logger:init(name) self.name, self.said = name, {} end

--- Whether messages of a level are written.
---@param level string
---@return boolean
function Logger:is_enabled_for(level) return level_of("is_enabled_for", level) >= threshold(self.name) end

--- Messages below this level are not written.
---@param level string "DEBUG", "INFO", "WARNING", "ERROR" or "CRITICAL"
function Logger:set_level(level) set[self.name] = level_of("set_level", level) end

local function is_options(value)
  return type(value) == "table" and getmetatable(value) == nil
    and (value.main_process_only ~= nil or value.in_order ~= nil)
end

local function write(self, level, state, format, ...)
  local message = tostring(format)
  if select("#", ...) > 0 then message = message:format(...) end
  local file, line = script_line()
  handler {
    level = level, name = self.name, rank = state.process_index, file = file, line = line,
    message = ("[RANK %d] %s"):format(state.process_index, message),
  }
end

--- Writes a message if its level is enabled. The last argument may be a table: main_process_only (true), or in_order,
--- with which all ranks must call it and write in the order of ranks.
---@param level string
---@param format any for string.format, when more arguments follow
---@param ... any
function Logger:log(level, format, ...)
  local state = require("accel.accelerator.state").view
  local name = type(level) == "string" and level:upper() or level
  local value = level_of("log", level)
  local n = select("#", ...)
  local last = n > 0 and select(n, ...) or nil
  local o = { main_process_only = true, in_order = false }
  local arguments = { n = n, ... }
  if is_options(last) then
    o = options("log", last, o)
    n = n - 1
  end
  if not state.initialized then
    raise("logger '%s': make an accel.Accelerator or an accel.PartialState before logging, because it sets the "
      .. "ranks", self.name)
  end
  if value < threshold(self.name) then return end
  if not o.in_order then
    if state.is_main_process or not o.main_process_only then
      write(self, name, state, format, table.unpack(arguments, 1, n))
    end
    return
  end
  for rank = 0, state.num_processes - 1 do
    if rank == state.process_index then write(self, name, state, format, table.unpack(arguments, 1, n)) end
    if state.num_processes > 1 then dist.barrier() end
  end
end

for _, name in ipairs(NAMES) do
  Logger[name:lower()] = function(self, format, ...) return self:log(name, format, ...) end
end

--- A warning that is written once: the same text again is dropped.
---@param format any
---@param ... any
function Logger:warning_once(format, ...)
  local parts = { tostring(format) }
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if not is_options(value) then parts[#parts + 1] = tostring(value) end
  end
  local key = table.concat(parts, "\0")
  if self.said[key] then return end
  self.said[key] = true
  return self:log("WARNING", format, ...)
end

local loggers = {}

--- The logger of a name: debug, info, warning, error, critical, log(level, ...), warning_once, set_level. log_level, or
--- ACCELERATE_LOG_LEVEL, sets its level and all others'. The default is WARNING. A logger can be had before the
--- Accelerator is made, logging can not.
--- example: accel.accelerator.get_logger("train", "INFO").name --> "train"
---@param name string
---@param log_level? string|{log_level: string?}
---@return accel.accelerator.Logger
function M.get_logger(name, log_level, ...)
  check.surplus("get_logger", ...)
  if type(log_level) == "table" then
    log_level = options("get_logger", log_level, { log_level = options.none }).log_level
  end
  if type(name) ~= "string" then raise("get_logger: name must be a string, got %s", check.shown(name)) end
  log_level = log_level or environment.get "ACCELERATE_LOG_LEVEL"
  if log_level ~= nil then
    root = level_of("get_logger", log_level)
    set[name] = root
  end
  loggers[name] = loggers[name] or Logger(name)
  return loggers[name]
end

return M
