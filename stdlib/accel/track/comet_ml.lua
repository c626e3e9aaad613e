--- CometMLTracker: log_with = "comet_ml". Found by track/general_tracker.lua.
local base = require "accel.track.server_tracker"
local environment = require "accel.track.environment"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local check = require "accel.util.check"

--- Logs to Comet by its REST interface (COMET_API_KEY of the environment, COMET_WORKSPACE, COMET_URL_OVERRIDE): numbers as metrics, strings
--- as other values, tables of numbers as metrics by names with a slash. The project is init_trackers' name. Options: workspace,
--- experiment_name, url, outbox, outbox_bytes, finish_seconds. Comet has no way to tell a request that it took already from a new one: one
--- whose answer was lost may count twice.
--- example: require "accel.track.comet_ml" ("run").name --> "comet_ml"
---@class accel.track.CometMLTracker: accel.track.ServerTracker
local CometMLTracker = base.ServerTracker:extend "accel.track.CometMLTracker"

CometMLTracker.name = "comet_ml"
CometMLTracker.takes_tables = true
local none <const> = options.none
CometMLTracker.declared = { workspace = none, experiment_name = none, url = none }

--- For the outbox.
function CometMLTracker:describe()
  if not os.getenv "COMET_API_KEY" then raise "tracker 'comet_ml' needs COMET_API_KEY in the environment" end
  return { url = self:address("url", "COMET_URL_OVERRIDE", "https://www.comet.com"), project = self.run_name or "general",
    workspace = self:setting("workspace", "COMET_WORKSPACE"), name = self.opts.experiment_name or ("accel-" .. environment.random_id(6)) }
end

--- Strings are other values of the experiment.
---@param name string
---@param value string
function CometMLTracker:other(name, value)
  if type(value) == "string" then base.outbox_of(self, "log"):add { k = "other", name = name, value = value }
  else self:leave_out(name, ("numbers, strings and tables are taken, got %s"):format(check.shown(value))) end
end

return CometMLTracker
