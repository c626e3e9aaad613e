-- The known faults of Accelerate (its issues, and what reading its source shows) were not copied with its algorithms: every one is tried
-- here, or is a case of another test, which must come to it (ACCEL_TEST_FULL=1 runs these tests). On 2 ranks.
--   accel-run tests/stdlib/accelerator/reference_faults_test.lua
-- tier: sampled
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
if ranks.start { 2 } then return end
local A, nn, data, optim, dist = accel.accelerator, accel.nn, accel.data, accel.optim, accel.dist
local R, P = ranks.rank, ranks.size

local function fresh(o)
  A.AcceleratorState._reset_state(true)
  return accel.Accelerator(o)
end

local function launched(flags, gpus)
  flags[#flags + 1] = "train.lua"
  return assert(accel.config.environment(flags, { gpus = gpus or 2 }))
end

local dir = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/faults-")
local function written(text)
  local path = dir .. "/config.yaml"
  assert(accel.write_file(path, text))
  return "--config_file=" .. path
end

--- Runs the program outside of this job: its status and all that it wrote.
local function outside(variables, arguments)
  local clear = ("RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE ACCEL_WORLD ACCEL_TEST_FULL MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID "
    .. "TORCHELASTIC_RESTART_COUNT"):gsub("%S+", "-u %0")
  local status = select(3, os.execute(("env %s ACCEL_TEST_TMP='%s' %s '%s' %s >'%s/out' 2>&1 </dev/null"):format(clear, dir, variables,
    accel.process.program(), arguments, dir)))
  local said <close> = assert(io.open(dir .. "/out", "rb"))
  return status, said:read "a"
end

--- A job of two ranks that must fail: all of `parts` in one line.
local function job(script, ...)
  local parts = { ... }
  return function()
    if R > 0 then return end
    assert(accel.write_file(dir .. "/job.lua", 'local accel = require "accel"\nlocal a = accel.Accelerator {}\n' .. script))
    local began = accel.clock()
    local status, said = outside("", ("--num_processes 2 '%s/job.lua'"):format(dir))
    assert(status == 1 and accel.clock() - began < 60, said)
    for line in said:gmatch "[^\n]+" do
      local found = 0
      for _, part in ipairs(parts) do found = found + (line:find(part, 1, true) and 1 or 0) end
      if found == #parts then return end
    end
    error(("no line has all of '%s':\n%s"):format(table.concat(parts, "', '"), said), 0)
  end
end

-- A case of a test elsewhere, by its name (support/case.lua). With ACCEL_TEST_FULL=1 the test is run, and must come to it.
local function case(file, name)
  return function()
    local text <close> = assert(io.open(here .. "../../" .. file, "rb"), file .. " is missing")
    assert(text:read "a":find(('case "%s"'):format(name), 1, true), ("%s has no case '%s'"):format(file, name))
    if R > 0 or not ranks.sample.full then return end
    local reached = dir .. "/cases"
    os.remove(reached)
    local status, said = outside(("ACCEL_TEST_CASES='%s'"):format(reached), ("'%s../../%s'"):format(here, file))
    if status == 77 then return end -- skipped, with a reason
    local f <close> = assert(io.open(reached, "rb"), file .. " names no case")
    assert(status == 0 and ("\n" .. f:read "a"):find("\n" .. name .. "\n", 1, true),
      ("%s, status %d, did not come to '%s':\n%s"):format(file, status, name, said))
  end
end

-- What reading shows (spec of the reference, defects and traps, 1 to 25).
local reading = {
  ["1 split_batches of the constructor"] = function()
    local a = fresh { split_batches = true }
    local loader = a:prepare(data.DataLoader(data.TensorDataset(accel.arange(8)), { batch_size = 4 }))
    for batch in loader() do assert(batch[1].shape[1] == 4 // P) end
    assert(a.split_batches == true)
  end,
  ["2 adjust_scheduler"] = function()
    local a = fresh { gradient_accumulation_steps = 2 }
    local model = nn.Linear(2, 1)
    local o = optim.SGD(model:parameters(), { lr = 1 })
    local m, op, s = a:prepare(model, o, optim.lr_scheduler.StepLR(o, 1, { gamma = 0.5 }))
    for i = 1, 4 do
      a:accumulate(m, function()
        a:backward(m(accel.ones(1, 2)):sum())
        op:step()
        s:step()
        op:zero_grad()
      end)
      assert(op.param_groups[1].lr == 0.5 ^ (i // 2), "a schedule counts applied updates, whatever the number of ranks")
    end
  end,
  ["3 lengths of uneven shards"] = case("stdlib/accelerator/lengths_test.lua", "lengths of uneven shards"),
  ["4 keys whose flag has a default"] = function()
    local env = launched { written "distributed_type: MULTI_GPU\nnum_processes: 2\nenable_cpu_affinity: true\n" }
    assert(env.ACCELERATE_CPU_AFFINITY == "1")
  end,
  ["5 nvme paths"] = function()
    local env = launched { "--use_deepspeed", "--zero_stage=3", "--offload_param_device=nvme", "--offload_param_nvme_path=/x",
      "--offload_optimizer_device=nvme", "--offload_optimizer_nvme_path=/y" }
    assert(env.ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH == "/x" and env.ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH == "/y")
  end,
  ["6 fsdp_version as text"] = function()
    A.patch_environment({ fsdp_version = "1" }, function()
      assert(math.type(A.FullyShardedDataParallelPlugin {}.fsdp_version) == "integer")
    end)
  end,
  ["7 the text False"] = function()
    local env = launched { "--use_megatron_lm", "--megatron_lm_sequence_parallelism=False", "--megatron_lm_recompute_activations=false" }
    A.patch_environment(env, function()
      local p = A.MegatronLMPlugin {}
      assert(p.sequence_parallelism == false and p.recompute_activations == false)
    end)
    A.patch_environment({ parallelism_config_sp_seq_length_is_variable = "False", parallelism_config_sp_seq_length = "8" }, function()
      assert(A.DeepSpeedSequenceParallelConfig({}).sp_seq_length_is_variable == false)
    end)
  end,
  ["8 keys of fp8 that nothing reads"] = function()
    local fields, why = accel.config.parse(
      "distributed_type: 'NO'\nmixed_precision: fp8\nfp8_config:\n  backend: TE\n  amax_history_length: 32\n")
    if fields then
      local env = launched { "--num_processes=1",
        written "distributed_type: 'NO'\nmixed_precision: fp8\nfp8_config:\n  backend: TE\n  amax_history_length: 32\n" }
      assert(env.ACCELERATE_FP8_AMAX_HISTORY_LEN == "32")
    else
      assert(why:find "amax_history_len")
    end
  end,
  ["9 fp8_backend in lower case"] = function()
    local env = launched { "--mixed_precision=fp8", "--fp8_backend=te", "--num_processes=1" }
    A.patch_environment({ accelerate_fp8_backend = env.ACCELERATE_FP8_BACKEND:lower() }, function()
      assert(fresh({ mixed_precision = "fp8" }).fp8_backend == "TE")
    end)
  end,
  ["10 a ParallelismConfig as data"] = function()
    local kwargs = A.ParallelismConfig({ tp_size = 2 }):to_kwargs()
    assert(kwargs.tp_size == 2 and accel.json.encode { tp_size = kwargs.tp_size } == '{"tp_size":2}')
  end,
  ["11 context_parallel_size is 2"] = function()
    assert(A.MegatronLMPlugin({}):parallelism(P).cp_size == 1)
  end,
  ["12 clip_grad_norm_ of some parameters under FSDP"] = function()
    local function norm(o)
      local a = fresh(o)
      accel.manual_seed(1)
      local model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
      local m, op = a:prepare(model, optim.SGD(model:parameters(), { lr = 0.1 }))
      a:backward(m(accel.ones(2, 16)):square():sum())
      local n = a:clip_grad_norm_(m[2]:parameters(), 0.5)
      op:step()
      return accel.is_tensor(n) and n:item() or n
    end
    local want = norm {}
    for version = 1, 2 do
      ranks.close(norm { fsdp_plugin = A.FullyShardedDataParallelPlugin { fsdp_version = version } }, want, "norm of some parameters", 1e-5)
    end
  end,
  ["13 random states that cannot be loaded"] = case("stdlib/accelerator/checkpoint_errors_test.lua", "states that are damaged"),
  ["14 gather_for_metrics and errors"] = function()
    local a = fresh {}
    local ok = pcall(a.gather_for_metrics, a, { function() end })
    assert(not ok)
  end,
  ["15 total_limit deletes before saving"] = function()
    local project = dist.all_gather_object(dir)[1] .. "/limited"
    local a = fresh { project_config = A.ProjectConfiguration { project_dir = project, automatic_checkpoint_naming = true, total_limit = 1 } }
    local model <const> = a:prepare(nn.Linear(2, 2))
    local first = a:save_state()
    local hook = a:register_save_state_pre_hook(function() error "the disk is full" end)
    ranks.fails("the disk is full", a.save_state, a)
    local c <close> = assert(model and accel.ckpt.open(first), "a save that failed took the last one with it")
    assert(c:verify())
    hook:remove()
    a:save_state()
    assert(#accel.listdir(project .. "/checkpoints") == 1)
  end,
  ["16 conversion ends at the first layer that does not fit"] = function()
    local model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 12), nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, 16))
    local scaling = accel.fp8.convert_model(model, A.TERecipeKwargs {})
    assert(scaling.converted == 3, scaling.converted)
  end,
  ["17 reduce_batch_size_fn in both forms"] = function()
    local function halves(size) return size // 4 end
    local function tries(wrap)
      local seen = {}
      wrap(function(size)
        seen[#seen + 1] = size
        if size > 4 then accel.process.raise("out_of_memory", "simulated") end
      end)
      return seen
    end
    local opts = { starting_batch_size = 64, reduce_batch_size_fn = halves }
    ranks.same(tries(function(fn) A.find_executable_batch_size(fn, opts)() end), { 64, 16, 4 }, "a function and options")
    ranks.same(tries(function(fn) A.find_executable_batch_size(opts)(fn)() end), { 64, 16, 4 }, "options, then a function")
  end,
  ["18 OMP_NUM_THREADS of a DeepSpeed launch"] = function()
    assert(os.getenv "OMP_NUM_THREADS" == "1", "the launcher sets it for every kind of launch")
  end,
  ["19 reduce by two names"] = function()
    local a = fresh {}
    assert(a:reduce(accel.tensor { R + 1.0 })[1]:item() == 3 and A.reduce(accel.tensor { R + 1.0 })[1]:item() == 1.5, "as Accelerate documents")
  end,
  ["20 split_between_processes changes its input"] = function()
    local a = fresh {}
    local inputs = { x = { 1, 2, 3 }, y = { 4, 5, 6 } }
    a:split_between_processes(inputs, { apply_padding = true, fn = nil }, function() end)
    ranks.same(inputs, { x = { 1, 2, 3 }, y = { 4, 5, 6 } }, "the input")
  end,
  ["21 a first round with fewer samples than ranks"] = function()
    local a = fresh { dataloader_config = A.DataLoaderConfiguration { dispatch_batches = true } }
    local loader = a:prepare(data.DataLoader(data.TensorDataset(accel.arange(1) + 7), { batch_size = 2 }))
    for batch in loader() do assert(batch[1].shape[1] > 0 and batch[1][1]:item() == 7) end
  end,
  ["22 trackers on other ranks"] = function()
    local a = fresh { log_with = "jsonl", project_dir = dir }
    a:init_trackers "faults"
    local tracker = a:get_tracker "jsonl"
    assert(type(tracker.log) == "function" and type(tracker.finish) == "function")
    a:end_training()
  end,
  ["23 offline runs of W&B"] = case("stdlib/track/wandb_test.lua", "offline runs"),
  ["24 debug mode and nested data"] = function()
    A.patch_environment({ accelerate_debug_mode = "true" }, function()
      local a = fresh {}
      local out = a:gather { x = { accel.tensor { R }, accel.tensor { R + 10 } }, y = accel.tensor { R } }
      ranks.same(out.x[2]:tolist(), { 10, 11 }, "nested data")
    end)
  end,
  ["25 should_save_model"] = function()
    local a = fresh {}
    assert(a.should_save_model == a.is_main_process)
  end,
}

-- Pain points and requests (1 to 25).
local S <const> = "stdlib/accelerator/"

--- Saves so many layers, cut over the ranks: memory beside what is there, collectives and their bytes.
local function saving(layers)
  local a = fresh { fsdp_plugin = A.FullyShardedDataParallelPlugin { auto_wrap_policy = "SIZE_BASED_WRAP", min_num_params = 1000,
    state_dict_type = "SHARDED_STATE_DICT" } }
  local list = {}
  for i = 1, layers do list[i] = nn.Linear(256, 256) end
  local model <const> = a:prepare(nn.Sequential(table.unpack(list)))
  local folder = dist.all_gather_object(dir)[1] .. "/saved" .. layers
  accel.collect()
  local before, records = accel.mem_stats("cpu").live_bytes, dist.records()
  accel.reset_peak_memory "cpu"
  a:save_state(folder)
  local out = { memory = accel.mem_stats("cpu").peak_bytes - before, calls = 0, bytes = 0 }
  for _, r in ipairs(dist.records()) do
    if r.number > records[#records].number then out.calls, out.bytes = out.calls + 1, out.bytes + r.bytes end
  end
  assert(model and out.calls > 0)
  return out
end
local points = {
  ["1 rates end too early"] = case(S .. "scheduler_test.lua", "a schedule by updates"),
  ["2 schedules and accumulation"] = case(S .. "scheduler_test.lua", "a schedule and accumulation"),
  ["3 resuming within an epoch"] = case(S .. "loader_resume_test.lua", "a run taken up within an epoch"),
  ["4 skip_first_batches keeps options"] = function()
    local a = fresh {}
    local loader = a:prepare(data.DataLoader(data.TensorDataset(accel.arange(24)), { batch_size = 2, shuffle = true, drop_last = true, seed = 3 }))
    local all, rest = {}, {}
    for batch in loader() do all[#all + 1] = batch[1]:tolist() end
    loader:set_epoch(0)
    for batch in a:skip_first_batches(loader, 2)() do rest[#rest + 1] = batch[1]:tolist() end
    ranks.same(rest, table.move(all, 3, #all, 1, {}), "the rest of the epoch")
  end,
  ["5 rows of metrics"] = case(S .. "gather_for_metrics_test.lua", "rows of metrics"),
  ["6 losses of batches of other lengths"] = function()
    local a = fresh { gradient_accumulation_steps = 2 }
    local model = nn.Linear(1, 1, { bias = false })
    local m, op = a:prepare(model, optim.SGD(model:parameters(), { lr = 1 }))
    local before, sum, count = model:parameters()[1]:item(), 0, 0
    for micro = 1, 2 do
      for r = 0, P - 1 do
        for k = 1, r + 2 * micro do sum, count = sum + k, count + 1 end
      end
      local n = R + 2 * micro
      local x = (accel.arange(n):to "f32" + 1):view(-1, 1)
      a:accumulate(m, function()
        a:backward(m(x):sum(), { weight = n })
        op:step()
      end)
    end
    ranks.close(before - m:parameters()[1]:item(), sum / count, "the mean over all samples", 1e-5)
  end,
  ["7 a collective on the main process only"] = job("if a.is_main_process then\n  a:gather(accel.ones(2))\nend\na:wait_for_everyone()",
    "rank 0 in all_gather", "job.lua:4", "rank 1 in barrier", "job.lua:6"),
  ["8 memory of saving sharded models"] = function()
    assert(saving(8).memory < 257 * 256, "less than a quarter of one layer, where a rank has four layers' bytes")
  end,
  ["9 plans of checkpoints without collectives"] = function()
    local few, many = saving(2), saving(16)
    ranks.same(many.calls, few.calls, "collectives of 16 layers and of 2")
    assert(many.bytes < 1000, "bytes of collectives")
  end,
  ["10 timeouts"] = function()
    local was = dist.get_timeout()
    assert(fresh({ kwargs_handlers = { A.InitProcessGroupKwargs { timeout = 99 } } }) and dist.get_timeout() == 99, "the timeout has an effect")
    dist.set_timeout(was)
    job("accel.dist.set_timeout(1)\nwhile not a.is_main_process do accel.clock() end\na:wait_for_everyone()",
      "rank 0 waited 1", "for rank 1 in barrier", "job.lua:5", "raise --timeout")()
  end,
  ["11 hangs without a hint"] = job("a:reduce(accel.ones(a.process_index + 2))", "rank 0", "rank 1", "f32 (2)", "f32 (3)", "job.lua:3"),
  ["12 settings and their origins"] = case(S .. "config_test.lua", "settings and their origins"),
  ["13 launches over machines"] = case("stdlib/cli/launch_machines_test.lua", "launches over machines"),
  ["14 streams of other shapes"] = case(S .. "loader_streams_test.lua", "streams of other shapes"),
  ["15 another number of processes"] = case(S .. "checkpoint_worlds_test.lua", "another number of processes"),
  ["16 loading fills one device"] = case(S .. "load_checkpoint_test.lua", "one process reads for all"),
  ["17 several models and optimizers"] = case(S .. "prepare_test.lua", "several models and optimizers"),
  ["18 device maps"] = case(S .. "device_map_test.lua", "device maps"),
  ["19 clipping under sharding"] = case("stdlib/shard/train_test.lua", "clipping under sharding"),
  ["20 optimizer states of sharded and 8-bit optimizers"] = case("stdlib/optim/state_test.lua", "states of all optimizers"),
  ["21 names under wrapping"] = case(S .. "prepare_test.lua", "names under wrapping"),
  ["22 half-written checkpoints"] = case("fault/ckpt_kill_test.lua", "half-written checkpoints"),
  ["23 several ranks and one"] = case("stdlib/dist/world_bits_test.lua", "several ranks and one"),
  ["24 the real error of a failure"] = job("if not a.is_main_process then error 'the cause' end\na:wait_for_everyone()",
    "accel-run: rank 1 (pid ", "exited with status 1 at ", "job.lua:3"),
  ["25 memory between runs"] = case(S .. "prepare_test.lua", "memory between runs"),
}

if ranks.sample.full then dist.set_timeout(1500) end -- rank 0 runs other tests while the other one waits
local function try(title, rows, count)
  local n, failed = 0, {}
  for name, check in accel.pairs(rows) do
    n = n + 1
    local ok, why = pcall(check)
    if not ok then failed[#failed + 1] = ("%s: %s"):format(name, tostring(why)) end
  end
  assert(n == count, ("%s: %d rows"):format(title, n))
  if #failed > 0 then error(title .. ":\n" .. table.concat(failed, "\n"), 0) end
end
try("faults found by reading", reading, 25)
try("pain points", points, 25)
if dist.get_world_size() > 1 then dist.barrier() end
