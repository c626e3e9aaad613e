--- Every row of ../shared/cases/face/missing.tsv has a state: it works, or it is refused with what to use. Names and members are looked up
--- by missing_names_test.lua; here are arguments, flags, files and behaviours, each by a call. Without the table the rows that are named
--- here are tried all the same. A row without a probe fails the test.
local accel = require "accel"
local A, nn, data, optim = accel.accelerator, accel.nn, accel.data, accel.optim
local src = os.getenv "ACCEL_TEST_SRC" or "."
local dir = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/rows-")

local function fresh(o)
  A.AcceleratorState._reset_state(true)
  return accel.Accelerator(o or {})
end

local function layer() return nn.Linear(2, 2) end
local function sgd(model) return optim.SGD(model:parameters(), { lr = 0.1 }) end
local function plugin(o) return accel.FullyShardedDataParallelPlugin(o or {}) end

--- A probe that must raise an error with `part`.
local function refused(part, fn)
  return function()
    local ok, message = pcall(fn)
    assert(not ok and tostring(message):find(part, 1, true), ("no error with '%s': %s"):format(part, tostring(message)))
    assert(not tostring(message):find "attempt to", tostring(message))
    return "refused"
  end
end

local function head(path, n)
  local file <close> = assert(io.open(path, "rb"))
  return file:read(n)
end

--- A probe by the program: its status, and a part of its output.
local function run(words, status, part, state)
  return function()
    local out = dir .. "/out"
    local got = select(3, os.execute(("'%s' %s >'%s' 2>&1 </dev/null"):format(accel.process.program(), words:gsub("DIR", dir), out)))
    local text = head(out, "a")
    assert(got == status and text:find(part, 1, true), ("status %s, expected %d and '%s': %s"):format(got, status, part, text))
    return state
  end
end

--- The model's weights as PyTorch's file (its zip archive begins with PK).
local function is_torch(path) return head(path, 2) == "PK" end

--- A model and its loader, prepared with Megatron's plugin and a step.
local function megatron(step)
  local a = fresh { megatron_lm_plugin = accel.MegatronLMPlugin { custom_train_step_class = step, custom_train_step_kwargs = {} } }
  local model = accel.models.GPT2(accel.models.tiny.gpt2)
  local item = { input_ids = accel.tensor { 1, 2, 3, 4 }, labels = accel.tensor { 1, 2, 3, 4 } }
  local m, _, loader = a:prepare(model, sgd(model), data.DataLoader(data.ListDataset { item }, { batch_size = 1 }))
  return m, loader
end

