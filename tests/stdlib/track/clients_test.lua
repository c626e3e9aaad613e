-- Trackers against the real programs, where python3 has them: an `mlflow server` with SQLite that is killed and started again during the
-- run, a Trackio server, dvc, `wandb sync` to a stand-in for its server, the importer of aim, the reader of swanlab's.  tier: slow
--   accel-run tests/stdlib/track/clients_test.lua [mlflow|trackio|dvc|wandb|aim|swanlab]
local accel = require "accel"
local core = require "accel.track.core"
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or core.current_folder()) .. "/clients-"))
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
print(len(runs), r.info.status, r.info.run_name, dict(sorted(r.data.params.items())), r.data.tags["team"])
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
if has "wandb" then
  local here = arg[0]:match "^(.*)/[^/]*$"
  local stop = start(("python3 '%s/../../support/wandb_server.py' wport wgot.json"):format(here:sub(1, 1) == "/" and here
    or core.current_folder() .. "/" .. here), root .. "/wandb_server.log")
  local fine, err = pcall(function()
    local port
    for _ = 1, 120 do
      local file = io.open(root .. "/wport")
      port = file and file:read "n"
      if file then file:close() end
      if port then break end
      core.pause(0.5)
    end
    assert(port, "the stand-in does not start")
    local a = accel.Accelerator { log_with = "wandb" }
    a:init_trackers("proj", { lr = 0.5, opt = { name = "adam" } }, { wandb = { dir = root .. "/w", name = "r", entity = "team", tags = { "x" } } })
    for i = 0, 1499 do a:log({ loss = 1 / (i + 1), ["val/acc"] = i, bad = i % 2 == 0 and 0 / 0 or 1 / 0, word = "w" .. i }, i) end
    local tracker = a:get_tracker "wandb"
    tracker:log_images({ pic = accel.rand(2, 3, 4, 5) }, 1500)
    tracker:log_table("tab", { columns = { "x", "y" }, data = { { 1, "a|b" } }, step = 1501 })
    tracker:log({ long = ("z"):rep(70000) }, 1502)
    a:end_training()
    local said = output(("cd '%s/w' && env HOME='%s' WANDB_BASE_URL=http://127.0.0.1:%d WANDB_API_KEY=%s timeout 200 python3 -m wandb sync '%s' 2>&1")
      :format(root, root, port, ("0123456789"):rep(4), tracker.folder))
    assert(said:find "Finished syncing" or said:find "done", said)
    local got = python("readw.py", ([==[
import json, math
g = json.load(open("wgot.json"))
run, rows, files = g["runs"][0], g["rows"], g["files"]
print(run["name"] == "%s", run["project"], run["entity"], run["displayName"], run["tags"])
config = json.loads(g["runs"][-1]["config"])
print(config["lr"]["value"], config["opt"]["value"])
print(len(rows), [r["_step"] for r in rows] == list(range(1503)), all(r["loss"] == 1 / (r["_step"] + 1) and r["val/acc"] == r["_step"]
  and r["word"] == "w%%d" %% r["_step"] and (math.isnan(r["bad"]) if r["_step"] %% 2 == 0 else r["bad"] == math.inf) for r in rows[:1500]))
pic, tab = rows[1500]["pic"], rows[1501]["tab"]
print(pic["count"], all(bytes.fromhex(files[n])[:4] == b"\x89PNG" for n in pic["filenames"]), json.loads(bytes.fromhex(files[tab["path"]])))
print(len(rows[1502]["long"]), json.loads(bytes.fromhex(files["wandb-summary.json"]))["loss"] == 1 / 1500, g["exit"])
]==]):format(tracker.id))
    assert(got == "True proj team r ['x']\n0.5 {'name': 'adam'}\n1503 True True\n2 True {'columns': ['x', 'y'], 'data': [[1, 'a|b']]}\n"
      .. "70000 True 0\n", got .. said)
  end)
  stop()
  assert(fine, err)
end

--- A run of a tracker that writes event files, for its importer; the folder of the event files.
local function events_of(name)
  local a = accel.Accelerator { log_with = name, project_dir = root }
  a:init_trackers("proj", { lr = 0.5 }, { [name] = { dir = root .. "/" .. name .. "-events", name = "r" } })
  for i = 1, 60 do a:log({ loss = 1 / i, ["val/acc"] = i }, i) end
  if name ~= "swanlab" then a:get_tracker(name):log_images({ pic = accel.rand(3, 4, 5) }, 7) end -- its importer stops at them
  a:end_training()
  return root .. "/" .. name .. "-events"
end

if has "aim" and has "tensorflow" then -- which its importer reads with
  local folder = events_of "aim"
  local said = output(("cd '%s' && (yes | aim init; timeout 200 aim convert tensorboard --logdir '%s') 2>&1"):format(root, folder))
  local got = python("reada.py", [==[
import aim
run = list(aim.Repo(".").iter_runs())[0]
for metric in sorted(run.metrics(), key=lambda m: m.name):
    steps, values = metric.values.sparse_numpy()
    want = [1 / i if metric.name == "loss" else i for i in range(1, 61)]
    print(metric.name, sorted(steps) == list(range(1, 61)), all(abs(a - b) < 1e-6 for a, b in zip([v for _, v in sorted(zip(steps, values))], want)))
]==])
  assert(got:find "loss True True" and got:find "acc True True", got .. said)
end

if has "swanlab" then
  local folder = events_of "swanlab"
  local got = python("reads.py", [==[
import glob, sys
from swanlab.converter.tfb.utils import get_tf_events_tags_data, get_tf_events_tags_type
for path in glob.glob(sys.argv[1] + "/proj-r/*tfevents*"):
    types = get_tf_events_tags_type(path)
    data = get_tf_events_tags_data(path, types)
    print(sorted(types.items()), [(s, v) for s, v, _ in data["val/acc"]] == [(i, float(i)) for i in range(1, 61)],
      all(abs(v - 1 / s) < 1e-6 for s, v, _ in data["loss"]), data["config/text_summary"][0][1])
]==], folder)
  assert(got == "[('config/text_summary', 'text'), ('loss', 'scalar'), ('val/acc', 'scalar')] True True lr: 0.5\n", got)
end
if ran == 0 then os.exit(77) end
