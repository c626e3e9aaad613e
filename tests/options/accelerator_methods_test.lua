-- Options of the methods of Accelerator and PartialState, on two ranks: each one changes what a rank gets, what is sent or written, warns, or
-- raises (support/option_sweep.lua).
-- tier: slow
--   accel-run tests/options/accelerator_methods_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local ranks = dofile(here .. "/../support/ranks.lua")
if ranks.start { 2, args = arg[1] and ("'%s'"):format(arg[1]) } then return end
local groups = require "option_groups"
local sweep = require "option_sweep"
local A, nn, optim, data, dist = accel.accelerator, accel.nn, accel.optim, accel.data, accel.dist
local me = ranks.rank
local s = sweep.folder("accelerator", groups.accelerator "methods")

function accel.Accelerator:_warn(text) -- luacheck: ignore 212
  warn(text)
end

local root = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/methods-")
local shared = { root }
dist.broadcast_object_list(shared, 0) -- one folder for both ranks
root = shared[1]
local n = 0
local function folder()
  n = n + 1
  return root .. "/" .. n
end

--- Names of the files below a folder, when all ranks have written.
local function files(dir, prefix, out)
  if not out then dist.barrier() end
  out, prefix = out or {}, prefix or ""
  for _, name in ipairs(accel.listdir(dir) or {}) do
    local path = dir .. "/" .. name
    if accel.listdir(path) then files(path, prefix .. name .. "/", out) else out[#out + 1] = prefix .. name:gsub("%d%d%d%d+[%w.-]*", "N") end
  end
  table.sort(out)
  return out
end

local function fresh(opts)
  A.AcceleratorState._reset_state(true)
  return accel.Accelerator(opts)
end
local function loader_of(rows, more)
  local o = { batch_size = 2 }
  for key, value in pairs(more or {}) do o[key] = value end
  return data.DataLoader(data.TensorDataset(accel.arange(rows):to "f32":reshape(rows, 1)), o)
end
local function weights(model) return model:state_dict() end

--- An Accelerator with a prepared model, optimizer, schedule and loader.
local function prepared(opts, model, rows)
  local a = fresh(opts)
  accel.manual_seed(3)
  model = model or nn.Linear(1, 1)
  local opt = optim.SGD(model:parameters(), { lr = 0.5 })
  local m, o, schedule, loader = a:prepare(model, opt, optim.lr_scheduler.StepLR(opt, 1, { gamma = 0.5 }), loader_of(rows or 7))
  return { a = a, m = m, o = o, schedule = schedule, loader = loader }
end
local function loss_of(t, scale) return (t.m(accel.full({ 2, 1 }, me + 1.0)) * (scale or 1)):square():sum() end

local BOTH <const> = { "accel.accelerator.Accelerator:", "accel.accelerator.PartialState:" }
--- A recipe of a method that both classes have: run(call, given, self).
local function both(name, recipe)
  for _, prefix in ipairs(BOTH) do
    local own = {}
    for key, value in pairs(recipe) do own[key] = value end
    own.run = function(call, given)
      local a = fresh()
      return recipe.run(call, given, prefix:find "Partial" and accel.PartialState() or a)
    end
    s:recipe(prefix .. name, own)
  end
end
local function method(name, recipe) s:recipe("accel.accelerator.Accelerator:" .. name, recipe) end

-- ---- around a block ----

--- Whether gradients are averaged over the ranks inside a block, and what it returns.
local function averages(scope, t)
  local result = scope
  if type(scope) == "table" or type(scope) == "userdata" then
    local _ <close> = scope
    loss_of(t):backward()
    result = nil
  end
  return t.m:parameters()[1].grad, result
end
local FN <const> = { fn = { function() return "called" end } }
method("accumulate", { run = function(call)
  local t = prepared { gradient_accumulation_steps = 2 }
  return averages(call(t.a, t.m), t)
end, passes_on = true }) -- models and a function, each checked
method("no_sync", {
  base = function() return { _ = false } end,
  run = function(call, given)
    local t = prepared()
    given._, given.model = t.a, t.m
    return averages(call(), t)
  end, values = FN, passes_on = true,
})
method("trigger_sync_in_backward", {
  base = function() return { _ = false } end,
  run = function(call, given)
    local t = prepared()
    given._, given.model = t.a, t.m
    return averages(call(), t)
  end, values = FN, passes_on = true,
})
method("join_uneven_inputs", {
  run = function(call, given)
    local t = prepared(nil, nil, 5)
    given.joinables = { t.m }
    local r = call(t.a)
    if type(r) == "string" then return r end
    local seen = {}
    do
      local _ <close> = r
      for batch in t.loader() do
        seen[#seen + 1] = batch[1]
        t.a:backward(t.m(batch[1]):sum())
        t.o:step()
        t.o:zero_grad()
      end
    end
    return seen, dist.all_gather_object(#seen)
  end,
  values = { fn = FN.fn, even_batches = { false } }, passes_on = true,
})
method("maybe_context_parallel", {
  run = function(call, given)
    local a = fresh { parallelism_config = A.ParallelismConfig { cp_size = 2 } }
    local x, y = accel.arange(16):to "f32":reshape(1, 16), accel.arange(16):to "f32":reshape(1, 16)
    if given.buffers then given.buffers = { x:reshape(4, 4), given.buffers > 1 and y or nil } end
    if given.no_restore_buffers then given.no_restore_buffers = { given.buffers[1] } end
    local inside
    local r = call(a)
    if type(r) == "string" then return r end
    do
      local _ <close> = r
      inside = { x:clone(), y:clone(), given.buffers and given.buffers[1]:clone() }
    end
    return inside, given.buffers, x, y
  end,
  values = { buffers = { 2 }, buffer_seq_dims = { { 2 } }, no_restore_buffers = { true }, fn = FN.fn },
  with = { buffers = { buffers = 1, buffer_seq_dims = { 2 } }, buffer_seq_dims = { buffers = 1, buffer_seq_dims = { 1 } },
    no_restore_buffers = { buffers = 1, buffer_seq_dims = { 2 } } }, raises = { buffers = "buffer_seq_dims" }, passes_on = true,
})
method("autocast", {
  run = function(call)
    local a = fresh { mixed_precision = "bf16" }
    local r = call(a)
    if type(r) == "string" then return r end
    local _ <close> = r
    return (accel.ones(2, 2) % accel.ones(2, 2)).dtype, accel.matmul(accel.ones(2, 2), accel.ones(2, 2)).dtype
  end,
  values = { handler = { A.AutocastKwargs { enabled = false }, { enabled = false } }, fn = FN.fn }, passes_on = true,
})
method("profile", {
  run = function(call)
    local a = fresh()
    local prof, result = call(a)
    if not result then
      accel.ones(2):sum()
      prof:stop()
    end
    local names = {}
    for _, e in ipairs(prof:events()) do
      if e.thread == 0 and e.shapes then names[#names + 1] = e.name .. " " .. tostring(e.shapes) end
    end
    return names, result
  end,
  values = { handler = { A.ProfileKwargs { record_shapes = true } }, fn = { function() return "called" end } },
})
for _, name in ipairs { "main_process_first", "local_main_process_first" } do
  both(name, { run = function(call, _, self)
    local r = call(self)
    if type(r) == "string" then return r end
    r:close()
    return "block"
  end, values = FN, passes_on = true })
end

-- ---- on some ranks ----
for _, name in ipairs { "on_process", "on_local_process" } do
  both(name, {
    base = function() return { fn = function() return "here" end, index = 0 } end,
    run = function(call, _, self) return call(self)() end, values = { index = { 1 } },
  })
end
both("print", { run = function(call, _, self)
  local was, said = print, 0
  print = function() said = said + 1 end -- luacheck: ignore 121
  call(self, "text")
  print = was -- luacheck: ignore 121
  return said
end, passes_on = true })
both("split_between_processes", {
  base = function() return { inputs = { "a", "b", "c" } } end,
  run = function(call, _, self)
    local part = call(self)
    return part, dist.all_gather_object(part)
  end,
  values = { apply_padding = { true }, fn = { function(part) return #part .. " called" end } },
})
s:recipe("accel.accelerator.PartialState:destroy_process_group", {
  run = function(call, given)
    fresh()
    local destroy, ended = dist.destroy_process_group, false
    function dist.destroy_process_group(group) -- luacheck: ignore 122
      ended = group == nil -- the world, and the test with it
      if group then destroy(group) end
    end
    local ok, why = pcall(call, accel.PartialState())
    dist.destroy_process_group = destroy -- luacheck: ignore 122
    if not ok then error(why, 0) end
    return ended, given.group and (pcall(dist.barrier, given.group))
  end,
  values = { group = function() return { dist.new_group { 0, 1 } } end },
})

-- ---- values of all ranks ----
local function mine(name, recipe)
  local base = recipe.base
  recipe.base = function()
    local given = base()
    given._ = fresh()
    return given
  end
  method(name, recipe)
end
mine("broadcast", { base = function() return { tensor = accel.full({ 2 }, me) } end, values = { from_process = { 1 } } })
mine("reduce", { base = function() return { tensor = accel.full({ 2 }, me + 1.0) } end, values = { reduction = { "mean", "max", "none" },
  scale = { 0.5 } } })
mine("pad_across_processes", { base = function() return { tensor = accel.ones(me + 1, 2) } end,
  run = function(call) return dist.all_gather_object(call()) end,
  values = { dim = { 2 }, pad_index = { 7 }, pad_first = { true } } })
method("gather_for_metrics", {
  run = function(call, given)
    local t, seen, first = prepared(), {}, nil
    for batch in t.loader() do
      first = first or batch
      given.input_data = batch[1] * 1
      if given.batch then given.batch, given.input_data = first, first[1] * 1 end
      seen[#seen + 1] = call(t.a)
    end
    return seen
  end,
  values = { use_gather_object = { true }, batch = { true } },
})

-- ---- between the loss and the step ----
method("backward", {
  run = function(call, given)
    local t = prepared()
    local p = t.m:parameters()
    local loss = given.gradient and t.m(accel.full({ 2, 1 }, me + 1.0)):square() or loss_of(t)
    given.loss = loss
    if given.inputs then given.inputs = { p[1] } end
    call(t.a)
    local again = pcall(function() loss:backward(given.gradient) end)
    local twice = p[1].grad ~= nil and p[1].grad.requires_grad
    t.a:unscale_gradients()
    return p[1].grad and p[1].grad:detach(), p[2].grad and p[2].grad:detach(), again, twice
  end,
  values = { weight = { 3 }, gradient = { accel.full({ 2, 1 }, 3.0) }, retain_graph = { true }, create_graph = { true }, inputs = { {} } },
  with = { gradient = { gradient = accel.ones(2, 1) } },
})
method("clip_grad_norm_", {
  base = function() return { params = false, max_norm = 0.1 } end,
  run = function(call, given)
    local t = prepared()
    t.a:backward(loss_of(t))
    given.params = t.m:parameters()
    if given.error_if_nonfinite then given.params[1].grad:fill_(1 / 0) end
    if given.optimizer then given.optimizer = t.o.optimizer end
    return call(t.a), t.m:parameters()[1].grad
  end,
  values = { norm_type = { 1 }, error_if_nonfinite = { true }, optimizer = { true } }, raises = { error_if_nonfinite = "nothing was changed" },
})
method("unscale_gradients", {
  run = function(call, given)
    local t = prepared { mixed_precision = "fp16" }
    local other = t.a:prepare_optimizer(optim.SGD({ nn.Parameter(accel.ones(1)) }, { lr = 1 }))
    t.a:backward(loss_of(t, 1e-4))
    if given.optimizer then given.optimizer = given.optimizer == "list" and { other } or other end
    call(t.a)
    return t.m:parameters()[1].grad
  end,
  values = { optimizer = { "one", "list" } },
})

-- ---- preparing ----
method("prepare", {
  run = function(call)
    local a = fresh()
    local model, loader = call(a, nn.Linear(1, 1), loader_of(4))
    return rawget(model, "reducer") ~= nil, loader.device
  end,
  values = { device_placement = { { false, false } } }, passes_on = true, -- other objects come back as they are
})
method("prepare_data_loader", {
  base = function() return { loader = loader_of(8) } end,
  run = function(call)
    local loader = call(fresh { dataloader_config = A.DataLoaderConfiguration { dispatch_batches = true } })
    local seen = {}
    for batch in loader() do seen[#seen + 1] = batch[1] end
    return loader.device, seen
  end,
  values = { device_placement = { false },
    slice_fn_for_dispatch = { function(batch, from, to) return A.slice_tensors({ batch[1] * 2 }, from, to) end } },
})
method("prepare_optimizer", {
  base = function() return { optimizer = optim.SGD(nn.Linear(1, 1):parameters(), { lr = 0.1 }) } end,
  run = function(call) return tostring(call(fresh())) end,
  values = { device_placement = { true } },
})
method("prepare_model", {
  base = function() return { model = nn.Linear(1, 1):to "f64" } end,
  run = function(call, given)
    if given.device_placement ~= nil then -- beside a device that is not the CPU
      local a = A.patch_environment({ ACCELERATE_TORCH_DEVICE = "meta" }, fresh)
      given.model, given.evaluation_mode = nn.Linear(1, 1, { device = "cpu" }), true
      call(a)
      accel.set_default_device "cpu"
      return given.model.weight.device
    end
    local m = call(fresh())
    return rawget(m, "reducer") ~= nil, m:parameters()[1].device
  end,
  values = { device_placement = { false }, evaluation_mode = { true } }, with = { device_placement = { device_placement = true } },
})
method("skip_first_batches", {
  base = function() return { dataloader = loader_of(8) } end,
  run = function(call, given)
    given._ = fresh()
    local seen = {}
    for batch in call()() do seen[#seen + 1] = batch[1] end
    return seen
  end,
  values = { num_batches = { 2 } },
})
method("unwrap_model", {
  base = function() return { _ = fresh { mixed_precision = "bf16", dynamo_backend = "eager" }, model = nn.Linear(2, 2) } end,
  run = function(call, given)
    given._:prepare(given.model)
    local inner = call()
    return inner(accel.full({ 1, 2 }, 0.1)), A.is_compiled_module(inner)
  end,
  values = { keep_fp32_wrapper = { false }, keep_torch_compile = { false } },
})
local function with_adapter()
  accel.manual_seed(5)
  return accel.peft.get_peft_model(nn.Sequential(nn.Linear(4, 4)), accel.peft.LoraConfig { r = 2, target_modules = { "0" } })
end
method("get_state_dict", {
  run = function(call, given)
    local t = prepared(nil, with_adapter())
    given.model = t.m
    return call(t.a)
  end,
  values = { adapter_only = { true } },
})
method("free_memory", { run = function(call) return select("#", call(fresh(), 1, 2)) end, passes_on = true })
method("clear", { run = function(call) return select("#", call(fresh(), 1, 2)) end, passes_on = true })
method("register_for_checkpointing", { run = function(call)
  local kept = { state_dict = function() return { n = 1 } end, load_state_dict = function() end }
  return call(fresh(), kept)
end, passes_on = true }) -- every object is checked

-- ---- files ----
method("save", {
  base = function() return { tensors = { w = accel.ones(2) }, path = folder() .. ".weights" } end,
  run = function(call, given)
    call(fresh())
    dist.barrier()
    local file <close> = assert(io.open(given.path, "rb"))
    return accel.load(given.path), file:read(2)
  end,
  values = { safe_serialization = { false } },
})
method("save_model", {
  base = function() return { save_directory = folder() } end,
  run = function(call, given)
    local t = prepared(nil, given.adapter_only and with_adapter() or nn.Linear(64, 64))
    given.model = t.m
    call(t.a)
    return files(given.save_directory)
  end,
  values = { max_shard_size = { 2000, "2KB" }, safe_serialization = { false }, adapter_only = { true } },
  with = { adapter_only = { adapter_only = false } },
})
method("save_state", {
  base = function() return { output_dir = folder() } end,
  run = function(call, given)
    local t = prepared(nil, given.adapter_only and with_adapter() or nil)
    call(t.a)
    local pending = t.a._checkpointing.pending ~= nil
    t.a:wait_for_save()
    return pending, files(given.output_dir), files(root)
  end,
  values = { output_dir = function() return { folder() } end, asynchronous = { true }, safe_serialization = { false },
    adapter_only = { true }, format = { "accelerate" } },
  with = { adapter_only = { adapter_only = false } }, raises = { safe_serialization = "safetensors" },
})
method("load_state", {
  run = function(call, given)
    local t = prepared { project_dir = folder() }
    local one, two = folder(), folder()
    t.a:save_state(one)
    accel.no_grad(function() t.m:parameters()[1]:fill_(9) end)
    t.a:save_state(two)
    given.input_dir = given.input_dir and one or two
    call(t.a)
    return weights(t.m)
  end,
  values = { input_dir = { true }, map_location = { "cpu" } },
})

-- ---- trackers ----
--- What a tracker is told, on the main process; the other rank has that of the main process.
local seen
local Tracker = A.GeneralTracker:extend "Told"
Tracker.name, Tracker.requires_logging_directory, Tracker.main_process_only = "told", false, true
function Tracker.init(_, run, kwargs) seen[#seen + 1] = { "made", run, kwargs } end
function Tracker.tracker() return "behind" end
function Tracker.store_init_configuration(_, values) seen[#seen + 1] = values end
function Tracker.log(_, values, step, kwargs) seen[#seen + 1] = { values, step or "none", kwargs or "none" } end
A.register_tracker_class(Tracker)
local function told(f)
  seen = {}
  local result = table.pack(f(fresh { log_with = "told" }))
  local all = { { seen, result } }
  dist.broadcast_object_list(all, 0)
  return all[1]
end
method("init_trackers", {
  base = function() return { project_name = "p" } end, run = function(call) return told(function(a) call(a) end) end,
  values = { config = { { lr = 1 } }, init_kwargs = { { told = { note = "x" } } } },
})
method("log", {
  base = function() return { values = { loss = 1 } } end,
  run = function(call)
    return told(function(a)
      a:init_trackers "p"
      call(a)
    end)
  end,
  values = { step = { 4 }, log_kwargs = { { told = { x = 1 } } } },
})
method("get_tracker", {
  base = function() return { name = "told" } end,
  run = function(call)
    return told(function(a)
      a:init_trackers "p"
      local tracker = call(a)
      return type(tracker) == "string" and tracker or "a tracker"
    end)
  end,
  values = { unwrap = { true } },
})

s:finish()
