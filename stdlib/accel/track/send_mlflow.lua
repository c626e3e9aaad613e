--- The driver of MLflow's REST interface (api/2.0/mlflow): see outbox_sender.lua. A batch that is sent again adds nothing: metrics are known
--- by key, time, step and value, parameters by key, and the run carries the journal's uid as a tag, by which it is found again.
local json = require "accel".json
local open_read = require("accel.file.core").open_read

local MAX_METRICS <const>, MAX_PARAMS <const> = 1000, 100
local UID_TAG <const> = "accel.uid"

return function(setup, uid, request)
  local api, headers, user = setup.url .. "/api/2.0/mlflow/", {}, nil
  local token, name = os.getenv "MLFLOW_TRACKING_TOKEN", os.getenv "MLFLOW_TRACKING_USERNAME"
  if token then headers[1] = "Authorization: Bearer " .. token
  elseif name then user = name .. ":" .. (os.getenv "MLFLOW_TRACKING_PASSWORD" or "") end

  local function post(path, body) return request { method = "POST", url = api .. path, json = body, headers = headers, user = user } end
  local function escaped(s) return (s:gsub("[^%w._~-]", function(c) return ("%%%02X"):format(c:byte()) end)) end

  local function experiment()
    local by_name = api .. "experiments/get-by-name?experiment_name=" .. escaped(setup.experiment)
    local got, message, kind, answer = request { url = by_name, headers = headers, user = user }
    if got then
      local id = (got.experiment or {}).experiment_id
      return id, id == nil and "the server does not say the experiment's id" or nil, "retry"
    end
    if type(answer) ~= "table" or answer.error_code ~= "RESOURCE_DOES_NOT_EXIST" then return nil, message, kind end
    local made, why, what, refusal = post("experiments/create", { name = setup.experiment, artifact_location = setup.location })
    if made and made.experiment_id then return made.experiment_id end
    if type(refusal) == "table" and refusal.error_code == "RESOURCE_ALREADY_EXISTS" then -- somebody was faster
      got, message, kind = request { url = by_name, headers = headers, user = user }
      if got and got.experiment then return got.experiment.experiment_id end
      return nil, message, kind
    end
    return nil, why or "the server does not say the experiment's id", what
  end

  local M = { size = 500 }

  function M.begin(state)
    if state.run_id then return true end
    if setup.run_id then
      local got, message, kind = request { url = api .. "runs/get?run_id=" .. escaped(setup.run_id), headers = headers, user = user }
      if not got or not got.run then return nil, message or "no such run", kind end
      state.run_id, state.artifacts = setup.run_id, got.run.info.artifact_uri
      return post("runs/update", { run_id = setup.run_id, status = "RUNNING" })
    end
    local id, message, kind = state.experiment, nil, nil
    if not id then id, message, kind = experiment() end
    if not id then return nil, message, kind end
    state.experiment = id -- known results are not requested again, however often a later step fails
    local found, why, what = post("runs/search", { experiment_ids = json.array { id }, max_results = 1,
      filter = ("tags.`%s` = '%s'"):format(UID_TAG, uid) })
    if not found then return nil, why, what end
    local run = (found.runs or {})[1]
    if not run then
      local tags = { { key = UID_TAG, value = uid } }
      for key, value in next, setup.tags do tags[#tags + 1] = { key = key, value = value } end
      local made
      made, why, what = post("runs/create", { experiment_id = id, run_name = setup.run_name, start_time = setup.started * 1000, tags = tags })
      if not made then return nil, why, what end
      run = made.run
    end
    if type(run) ~= "table" or type(run.info) ~= "table" or not run.info.run_id then
      return nil, "the server does not say the run's id", "retry"
    end
    state.run_id, state.artifacts = run.info.run_id, run.info.artifact_uri
    return true
  end

  local function put_artifact(state, entry)
    local below = tostring(state.artifacts):match "^mlflow%-artifacts:/*(.*)$"
    if not below then
      return nil, ("artifact %s: the server keeps artifacts at %s and takes none over HTTP (mlflow server --serve-artifacts)"):format(
        entry.to, tostring(state.artifacts)), "permanent"
    end
    local parts = {}
    for part in (below .. "/" .. entry.to):gmatch "[^/]+" do parts[#parts + 1] = escaped(part) end
    local file, why = open_read(entry.file)
    if not file then return nil, ("artifact %s: %s"):format(entry.to, why), "permanent" end
    file:close()
    local ok, message, kind = request { method = "PUT", url = setup.url .. "/api/2.0/mlflow-artifacts/artifacts/" .. table.concat(parts, "/"),
      file = entry.file, headers = headers, user = user, plain = true, seconds = 600 }
    if ok and entry.own then os.remove(entry.file) end
    return ok, message, kind
  end

  local function key_of(s) return (s:gsub("[^%w_%-%. /:]", "_"):sub(1, 250)) end

  function M.send(state, entries)
    local metrics, params = {}, {}
    local function flush()
      if #metrics == 0 and #params == 0 then return true end
      local ok, message, kind = post("runs/log-batch", { run_id = state.run_id,
        metrics = #metrics > 0 and metrics or nil, params = #params > 0 and params or nil })
      metrics, params = {}, {}
      return ok, message, kind
    end
    for _, entry in ipairs(entries) do
      local ok, message, kind = true, nil, nil
      if entry.k == "metrics" then
        for key, value in next, entry.v do
          if #metrics == MAX_METRICS then ok, message, kind = flush() end
          if not ok then return nil, message, kind end
          metrics[#metrics + 1] = { key = key_of(key), value = value, step = entry.s or 0, timestamp = math.floor(entry.t * 1000) }
        end
      elseif entry.k == "params" then
        for key, value in next, entry.v do
          if #params == MAX_PARAMS then ok, message, kind = flush() end
          if not ok then return nil, message, kind end
          params[#params + 1] = { key = key_of(key), value = tostring(value) }
        end
      else
        ok, message, kind = flush()
        if ok and entry.k == "artifact" then ok, message, kind = put_artifact(state, entry) end
        if ok and entry.k == "end" then
          ok, message, kind = post("runs/update", { run_id = state.run_id, status = entry.status == "failed" and "FAILED" or "FINISHED",
            end_time = math.floor(entry.t * 1000) })
        end
      end
      if not ok then return nil, message, kind end
    end
    return flush()
  end

  return M
end
