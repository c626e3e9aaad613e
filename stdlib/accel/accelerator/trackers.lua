--- Methods of Accelerator for experiment trackers: init_trackers, log, get_tracker, end_training. Trackers run on the
--- main process, unless they set main_process_only = false. On other ranks the same calls do nothing.
local accel = require "accel.core"
local check = require "accel.util.check"
local class = require "accel.util.class"
local general = require "accel.track.general_tracker"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local region = require "accel.accelerator.region"

local M = {}

--- In a dry run (accel.cli.dry_run_rank) the only tracker that runs.
M._silent = false

local function runs_here(self, tracker)
  if M._silent and tracker.name ~= M._silent then return false end
  return self.is_main_process or not tracker.main_process_only
end

--- tracker:method(...) on the ranks that run it. Collectives inside one that runs only on the main process raise.
local function call(self, tracker, method, ...)
  if not runs_here(self, tracker) then return end
  if self.num_processes == 1 or not tracker.main_process_only then return tracker[method](tracker, ...) end
  return region.run(("%s of tracker '%s'"):format(method, tracker.name), 1, tracker[method], tracker, ...)
end

--- Options by tracker's name: raises for a name that no tracker has.
local function by_tracker(self, who, key, given)
  if given == nil then return {} end
  if type(given) ~= "table" then raise("%s: %s must be a table, got %s", who, key, check.shown(given)) end
  local names = {}
  for _, tracker in ipairs(self.log_with) do names[tracker.name] = true end
  for name in next, given do
    if not names[name] then
      local near = type(name) == "string" and nearest(name, names)
      raise("%s: %s has the entry '%s', which is not one of the trackers%s", who, key, tostring(name),
        near and ("; did you mean '%s'?"):format(near) or "")
    end
  end
  return given
end

local function make(self, cls, project_name, kwargs)
  if not runs_here(self, cls) then return general.inert(cls) end
  if cls.requires_logging_directory then return cls(project_name, self.project_configuration.logging_dir, kwargs) end
  return cls(project_name, kwargs)
end

--- Whether a table holds init_trackers' own arguments by name, rather than a run's configuration.
local function are_options(x)
  if type(x) ~= "table" or type(x.config or x.init_kwargs) ~= "table" then return false end
  for key in next, x do
    if key ~= "config" and key ~= "init_kwargs" then return false end
  end
  return true
end

--- Begins the runs of all trackers: start, then store_init_configuration(config). All processes call it.
---@param project_name string
---@param config? table the run's configuration, or { config = table, init_kwargs = table } with no other keys
---@param init_kwargs? table<string, table> options by tracker's name
function M.init_trackers(self, project_name, config, init_kwargs, ...)
  check.surplus("init_trackers", ...)
  if init_kwargs == nil and are_options(config) then config, init_kwargs = config.config, config.init_kwargs end
  if type(project_name) ~= "string" then
    raise("init_trackers: project_name must be a string, got %s", check.shown(project_name))
  end
  if config ~= nil and type(config) ~= "table" then
    raise("init_trackers: config must be a table, got %s", check.shown(config))
  end
  if #self.trackers > 0 then raise "init_trackers: the trackers are already running; end_training() ends them" end
  local kwargs, trackers = by_tracker(self, "init_trackers", "init_kwargs", init_kwargs), {}
  for i, entry in ipairs(self.log_with) do
    if class.isclass(entry) then
      trackers[i] = make(self, entry, project_name, kwargs[entry.name])
    else
      trackers[i] = runs_here(self, entry) and entry or general.inert(entry)
    end
  end
  self._trackers.running, self._trackers.project, self._trackers.kwargs = trackers, project_name, kwargs
  for _, tracker in ipairs(trackers) do call(self, tracker, "start") end
  if config == nil then return end
  for _, tracker in ipairs(trackers) do call(self, tracker, "store_init_configuration", config) end
end

