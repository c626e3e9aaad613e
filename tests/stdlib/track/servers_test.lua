-- Trackers of servers (mlflow, trackio, clearml, comet_ml) against servers of this test that are not there, slow, refuse, answer garbage or
-- take a request and lose the answer: training is not held up, nothing is lost and nothing doubled; what a dead server does not take
-- stays in the outbox and `accel-run runs sync` sends it.  tier: every change
--   accel-run tests/stdlib/track/servers_test.lua
local accel = require "accel"
local core = require "accel.track.core"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local says = ranks.fails
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
local support = require "track"
support.needs(core.http_library, core.rest_library)
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/servers-"))
local stderr, said = io.stderr, {}
io.stderr = { write = function(_, ...) said[#said + 1] = table.concat { ... } end } -- luacheck: ignore

local function json(value, status)
  return { status = status or 200, body = accel.json.encode(value), headers = { ["Content-Type"] = "application/json" } }
end

-- ---- an MLflow server, as far as it goes ----
local function mlflow_server()
  local M = { experiments = {}, runs = {}, requests = 0 }
  function M.handle(request)
    M.requests = M.requests + 1
    local path, body = request:path(), request:body()
    local o = body ~= "" and path:find "^/api/2%.0/mlflow/" and accel.json.decode(body) or {}
    local what = path:match "/mlflow/(.*)$"
    if what == "experiments/get-by-name" then
      local id = M.experiments[request:query "experiment_name"]
      if not id then return json({ error_code = "RESOURCE_DOES_NOT_EXIST", message = "none" }, 404) end
      return json { experiment = { experiment_id = id } }
    elseif what == "experiments/create" then
      assert(not M.experiments[o.name], "an experiment is made once")
      M.experiments[o.name] = "7"
      return json { experiment_id = "7" }
    elseif what == "runs/search" then
      local uid, found = o.filter:match "'(%w+)'", {}
      for _, run in ipairs(M.runs) do
        local info = { run_id = run.id, artifact_uri = "mlflow-artifacts:/7/" .. run.id .. "/artifacts" }
        if run.tags["accel.uid"] == uid then found[1] = { info = info } end
      end
      return json { runs = accel.json.array(found) }
    elseif what == "runs/create" then
      local run = { id = ("%032x"):format(#M.runs + 1), metrics = {}, n = 0, params = {}, tags = {}, name = o.run_name }
      for _, t in ipairs(o.tags) do run.tags[t.key] = t.value end
      M.runs[#M.runs + 1] = run
      return json { run = { info = { run_id = run.id, artifact_uri = "mlflow-artifacts:/7/" .. run.id .. "/artifacts" } } }
    elseif what == "runs/log-batch" then
      local run = M.runs[tonumber(o.run_id, 16)]
      assert(#(o.metrics or {}) <= 1000 and #(o.params or {}) <= 100)
      for _, m in ipairs(o.metrics or {}) do -- MLflow's key
        local key = ("%s %d %d %s"):format(m.key, m.timestamp, m.step, m.value)
        if not run.metrics[key] then run.metrics[key], run.n = m, run.n + 1 end
      end
      for _, p in ipairs(o.params or {}) do
        if run.params[p.key] and run.params[p.key] ~= p.value then return json({ error_code = "INVALID_PARAMETER_VALUE" }, 400) end
        run.params[p.key] = p.value
      end
      return json {}
    elseif what == "runs/update" then
      M.runs[tonumber(o.run_id, 16)].status = o.status
      return json {}
    elseif request:method() == "PUT" then
      M.artifacts = M.artifacts or {}
      M.artifacts[path:match "/artifacts/7/%x+/artifacts/(.*)$"] = body
      return json {}
    end
    return json({ error_code = "ENDPOINT_NOT_FOUND" }, 404)
  end
  return M
end

--- What stands between: a server that by turns is slow, busy, loses its answer, or lets somebody else answer.
local function unreliable(server)
  local turns, n = { "lost", "ok", "proxy", "ok", "busy", "ok", "slow", "lost", "ok", "odd", "ok", "missing", "ok", "lost" }, 0
  return function(request)
    n = n + 1
    local kind = turns[n] or "ok"
    if kind == "busy" then return { status = 503, body = "busy" } end
    if kind == "proxy" then return { status = 200, body = "<html>a proxy's page</html>" } end
    if kind == "odd" then return json(accel.json.array { 1, "x" }) end
    if kind == "missing" then return { status = 404, body = "not JSON either" } end
    if kind == "slow" then core.pause(0.5) end
    local answer = server.handle(request)
    if kind == "lost" then return { status = 502, body = "the answer is lost" } end
    return answer
  end
end

local function serve(server, handler, seconds, enough)
  local until_ = accel.clock() + seconds
  repeat
    local ok, message = server:poll(0.05, handler)
    assert(ok, message)
  until enough() or accel.clock() > until_
  return enough()
end

local function files(folder) return #(accel.listdir(folder) or {}) end

do -- ---- everything goes wrong, and everything arrives once ----
  local port_server = assert(core.http(0))
  local port = port_server:port()
  port_server:close() -- nobody listens there yet
  local a = accel.Accelerator { log_with = "mlflow" }
  a:init_trackers("exp", { lr = 0.5, opt = { name = "adam" }, big = ("x"):rep(7000) },
    { mlflow = { tracking_uri = ("http://127.0.0.1:%d/"):format(port), outbox = root .. "/a", run_name = "try", tags = { team = 1 },
      finish_seconds = 0.3 } })
  local slowest = 0
  for i = 1, 1200 do
    local began = accel.clock()
    a:log({ loss = 1 / i, bad = 0 / 0, ["odd key!"] = i, text = "x" }, i)
    slowest = math.max(slowest, accel.clock() - began)
  end
  assert(slowest < 0.5, ("a dead server held up a step for %.3f s"):format(slowest))
  local file = assert(io.open(root .. "/file.txt", "w"))
  file:write "contents"
  file:close()
  a:get_tracker("mlflow"):log_artifact(root .. "/file.txt", "sub dir")
  a:get_tracker("mlflow"):log_images({ pic = accel.zeros(3, 4, 4) }, 2)
  local journal = a:get_tracker("mlflow", true).path
  local began = accel.clock()
  a:end_training()
  assert(accel.clock() - began < 6, "nobody answers, and the end does not wait for it")
  local all = table.concat(said)
  assert(all:find("'big' is left out", 1, true) and all:find("'text' is left out", 1, true) and all:find("runs sync", 1, true), all)
  assert(all:find("training continues", 1, true), all)

  -- the server comes back, in bad shape
  local server, fake = assert(core.http(port)), mlflow_server()
  local handler = unreliable(fake)
  local done = root .. "/sync.out"
  os.execute(("('%s' runs sync '%s' --seconds 120 > '%s.tmp' 2> '%s.err'; mv '%s.tmp' '%s') &"):format(accel.process.program(), root .. "/a",
    done, done, done, done))
  local function ended()
    local f = io.open(done)
    if f then f:close() end
    return f ~= nil
  end
  local ok = serve(server, handler, 100, ended)
  local err = io.open(done .. ".err")
  assert(ok, "not sent after " .. fake.requests .. " requests: " .. (err and err:read "a" or ""))
  assert(assert(io.open(done)):read "a":find "sent\n", err:read "a")
  assert(#fake.runs == 1, ("%d runs were made"):format(#fake.runs))
  local run = fake.runs[1]
  assert(run.n == 3600, run.n)
  local steps = {}
  for _, m in next, run.metrics do
    steps[m.key] = (steps[m.key] or 0) + 1
    if m.key == "loss" then assert(m.value == 1 / m.step) elseif m.key == "bad" then assert(m.value == "NaN") else assert(m.key == "odd key_") end
  end
  assert(steps.loss == 1200 and steps.bad == 1200 and steps["odd key_"] == 1200)
  assert(run.params.lr == "0.5" and run.params["opt/name"] == "adam" and not run.params.big)
  assert(run.name == "try" and run.tags.team == "1" and run.status == "FINISHED")
  assert(fake.artifacts["sub%20dir/file.txt"] == "contents" or fake.artifacts["sub dir/file.txt"] == "contents", accel.inspect(fake.artifacts))
  assert(fake.artifacts["images/pic_2.png"]:sub(2, 4) == "PNG")
  assert(files(root .. "/a") == 0, "nothing is left of the outbox")
  assert(not io.open(journal))
  server:close()
end

-- ---- a server that answers: everything is there when the run ends ----
-- its handler runs where the tracker's end waits, so that a second process logs
local function run_script(code, environment, handler, seconds)
  local server = assert(core.http(0))
  local path, done = root .. "/script.lua", root .. "/script.out"
  local f = assert(io.open(path, "w"))
  f:write(code)
  f:close()
  os.remove(done)
  os.execute(("(cd '%s' && URL=http://127.0.0.1:%d %s '%s' '%s' > '%s.tmp' 2>&1; mv '%s.tmp' '%s') &"):format(root, server:port(), environment,
    accel.process.program(), path, done, done, done))
  local text
  assert(serve(server, handler, seconds, function()
    local o = io.open(done)
    text = o and o:read "a"
    if o then o:close() end
    return o ~= nil
  end), "the script does not end")
  server:close()
  return text
end

do -- trackio: entries have ids; steps, strings and nested tables
  local logs, seen, doubled, n = {}, {}, 0, 0
  local text = run_script([[
    local a = require "accel".Accelerator { log_with = "trackio" }
    a:init_trackers("proj", { lr = 1 }, { trackio = { server_url = os.getenv "URL", name = "r", outbox = "box" } })
    for i = 1, 700 do a:log({ loss = i, val = { acc = 0 / 0 } }, i) end
    a:log { note = "words" }
    a:end_training()]], "TRACKIO_WRITE_TOKEN=secret", function(request)
    n = n + 1
    if request:path() ~= "/api/bulk_log" or request:header "X-Trackio-Write-Token" ~= "secret" then return json({ error = "no" }, 403) end
    for _, log in ipairs(accel.json.decode(request:body()).logs) do
      assert(log.project == "proj" and log.run == "r" and #log.run_id == 32)
      if seen[log.log_id] then doubled = doubled + 1 else logs[#logs + 1] = log end
      seen[log.log_id] = true
    end
    if n == 1 then return { status = 500, body = "" } end -- taken, and the answer is lost
    return json { data = accel.json.array {} }
  end, 60)
  assert(#logs == 701 and doubled > 0, ("%d entries, %d came twice: %s"):format(#logs, doubled, text))
  assert(logs[1].config.lr == 1 and logs[1].metrics.loss == 1 and logs[1].step == 1 and logs[1].metrics["val/acc"] == "NaN")
  assert(logs[701].metrics.note == "words" and logs[701].step == 701 and not logs[2].config)
  assert(files(root .. "/box") == 0)
end

do -- clearml: a token that runs out, titles and series, single values, parameters, a table
  local calls, events, logins, params = {}, {}, 0, nil
  run_script([[
    local a = require "accel".Accelerator { log_with = "clearml" }
    a:init_trackers("proj", { lr = 1 }, { clearml = { api_host = os.getenv "URL", outbox = "box" } })
    for i = 1, 5 do a:log({ train_loss = i, eval_acc = i / 2, plain = 3, bad = 0 / 0 }, i) end
    a:log { best = 9 }
    a:get_tracker("clearml"):log_table("t", { columns = { "x", "y" }, data = { { 1, 2 }, { 3, 4 } } })
    a:end_training()]], "CLEARML_API_ACCESS_KEY=k CLEARML_API_SECRET_KEY=s CLEARML_TASK=named", function(request)
    local path = request:path()
    if path == "/auth.login" then
      logins = logins + 1
      assert(request:header "Authorization" == "Basic azpz") -- k:s
      return json { data = { token = "t" .. logins } }
    end
    local call = path:match "^/v2%.23/(.*)$"
    calls[#calls + 1] = call
    if request:header "Authorization" ~= "Bearer t2" then return json({ meta = { result_msg = "expired" } }, 401) end
    if call == "events.add_batch" then
      for line in request:body():gmatch "[^\n]+" do events[#events + 1] = accel.json.decode(line) end
      return json { data = {} }
    end
    local o = accel.json.decode(request:body())
    if call == "projects.create" then return json { data = { id = "p" } } end
    if call == "tasks.create" then
      assert(o.project == "p" and o.name == "named" and o.tags[1]:find "^accel%-")
      return json { data = { id = "task" } }
    end
    if call == "tasks.edit_hyper_params" then params = o.hyperparams end
    return json { data = {} }
  end, 60)
  assert(logins == 2 and calls[#calls] == "tasks.completed" and #events == 5 * 3 + 2, table.concat(calls, " "))
  local found = {}
  for _, e in ipairs(events) do
    assert(e.task == "task")
    found[("%s/%s/%s"):format(e.metric, e.variant, e.iter)] = e.value or e.plot_str
  end
  assert(found["loss/train/3"] == 3 and found["acc/eval/4"] == 2 and found["plain/train/1"] == 3)
  assert(found["Summary/best/" .. -(1 << 31)] == 9)
  assert(found["t/train/" .. -(1 << 31)]:find("[1.0,3.0]", 1, true) or found["t/train/" .. -(1 << 31)]:find("[1,3]", 1, true))
  assert(#params == 1 and params[1].name == "lr")
end

do -- comet_ml: a request a value
  local metrics, others, parameters, stopped, failed = {}, {}, {}, false, false
  run_script([[
    local a = require "accel".Accelerator { log_with = "comet_ml" }
    a:init_trackers("proj", { lr = 1, b = 2 }, { comet_ml = { url = os.getenv "URL", outbox = "box" } })
    for i = 1, 4 do a:log({ loss = i, val = { acc = i } }, i) end
    a:log { note = "words" }
    a:end_training()]], "COMET_API_KEY=key", function(request)
    assert(request:header "Authorization" == "key")
    local call = request:path():match "^/api/rest/v2/write/experiment/(.*)$"
    if call == "stop" then
      stopped = request:query "experimentKey" == "e"
      return { status = 200, body = "" }
    end
    local o = accel.json.decode(request:body())
    if call == "create" then
      assert(o.projectName == "proj")
      return json { experimentKey = "e" }
    end
    if call == "metric" and #metrics == 3 and not failed then
      failed = true
      return { status = 500, body = "" }
    end
    assert(o.experimentKey == "e")
    if call == "metric" then metrics[#metrics + 1] = ("%s %d %d"):format(o.metricName, o.step, o.metricValue) end
    if call == "parameter" then parameters[o.parameterName] = o.parameterValue end
    if call == "log-other" then others[o.key] = o.value end
    return json { msg = "ok" }
  end, 60)
  assert(table.concat(metrics, ",") == "loss 1 1,val/acc 1 1,loss 2 2,val/acc 2 2,loss 3 3,val/acc 3 3,loss 4 4,val/acc 4 4",
    table.concat(metrics, ","))
  assert(parameters.lr == "1" and parameters.b == "2" and others.note == "words" and stopped)
end

-- ---- what is missing is said where the run begins ----
local function begin(name, kwargs)
  return function()
    local a = accel.Accelerator { log_with = name }
    a:init_trackers("p", nil, { [name] = kwargs })
  end
end
says("MLFLOW_TRACKING_URI", begin("mlflow", {}))
says("is not a server address", begin("mlflow", { tracking_uri = "sqlite:///x.db" }))
says("unknown option 'run_nam'; did you mean 'run_name'?", begin("mlflow", { run_nam = "x" }))
says("TRACKIO_SERVER_URL", begin("trackio", {}))
if not os.getenv "COMET_API_KEY" then says("COMET_API_KEY", begin("comet_ml", {})) end
if not os.getenv "CLEARML_API_ACCESS_KEY" then says("CLEARML_API_ACCESS_KEY", begin("clearml", {})) end

do -- a journal that is full drops, and says so once
  said = {}
  local a = accel.Accelerator { log_with = "mlflow" }
  a:init_trackers("p", nil, { mlflow = { tracking_uri = "http://127.0.0.1:1", outbox = root .. "/full", outbox_bytes = 2000, finish_seconds = 0 } })
  for i = 1, 200 do a:log({ loss = i }, i) end
  local box = a:get_tracker("mlflow", true)
  assert(box.dropped > 100)
  a:end_training()
  local all = table.concat(said)
  assert(select(2, all:gsub("is full", "")) == 1, all)
end
io.stderr = stderr -- luacheck: ignore
