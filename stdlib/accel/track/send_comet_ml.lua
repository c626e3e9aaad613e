--- The driver of Comet's REST interface (api/rest/v2/write/experiment): see outbox_sender.lua. A request a value, so that one that fails is
--- the only one that is sent again.
return function(setup, _, request)
  local api, key = setup.url:gsub("/clientlib$", "") .. "/api/rest/v2/write/experiment/", os.getenv "COMET_API_KEY" or ""

  local function post(path, body)
    return request { method = "POST", url = api .. path, json = body, headers = { "Authorization: " .. key }, plain = path ~= "create" }
  end

  local M = { size = 1 }

  function M.begin(state)
    if state.key then return true end
    local made, message, kind = post("create", { projectName = setup.project, workspaceName = setup.workspace, experimentName = setup.name })
    if not made then return nil, message, kind end
    if not made.experimentKey then return nil, "the server does not say the experiment's key", "retry" end
    state.key = made.experimentKey
    return true
  end

  function M.send(state, entries)
    local entry, done = entries[1], state.done or 0
    local function each(list, path, body)
      for i = done + 1, #list do -- values of this entry that were taken before one failed are not sent again
        local ok, message, kind = post(path, body(list[i]))
        if not ok then return nil, message, kind end
        state.done = i
      end
      state.done = nil
      return true
    end
    local names = {}
    if entry.k == "metrics" or entry.k == "params" then
      for name in next, entry.v do names[#names + 1] = name end
      table.sort(names)
    end
    if entry.k == "metrics" then
      return each(names, "metric", function(name)
        return { experimentKey = state.key, metricName = name, metricValue = entry.v[name], step = entry.s, timestamp = math.floor(entry.t * 1000) }
      end)
    elseif entry.k == "params" then
      return each(names, "parameter", function(name)
        return { experimentKey = state.key, parameterName = name, parameterValue = tostring(entry.v[name]) }
      end)
    elseif entry.k == "other" then
      return post("log-other", { experimentKey = state.key, key = entry.name, value = entry.value })
    elseif entry.k == "end" then
      return request { url = api .. "stop?experimentKey=" .. state.key, headers = { "Authorization: " .. key }, plain = true }
    end
    return true
  end

  return M
end
