-- Trackers into files of other programs: dvclive's files by their form, event files of aim and
-- swanlab with the command that imports them, images and tables; several ranks.  tier: every change
--   accel-run tests/stdlib/track/files_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local says = ranks.fails
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/files-"))
local stderr, said = io.stderr, {}
io.stderr = { write = function(_, ...) said[#said + 1] = table.concat { ... } end } -- luacheck: ignore
warn = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

-- ---- dvclive ----
local dir = root .. "/repo/dvclive"
assert(accel.makedirs(root .. "/repo"))
local function run(kwargs, first, last)
  local a = accel.Accelerator { log_with = "dvclive" }
  kwargs.dir, kwargs.dvcyaml = dir, root .. "/repo/dvc.yaml"
  a:init_trackers("p", { lr = 0.5, opt = { name = "adam" } }, { dvclive = kwargs })
  for i = first, last do a:log({ loss = 1 / i, ["val/acc"] = i, word = "w" .. i, bad = { 1 } }, i) end
  a:get_tracker("dvclive"):log_images({ pic = accel.rand(3, 4, 5) }, last)
  assert(a:get_tracker("dvclive", true).step == last + 1)
  a:end_training()
end
run({}, 1, 20)
run({}, 1, 3) -- a second run takes its place
local text = read(dir .. "/plots/metrics/loss.tsv")
assert(text == "step\tloss\n1\t1\n2\t0.5\n3\t0.33333333333333331\n", text)
assert(read(dir .. "/plots/metrics/val/acc.tsv"):find "^step\tacc\n1\t1")
local summary = accel.json.decode(read(dir .. "/metrics.json"))
assert(summary.loss == 1 / 3 and summary.val.acc == 3 and summary.word == "w3" and summary.step == 3)
assert(read(dir .. "/params.yaml"):find "lr: 0.5\n" and read(dir .. "/params.yaml"):find "opt:\n  name: adam")
assert(read(dir .. "/plots/images/pic/3.png"):sub(2, 4) == "PNG" and #accel.listdir(dir .. "/plots/images/pic") == 1)
run({ resume = true }, 4, 5)
assert(select(2, read(dir .. "/plots/metrics/loss.tsv"):gsub("\n", "")) == 6, "a run that goes on")
assert(read(root .. "/repo/dvc.yaml"):find("metrics:\n- dvclive/metrics.json\nplots:\n- dvclive/plots/metrics:\n    x: step\n", 1, true))
local all = table.concat(said)
assert(select(2, all:gsub("'bad' is left out", "")) == 3, all)

-- ---- aim, swanlab ----
said = {}
for _, name in ipairs { "aim", "swanlab" } do
  local a = accel.Accelerator { log_with = name, project_dir = root .. "/by" }
  local kwargs = { name = "try", dir = root .. "/" .. name }
  if name == "swanlab" then kwargs.workspace = "team" end
  a:init_trackers("proj", { lr = 0.5 }, { [name] = kwargs })
  for i = 1, 10 do a:log({ loss = i, note = "n" }, i) end
  local tracker = a:get_tracker(name)
  tracker:log_images({ pic = accel.rand(2, 3, 4, 4) }, 3)
  tracker:log_table("t", { columns = { "x", "y" }, data = { { 1, "a|b" } } })
  a:end_training()
  local found
  for _, file in ipairs(assert(accel.listdir(root .. "/" .. name .. "/proj-try"))) do found = found or file:find "tfevents" end
  assert(found, name)
end
all = table.concat(said)
assert(all:find("aim convert tensorboard --logdir", 1, true) and all:find("swanlab convert -t tensorboard", 1, true))
assert(all:find("accel.track.SwanLabTracker: workspace has no effect: ", 1, true), all)
says("unknown option 'workspacee'; did you mean 'workspace'?", function()
  local a = accel.Accelerator { log_with = "swanlab" }
  a:init_trackers("p", nil, { swanlab = { workspacee = 1 } })
end)

-- ---- what TensorBoard reads of them ----
if os.execute "python3 -c 'import tensorboard' >/dev/null 2>&1" then
  local script = root .. "/read.py"
  local file = assert(io.open(script, "w"))
  file:write [==[
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
a = EventAccumulator(sys.argv[1]); a.Reload()
print([(e.step, e.value) for e in a.Scalars("loss")] == [(i, float(i)) for i in range(1, 11)])
print([(t, a.Images(t)[0].width, a.Images(t)[0].height, a.Images(t)[0].step) for t in a.Tags()["images"]])
print(a.Tensors("t/text_summary")[0].tensor_proto.string_val[0].decode())
of = a.PluginTagToContent("hparams")
start = plugin_data_pb2.HParamsPluginData.FromString(of["_hparams_/session_start_info"]).session_start_info
made = plugin_data_pb2.HParamsPluginData.FromString(of["_hparams_/experiment"]).experiment
print(dict((k, v.number_value) for k, v in start.hparams.items()), [(h.name, h.type) for h in made.hparam_infos])
]==]
  file:close()
  local pipe = assert(io.popen(("python3 '%s' '%s/aim/proj-try' 2>/dev/null"):format(script, root)))
  local got = pipe:read "a"
  pipe:close()
  assert(got == "True\n[('pic/0', 4, 4, 3), ('pic/1', 4, 4, 3)]\n| x | y |\n| --- | --- |\n| 1 | a\\|b |\n{'lr': 0.5} [('lr', 3)]\n", got)
end
io.stderr = stderr -- luacheck: ignore
os.execute(("rm -rf '%s'"):format(root))