--- The tracker at a position of log_with as the main process has it, not started: a rank that has become main needs it.
function M._made_tracker(self, i)
  local entry, trackers = self.log_with[i], self._trackers
  return class.isclass(entry) and make(self, entry, trackers.project, trackers.kwargs[entry.name]) or entry
end

-- The logged values that accel-run top shows, if they are plain numbers.
local SHOWN = { loss = { "loss", "train_loss", "train/loss" },
  tokens_per_s = { "tokens_per_s", "tokens_per_second", "tokens_per_sec", "tokens/s" } }
local NOT_TRAINING = { eval = true, evaluation = true, val = true, valid = true, validation = true, test = true }

-- A value by one of these names, in the table or in one of its groups, { train = { loss = 1 } }: that of training comes first.
local function find(values, keys)
  for _, key in ipairs(keys) do
    if type(values[key]) == "number" then return values[key] end
  end
  local found
  for group, inner in pairs(values) do
    local value = type(inner) == "table" and getmetatable(inner) == nil and not NOT_TRAINING[group] and find(inner, keys)
    if value and (not found or group == "train" or group == "training") then found = value end
  end
  return found or nil
end

local function show(values)
  for name, keys in pairs(SHOWN) do
    local value = find(values, keys)
    if value then accel.console.attach.note(name, value) end
  end
end

--- Gives values to all trackers: tracker:log(values, step, log_kwargs[tracker's name]). All processes may call it.
---@param values table<string, any>
---@param step? integer|{step: integer?, log_kwargs: table<string, table>?}
---@param log_kwargs? table<string, table>
function M.log(self, values, step, log_kwargs, ...)
  check.surplus("log", ...)
  if type(values) ~= "table" then raise("log: values must be a table, got %s", check.shown(values)) end
  if type(step) == "table" and log_kwargs == nil then
    local o = options("log", step, { step = options.none, log_kwargs = options.none })
    step, log_kwargs = o.step, o.log_kwargs
  end
  if step ~= nil then step = check.integer("log", "step", step) end
  show(values)
  if #self.log_with == 0 then return end
  if #self.trackers == 0 then raise "log: the trackers are not running; call init_trackers(project_name) first" end
  local kwargs = by_tracker(self, "log", "log_kwargs", log_kwargs)
  for _, tracker in ipairs(self.trackers) do call(self, tracker, "log", values, step, kwargs[tracker.name]) end
end

--- A tracker by its name, or, with unwrap, its underlying object. On ranks that do not run it, a stand-in whose methods
--- do nothing.
---@param name string
---@param opts? boolean|{unwrap: boolean?}
function M.get_tracker(self, name, opts, ...)
  check.surplus("get_tracker", ...)
  if type(opts) == "boolean" then opts = { unwrap = opts } end
  local unwrap, names = options("get_tracker", opts, { unwrap = false }).unwrap, {}
  for i, entry in ipairs(self.log_with) do
    names[i] = entry.name
    local tracker = self.trackers[i]
    if entry.name == name then
      if not tracker then raise("get_tracker: '%s' is not running; call init_trackers(project_name) first", name) end
      if not unwrap then return tracker end
      if not runs_here(self, tracker) then return general.void end
      local behind = tracker.tracker
      if type(behind) == "function" then return behind(tracker) end
      return behind
    end
  end
  local near = type(name) == "string" and nearest(name, names)
  raise("get_tracker: no tracker '%s'%s", tostring(name), near and ("; did you mean '%s'?"):format(near)
    or (#names > 0 and "; there are " .. table.concat(names, ", ") or "; log_with has none"))
end

--- Ends the runs of all trackers. Only the first call has an effect. An asynchronous save that is under way is waited for
--- first. All processes call it.
function M.end_training(self)
  self:wait_for_save()
  local trackers = self.trackers
  self._trackers.running = {}
  for _, tracker in ipairs(trackers) do call(self, tracker, "finish") end
end

return M
