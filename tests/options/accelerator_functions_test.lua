-- Options of the functions of accel.accelerator, on two ranks: each one changes what a rank gets or what is written, warns, or raises
-- (support/option_sweep.lua). Classes and launchers: accelerator_classes_test.lua.
-- tier: slow
--   accel-run tests/options/accelerator_functions_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local ranks = dofile(here .. "/../support/ranks.lua")
if ranks.start { 2, args = arg[1] and ("'%s'"):format(arg[1]) } then return end
local groups = require "option_groups"
local sweep = require "option_sweep"
local fuse = require "accel.fuse.core"
local A, nn, data, dist = accel.accelerator, accel.nn, accel.data, accel.dist
local me = ranks.rank
local s = sweep.folder("accelerator", groups.accelerator "functions")
local function recipe(name, r) s:recipe("accel.accelerator." .. name, r) end

local shared = { accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/functions-") }
dist.broadcast_object_list(shared, 0) -- one folder for both ranks
local root, n = shared[1], 0
local function folder()
  n = n + 1
  return root .. "/" .. n
end
local function loader_of(rows, more)
  local o = { batch_size = 2 }
  for key, value in pairs(more or {}) do o[key] = value end
  return data.DataLoader(data.TensorDataset(accel.arange(rows):to "f32":reshape(rows, 1)), o)
end
local function batches(loader)
  local seen = {}
  for batch in loader() do seen[#seen + 1] = batch[1] * 1 end
  return seen
end
local FN <const> = { fn = { function() return "called" end } }
--- What a scope is: what its function returned, or "block".
local function scope(call)
  local r = call()
  if type(r) == "string" then return r end
  r:close()
  return "block"
end

-- ---- values of all ranks ----
recipe("broadcast", { base = function() return { tensor = accel.full({ 2 }, me) } end, values = { from_process = { 1 } } })
recipe("broadcast_object_list", { base = function() return { object_list = { me } } end, values = { from_process = { 1 } } })
recipe("reduce", { base = function() return { tensor = accel.full({ 2 }, me + 1.0) } end, values = { reduction = { "sum", "max", "none" },
  scale = { 0.5 } } })
recipe("pad_across_processes", { base = function() return { tensor = accel.ones(me + 1, 2) } end,
  run = function(call) return dist.all_gather_object(call()) end, values = { dim = { 2 }, pad_index = { 7 }, pad_first = { true } } })
recipe("copy_tensor_to_devices", { base = function() return { tensor = accel.ones(1) } end, values = { tensor = { accel.zeros(2) } } })
recipe("concatenate", { base = function() return { data = { accel.ones(1, 1), accel.ones(1, 1) } } end, values = { dim = { 2 } } })
recipe("pad_input_tensors", { base = function() return { data = accel.ones(1, 1), batch_size = 1, num_processes = 2 } end, values = { dim = { 2 } } })
recipe("recursively_apply", {
  base = function() return { func = function(x) return x * 2 end, data = { accel.ones(1), 3 } } end,
  values = { test_type = { function(x) return type(x) == "number" end }, error_on_other_type = { true } },
  raises = { error_on_other_type = "not a leaf" },
})
recipe("synchronize_rng_state", {
  base = function() return { rng_type = "generator", generator = accel.Generator(5) } end,
  run = function(call, given)
    if me == 1 then given.generator = accel.Generator(6) end
    call()
    return accel.rand(2, { generator = given.generator })
  end,
  values = { generator = { accel.Generator(7) } },
})
recipe("synchronize_rng_states", {
  base = function() return { rng_types = { "generator" }, generator = accel.Generator(5) } end,
  run = function(call, given)
    if me == 1 then given.generator = accel.Generator(6) end
    call()
    return accel.rand(2, { generator = given.generator })
  end,
  values = { generator = { accel.Generator(7) } },
})
recipe("set_seed", {
  base = function() return { seed = 3 } end,
  run = function(call)
    call()
    return dist.all_gather_object(accel.rand(1))
  end,
  values = { device_specific = { true }, deterministic = { true } },
})

-- ---- loaders ----
recipe("prepare_data_loader", {
  base = function() return { dataloader = loader_of(5, { shuffle = true }) } end,
  run = function(call)
    local loader = call()
    local from = #dist.records()
    return batches(loader), batches(loader), loader.device, #dist.records() - from
  end,
  values = { device = { "meta" }, num_processes = { 1, 4 }, process_index = { 1 }, split_batches = { true }, put_on_device = { true },
    rng_types = { { "nonsense" } }, dispatch_batches = { true }, data_seed = { 9 }, non_blocking = { true }, even_batches = { false },
    slice_fn_for_dispatch = { function(batch, from, to) return A.slice_tensors({ batch[1] * 2 }, from, to) end } },
  with = { device = { put_on_device = true }, num_processes = { process_index = 0 }, process_index = { num_processes = 4, process_index = 0 },
    slice_fn_for_dispatch = { dispatch_batches = true } },
  raises = { rng_types = "nonsense" }, elsewhere = { non_blocking = "tests/cuda/prefetch_suite.lua" },
})
recipe("skip_first_batches", { base = function() return { dataloader = loader_of(8) } end, run = function(call) return batches(call()) end,
  values = { num_batches = { 2 } } })

-- ---- models ----
recipe("extract_model_from_parallel", {
  base = function() return { model = nn.Sequential(nn.parallel.DistributedDataParallel(nn.Linear(2, 2))) } end,
  run = function(call, given)
    A.AcceleratorState._reset_state(true)
    local a = accel.Accelerator { mixed_precision = "bf16", dynamo_backend = "eager" }
    if given.recursive == nil then given.model = nn.Sequential(nn.Linear(2, 2)) a:prepare(given.model) end
    local inner = call()
    return inner(accel.full({ 1, 2 }, 0.1)), A.is_compiled_module(inner), rawget(inner[1], "reducer") ~= nil
  end,
  values = { keep_fp32_wrapper = { false }, keep_torch_compile = { false }, recursive = { true } },
  with = { recursive = { recursive = false } },
})
recipe("compile_regions", {
  base = function()
    local function block() return nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Tanh()) end
    return { module = nn.ModuleList { block(), block() } }
  end,
  run = function(call, given)
    call()
    local _, passes = fuse.counts()
    given.module[1](accel.ones(600, 256))
    return A.is_compiled_module(given.module[1]), A.has_compiled_regions(given.module), select(2, fuse.counts()) - passes
  end,
  values = { disable = { true }, backend = { "nonsense", "eager" }, mode = { "reduce-overhead", "nonsense" }, dynamic = { false },
    fullgraph = { true }, options = { { max_autotune = true } } },
  raises = { backend = "backend", mode = "mode" },
})
recipe("prepare_pippy", {
  base = function()
    local config = { n_layer = 4 }
    for key, value in pairs(accel.models.tiny.gpt2) do config[key] = config[key] or value end
    return { model = accel.models.GPT2(config) }
  end,
  run = function(call)
    local pipeline = call()
    local from = dist.records()
    local y = pipeline(accel.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } })
    local sent = {}
    for i = #from + 1, #dist.records() do sent[#sent + 1] = dist.records()[i].count end
    local names = {}
    for name in pairs(pipeline:state_dict()) do names[#names + 1] = name end
    return dist.all_gather_object { y and #y.shape or "none", names }, sent
  end,
  values = { example_args = { { 1 } }, example_kwargs = { { x = 1 } },
    num_chunks = { 4 }, gather_output = { true } },
  elsewhere = { no_split_module_classes = "tests/stdlib/parallel/inference_test.lua", split_points = "tests/stdlib/parallel/inference_test.lua" },
})
recipe("GatheredParameters", {
  base = function() return { params = false } end,
  run = function(call, given)
    local net
    accel.deepspeed.zero.Init(function() net = nn.Linear(64, 64) end)
    given.params = net:parameters()
    local inside = #dist.records()
    local r = call()
    if type(r) == "string" then return r end
    do
      local _ <close> = r
      inside = #dist.records() - inside
      if given.modifier_rank ~= nil and me == 1 then accel.no_grad(function() net.weight:fill_(7) net.bias:fill_(7) end) end
    end
    local all = {}
    do
      local _ <close> = accel.deepspeed.GatheredParameters(net:parameters())
      all[1] = net.weight:clone()
    end
    local biases = dist.all_gather_object(net.bias:sum():item()) -- too small to lie in parts
    assert(biases[1] == biases[2], "a bias differs on the ranks")
    return inside, all
  end,
  values = { modifier_rank = { 1 }, enabled = { false }, fwd_module = { nn.Linear(1, 1) }, fn = FN.fn }, passes_on = true,
})
recipe("LocalSGD", {
  run = function(call, given)
    A.AcceleratorState._reset_state(true)
    local a = accel.Accelerator()
    accel.manual_seed(3)
    local model = a:prepare(nn.Linear(1, 1))
    if given.accelerator == nil then given.accelerator = a end
    if given.model == nil then given.model = model end
    accel.no_grad(function() model:parameters()[1]:fill_(me) end)
    local seen, sgd = {}, call()
    for i = 1, 3 do
      sgd:step()
      seen[i] = model:parameters()[1]:clone()
    end
    sgd:close()
    return seen
  end,
  base = function() return { local_sgd_steps = 2 } end,
  values = { accelerator = { 3 }, model = function() return { nn.Linear(1, 1) } end, local_sgd_steps = { 3 }, enabled = { false } },
  raises = { accelerator = "must be an Accelerator", model = "model" }, passes_on = true,
})

-- ---- files, environment, words ----
recipe("save", {
  base = function() return { tensors = { w = accel.ones(2) }, path = folder() .. ".weights" } end,
  run = function(call, given)
    call()
    dist.barrier()
    local file <close> = assert(io.open(given.path, "rb"))
    return accel.load(given.path), file:read(2)
  end,
  values = { safe_serialization = { false } },
  elsewhere = { save_on_each_node = "tests/stdlib/accelerator/checkpoint_nodes_test.lua" },
})
recipe("clear_environment", { run = scope, values = FN, passes_on = true })
recipe("patch_environment", { base = function() return { variables = { x = 1 } } end, run = scope, values = FN, passes_on = true })
recipe("parse_flag_from_env", { base = function() return { name = "ACCEL_NO_SUCH" } end, values = { default = { true } } })
recipe("parse_choice_from_env", { base = function() return { name = "ACCEL_NO_SUCH" } end, values = { default = { "yes" } } })
recipe("is_bf16_available", { values = { ignore_tpu = { true } } })
recipe("FP8RecipeKwargs", {
  base = function() return { backend = "TE" } end,
  run = function(call)
    local made = call()
    return tostring(made), made:to_kwargs()
  end,
  values = { backend = { "AO" }, amax_compute_algo = { "max" }, amax_history_len = { 3 }, fp8_format = { "E4M3" }, interval = { 2 }, margin = { 3 },
    override_linear_precision = { { true, false, false } }, use_autocast_during_eval = { true }, use_mxfp8_block_scaling = { true } },
})
recipe("release_memory", { run = function(call) return select("#", call(1, 2)) end, passes_on = true })
recipe("find_executable_batch_size", {
  base = function() return { fn = function(size)
    if size > 10 then error "out of memory." end
    return size
  end } end,
  run = function(call)
    local f = call()
    return f(), f.batch_size
  end,
  values = { starting_batch_size = { 8 }, reduce_batch_size_fn = { function(size) return size // 2 end } },
})
recipe("get_logger", {
  base = function() return { name = "sweep" } end, run = function(call) return call():is_enabled_for "DEBUG" end,
  values = { log_level = { "DEBUG" } },
})
recipe("tqdm", {
  base = function() return { x = { 1, 2 } } end,
  run = function(call, given)
    local written = {}
    local function out_of(tag)
      return { write = function(_, ...) for _, text in ipairs { ... } do written[#written + 1] = tag .. text end end, flush = function() end }
    end
    given.out = out_of(given.out and "other: " or "")
    if given.interactive == nil then given.interactive = false end
    for _ in call() do end -- luacheck: ignore 542
    local all = { (table.concat(written):gsub("%d+%.?%d*[kMG]? *([%a]*)/s", "%1/s"):gsub("ETA.*$", "")) }
    return dist.all_gather_object(all)
  end,
  values = { desc = { "train" }, disable = { true }, every = { 0 }, interactive = { true }, main_process_only = { false }, out = { true },
    total = { 5 }, unit = { "tok" }, utf8 = { true, false, any = true }, width = { 20 } },
  with = { utf8 = { interactive = true, total = 5 }, width = { interactive = true }, every = { every = 5 } },
})

s:finish()
