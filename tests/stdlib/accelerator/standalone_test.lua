-- What accelerate.utils and accelerate.data_loader offer without an Accelerator: loaders, waiting, unwrapping, saving;
-- enumerations, names of files, and questions about the installation. On 1, 2 and 4 ranks.
--   accel-run tests/stdlib/accelerator/standalone_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, data, dist = accel.accelerator, accel.data, accel.dist

if ranks.start { 1, 2, 4 } then return end
local R, P, same, says = ranks.rank, ranks.size, ranks.same, ranks.fails

local function loader_of(n, size) return data.DataLoader(data.TensorDataset(accel.arange(n)), { batch_size = size }) end

local function read(loader)
  local batches, ends = {}, {}
  for batch in loader() do
    batches[#batches + 1] = batch[1]:tolist()
    ends[#ends + 1] = loader.end_of_dataloader
  end
  for k, last in ipairs(ends) do assert(last == (k == #ends)) end
  assert(#loader == #batches)
  return batches
end

-- ---- loaders ----

do -- for any number of processes: the tables of the reference's own tests
  local function shard(n, size, num, index, opts)
    opts = opts or {}
    opts.num_processes, opts.process_index = num, index
    return read(A.prepare_data_loader(loader_of(n, size), opts))
  end
  same(shard(22, 3, 2, 1)[4], { 21, 0, 1 }, "the tail is looped back")
  same(shard(20, 3, 2, 0)[4], { 18, 19, 0 }, "rank 0")
  same(shard(20, 3, 2, 1)[4], { 1, 2, 3 }, "rank 1")
  same(shard(20, 3, 2, 0, { even_batches = false })[4], { 18, 19 }, "uneven")
  assert(#shard(20, 3, 2, 1, { even_batches = false }) == 3)
  same(shard(2, 3, 2, 1), { { 1, 0, 1 } }, "fewer samples than a batch")
  same(shard(21, 4, 2, 0, { split_batches = true })[6], { 20, 0 }, "split")
  same(shard(7, 2, 4, 3), { { 6, 0 } }, "four processes")
  says("split_batches", shard, 12, 3, 2, 0, { split_batches = true })
  says("process_index is 2, there are 2 processes", shard, 12, 3, 2, 2)
  says("did you mean 'even_batches'", shard, 12, 3, 2, 1, { even_batchs = false })
end

do -- for those of this run, also read by rank 0
  for _, dispatch in ipairs { false, true } do
    local opts = { dispatch_batches = dispatch, put_on_device = true }
    local loader = A.prepare_data_loader(loader_of(8 * P, 2), "cpu", opts)
    local own = read(loader)
    assert(#own == 4 and loader.total_batch_size == 2 * P)
    local all = dist.all_gather_object(own)
    local seen = {}
    for k = 1, 4 do
      for r = 1, P do table.move(all[r][k], 1, 2, #seen + 1, seen) end
    end
    for i, v in ipairs(seen) do assert(v == i - 1) end
  end
  says("dispatch_batches sends batches to the " .. P .. " processes", A.prepare_data_loader, loader_of(8, 2),
    { num_processes = P + 1, process_index = 0, dispatch_batches = true })
end

-- ---- waiting, unwrapping, saving ----

do
  local file = dist.all_gather_object(os.tmpname())
  for turn = 1, 3 do
    if R == P - 1 then
      local f <close> = assert(io.open(file[P], "a"))
      f:write(turn)
    end
    A.wait_for_everyone()
    local f <close> = assert(io.open(file[P]))
    assert(#f:read "a" == turn)
    A.wait_for_everyone()
  end
  A.save({ x = accel.full({ 2 }, R) }, file[1] .. ".safetensors")
  A.wait_for_everyone()
  same(assert(A.load(file[1] .. ".safetensors")).x, { 0, 0 }, "the main process writes")
  A.save({ x = accel.full({ 2 }, R) }, file[R + 1] .. ".own", { save_on_each_node = true })
  assert((io.open(file[R + 1] .. ".own") ~= nil) == (dist.get_local_rank() == 0))
  if R == 0 then says("No such file or directory", A.save, { x = accel.ones(1) }, "/nowhere/x.safetensors") end
  A.wait_for_everyone()
  for _, ending in ipairs { "", ".safetensors", ".own" } do os.remove(file[R + 1] .. ending) end
end

do
  local a = accel.Accelerator { mixed_precision = "bf16" }
  local net = accel.nn.Sequential(accel.nn.Linear(2, 2))
  local model = a:prepare(net)
  local function dtypes()
    local inside
    local hook = net[1]:register_forward_hook(function(_, _, out) inside = out.dtype end)
    net(accel.ones(1, 2))
    hook:remove()
    return inside
  end
  assert(A.extract_model_from_parallel(model) == net and (model ~= net) == (P > 1) and dtypes() == "bf16")
  assert(A.extract_model_from_parallel(net) == net, "without a wrapper")
  assert(A.extract_model_from_parallel(model, { keep_fp32_wrapper = false }) == net and dtypes() == "f32")
  local DDP = accel.nn.parallel.DistributedDataParallel
  local outer = accel.nn.Sequential(DDP(accel.nn.Linear(2, 2)))
  assert(A.extract_model_from_parallel(outer) == outer and rawget(outer[1], "reducer"))
  assert(A.extract_model_from_parallel(outer, { recursive = true }) == outer and not rawget(outer[1], "reducer"))
  says("extract_model_from_parallel", A.extract_model_from_parallel, 3)
  A.AcceleratorState._reset_state(true)
end

-- ---- words ----

do
  assert(A.MODEL_NAME == "pytorch_model" and A.SAFE_MODEL_NAME == "model" and A.OPTIMIZER_NAME == "optimizer")
  assert(A.SCHEDULER_NAME == "scheduler" and A.SAMPLER_NAME == "sampler" and A.SCALER_NAME == "scaler.pt")
  assert(A.RNG_STATE_NAME == "random_states" and A.PROFILE_PATTERN_NAME == "profile_{suffix}.json")
  assert(A.WEIGHTS_NAME == "pytorch_model.bin" and A.WEIGHTS_INDEX_NAME == "pytorch_model.bin.index.json")
  assert(A.SAFE_WEIGHTS_NAME == "model.safetensors" and A.SAFE_WEIGHTS_INDEX_NAME == "model.safetensors.index.json")
  assert(A.WEIGHTS_PATTERN_NAME == "pytorch_model{suffix}.bin")
  assert(A.SAFE_WEIGHTS_PATTERN_NAME == "model{suffix}.safetensors")
end

do
  for name, members in accel.pairs {
    LoggerType = { ALL = "all", TENSORBOARD = "tensorboard", WANDB = "wandb", COMETML = "comet_ml" },
    PrecisionType = { NO = "no", FP8 = "fp8", FP16 = "fp16", BF16 = "bf16" },
    ComputeEnvironment = { LOCAL_MACHINE = "LOCAL_MACHINE", AMAZON_SAGEMAKER = "AMAZON_SAGEMAKER" },
    RNGType = { TORCH = "torch", CUDA = "cuda", XLA = "xla", GENERATOR = "generator" },
    DistributedType = { NO = "NO", MULTI_CPU = "MULTI_CPU", MULTI_GPU = "MULTI_GPU", FSDP = "FSDP", XLA = "XLA" },
    DynamoBackend = { NO = "NO", INDUCTOR = "INDUCTOR" }, SageMakerDistributedType = { DATA_PARALLEL = "DATA_PARALLEL" },
    DDPCommunicationHookType = { POWER_SGD = "power_sgd" }, CustomDtype = { INT4 = "int4" },
  } do
    local enum = A[name]
    assert(enum == accel[name], name)
    for key, value in accel.pairs(members) do assert(enum[key] == value, name .. "." .. key) end
    says(name .. " has no 'NO_SUCH_MEMBER'", function() return enum.NO_SUCH_MEMBER end)
  end
  local a = accel.Accelerator { mixed_precision = accel.PrecisionType.BF16, dynamo_backend = accel.DynamoBackend.NO }
  assert(a.mixed_precision == accel.PrecisionType.BF16)
  assert(a.distributed_type ~= accel.DistributedType.FSDP)
  A.AcceleratorState._reset_state(true)
end

do
  for _, name in ipairs { "bf16", "fp16", "tqdm", "schedulefree" } do
    assert(A[("is_%s_available"):format(name)]() == true, name)
  end
  for _, name in ipairs { "deepspeed", "fp8", "mps", "npu", "xpu", "torch_xla", "ipex", "wandb", "tensorboard", "rich",
    "transformers", "4bit_bnb", "megatron_lm", "msamp", "torchao" } do
    assert(A[("is_%s_available"):format(name)]() == false, name)
  end
  assert(A.is_bf16_available(true) and A.is_cuda_available() == (accel.features().cuda_devices > 0))
  assert(A.is_no_such_thing_available == nil)
end

do
  assert(A.is_torch_tensor(accel.ones(1)) and not A.is_torch_tensor { 1 })
  local net = accel.nn.Sequential(accel.nn.Linear(2, 3))
  assert(A.recursive_getattr({ model = { net = net } }, "model.net") == net)
  A.patch_environment({ ACCELERATE_CHOICE = "yes" }, function()
    assert(A.parse_choice_from_env "ACCELERATE_CHOICE" == "yes")
  end)
  assert(A.parse_choice_from_env "ACCELERATE_CHOICE" == "no" and A.parse_choice_from_env("NOT_SET", "bf16") == "bf16")
end
