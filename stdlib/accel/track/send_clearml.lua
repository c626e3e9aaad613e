--- The driver of ClearML's REST interface (v2.23): see outbox_sender.lua. The task carries the journal's uid as a tag, by which it is found
--- again. The server identifies events by task, metric, variant and iteration, so that resending a batch adds nothing.
local accel = require "accel"
local json = accel.json

local SINGLE <const> = -(1 << 31) -- the iteration that ClearML takes for values without one

return function(setup, uid, request)
  local tag, token, until_ = "accel-" .. uid, nil, 0

  --- The data of an answer.
  local function call(path, body, raw)
    if not token or accel.clock() > until_ then
      local key = (os.getenv "CLEARML_API_ACCESS_KEY" or "") .. ":" .. (os.getenv "CLEARML_API_SECRET_KEY" or "")
      local got, message, kind = request { method = "POST", url = setup.url .. "/auth.login", json = { expiration_sec = 3600 }, user = key }
      token = got and type(got.data) == "table" and got.data.token
      if not token then return nil, message or "the server gives no token", kind end
      until_ = accel.clock() + 1800
    end
    local headers = { "Authorization: Bearer " .. token }
    if raw then headers[2] = "Content-Type: application/json-lines" end
    local got, message, kind, _, status = request { method = "POST", url = ("%s/v2.23/%s"):format(setup.url, path), headers = headers,
      json = not raw and body or nil, body = raw and body or nil }
    if status == 401 then token = nil end
    if not got then return nil, message, kind end
    return type(got.data) == "table" and got.data or {}
  end

  local M = { size = 500 }

  function M.begin(state)
    if state.task then return true end
    local found, message, kind = call("tasks.get_all", { tags = json.array { tag }, only_fields = json.array { "id" } })
    if not found then return nil, message, kind end
    local task = type(found.tasks) == "table" and found.tasks[1]
    if not task then
      local pattern = "^" .. setup.project:gsub("[^%w_ ]", "\\%0") .. "$"
      local projects
      projects, message, kind = call("projects.get_all", { name = pattern, only_fields = json.array { "id", "name" } })
      if not projects then return nil, message, kind end
      local project
      for _, p in ipairs(projects.projects or {}) do project = project or p.name == setup.project and p.id end
      if not project then
        local made
        made, message, kind = call("projects.create", { name = setup.project, description = "" })
        if not made then return nil, message, kind end
        project = made.id
      end
      task, message, kind = call("tasks.create", { name = setup.task, project = project, type = "training", tags = json.array { tag } })
      if not task then return nil, message, kind end
    end
    if not task.id then return nil, "the server does not say the task's id", "retry" end
    local ok, why, what = call("tasks.started", { task = task.id, force = true })
    if not ok then return nil, why, what end
    state.task = task.id
    return true
  end

  local function plot(entry)
    return json.encode { data = json.array { { type = "table", header = { values = json.array(entry.columns) },
      cells = { values = json.array(entry.cells) } } }, layout = { title = entry.title } }
  end

  function M.send(state, entries)
    local lines = {}
    local function event(kind, entry, metric, variant, more)
      local e = { type = kind, task = state.task, iter = entry.s or SINGLE, timestamp = math.floor(entry.t * 1000), metric = metric,
        variant = variant }
      for key, value in next, more do e[key] = value end
      lines[#lines + 1] = json.encode(e)
    end
    local function flush()
      if #lines == 0 then return true end
      local body = table.concat(lines, "\n") .. "\n"
      lines = {}
      return call("events.add_batch", body, true)
    end
    for _, entry in ipairs(entries) do
      local ok, message, kind = true, nil, nil
      if entry.k == "scalars" then
        for _, v in ipairs(entry.v) do
          if type(v[3]) == "number" then event("training_stats_scalar", entry, v[1], v[2], { value = v[3] }) end -- it takes no NaN
        end
      elseif entry.k == "table" then event("plot", entry, entry.title, entry.series, { plot_str = plot(entry) })
      elseif entry.k == "params" then
        local list = {}
        for name, value in accel.pairs(entry.v) do
          list[#list + 1] = { section = "General", name = name, value = tostring(value), type = type(value) }
        end
        ok, message, kind = call("tasks.edit_hyper_params", { task = state.task, hyperparams = json.array(list), replace_hyperparams = "none" })
      elseif entry.k == "end" then
        ok, message, kind = flush()
        local how = entry.status == "failed" and "tasks.failed" or "tasks.completed"
        if ok then ok, message, kind = call(how, { task = state.task, force = true }) end
      end
      if not ok then return nil, message, kind end
    end
    return flush()
  end

  return M
end