local PROBES <const> = {
  ["DVCLiveTracker.run_name"] = function() return A.DVCLiveTracker({ run_name = "x" }).name == "dvclive" end,
  ["DVCLiveTracker.live"] = function() return A.DVCLiveTracker("x", { live = {} }).name == "dvclive" end, -- warns
  ["Accelerator:get_state_dict(unwrap)"] = refused("whose names never change", function() fresh():get_state_dict(layer(), { unwrap = false }) end),
  ["Accelerator:load_state(load_kwargs)"] = refused("load_state is strict", function() fresh():load_state(dir, { load_kwargs = {} }) end),
  ["Accelerator:prepare_data_loader(device_placement)"] = function()
    return fresh():prepare_data_loader(data.DataLoader(data.TensorDataset(accel.ones(4, 2))), { device_placement = false }).device == nil
  end,
  ["Accelerator:prepare_optimizer(device_placement)"] = function()
    return fresh():prepare_optimizer(sgd(layer()), { device_placement = true }).step ~= nil -- warns
  end,
  ["Accelerator:save_model(safe_serialization)"] = function()
    fresh():save_model(layer(), dir .. "/old", { safe_serialization = false })
    return is_torch(dir .. "/old/pytorch_model.bin")
  end,
  ["save(safe_serialization)"] = function()
    fresh():save(layer():state_dict(), dir .. "/weights.bin", { safe_serialization = false })
    return is_torch(dir .. "/weights.bin")
  end,
  ["disk_offload(offload_buffers)"] = function() return A.disk_offload(layer(), dir .. "/o1", { offload_buffers = true })(accel.ones(1, 2)) end,
  ["disk_offload(preload_module_classes)"] = function() -- warns
    return A.disk_offload(layer(), dir .. "/o2", { preload_module_classes = { "Linear" } })(accel.ones(1, 2))
  end,
  ["is_bnb_available(min_version)"] = function() return A.is_bnb_available "0.39" == false end,
  ["is_mps_available(min_version)"] = function() return A.is_mps_available { min_version = "2.0" } == false end,
  ["load(map_location)"] = function()
    accel.save(dir .. "/w.safetensors", { w = accel.ones(2) })
    return accel.load(dir .. "/w.safetensors", { map_location = "meta" }).w.device == "meta" and accel.load(dir .. "/w.safetensors", "meta").w.device
      == "meta" and accel.load(dir .. "/w.safetensors", "cpu").w:sum():item() == 2
  end,
  ["printed AcceleratorState (Distributed environment: DEEPSPEED ... ds_config:)"] = function()
    return tostring(fresh({ deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 2 } }).state):find "distributed_type=DEEPSPEED"
  end,
  ["--ipex"] = run("launch --ipex x.lua", 2, "there is no IPEX", "refused"),
  ["--use_xpu"] = run("launch --use_xpu x.lua", 2, "CUDA GPUs, no XPU", "refused"),
  ["--unsafe_serialization"] = function()
    fresh():save_model(layer(), dir .. "/whole", "10")
    run("merge-weights --unsafe_serialization DIR/whole DIR/merged", 0, "")()
    return is_torch(dir .. "/merged/pytorch_model.bin")
  end,
  ["accelerate env --config_file FILE"] = function()
    assert(accel.write_file(dir .. "/c.yaml", "distributed_type: 'NO'\nnum_processes: 1\nmixed_precision: bf16\n"))
    run("env --config_file DIR/c.yaml", 0, "\nmixed_precision: bf16\n")()
    return run("env --config-file=DIR/none.yaml", 1, "none.yaml: cannot open", true)()
  end,
  ["YAML ipex_config"] = function()
    local ok, message = accel.config.parse "distributed_type: 'NO'\nnum_processes: 1\nipex_config:\n  ipex: true\n"
    assert(not ok and message:find("leave it out: oneDNN's kernels", 1, true), message)
    return "refused"
  end,
  ["ACCELERATE_BYPASS_DEVICE_MAP"] = function() -- tried on several ranks by big_modeling_test.lua
    return A.patch_environment({ accelerate_bypass_device_map = true }, function() return #require "accel.accelerator.variables".lines() == 0 end)
  end,
  ["XLA_USE_BF16, XLA_DOWNCAST_BF16"] = function()
    for _, name in ipairs { "XLA_USE_BF16", "XLA_DOWNCAST_BF16" } do
      local lines = A.patch_environment({ [name] = "1" }, require "accel.accelerator.variables".lines)
      assert(#lines == 1 and lines[1]:find('mixed_precision = "bf16"', 1, true), lines[1])
    end
    return "refused"
  end,
  ["Accelerator(downcast_bf16)"] = refused('mixed_precision = "bf16"', function() fresh { downcast_bf16 = true } end),
  ["tracking.on_main_process"] = refused("accelerator:on_main_process(fn)", function() return accel.track.on_main_process end),
  ["DistributedType.TPU"] = refused("the member is DistributedType.XLA", function() return accel.DistributedType.TPU end),
  ["on_process(process_index=1) on one process"] = function() return fresh():on_process(function() return 7 end, { process_index = 1 })() == 7 end,
  ["my_model.to(device) after prepare"] = function()
    local a = fresh()
    return a:prepare(layer()):to(a.device)(accel.ones(1, 2))
  end,
  ["accelerator.save / utils.save: file that load_checkpoint_in_model reads"] = function()
    fresh():save(layer():state_dict(), dir .. "/s.safetensors")
    return accel.open_safetensors(dir .. "/s.safetensors"):metadata().format == "pt"
  end,
  ["save_pretrained(is_main_process, save_function, state_dict)"] = function() -- save_function warns
    local a, model = fresh(), accel.models.GPT2(accel.models.tiny.gpt2)
    model:save_pretrained(dir .. "/gpt", { is_main_process = a.is_main_process, save_function = function(...) a:save(...) end,
      state_dict = a:get_state_dict(model) })
    return next(assert(accel.load(dir .. "/gpt/model.safetensors")))
  end,
  ["index.json {name: file}"] = function()
    local from, to = layer(), layer()
    accel.makedirs(dir .. "/flat")
    accel.save(dir .. "/flat/a.safetensors", { weight = from.weight })
    accel.save(dir .. "/flat/b.safetensors", { bias = from.bias })
    assert(accel.write_file(dir .. "/flat/x.index.json", '{"weight": "a.safetensors", "bias": "b.safetensors"}'))
    A.load_checkpoint_in_model(to, dir .. "/flat")
    return accel.equal(from.weight, to.weight) and accel.equal(from.bias, to.bias)
  end,
  ["cpu_offload(model, execution_device)"] = function() return A.cpu_offload(layer(), "cpu")(accel.ones(1, 2)) end,
  ["disk_offload(model, dir, execution_device)"] = function() return A.disk_offload(layer(), dir .. "/o3", "cpu")(accel.ones(1, 2)) end,
  ["cpu_offload_with_hook(model, device, prev_module_hook=)"] = function()
    local _, hook = A.cpu_offload_with_hook(layer(), "cpu")
    return A.cpu_offload_with_hook(layer(), "cpu", { prev_module_hook = hook })(accel.ones(1, 2))
  end,
  ["FP8RecipeKwargs(optimization_level)"] = refused("opt_level", function()
    accel.FP8RecipeKwargs { backend = "MSAMP", optimization_level = "O2" }
  end),
  ["model.save_checkpoint, zero_to_fp32, load_state_dict_from_zero_checkpoint, get_fp32_state_dict_from_zero_checkpoint"] = function()
    for name in ("zero_to_fp32 load_state_dict_from_zero_checkpoint get_fp32_state_dict_from_zero_checkpoint"):gmatch "%S+" do
      refused("merge-weights", function() return accel.deepspeed[name] end)()
    end
    refused("accelerator:load_state(folder)", function() layer():load_checkpoint(dir) end)()
    return refused("accelerator:save_state(folder)", function() layer():save_checkpoint(dir) end)()
  end,
  ["Megatron get_forward_step_func"] = refused("get_batch(batch)", function()
    local Step = A.GPTTrainStep:extend "Step"
    function Step.get_forward_step_func() return function() end end
    megatron(Step)
  end),
  ["Megatron get_loss_func(inputs, loss_mask, output_tensor)"] = function()
    local Loss, seen = A.GPTTrainStep:extend "Loss", nil
    function Loss.get_loss_func()
      return function(logits, targets)
        seen = #logits.shape == 3 and targets.loss_mask.shape[2] == 4
        return logits:float():mean()
      end
    end
    local model, loader = megatron(Loss)
    for batch in loader() do model(batch) end
    assert(seen)
    function Loss.get_loss_func() return function(_, _, output_tensor) return output_tensor:mean() end end
    refused("(output, targets)", function() megatron(Loss) end)()
    function Loss.get_loss_func() return function(loss_mask, output) return (output * loss_mask):mean() end end
    return refused("targets.loss_mask", function() megatron(Loss) end)()
  end,
  ["merge_fsdp_weights(safe_serialization=False)"] = refused("merge-weights", function() return A.merge_fsdp_weights end),
  ["AcceleratorState().distributed_type FSDP / MEGATRON_LM"] = function()
    fresh { megatron_lm_plugin = accel.MegatronLMPlugin {} }
    return accel.AcceleratorState().distributed_type == "MEGATRON_LM" -- FSDP on two ranks: singletons_test.lua
  end,
  ["patch_environment, clear_environment"] = function() -- what accel reads, as the help says; Lua cannot change its own environment
    return A.patch_environment({ rows = 3 }, function() return A.get_int_from_env({ "ROWS" }, -1) end) == 3
      and A.clear_environment(function() return A.get_int_from_env({ "ROWS" }, -1) end) == -1
  end,
  ["accelerator.profile(function)"] = function()
    local profile, result = fresh():profile(function(p) return p ~= nil and 7 end)
    return profile ~= nil and result == 7
  end,
  ["FSDP2 optimizer of foreign parameters"] = refused("KeyError", function()
    fresh({ fsdp_plugin = plugin { fsdp_version = 2 } }):prepare(layer(), sgd(layer()))
  end),
  ["FSDP2 ignored_modules"] = function()
    local model = nn.Sequential(layer(), layer())
    local shape = fresh({ fsdp_plugin = plugin { fsdp_version = 2, ignored_modules = { model[2] } } }):prepare(model)[2].weight.shape
    return shape[1] == 2 and shape[2] == 2
  end,
}
for name, o in pairs { ["FSDP: bf16 model + mixed precision is held in f32"] = { "fsdp_plugin", plugin() },
  ["DeepSpeed: parameters created in float32"] = { "deepspeed_plugin", accel.DeepSpeedPlugin { zero_stage = 2 } } } do
  PROBES[name] = function()
    local model = layer():to "bf16"
    local m = fresh({ mixed_precision = "bf16", [o[1]] = o[2] }):prepare(model, sgd(model))
    for _, p in m:named_parameters() do assert(p.dtype == "f32") end
    return true
  end
end
PROBES["local SGD refused with DeepSpeed/FSDP/Megatron"] = function()
  for key, value in pairs { fsdp_plugin = plugin(), deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 2 },
    megatron_lm_plugin = accel.MegatronLMPlugin {} } do
    refused(key .. " shards", function() accel.LocalSGD(fresh { [key] = value }, layer(), 2) end)()
  end
  return "refused"
