--- GeneralTracker, the base class of experiment trackers in scripts, and the values of log_with = { ... }. Used by
--- trackers.lua, which has Accelerator's methods.
---
---   local Prints = accel.accelerator.GeneralTracker:extend("Prints")
---   Prints.name, Prints.requires_logging_directory = "prints", false
---   function Prints:tracker() return io.stdout end
---   function Prints:log(values, step) io.stdout:write(step, " ", accel.json.encode(values), "\n") end
---   local accelerator = accel.Accelerator { log_with = Prints() }
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local M = {}

--- A tracker. A subclass sets `name` (a string) and `requires_logging_directory` (a boolean), and defines `tracker`, a
--- field or a method: the underlying object, which get_tracker(name, { unwrap = true }) returns. It defines start,
--- store_init_configuration, log and finish as needed. main_process_only = false: these run on every rank.
--- example: local T = accel.accelerator.GeneralTracker:extend("T") return T().main_process_only --> true
---@class accel.accelerator.GeneralTracker
---@field name string
---@field requires_logging_directory boolean
---@field tracker any
---@field main_process_only boolean true
local GeneralTracker = class("accel.accelerator.GeneralTracker")
M.GeneralTracker = GeneralTracker

GeneralTracker.main_process_only = true

--- Opens the run. init_trackers calls it.
function GeneralTracker:start() end -- luacheck: ignore

--- Takes the configuration of the run.
---@param values table
function GeneralTracker:store_init_configuration(values) end -- luacheck: ignore

--- Takes values of a step.
---@param values table<string, any>
---@param step? integer
---@param opts? table the entry of log's log_kwargs for this tracker
function GeneralTracker:log(values, step, opts) -- luacheck: ignore
  raise("tracker '%s' does not define log", tostring(self.name))
end

--- Closes the run. end_training calls it.
function GeneralTracker:finish() end -- luacheck: ignore

local needed = { "name", "requires_logging_directory", "tracker" }

