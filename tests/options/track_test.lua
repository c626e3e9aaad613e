-- Options of accel.track: each one changes what the writers, the outbox or the store are told; warns; or raises (support/option_sweep.lua).
-- Files and requests themselves: tests/stdlib/track. Messages on stderr count as warnings.
--   accel-run tests/options/track_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local core = require "accel.track.core"
local environment = require "accel.track.environment"
local s = sweep.folder "track"
local track = accel.track

local root = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/track-")
local sqlite, stored = core.sqlite(), root .. "/store"
if sqlite then -- a store to read, before writers are watched
  local run = track.Run { dir = stored, name = "a" }
  for i = 1, 10 do run:log({ loss = 1 / i }, i) end
  run:finish()
end

-- ---- what is told: every call of a writer, a sender and a store, without clocks and random names ----
local told = {}
local function put(...) told[#told + 1] = { ... } end
local function recorder(kind)
  return function(...)
    put(kind, ...)
    local methods = { fault = function() return nil, 0 end, close = function() return true end, flush = function() return true end }
    return setmetatable({}, { __index = function(_, name)
      return methods[name] or function(_, ...) put(name, ...) end
    end })
  end
end
for _, kind in ipairs { "events", "lines", "wandb", "run" } do core[kind] = recorder(kind) end
core.now = function() return 5 end
core.rest_library = function() return "1" end
local clock = 0
local own_clock = accel.clock
local clock_of = function()
  clock = clock + 0.01
  return clock
end
accel.worker = { start = function(name, setup, opts)
  put("worker", name, setup, opts)
  return { receive = function(_, seconds)
    clock = clock + (seconds or 0)
    put "receive"
    return false
  end, close = function() end }
end }
function environment.random_id() return "id" end -- luacheck: ignore 122
function environment.git() end -- luacheck: ignore 122
function environment.describe() return {} end -- luacheck: ignore 122
local time = os.time()
os.time = function() return time end -- luacheck: ignore 122
os.date = function() return "date" end -- luacheck: ignore 122
os.execute = function(...) put("execute", ...) return true end -- luacheck: ignore 122
local KEYS <const> = { COMET_API_KEY = "k", CLEARML_API_ACCESS_KEY = "k", CLEARML_API_SECRET_KEY = "k" }
os.getenv = function(name) return KEYS[name] end -- luacheck: ignore 122
local said = {}
io.stderr = { write = function(_, ...) said[#said + 1] = table.concat { ... } end } -- luacheck: ignore 122

local WRITES <const> = { "write_file", "makedirs" }
local real = {}
for _, name in ipairs(WRITES) do real[name] = accel[name] end

--- Runs f with an empty record, and returns it. What was written to stderr is a warning.
local function record(f)
  told, said, clock = {}, {}, 0
  accel.clock = clock_of
  accel.write_file = function(path, data)
    put("write", path, data)
    return real.write_file(path, data)
  end
  local ok, why = pcall(f)
  accel.clock = own_clock
  accel.write_file = real.write_file
  for _, text in ipairs(said) do warn(text) end
  if not ok then error(why, 0) end
  return told
end

local SERVERS <const> = { MLflowTracker = "tracking_uri", CometMLTracker = "url", ClearMLTracker = "api_host", TrackioTracker = "server_url" }
local FOLDERS <const> = { AimTracker = true, TensorBoardTracker = true, JsonLinesTracker = true, CsvTracker = true, StoreTracker = true }
local function name_of(entry) return entry.name:match "^accel%.track%.(%w+)" end
--- Arguments that make a tracker.
local function arguments(name)
  local base = { run_name = "run" }
  if name == "StoreTracker" then base = { project_name = "run" } end
  if FOLDERS[name] then base.logging_dir = root .. "/logs" end
  if name == "SwanLabTracker" then base.dir = root .. "/swanlab" end
  if name == "WandBTracker" or name == "DVCLiveTracker" then base.dir = root .. "/" .. name end
  if name == "DVCLiveTracker" then base.run_name, base.dvcyaml = nil, root .. "/dvc.yaml" end
  if SERVERS[name] then base[SERVERS[name]], base.outbox = "http://h:1", root .. "/outbox" end
  return base
end
local function made(name)
  local base, order = arguments(name), {}
  if name ~= "DVCLiveTracker" then order[1] = base.run_name or base.project_name end
  if FOLDERS[name] then order[2] = base.logging_dir end
  base.run_name, base.project_name, base.logging_dir = nil, nil, nil
  order[#order + 1] = next(base) ~= nil and base or nil
  return track[name](table.unpack(order))
end
local function life(tracker)
  tracker:start()
  tracker:store_init_configuration { lr = 0.5 }
  tracker:log({ loss = 1.5 }, tracker.name ~= "dvclive" and 2 or nil)
  tracker:finish()
end

-- ---- trackers ----
local TRACKERS <const> = { "AimTracker", "ClearMLTracker", "CometMLTracker", "CsvTracker", "DVCLiveTracker", "JsonLinesTracker", "MLflowTracker",
  "StoreTracker", "SwanLabTracker", "TensorBoardTracker", "TrackioTracker", "WandBTracker" }
local text = { "other" }
local values = {
  dir = { root .. "/other" }, outbox = { root .. "/other" }, outbox_bytes = { 10 }, finish_seconds = { 0 }, tags = { { a = "1" } },
  nested_run = { true }, tracking_uri = { "http://h:2" }, url = { "http://h:2" }, api_host = { "http://h:2" }, server_url = { "http://h:2" },
  config = { { a = 1 } }, mode = { "disabled", "online" }, resume = { true }, dvcyaml = { false }, save_dvc_exp = { true },
  report = { "md" }, save_code = { true }, reinit = { true }, system = { false }, alerts = { { nan = false, stall_seconds = 5 } }, max_queue = { 3 },
  flush_secs = { 3 }, system_tracking_interval = { 3 }, log_system_params = { true }, capture_terminal_logs = { true },
}
for _, name in ipairs(TRACKERS) do
  local own = setmetatable({}, { __index = function(_, key) return values[key] or text end })
  if name == "WandBTracker" then own.tags = { { "a" } }
  elseif name == "StoreTracker" then own.resume, own.tags = { "other" }, { { "a" } } end
  s:recipe("accel.track." .. name, {
    base = function() return arguments(name) end,
    run = function(call, given)
      if name == "DVCLiveTracker" then
        os.remove(root .. "/dvc.yaml")
        real.makedirs(given.dir)
        real.write_file(given.dir .. "/metrics.json", '{"step": 7}')
      end
      return record(function() life(call()) end)
    end,
    values = own,
  })
end

local image = accel.arange(27, { dtype = "f32" }):view(3, 3, 3) / 27
local artifact = root .. "/artifacts"
real.makedirs(artifact)
real.write_file(artifact .. "/a.txt", "a")
local METHODS <const> = {
  log = { values = { loss = 1.5, chart = { a = 1 } } }, log_images = { values = { picture = image } }, log_table = { table_name = "t",
    columns = { "x", "y" },
    data = { { 1, 2 } } },
  log_artifact = { local_path = artifact .. "/a.txt" }, log_artifacts = { local_dir = artifact },
}
local of_methods = { step = { 5 }, dataformats = { "HWC" }, walltime = { 7.5 }, artifact_path = { "below" }, columns = { { "x", "z" } },
  data = { { { 1, 3 } } },
  caption = { "a caption" }, commit = { false } }
for _, entry in ipairs(s.entries) do
  local name, method = name_of(entry), entry.name:match ":([%w_]+)$"
  local base = method and METHODS[method]
  if base and track[name].start and (next(entry.options) or entry.takes_table) then
    s:recipe(entry.name, {
      base = function()
        local all = {}
        for key, value in pairs(base) do all[key] = value end
        return all
      end,
      run = function(call)
        return record(function()
          local tracker = made(name)
          tracker:start()
          if name == "ClearMLTracker" or name == "CometMLTracker" then tracker:log({ first = 1 }, 1) end
          call(tracker)
          tracker:log({ loss = 2.5 })
          tracker:finish()
        end)
      end,
      values = of_methods,
    })
  end
end

-- ---- SummaryWriter ----
s:recipe("accel.track.SummaryWriter", {
  base = function() return { log_dir = root .. "/events" } end, run = function(call)
    return record(function() call():add_scalar("loss", 1, 1) end)
  end,
  values = { max_queue = { 3 }, flush_secs = { 3 } },
})
local adds = { add_scalar = { tag = "a", value = 1 }, add_scalars = { main_tag = "a", values = { x = 1 } }, add_text = { tag = "a", text = "t" },
  add_histogram = { tag = "a", values = { 1, 2, 3, 9 } }, add_image = { tag = "a", img = image }, add_images = { tag = "a", images = image },
  add_hparams = { hparams = { lr = 1 }, metrics = { loss = 2 } } }
for method, base in pairs(adds) do
  s:recipe("accel.track.SummaryWriter:" .. method, {
    base = function()
      local all = {}
      for key, value in pairs(base) do all[key] = value end
      return all
    end,
    run = function(call)
      return record(function() call(track.SummaryWriter(root .. "/events")) end)
    end,
    values = { step = { 5 }, walltime = { 7.5 }, bins = { 2 }, dataformats = { "HWC" }, metrics = { { loss = 3 } } },
    passes_on = method == "add_hparams", -- metrics are a table of any names
  })
end

-- ---- runs ----
s:recipe("accel.track.Run", {
  base = function() return { dir = root .. "/runs" } end,
  run = function(call)
    return record(function()
      local run = call()
      run:log({ loss = 0 / 0 }, 1)
      run:finish()
    end)
  end,
  values = { alerts = { true }, config = { { lr = 1 } }, dir = { root .. "/other" }, id = text, name = text, project = text, resume = text,
    group = text, tags = { { "a" } }, notes = text,
    system = { false } },
})
local both = pcall(track.Run, { dir = root, id = "a", resume = "b" })
assert(not both, "id and resume")
local runs = { alert = { title = "t", text = "x" }, finish = { status = "finished" }, log = METHODS.log,
  log_artifact = { path = artifact .. "/a.txt" },
  log_histogram = { name = "h", values = { 1, 2, 3, 9 } }, log_images = METHODS.log_images,
  log_table = { name = "t", columns = { "x" }, rows = { { 1 } } } }
for method, base in pairs(runs) do
  s:recipe("accel.track.Run:" .. method, {
    base = function()
      local all = {}
      for key, value in pairs(base) do all[key] = value end
      return all
    end,
    run = function(call)
      return record(function() call(track.Run { dir = root .. "/runs" }) end)
    end,
    values = { level = { "error" }, step = { 5 }, text = text, status = { "failed" }, message = text, kind = text, name = text, bins = { 2 },
      caption = text, dataformats = { "HWC" } },
  })
end
local function series(name, last)
  local run, out = { path = "p", id = "i", alert = function(_, ...) put("alert", ...) end }, {}
  return run, function(alerts)
    for i = 1, 25 do alerts:look(name, 1.0, i) end
    for i = 26, 40 do alerts:look(name, 4.0, i) end
    alerts:look(name, last or 0 / 0, 41)
    return out
  end
end
s:recipe("accel.track.Alerts", {
  base = function() return { run = (series "loss") } end,
  run = function(call, given)
    if given.hook == true then given.hook = function(a) put("hook", a.title) end end
    return record(function()
      local alerts = call()
      select(2, series "loss")(alerts)
      alerts:close()
    end)
  end,
  values = { divergence = { 9 }, hook = { true }, metric = { "accuracy" }, nan = { false }, stall_seconds = { 5 }, warmup = { 100 },
    webhook = { "http://h:1" } },
})

-- ---- the store ----
if sqlite then
  local store = track.Store(stored)
  local curve = store:series(store:runs()[1].id)[1].id
  store:close()
  s:recipe({ "accel.track.Store", "accel.track.Store:open" }, {
    base = function() return { where = stored } end,
    run = function(call)
      local made_one = call()
      local rows, why = made_one:rows "DELETE FROM config"
      made_one:close()
      return rows ~= nil, why
    end,
    values = { write = { true } },
  })
  s:recipe("accel.track.Store:curve", {
    base = function() return { id = curve } end,
    run = function(call) return call(track.Store(stored)) end,
    values = { axis = { "wall" }, from = { 5 }, to = { 5 }, points = { 3 } },
  })
  s:recipe("accel.track.Store:near", {
    base = function() return { id = curve, x = 7 } end,
    run = function(call) return call(track.Store(stored)) end,
    values = { axis = { "wall" } },
  })
  s:leave("accel.track.Store:rows", "what is behind the statement fills its question marks")
else
  s:leave({ "accel.track.Store", "accel.track.Store:open", "accel.track.Store:curve", "accel.track.Store:near",
    "accel.track.Store:rows" }, "no SQLite here")
end
s:finish()
