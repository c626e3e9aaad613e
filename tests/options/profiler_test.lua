-- Options of accel.profiler: each one changes what is recorded, written or shown; warns; or raises (support/option_sweep.lua).
--   accel-run tests/options/profiler_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "profiler"
local profiler, nn = accel.profiler, accel.nn

local root = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/profiler-")
local n = 0
local function path(name)
  n = n + 1
  return root .. "/" .. n .. (name or "")
end
local function read(file)
  local f = assert(io.open(file, "rb"))
  local text = f:read "a"
  f:close()
  return text
end

local layer = nn.Linear(8, 8)
local function work()
  for _ = 1, 2 do layer(accel.ones(4, 8)):sum():backward() end
end
--- What a profile has, without its times.
local function seen(prof)
  local rows, points = {}, {}
  for _, e in ipairs(prof:events()) do
    rows[#rows + 1] = { e.name, e.kind, e.shapes, e.flops, e.site and e.site:match "[^/]+:%d+" or e.site, e.memory }
  end
  local ok, devices = pcall(prof.memory_timeline, prof)
  for _, d in ipairs(ok and devices or {}) do points[#points + 1] = { d.device, d.events, d.peak.total } end
  return rows, points
end
local SETTINGS <const> = { activities = { { "cpu", "cuda" } }, record_shapes = { true }, profile_memory = { true }, with_flops = { true },
  with_modules = { true }, with_stack = { true }, schedule = { profiler.schedule { wait = 1, active = 1 } } }
local function settings(call, given)
  local ready = 0
  if given.on_trace_ready == true then given.on_trace_ready = function() ready = ready + 1 end end
  local prof = call()
  if accel.util.class.isinstance(prof, profiler.Profile) and not prof._started then prof:start() end
  if not prof._stopped then
    work()
    prof:step()
    work()
    prof:stop()
  end
  return ready, seen(prof)
end
SETTINGS.on_trace_ready = { true }
s:recipe("accel.profiler.Profile", { run = settings, values = SETTINGS })
local with_fn = { fn = { function() work() end } } -- profile(fn), without options
for key, value in pairs(SETTINGS) do with_fn[key] = value end
s:recipe("accel.profiler.profile", { run = settings, values = with_fn, passes_on = true }) -- to fn

local function recorded(more)
  local o = { record_shapes = true, profile_memory = true, with_stack = true }
  for key, value in pairs(more or {}) do o[key] = value end
  local prof = profiler.profile(o)
  work()
  layer(accel.ones(2, 8))
  prof:stop()
  return prof
end
local prof = recorded()
s:recipe("accel.profiler.Profile:key_averages", {
  run = function(call)
    local rows = {}
    for _, row in ipairs(call(prof)) do rows[#rows + 1] = { row.key, row.count, row.input_shapes } end
    return rows
  end,
  values = { group_by_input_shape = { true }, group_by_stack_n = { 5 } },
})
s:recipe("accel.profiler.Profile:export_chrome_trace", {
  base = function() return { path = path ".json" } end,
  run = function(call, given)
    assert(accel.write_file(given.path, read(root .. "/first.json")))
    assert(call(prof))
    return #accel.json.decode(read(given.path)).traceEvents, (read(given.path):match '"ph":"X".-"ts":([%d.]+)')
  end,
  values = { add = { true }, clock_offset = { 1000000000 } },
})
assert(prof:export_chrome_trace(root .. "/first.json", { add = true }))
s:recipe("accel.profiler.Profile:memory_timeline", {
  run = function(call) return #call(prof)[1].points end, values = { most = { 3 } },
})
s:recipe("accel.profiler.Profile:export_memory_timeline", {
  base = function() return { path = path ".json" } end,
  run = function(call, given)
    assert(call(prof))
    return #read(given.path)
  end,
  values = { device = { "cpu:7" } }, raises = { device = "cpu:7" },
})
s:recipe("accel.profiler.record_function", {
  base = function() return { name = "block" } end,
  run = function(call)
    local made = call()
    if type(made) == "string" then return made end
    local _ <close> = made
  end,
  values = { fn = { function() return "called" end } }, passes_on = true, -- further arguments are those of fn
})
s:recipe("accel.profiler.schedule", {
  base = function() return { active = 2, wait = 1, warmup = 1 } end,
  run = function(call)
    local plan, steps = call(), {}
    for i = 0, 12 do steps[i + 1] = plan(i) end
    return steps
  end,
  values = { active = { 3 }, wait = { 2 }, warmup = { 0 }, skip_first = { 2 }, skip_first_wait = { 1 }, ["repeat"] = { 1 } },
})
s:recipe("accel.profiler.tensorboard_trace_handler", {
  base = function() return { folder = path() } end,
  run = function(call, given)
    call()(prof)
    return (accel.listdir(given.folder)[1]:match "^[^.]+")
  end,
  values = { worker = { "me" } },
})

-- What key_averages returns is not a name of accel.profiler: its methods are swept as if it were.
s:objects("accel.profiler.Averages", prof:key_averages())
s:recipe("accel.profiler.Averages:table", {
  run = function(call) return call(prof:key_averages { group_by_input_shape = true, group_by_stack_n = 1 }) end,
  values = { sort_by = { "count" }, row_limit = { 2 }, header = { "a title" }, max_name_column_width = { 4 }, max_shapes_column_width = { 4 },
    max_src_column_width = { 4 }, width = { 60 } },
})
s:finish()
