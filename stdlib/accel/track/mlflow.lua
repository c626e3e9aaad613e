--- MLflowTracker: log_with = "mlflow". Found by track/general_tracker.lua.
local accel = require "accel"
local base = require "accel.track.server_tracker"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local written = require "accel.track.written"

local MAX_PARAM <const> = 6000 -- characters of a parameter's value (mlflow.utils.validation)

--- Logs to an MLflow server by its REST interface (MLFLOW_TRACKING_URI, or tracking_uri in init_kwargs. MLFLOW_TRACKING_USERNAME and
--- _PASSWORD, or _TOKEN). The experiment is init_trackers' name, or MLFLOW_EXPERIMENT_NAME. Options: experiment_name, run_id, run_name,
--- tags (a table, MLFLOW_TAGS: JSON), nested_run, description, logging_dir (a new experiment's artifact location), outbox (folder of the
--- journal), outbox_bytes, finish_seconds.
--- example: require "accel.track.mlflow" ("run").name --> "mlflow"
---@class accel.track.MLflowTracker: accel.track.ServerTracker
local MLflowTracker = base.ServerTracker:extend "accel.track.MLflowTracker"

MLflowTracker.name = "mlflow"
local none <const> = options.none
MLflowTracker.declared = { experiment_name = none, logging_dir = none, run_id = none, tags = none, nested_run = none, run_name = none,
  description = none, tracking_uri = none, parent_run_id = none }

--- For the outbox.
function MLflowTracker:describe()
  local o = self.opts
  local tags = os.getenv "MLFLOW_TAGS" or o.tags
  if type(tags) == "string" then
    local ok, value = pcall(accel.json.decode, tags)
    if not ok or type(value) ~= "table" then raise("tracker 'mlflow': MLFLOW_TAGS must be a JSON object, got %s", tags) end
    tags = value
  end
  local all = {}
  for key, value in next, tags or {} do all[key] = tostring(value) end
  local nested = os.getenv "MLFLOW_NESTED_RUN"
  nested = nested and (nested:lower() == "true" or nested == "1" or nested:lower() == "yes") or nested == nil and o.nested_run
  local parent = o.parent_run_id or nested and os.getenv "MLFLOW_PARENT_RUN_ID" or nil
  if nested and not parent then
    io.stderr:write "accel: tracker 'mlflow': nested_run needs its parent run (parent_run_id); this run has no parent\n"
  end
  if parent then all["mlflow.parentRunId"] = parent end
  if o.description then all["mlflow.note.content"] = o.description end
  all["mlflow.source.name"] = type(arg) == "table" and tostring(arg[0]) or nil
  all["mlflow.source.type"] = "LOCAL"
  all["mlflow.user"] = os.getenv "USER" or "unknown"
  local git = require("accel.track.environment").git(require("accel.track.environment").folder())
  if git and git.revision then all["mlflow.source.git.commit"] = git.revision end
  return { url = self:address("tracking_uri", "MLFLOW_TRACKING_URI"),
    experiment = os.getenv "MLFLOW_EXPERIMENT_NAME" or o.experiment_name or self.run_name or "Default",
    run_id = os.getenv "MLFLOW_RUN_ID" or o.run_id, run_name = o.run_name, tags = all, location = o.logging_dir, started = os.time() }
end

--- Takes the run's configuration. Values of more than 6,000 characters are left out.
---@param values table
function MLflowTracker:store_init_configuration(values)
  local flat = written.flatten(values)
  local kept = {}
  for name, x in accel.pairs(flat) do
    local text = tostring(x)
    if #text > MAX_PARAM then self:leave_out(name, ("a parameter has at most %d characters"):format(MAX_PARAM))
    else kept[name] = text end
  end
  base.outbox_of(self, "store_init_configuration"):add { k = "params", v = kept }
end

--- Images by name, as artifacts images/NAME_STEP.png.
---@param values table<string, any>
---@param step? integer
---@param opts? {dataformats: string?}
function MLflowTracker:log_images(values, step, opts, ...)
  local o
  step, o = written.placed("log_images", step, opts, { dataformats = none }, ...)
  local outbox = base.outbox_of(self, "log_images")
  for name, value in accel.pairs(values) do
    for i, img in ipairs(require("accel.track.image").images("log_images", value, o.dataformats)) do
      local file = ("images/%s_%d%s.%s"):format(tostring(name):gsub("[^%w_.-]", "_"), step or 0, i > 1 and "_" .. i or "", img.mime:match "/(.*)")
      local kept = ("%s.%s"):format(outbox.path, file:gsub("/", "_"))
      local ok, message = accel.write_file(kept, img.data)
      if not ok then self:leave_out(tostring(name), message) else outbox:add { k = "artifact", file = kept, to = file, own = true } end
    end
  end
end

--- A file, sent as it is when its turn comes.
---@param local_path string
---@param artifact_path? string folder among the run's artifacts
function MLflowTracker:log_artifact(local_path, artifact_path, ...)
  check.surplus("log_artifact", ...)
  local name = local_path:match "([^/]+)$" or local_path
  base.outbox_of(self, "log_artifact"):add { k = "artifact", file = local_path, to = (artifact_path and artifact_path .. "/" or "") .. name }
end

--- All files of a folder.
---@param local_dir string
---@param artifact_path? string folder among the run's artifacts
function MLflowTracker:log_artifacts(local_dir, artifact_path, ...)
  check.surplus("log_artifacts", ...)
  local names, message = accel.listdir(local_dir)
  if not names then raise("log_artifacts: %s", message) end
  for _, name in ipairs(names) do
    local path = local_dir .. "/" .. name
    local to = artifact_path
    if accel.listdir(path) then self:log_artifacts(path, (to and to .. "/" or "") .. name) else self:log_artifact(path, to) end
  end
end

--- A figure: the text of an SVG document (accel.util.plot.svg), or an image.
---@param figure string|accel.Tensor
---@param artifact_file string its name among the artifacts
function MLflowTracker:log_figure(figure, artifact_file)
  local outbox = base.outbox_of(self, "log_figure")
  local data = type(figure) == "string" and figure or require("accel.track.image").images("log_figure", figure)[1].data
  local kept = ("%s.%s"):format(outbox.path, artifact_file:gsub("/", "_"))
  local ok, message = accel.write_file(kept, data)
  if not ok then return self:leave_out(artifact_file, message) end
  outbox:add { k = "artifact", file = kept, to = artifact_file, own = true }
end

return MLflowTracker
