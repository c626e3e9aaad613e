--- TrackioTracker: log_with = "trackio". Found by track/general_tracker.lua.
local base = require "accel.track.server_tracker"
local environment = require "accel.track.environment"
local options = require "accel.util.options"

--- Logs to a Trackio server (TRACKIO_SERVER_URL, or server_url in init_kwargs. TRACKIO_WRITE_TOKEN). The project is init_trackers' name.
--- Options: name, run_id, server_url, outbox, outbox_bytes, finish_seconds. It runs on every rank, as Accelerate's does.
--- example: require "accel.track.trackio" ("run").main_process_only --> false
---@class accel.track.TrackioTracker: accel.track.ServerTracker
local TrackioTracker = base.ServerTracker:extend "accel.track.TrackioTracker"

TrackioTracker.name = "trackio"
TrackioTracker.main_process_only = false
TrackioTracker.takes_tables, TrackioTracker.takes_strings = true, true
local none <const> = options.none
TrackioTracker.declared = { name = none, run_id = none, server_url = none }

--- For the outbox.
function TrackioTracker:describe()
  return { url = self:address("server_url", "TRACKIO_SERVER_URL"), project = self.run_name or "default",
    run = self.opts.name or ("accel-" .. environment.random_id(6)), run_id = self.opts.run_id or environment.random_id(32) }
end

return TrackioTracker
