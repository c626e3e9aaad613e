--- fp8 of an Accelerator: which recipe holds, from handlers, the environment, flags of accel-run and configuration files; what is refused.
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, nn = accel.accelerator, accel.nn
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

if arg[1] == "show" then -- started below with flags or a file
  local a = accel.Accelerator()
  local r = a.te_recipe_handler or a.ao_recipe_handler or a.msamp_recipe_handler
  local o = r.override_linear_precision or {}
  print(a.mixed_precision, a.fp8_backend, r.fp8_format, r.margin, r.interval, r.amax_history_len, r.amax_compute_algo,
    ("%s,%s,%s"):format(o[1], o[2], o[3]), r.use_autocast_during_eval, r.opt_level, r.pad_inner_dim)
  return
end

local function make(opts)
  accel.AcceleratorState._reset_state(true)
  return accel.Accelerator(opts)
end
local function refused(text, opts)
  local ok, err = pcall(make, opts)
  assert(not ok and tostring(err):find(text, 1, true), ("expected '%s', got %s"):format(text, tostring(err)))
end

-- ---- handlers ----
local a = make { mixed_precision = "FP8" }
assert(a.mixed_precision == "fp8" and a.fp8_backend == "AO" and a.ao_recipe_handler.pad_inner_dim == true)
assert(a.config:origin "fp8_backend" == "default")
for backend, recipe in accel.pairs { TE = A.TERecipeKwargs {}, AO = A.AORecipeKwargs {}, MSAMP = A.MSAMPRecipeKwargs {} } do
  local b = make { mixed_precision = "fp8", kwargs_handlers = { recipe } }
  assert(b.fp8_backend == backend and b[backend:lower() .. "_recipe_handler"] == recipe)
  assert(make { mixed_precision = "fp8", kwargs_handlers = { A.FP8RecipeKwargs { backend = backend } } }.fp8_backend == backend)
end
assert(make({ mixed_precision = "bf16" }).fp8_backend == nil)
local variables = { ACCELERATE_MIXED_PRECISION = "fp8", ACCELERATE_FP8_BACKEND = "TE", ACCELERATE_FP8_MARGIN = "2",
  ACCELERATE_FP8_OVERRIDE_WGRAD = "1" }
A.patch_environment(variables, function()
  local b = make()
  assert(b.fp8_backend == "TE" and b.te_recipe_handler.margin == 2 and b.te_recipe_handler.override_linear_precision[3] == true)
  assert(b.config:origin "fp8_backend" == "ACCELERATE_FP8_BACKEND")
end)
A.patch_environment({ ACCELERATE_FP8_BACKEND = "TX" }, function()
  refused("ACCELERATE_FP8_BACKEND must be AO, TE, MSAMP or NO, got 'TX'", { mixed_precision = "fp8" })
end)

refused("an fp8 recipe in kwargs_handlers needs mixed_precision = \"fp8\"", { kwargs_handlers = { A.TERecipeKwargs {} } })
refused("kwargs_handlers has two fp8 recipes", { mixed_precision = "fp8", kwargs_handlers = { A.TERecipeKwargs {}, A.AORecipeKwargs {} } })
local fsdp = accel.FullyShardedDataParallelPlugin {}
assert(make { kwargs_handlers = { A.TERecipeKwargs {} }, fsdp_plugin = fsdp }.fp8_backend == nil) -- as the reference: taken, and off
refused("MS-AMP's recipe cannot be combined with fsdp_plugin", { mixed_precision = "fp8", kwargs_handlers = { A.MSAMPRecipeKwargs {} },
  fsdp_plugin = fsdp })
refused("torchao's recipe cannot be combined with cpu_ram_efficient_loading", { mixed_precision = "fp8", kwargs_handlers = { A.AORecipeKwargs {} },
  fsdp_plugin = accel.FullyShardedDataParallelPlugin { cpu_ram_efficient_loading = true } })
refused("MS-AMP's level O2 keeps whole optimizer states in fp8, but deepspeed_plugin shards them", { mixed_precision = "fp8",
  kwargs_handlers = { A.MSAMPRecipeKwargs {} }, deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 2 } })
accel.AcceleratorState._reset_state(true)
local ds = make { mixed_precision = "bf16", deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 2, enable_msamp = true, msamp_opt_level = "O1" } }
assert(ds.fp8_backend == "MSAMP" and ds.msamp_recipe_handler.opt_level == "O1")

-- ---- recipes that cannot be had are refused where a model is converted ----
local function converts(text, recipe, model)
  local ok, err = pcall(accel.fp8.convert_model, model or nn.Linear(16, 16), recipe)
  assert(not ok and tostring(err):find(text, 1, true), ("expected '%s', got %s"):format(text, tostring(err)))
end
converts("fp8_format = 'E5M2' cannot train", A.TERecipeKwargs { fp8_format = "E5M2" })
converts("recipe_name must be one of tensorwise, rowwise, rowwise_with_gw_hp, got 'rows'", A.AORecipeKwargs { config = "rows" })
converts("scales of 'rowwise' are powers of two", A.AORecipeKwargs { config = { recipe_name = "rowwise", round_scales_to_power_of_2 = false } })
converts("amax_history_len is not supported for MXFP8 block scaling", A.TERecipeKwargs { use_mxfp8_block_scaling = true, amax_history_len = 3 })
converts("unknown option 'pad_inner_dims'; did you mean 'pad_inner_dim'?", A.AORecipeKwargs { config = { pad_inner_dims = true } })
converts("layer '1' (20 -> 16) needs dims that are multiples of 16", A.AORecipeKwargs { pad_inner_dim = false,
  module_filter_func = function() return true end }, nn.Sequential(nn.Linear(16, 16), nn.Linear(20, 16)))
converts("expected a module, got", nil, 5)

-- ---- flags and files reach it ----
local function shown(args)
  local command = ("'%s' launch %s '%s' show 2>&1"):format(accel.process.program(), args, arg[0])
  local pipe = assert(io.popen(command))
  local text = pipe:read "a":gsub("%s+", " ")
  pipe:close()
  return text
end
local function expect(want, args)
  local got = shown(args)
  assert(got:find(want, 1, true), ("%s: expected '%s', got '%s'"):format(args, want, got))
end
expect("fp8 TE E4M3 3 2 8 max false,false,true true nil nil", "--mixed_precision fp8 --fp8_backend te --fp8_format E4M3 --fp8_margin 3"
  .. " --fp8_interval 2 --fp8_amax_history_len 8 --fp8_amax_compute_algo max --fp8_override_linear_precision false,false,true"
  .. " --fp8_use_autocast_during_eval")
expect("fp8 MSAMP nil nil nil nil nil nil,nil,nil nil O1 nil", "--mixed_precision fp8 --fp8_backend msamp --fp8_opt_level O1")
local file = tmp .. "/fp8.yaml"
local f = assert(io.open(file, "w"))
f:write "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: fp8\nnum_processes: 1\n"
f:write "fp8_config:\n  backend: AO\n  pad_inner_dim: false\n"
f:close()
expect("fp8 AO nil nil nil nil nil nil,nil,nil nil nil false", ("--config_file '%s'"):format(file))
assert(ranks.size == 1)
