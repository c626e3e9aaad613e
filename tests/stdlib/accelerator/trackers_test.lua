-- Trackers that scripts write: what they have to define, where their methods run, what other ranks get; on 1 and 2
-- ranks.
--   accel-run tests/stdlib/accelerator/trackers_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, dist = accel.accelerator, accel.dist

if ranks.start { 1, 2 } then return end
local R, P, says = ranks.rank, ranks.size, ranks.fails

local Mine = A.GeneralTracker:extend("Mine")
Mine.name, Mine.requires_logging_directory = "mine", false
function Mine:init() self.calls = {} end
function Mine:tracker() return self.calls end
function Mine:note(...) self.calls[#self.calls + 1] = accel.json.encode { ... } end
function Mine:start() self:note "start" end
function Mine:store_init_configuration(values) self:note("config", values) end
function Mine:log(values, step, opts) self:note("log", values, step or "none", opts) end
function Mine:log_images(n) self:note("images", n) end
function Mine:finish() self:note "finish" end

local Everywhere = Mine:extend("Everywhere")
Everywhere.name, Everywhere.main_process_only = "everywhere", false

local function make(log_with, more)
  local o = { log_with = log_with }
  for key, value in next, more or {} do o[key] = value end
  return accel.Accelerator(o)
end
local function same(list, ...) ranks.same(list, { ... }, "calls") end

do -- a whole run
  local mine, everywhere = Mine(), Everywhere()
  local accelerator = make { mine, everywhere }
  says("init_trackers(project_name) first", accelerator.log, accelerator, { loss = 1 })
  says("is not running", accelerator.get_tracker, accelerator, "mine")
  says("init_kwargs has the entry 'mime', which is not one of the trackers; did you mean 'mine'?",
    accelerator.init_trackers, accelerator, "project", nil, { mime = {} })
  accelerator:init_trackers("project", { lr = 0.5 })
  says("the trackers are already running", accelerator.init_trackers, accelerator, "project")
  accelerator:log({ loss = 1.5 }, 3)
  accelerator:log({ loss = 2 }, { step = 4, log_kwargs = { mine = { tag = "x" } } })
  accelerator:log({ done = true })
  local tracker = accelerator:get_tracker "mine"
  assert(tracker.name == "mine")
  tracker:log_images(2)
  local behind = accelerator:get_tracker("mine", { unwrap = true })
  if R == 0 then
    assert(tracker == mine and behind == mine.calls)
  else
    assert(behind.any:thing(1).at.all ~= nil, "stands in for anything")
  end
  says("did you mean 'mine'?", accelerator.get_tracker, accelerator, "mime")
  says("log_kwargs has the entry 'x'", accelerator.log, accelerator, {}, 1, { x = {} })
  says("step must be an integer", accelerator.log, accelerator, {}, 1.5)
  says("values must be a table", accelerator.log, accelerator, 1)
  accelerator:end_training()
  accelerator:end_training()
  local config, first, last = '["config",{"lr":0.5}]', '["log",{"loss":1.5},3]', '["log",{"done":true},"none"]'
  if R == 0 then
    same(mine.calls, '["start"]', config, first, '["log",{"loss":2},4,{"tag":"x"}]', last, '["images",2]', '["finish"]')
  else
    same(mine.calls)
  end
  same(everywhere.calls, '["start"]', config, first, '["log",{"loss":2},4]', last, '["finish"]')
  accelerator:init_trackers "again"
  accelerator:end_training()
  accel.AcceleratorState._reset_state(true)
end

do -- none at all: nothing happens
  local accelerator = make(nil)
  accelerator:init_trackers "project"
  accelerator:log { loss = 1 }
  accelerator:end_training()
  says("log_with has none", accelerator.get_tracker, accelerator, "mine")
end

do -- a collective in a tracker of the main process
  local Bad = Mine:extend("Bad")
  function Bad:log() dist.barrier() end -- luacheck: ignore
  local accelerator = make(Bad())
  accelerator:init_trackers "project"
  if R == 0 and P > 1 then
    says("inside log of tracker 'mine'", accelerator.log, accelerator, {})
  elseif P == 1 then
    accelerator:log {}
  end
end

do -- what a tracker lacks
  local Lacks = A.GeneralTracker:extend("Lacks")
  says("does not define name, requires_logging_directory, tracker; set them in its class", make, Lacks())
  Lacks.name, Lacks.requires_logging_directory = "lacks", true
  says("does not define tracker; set it", make, Lacks())
  Lacks.tracker = true
  says("tracker 'lacks' needs a directory", make, Lacks())
  assert(#make(Lacks(), { project_dir = "runs" }).log_with == 1)
  says("must be a tracker or the name of one", make, { 3 })
  says("two trackers named 'mine'", make, { Mine(), Mine() })
  local one = Mine()
  assert(#make({ one, one }).log_with == 1)
end

do -- "all" without a registered tracker and without a directory: none, and the main process says so
  local text, write = {}, io.stderr
  io.stderr = { write = function(_, ...) text[#text + 1] = table.concat { ... } end } -- luacheck: ignore
  local accelerator = make "all"
  io.stderr = write -- luacheck: ignore
  assert(#accelerator.log_with == 0 and #text == (R == 0 and 1 or 0))
  assert(R ~= 0 or text[1]:find("no tracker is registered", 1, true), text[1])
  accelerator:init_trackers "project"
  accelerator:log { loss = 1 }
  accelerator:end_training()
end

do -- names
  for _, name in ipairs { "wandb", "trackio", "comet_ml", "aim", "mlflow", "clearml", "dvclive", "swanlab" } do
    local class = make({ name }, { project_dir = "runs" }).log_with[1]
    assert(class.name == name and class.requires_logging_directory == (name == "aim"), name)
    assert(class.main_process_only == (name ~= "wandb" and name ~= "trackio" and name ~= "swanlab"), name)
  end
  says("tracker 'aim' needs a directory", make, "aim")
  says("unknown tracker 'wandbb'; did you mean 'wandb'?", make, "wandbb")
  local general = require "accel.track.general_tracker"
  local Named = A.GeneralTracker:extend("Named")
  says("does not define name", general.register_tracker_class, Named)
  says("expected class below GeneralTracker", general.register_tracker_class, {})
  local made = {}
  Named.name, Named.requires_logging_directory = "named", true
  function Named:init(...) made[#made + 1] = accel.json.encode { ... } end -- luacheck: ignore
  function Named:tracker() return made end -- luacheck: ignore
  function Named:log(values) made[#made + 1] = accel.json.encode(values) end -- luacheck: ignore
  general.register_tracker_class(Named)
  local accelerator = make("named", { project_dir = "runs" })
  assert(#made == 0, "made by init_trackers")
  accelerator:init_trackers("project", nil, { named = { entity = "me" } })
  accelerator:log { loss = 1 }
  accelerator:get_tracker("named"):log { loss = 2 }
  accelerator:end_training()
  if R == 0 then same(made, '["project","runs",{"entity":"me"}]', '{"loss":1}', '{"loss":2}') else same(made) end

  -- "all": every registered one, in the order of their names, beside those that are given
  local Another = Mine:extend("Another")
  Another.name = "another"
  A.register_tracker_class(Another)
  local mine, store = Mine(), require "accel.track.core".sqlite() and "store " or ""
  for _, log_with in ipairs { "all", A.LoggerType.ALL, { "all" }, { "all", "csv" } } do
    local list = make(log_with, { project_dir = "runs" }).log_with
    local names = {}
    for i, tracker in ipairs(list) do names[i] = tracker.name end
    assert(table.concat(names, " ") == "another csv jsonl named " .. store .. "tensorboard", table.concat(names, " "))
    assert(list[1] == Another and list[4] == Named)
  end
  local list = make({ mine, "all" }, { project_dir = "runs" }).log_with
  assert(#list == (store == "" and 6 or 7) and list[1] == mine and list[2] == Another and list[5] == Named)
  says("tracker 'named' needs a directory", make, "all")
  for _, name in ipairs { "WandBTracker", "AimTracker", "SwanLabTracker", "MLflowTracker" } do
    assert(accel.util.class.isclass(A[name]), name)
  end
end
