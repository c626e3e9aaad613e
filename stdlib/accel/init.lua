--- accel: the native module with the training library around it. `require "accel"` returns one table. Tensors, ops and
--- modes come from C (accel.core). The Accelerator, nn, optim, data, models and others are Lua files loaded on first
--- use, so that a start takes milliseconds.
---@type accel
local accel = require "accel.core"

--- Functions with a separate file.
local functions = { deepcopy = "accel.nn.deepcopy", launch = "accel.launch", plot = "accel.track.plot_run", display = "accel.track.display",
  open_sharded = "accel.util.open_sharded",
  compile = "accel.compile_function", graph = "accel.graph_function",
  checkpoint = "accel.autograd.checkpoint", checkpoint_sequential = "accel.autograd.checkpoint_sequential" }
local submodules = { autograd = true, fft = true, parallel = true, nn = true, optim = true, data = true, dist = true, models = true, text = true,
  util = true, accelerator = true, amp = true, metrics = true, ckpt = true, config = true, offload = true,
  track = true, profiler = true, deepspeed = true, quant = true, peft = true, onnx = true, fp8 = true, functional = true, linalg = true,
  special = true, func = true, vision = true, audio = true }
--- Names of other modules that PyTorch's root has as well.
local elsewhere = { vmap = "accel.func" }
for name in ("bilinear channel_shuffle pairwise_distance pixel_shuffle pixel_unshuffle embedding_bag ctc_loss alpha_dropout"):gmatch "%S+" do
  elsewhere[name] = "accel.nn.functional"
end
--- Entries of lower layers whose files stand in higher ones.
require "accel.util.lazy".add {
  ["accel.nn.parallel"] = {
    FullyShardedDataParallel = "accel.shard.fully_sharded", PipelineParallel = "accel.parallel.pipeline.runner",
  },
  ["accel.autograd"] = { _offload = "accel.offload.activations" },
  ["accel.models"] = { _quant = "accel.quant" },
  ["accel.data"] = { ImageFolder = "accel.vision.image_folder", AudioFolder = "accel.audio.audio_folder" },
  ["accel.fp8"] = { _recipes = "accel.accelerator.plugins.fp8" },
}
--- Names of accel.accelerator that accel provides as well.
local accelerator = { Accelerator = true, PartialState = true, AcceleratorState = true, GradientState = true,
  LocalSGD = true, set_seed = true, synchronize_rng_states = true, get_logger = true, skip_first_batches = true,
  find_executable_batch_size = true, AutocastKwargs = true, DistributedDataParallelKwargs = true,
  GradScalerKwargs = true, InitProcessGroupKwargs = true, KwargsHandler = true, ProfileKwargs = true,
  BnbQuantizationConfig = true, load_and_quantize_model = true,
  init_empty_weights = true, init_on_device = true, cpu_offload = true, cpu_offload_with_hook = true, disk_offload = true,
  dispatch_model = true, load_checkpoint_and_dispatch = true, load_checkpoint_in_model = true, infer_auto_device_map = true,
  FullyShardedDataParallelPlugin = true, DeepSpeedPlugin = true, MegatronLMPlugin = true, TorchDynamoPlugin = true,
  ParallelismConfig = true, DummyOptim = true, DummyScheduler = true,
  DataLoaderConfiguration = true, ProjectConfiguration = true, GradientAccumulationPlugin = true, GeneralTracker = true,
  AcceleratedOptimizer = true, AcceleratedScheduler = true, TensorInformation = true, ComputeEnvironment = true,
  CustomDtype = true, DDPCommunicationHookType = true, DistributedType = true, DynamoBackend = true, LoggerType = true,
  PrecisionType = true, RNGType = true, SageMakerDistributedType = true,
  TERecipeKwargs = true, AORecipeKwargs = true, MSAMPRecipeKwargs = true, FP8RecipeKwargs = true }

local meta = getmetatable(accel) or {}
local previous = meta.__index
meta.__index = function(t, key)
  if submodules[key] then
    local module = require "accel.util.checked".public(require("accel." .. key), key)
    rawset(t, key, module)
    return module
  end
  if functions[key] then
    local f = require "accel.util.checked".public(require(functions[key]), key)
    rawset(t, key, f)
    return f
  end
  if accelerator[key] then
    local value = require "accel.accelerator"[key]
    rawset(t, key, value)
    return value
  end
  local value = previous
  if type(previous) == "function" then value = previous(t, key) elseif previous then value = previous[key] end
  if value ~= nil then return value end
  value = elsewhere[key] and require(elsewhere[key])[key] or require "accel.functional"._find(key, false)
  if value == nil then require("accel.util.absent").refuse("accel.", key) end
  rawset(t, key, value)
  return value
end

for _, name in ipairs { "hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window" } do
  accel[name] = function(...) return require("accel.fft.windows")[name](...) end
end
for _, name in ipairs { "stft", "istft" } do
  local function transform(...) return require("accel.fft.stft")[name](...) end
  accel[name], accel.Tensor[name] = transform, transform
end

-- Methods that are made of several ops.
local methods = getmetatable(accel.Tensor)
local alias = methods.__index
methods.__index = function(t, key)
  local f = alias(t, key)
  if f ~= nil then return f end
  f = require "accel.functional"._find(key, true)
  if f then rawset(t, key, f) end
  return f
end

do -- with as_tuple the op gives a list: of no op is the number of results an option
  local nonzero = accel.nonzero
  local function listed(x, ...)
    if select("#", ...) == 0 then return nonzero(x) end
    return require("accel.functional").nonzero(nonzero, x, ...)
  end
  for _, name in ipairs { "nonzero", "argwhere" } do accel[name], accel.Tensor[name] = listed, listed end
end

for _, name in ipairs { "allclose", "equal" } do
  local function compare(...) return require("accel.util.compare")[name](...) end
  accel[name], accel.Tensor[name] = compare, compare
end

-- Linear algebra at the root and as methods of tensors. The others are functions of the root alone.
for name in ("cholesky_inverse cholesky_solve det logdet slogdet matrix_exp matrix_power inverse orgqr pinverse lu lu_solve "
  .. "triangular_solve ormqr"):gmatch "%S+" do
  local function call(...) return require("accel.linalg.root")[name](...) end
  accel[name], accel.Tensor[name] = call, call
end
for name in ("lu_unpack frobenius_norm nuclear_norm svd_lowrank pca_lowrank"):gmatch "%S+" do
  accel[name] = function(...) return require("accel.linalg.root")[name](...) end
end

-- PyTorch's names of dtypes: without them, dtype = accel.float16 would be nil and quietly mean f32.
for name, dtype in next, {
  float64 = "f64", double = "f64", float32 = "f32", float = "f32", float16 = "f16", half = "f16", bfloat16 = "bf16",
  int64 = "i64", long = "i64", int32 = "i32", int = "i32", int16 = "i16", short = "i16", int8 = "i8", uint8 = "u8",
  bool = "bool", complex64 = "c64", cfloat = "c64", complex128 = "c128", cdouble = "c128",
} do
  accel[name] = dtype
end

--- Names that are loaded on first use, for completion and "did you mean".
meta.__names = {}
for _, list in ipairs { submodules, functions, accelerator } do
  for name in next, list do meta.__names[name] = true end
end

setmetatable(accel, meta)
-- Lua waits until its heap has doubled before it begins to collect young objects, and a loop of small ops would keep thousands of dead
-- tensors. A step now begins it. Other interpreters keep their mode.
if collectgarbage "incremental" == "generational" then
  collectgarbage "generational"
  collectgarbage "step"
end

return accel
