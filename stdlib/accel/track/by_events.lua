--- Trackers whose own files are private and change with their versions (Aim, SwanLab): accel writes TensorBoard's event files for
--- them. Each of them has a command to import these, which the end of a run names. Found by track/general_tracker.lua.
local dist = require "accel.dist"
local environment = require "accel.track.environment"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local TensorBoardTracker = require "accel.track.tensorboard"
local written = require "accel.track.written"

local M = {}

local ignored <const> = {} -- options of each. All but dir and name only have meaning there (accel.util.no_effect)

local function class(name, tracker, import)
  local T = TensorBoardTracker:extend("accel.track." .. tracker)
  T.name = name

  --- The event files are in FOLDER/PROJECT-ID, on ranks other than the main one in FOLDER/PROJECT-ID-rankN.
  ---@param run_name string name of the run
  ---@param logging_dir string|table|nil folder of the files, or the options
  ---@param opts? table options by name
  function T:init(run_name, logging_dir, opts, ...)
    if T.requires_logging_directory == false then logging_dir, opts = nil, logging_dir end
    opts = options(("tracker '%s'"):format(name), opts, ignored[name], ...)
    no_effect("accel.track." .. tracker, opts)
    local folder = opts.dir or logging_dir or name
    self.project, self.import = run_name, import
    local rank = dist.get_rank()
    local label = ("%s-%s%s"):format(run_name, opts.name and tostring(opts.name):gsub("/", "_") or environment.random_id(6),
      rank > 0 and "-rank" .. rank or "")
    TensorBoardTracker.init(self, label, folder)
  end

  --- A table of columns and rows, as a text.
  ---@param table_name string
  ---@param o? table
  function T:log_table(table_name, o, ...)
    o = options("log_table", o, { columns = options.none, data = options.none, step = options.none }, ...)
    if type(o.data) ~= "table" then raise "log_table: data must be a list of rows" end
    local lines = {}
    local function line(row)
      local cells = {}
      for i, x in ipairs(row) do cells[i] = tostring(x):gsub("|", "\\|") end
      lines[#lines + 1] = "| " .. table.concat(cells, " | ") .. " |"
    end
    if o.columns then
      line(o.columns)
      lines[#lines + 1] = "|" .. (" --- |"):rep(#o.columns)
    end
    for _, row in ipairs(o.data) do line(row) end
    self:needs_run "log_table"
    self.writer:add_text(table_name, table.concat(lines, "\n"), o.step)
  end

  function T:finish()
    local there = self.writer ~= nil
    TensorBoardTracker.finish(self)
    if there and dist.get_rank() == 0 then
      io.stderr:write(("accel: tracker '%s': the run is in %s; upload it with %s\n"):format(name, self.folder,
        import:format(self.folder, self.project)))
    end
  end

  M[tracker] = T
  return T
end

local none <const> = options.none
ignored.aim = { dir = none, name = none, experiment = none, run_hash = none, system_tracking_interval = none, log_system_params = none,
  capture_terminal_logs = none }
ignored.swanlab = { dir = none, name = none, experiment_name = none, description = none, config = none, logdir = none, mode = none,
  workspace = none, tags = none, group = none }

--- log_with = "aim": event files in LOGGING_DIR/PROJECT-ID, for `aim convert tensorboard`. Aim's repository has a private encoding.
--- example: require("accel.track.by_events").AimTracker.name --> "aim"
---@class accel.track.AimTracker: accel.accelerator.TensorBoardTracker
local AimTracker = class("aim", "AimTracker", "aim convert tensorboard --logdir '%s'")
AimTracker.requires_logging_directory = true

--- log_with = "swanlab": event files in swanlab/PROJECT-ID, for `swanlab convert`. It runs on every rank, as Accelerate's does.
--- example: require("accel.track.by_events").SwanLabTracker.name --> "swanlab"
---@class accel.track.SwanLabTracker: accel.accelerator.TensorBoardTracker
local SwanLabTracker = class("swanlab", "SwanLabTracker", "swanlab convert -t tensorboard --tb-log-dir '%s' -p '%s'")
SwanLabTracker.requires_logging_directory = false
SwanLabTracker.main_process_only = false

--- The run's configuration, as a text in the event file: the importer stops at TensorBoard's HParams.
---@param values table
function SwanLabTracker:store_init_configuration(values)
  self:needs_run "store_init_configuration"
  local lines = {}
  local flat, names = written.flatten(values)
  for i, name in ipairs(names) do lines[i] = ("%s: %s"):format(name, tostring(flat[name])) end
  self.writer:add_text("config", table.concat(lines, "\n"), 0)
end

return M
