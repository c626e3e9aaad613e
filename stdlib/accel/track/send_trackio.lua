--- The driver of Trackio's server (api/bulk_log): see outbox_sender.lua. Entries carry ids, by which the server knows those it has.
local accel = require "accel"

return function(setup, uid, request)
  local token = os.getenv "TRACKIO_WRITE_TOKEN"
  local M = { size = 500 }

  function M.begin() return true end

  function M.send(state, entries)
    local logs, step, config = {}, state.step, state.config
    for _, entry in ipairs(entries) do
      if entry.k == "params" then config = entry.v end
      local last = entry.k == "end" and config
      if entry.k == "metrics" or last then -- the run's configuration is sent with its first values
        logs[#logs + 1] = { project = setup.project, run = setup.run, run_id = setup.run_id, log_id = ("%s-%d"):format(uid, entry.at),
          metrics = entry.v or {}, step = entry.s or step or 0, config = config }
        config = nil
        step = (entry.s or step or 0) + 1
      end
    end
    if #logs > 0 then
      local ok, message, kind = request { method = "POST", url = setup.url .. "/api/bulk_log",
        json = { logs = accel.json.array(logs), hf_token = accel.json.null }, headers = token and { "X-Trackio-Write-Token: " .. token } or nil }
      if not ok then return nil, message, kind end
    end
    state.step, state.config = step, config
    return true
  end

  return M
end