end
for option, part in pairs { clear_cache = "go to the device at once", non_blocking = "go to the device at once", fp16_statistics = "as it was saved",
  tied_params_map = "retie_parameters" } do
  PROBES[("set_module_tensor_to_device(%s)"):format(option)] = refused(part, function()
    A.set_module_tensor_to_device(layer(), "weight", "cpu", { [option] = true })
  end)
end
for option, value in pairs { tensor_slice = { 1, 2 }, process_index = 0, num_processes = 2 } do
  PROBES[("slice_tensors(%s)"):format(option)] = refused("slice_tensors(data, first, last)", function()
    A.slice_tensors(accel.arange(4), { [option] = value })
  end)
end
PROBES["save_model(safe_serialization=False) -> pytorch_model.bin"] = PROBES["Accelerator:save_model(safe_serialization)"]
PROBES["save(safe_serialization=False)"] = PROBES["save(safe_serialization)"]

local counts = { works = 0, refused = 0, looked_up = 0 }
local open = {}
local function try(name)
  local ok, state = pcall(PROBES[name])
  if not ok or not state then open[#open + 1] = ("%s: %s"):format(name, tostring(state)) end
  local key = state == "refused" and "refused" or "works"
  counts[key] = counts[key] + 1
end

local file = io.open(src .. "/../shared/cases/face/missing.tsv")
local rows = 0
for line in file and file:lines() or function() end do
  local name = line:match "^[^\t]*"
  rows = rows + 1
  local owner = name:match "^([%a_][%w_]*)%([%w_]+%)$" -- an argument of a function that is refused as a whole
  if rows == 1 then -- the head of the table
  elseif PROBES[name] then try(name)
  elseif owner and not pcall(function() return A[owner] end) then counts.refused = counts.refused + 1
  elseif name:find "^[%a_][%w_]*$" or name:find "^%u%w*%.[%w_]+$" then counts.looked_up = counts.looked_up + 1
  else open[#open + 1] = name .. ": no probe" end
end
if file then file:close() else for name in accel.pairs(PROBES) do try(name) end end
io.write(("%d rows: %d work, %d refused with what to use, %d names looked up by missing_names_test.lua, %d open\n"):format(rows - 1,
  counts.works, counts.refused, counts.looked_up, #open))
assert(#open == 0, table.concat(open, "\n"))