--- Raises unless the tracker, or class, has all required fields.
local function complete(who, tracker)
  local missing = {}
  for _, field in ipairs(needed) do
    if tracker[field] == nil then missing[#missing + 1] = field end
  end
  if #missing > 0 then
    raise("%s: %s does not define %s; set %s in its class", who, check.shown(tracker), table.concat(missing, ", "),
      #missing == 1 and "it" or "them")
  end
  if type(tracker.name) ~= "string" or tracker.name == "" then
    raise("%s: the name of a tracker must be a string, got %s", who, check.shown(tracker.name))
  end
  if type(tracker.requires_logging_directory) ~= "boolean" then
    raise("%s: requires_logging_directory of tracker '%s' must be a boolean", who, tracker.name)
  end
end

-- ---- names ----

local registered = {}
-- accel's own, loaded when they are asked for: module and class.
local own <const> = {
  tensorboard = { "accel.track.tensorboard" }, jsonl = { "accel.track.lines", "JsonLinesTracker" },
  csv = { "accel.track.lines", "CsvTracker" }, store = { "accel.track.store_tracker" },
  mlflow = { "accel.track.mlflow" }, trackio = { "accel.track.trackio" }, clearml = { "accel.track.clearml" },
  comet_ml = { "accel.track.comet_ml" }, dvclive = { "accel.track.dvclive" }, wandb = { "accel.track.wandb" },
  aim = { "accel.track.by_events", "AimTracker" }, swanlab = { "accel.track.by_events", "SwanLabTracker" },
}
-- Those that "all" stands for: they need neither a server nor another program.
local local_ones <const> = { tensorboard = true, jsonl = true, csv = true, store = true }

--- Makes a class of trackers known by its name: log_with = "mine" makes one in init_trackers, by Class(project_name,
--- opts), or Class(project_name, logging_dir, opts) with requires_logging_directory.
---@param cls table below GeneralTracker
function M.register_tracker_class(cls)
  if not class.isclass(cls) or not class.isinstance(setmetatable({}, cls), GeneralTracker) then
    raise("register_tracker_class: expected class below GeneralTracker, got %s", check.shown(cls))
  end
  complete("register_tracker_class", cls)
  if registered[cls.name] and registered[cls.name] ~= cls then
    io.stderr:write(("accel: tracker '%s' is registered again, by another class\n"):format(cls.name))
  end
  registered[cls.name] = cls
end

local function by_name(name)
  if registered[name] then return registered[name] end
  if own[name] then
    local value = require(own[name][1])
    return own[name][2] and value[own[name][2]] or value
  end
  local known = {}
  for _, names in ipairs { registered, own } do
    for key in next, names do known[#known + 1] = key end
  end
  local near = nearest(name, known)
  raise("Accelerator: log_with: unknown tracker '%s'%s", name, near and ("; did you mean '%s'?"):format(near) or "")
end

--- The list with every available tracker in place of "all", by name, without repeating names given explicitly. accel's own
--- trackers need a directory and are left out without one.
local function with_registered(given, logging_dir)
  local all, list = false, {}
  for _, entry in ipairs(given) do
    if entry == "all" then all = true elseif type(entry) ~= "string" then list[#list + 1] = entry end
  end
  if not all then return given end
  local names = {}
  for name in next, registered do names[#names + 1] = name end
  for name in next, local_ones do
    if logging_dir and not registered[name] and (name ~= "store" or require "accel.track.core".sqlite()) then names[#names + 1] = name end
  end
  table.sort(names)
  table.move(names, 1, #names, #list + 1, list)
  if #list == 0 and dist.get_rank() == 0 then
    io.stderr:write("accel: log_with = \"all\": nothing is tracked, because no tracker is registered and accel's own need a directory; "
      .. "give project_dir\n")
  end
  return list
end

--- Resolves log_with: a list of trackers, and of tracker classes that are instantiated later. Every name once.
---@param log_with any a tracker, a name, "all" for every one there is, or a list of them
---@param logging_dir string?
---@return table[]
function M.filter_trackers(log_with, logging_dir)
  if log_with == nil then return {} end
  local given, list, seen = log_with, {}, {}
  if type(given) ~= "table" or class.of(given) or class.isclass(given) then given = { given } end
  given = with_registered(given, logging_dir)
  for i, entry in ipairs(given) do
    local tracker
    if class.isclass(entry) then
      raise("Accelerator: log_with has the class %s; make a tracker of it, %s(...), or register_tracker_class it and "
        .. "give its name", entry.__name, entry.__name)
    elseif type(entry) == "string" then
      tracker = by_name(entry)
    elseif class.isinstance(entry, GeneralTracker) then
      complete("Accelerator: log_with", entry)
      tracker = entry
    else
      raise("Accelerator: log_with[%d] must be a tracker or the name of one, got %s", i, check.shown(entry))
    end
    if tracker.requires_logging_directory and logging_dir == nil then
      raise("Accelerator: tracker '%s' needs a directory; give project_dir, or project_config with logging_dir",
        tracker.name)
    end
    if seen[tracker.name] and seen[tracker.name] ~= tracker then
      raise("Accelerator: log_with has two trackers named '%s'", tracker.name)
    end
    if not seen[tracker.name] then list[#list + 1] = tracker end
    seen[tracker.name] = tracker
  end
  return list
end

local function nothing() end

--- A tracker's stand-in on ranks that do not run it: its methods do nothing, and its other fields are the tracker's
--- own.
---@param tracker table
function M.inert(tracker)
  return setmetatable({}, {
    __name = "accel.accelerator.InertTracker",
    __index = function(_, key)
      local value = tracker[key]
      if type(value) == "function" then return nothing end
      return value
    end,
  })
end

local void
void = setmetatable({}, { -- stands in for a tracker's underlying object: any field and any call return the stand-in itself
  __name = "accel.accelerator.Inert", __index = function() return void end, __call = function() return void end,
})
M.void = void

return M
