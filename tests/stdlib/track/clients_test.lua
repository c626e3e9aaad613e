-- Trackers against the real programs, where python3 has them: an `mlflow server` with SQLite that is killed and started again during the
-- run, a Trackio server, dvc.  tier: slow
--   accel-run tests/stdlib/track/clients_test.lua [mlflow|trackio|dvc]
local accel = require "accel"
local core = require "accel.track.core"
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or ".") .. "/clients-"))
local only, ran = arg[1], 0
if not core.rest_library() then
  print "skip: libcurl is not here"
  os.exit(77)
end

local function has(module)
  if only and only ~= module then return false end
  local there = os.execute(("python3 -c 'import %s' >/dev/null 2>&1"):format(module))
  if there then ran = ran + 1 else print("python3 with " .. module .. " is not here") end
  return there
end

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  pipe:close()
  return text
end

local function python(name, code, args)
  local file = assert(io.open(root .. "/" .. name, "w"))
  file:write(code)
  file:close()
  return output(("cd '%s' && python3 '%s/%s' %s 2>'%s/%s.err'"):format(root, root, name, args or "", root, name))
end

local function free_port()
  local server = assert(core.http(0))
  local port = server:port()
  server:close()
  return port
end

--- Starts a program that ends with us; a function that ends it.
local function start(command, log)
  local pid = output(("cd '%s' && (setsid %s > '%s' 2>&1 & echo $!)"):format(root, command, log)):match "%d+"
  return function() os.execute(("kill -9 -%s 2>/dev/null"):format(pid)) end
end

local function answers(url, seconds)
  local until_ = accel.clock() + seconds
  repeat
    if core.request { url = url, seconds = 2 } then return true end
    core.pause(0.5)
  until accel.clock() > until_
end

if has "mlflow" then
  local port = free_port()
  local url = ("http://127.0.0.1:%d"):format(port)
  local command = ("python3 -m mlflow server --host 127.0.0.1 --port %d --backend-store-uri sqlite:///m.db --artifacts-destination art "
    .. "--workers 1"):format(port)
  local stop = start(command, root .. "/mlflow.log")
  local fine, err = pcall(function()
    assert(answers(url .. "/health", 600), "mlflow server does not start; see " .. root .. "/mlflow.log")
    local a = accel.Accelerator { log_with = "mlflow" }
    a:init_trackers("exp", { lr = 0.5, opt = { name = "adam" } }, { mlflow = { tracking_uri = url, run_name = "r", tags = { team = "x" },
      outbox = root .. "/box", finish_seconds = 240 } })
    for i = 1, 150 do a:log({ loss = 1 / i, bad = i % 2 == 0 and 0 / 0 or 1 / 0 }, i) end
    core.pause(3) -- some of it is on its way
    stop()
    for i = 151, 300 do a:log({ loss = 1 / i, bad = i % 2 == 0 and 0 / 0 or 1 / 0 }, i) end
    core.pause(3)
    stop = start(command, root .. "/mlflow2.log")
    a:get_tracker("mlflow"):log_artifact(arg[0], "scripts")
    a:get_tracker("mlflow"):log_images({ pic = accel.rand(3, 5, 6) }, 7)
    a:end_training()
    local got = python("read.py", [==[
import sys, math, mlflow
mlflow.set_tracking_uri(sys.argv[1])
c = mlflow.MlflowClient()
runs = c.search_runs([c.get_experiment_by_name("exp").experiment_id])
r = runs[0]; i = r.info.run_id
loss = c.get_metric_history(i, "loss"); bad = c.get_metric_history(i, "bad")
print(len(runs), r.info.status, r.info.run_name, r.data.params, r.data.tags["team"])
print(len(loss), sorted(m.step for m in loss) == list(range(1, 301)), all(m.value == 1 / m.step for m in loss))
print(len(bad), all(math.isnan(m.value) if m.step % 2 == 0 else m.value > 1e300 for m in bad))
print(sorted(f.path for d in ("scripts", "images") for f in c.list_artifacts(i, d)))
]==], url)
    assert(got == "1 FINISHED r {'lr': '0.5', 'opt/name': 'adam'} x\n300 True True\n300 True\n"
      .. "['images/pic_7.png', 'scripts/clients_test.lua']\n", got)
  end)
  stop()
  assert(fine, err)
end

if has "trackio" then
  local show = 'import trackio; trackio.show(host="127.0.0.1", open_browser=False, block_thread=True)'
  local stop = start(("env TRACKIO_DIR='%s/trackio' TRACKIO_WRITE_TOKEN=secret python3 -c '%s'"):format(root, show), root .. "/trackio.log")
  local fine, err = pcall(function()
    local at
    for _ = 1, 240 do -- it chooses its port
      local file = io.open(root .. "/trackio.log")
      at = file and file:read "a":match "http://127%.0%.0%.1:%d+"
      if file then file:close() end
      if at then break end
      core.pause(0.5)
    end
    assert(at, "the Trackio server does not start; see " .. root .. "/trackio.log")
    local script = root .. "/log.lua"
    local file = assert(io.open(script, "w"))
    file:write(([[local a = require "accel".Accelerator { log_with = "trackio" }
      a:init_trackers("proj", { lr = 0.5 }, { trackio = { server_url = "%s", name = "r", outbox = "%s/tbox", finish_seconds = 60 } })
      for i = 1, 120 do a:log({ loss = i, word = "w" }, i) end
      a:end_training()]]):format(at, root))
    file:close()
    local said = output(("TRACKIO_WRITE_TOKEN=secret '%s' '%s' 2>&1"):format(accel.process.program(), script))
    core.pause(1)
    local got = python("readt.py", [==[
import glob, sqlite3, json
for db in glob.glob("trackio/*.db"):
    c = sqlite3.connect(db)
    rows = [(s, json.loads(m)) for s, m in c.execute("select step, metrics from metrics where run_name='r' order by step")]
    rows = [(s, m) for s, m in rows if "loss" in m]
    print(len(rows), [s for s, m in rows] == list(range(1, 121)), all(m["loss"] == s and m["word"] == "w" for s, m in rows))
]==], "")
    assert(got:find("120 True True", 1, true), got .. said)
  end)
  stop()
  assert(fine, err)
end

if has "dvc" then
  local repo = root .. "/repo"
  assert(accel.makedirs(repo))
  local a = accel.Accelerator { log_with = "dvclive" }
  a:init_trackers("p", { lr = 0.5 }, { dvclive = { dir = repo .. "/dvclive", dvcyaml = repo .. "/dvc.yaml" } })
  for i = 1, 5 do a:log({ loss = 1 / i, ["val/acc"] = i }, i) end
  a:get_tracker("dvclive"):log_images { pic = accel.rand(3, 4, 5) }
  a:end_training()
  local dvc = "python3 -m dvc"
  local shown = output(("cd '%s' && git init -q . && %s init -q && %s metrics show --json 2>&1 && %s plots show 2>&1"):format(repo, dvc, dvc, dvc))
  assert(shown:find('"loss": 0.2', 1, true) and shown:find('"acc": 5', 1, true) and shown:find("dvc_plots/index.html", 1, true), shown)
  assert(not shown:find "failed", shown)
  local page = assert(io.open(repo .. "/dvc_plots/index.html")):read "a"
  assert(page:find("loss", 1, true) and page:find("static/.*pic.png"), "the plots are in dvc's page")
end
if ran == 0 then os.exit(77) end
