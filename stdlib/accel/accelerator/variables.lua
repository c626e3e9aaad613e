--- Variables of the environment that begin as Accelerate's do and that nothing reads: the Accelerator warns of each, with the nearest name
--- or the reason. Known are the variables of configurations (accel.config.schema), of the fields of plugins, and the ones below.
local environment = require "accel.accelerator.environment"
local nearest = require "accel.util.nearest"

local M = {}

local PREFIXES <const> = { "ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "XLA_" }

--- Read by functions of accel.accelerator, or set by launches for them.
local READ <const> = {
  ACCELERATE_BYPASS_DEVICE_MAP = true, ACCELERATE_CONFIG_DS_FIELDS = true, ACCELERATE_CPU_AFFINITY = true, ACCELERATE_DEBUG_MODE = true,
  ACCELERATE_GRADIENT_ACCUMULATION_STEPS = true, ACCELERATE_INIT_INCLUDE_BUFFERS = true, ACCELERATE_LOG_LEVEL = true,
  ACCELERATE_MIXED_PRECISION = true, ACCELERATE_TORCH_DEVICE = true, ACCELERATE_USE_CPU = true, ACCELERATE_USE_DEEPSPEED = true,
  ACCELERATE_USE_FSDP = true, ACCELERATE_USE_MEGATRON_LM = true, ACCELERATE_USE_PARALLELISM_CONFIG = true,
}

--- Accelerate's variables that have no effect here, and why.
local IDLE <const> = {
  ACCELERATE_ALLOW_CP_STANDALONE = "context parallelism needs no other plugin",
  ACCELERATE_DEBUG_RDV_FILE = "ranks find each other without a file; set MASTER_ADDR and MASTER_PORT, or start them with accel-run",
  ACCELERATE_ENABLE_RICH = "errors have accel's own traceback",
  ACCELERATE_IN_TPU_POD = "there is no TPU backend",
  ACCELERATE_NUM_PROCESSES = "accel-run --num-processes sets the number of ranks",
  ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE = "SageMaker is not supported",
  XLA_USE_BF16 = 'there is no TPU backend, and mixed_precision = "bf16" computes in bf16',
  XLA_DOWNCAST_BF16 = 'there is no TPU backend, and mixed_precision = "bf16" computes in bf16',
}

local PLUGINS <const> = { "dynamo", "fsdp", "deepspeed", "fp8", "megatron", "parallelism" }

--- Every variable that something reads, as a set.
local function known()
  local set = {}
  for name in next, READ do set[name] = true end
  for _, row in ipairs(require "accel.config.schema".list) do
    for _, name in ipairs(type(row.env) == "table" and row.env or { row.env }) do set[name] = true end
  end
  for _, file in ipairs(PLUGINS) do
    for _, cls in next, (require("accel.accelerator.plugins." .. file)) do
      for _, from in next, type(cls) == "table" and rawget(cls, "env") or {} do set[from[1]] = true end
    end
  end
  return set
end
M._known, M._idle = known, IDLE

--- A line for every variable that is set and that nothing reads.
--- example: local A = accel.accelerator return A.patch_environment({ accelerate_mixed_precison = "bf16" },
---   require "accel.accelerator.variables".lines)
---   --> { "ACCELERATE_MIXED_PRECISON is set in the environment and nothing reads it; did you mean ACCELERATE_MIXED_PRECISION?" }
---@return string[]
function M.lines()
  local strange, lines = {}, {}
  for _, prefix in ipairs(PREFIXES) do
    for _, name in ipairs(environment.names(prefix)) do
      if not READ[name] then strange[#strange + 1] = name end
    end
  end
  if #strange == 0 then return lines end -- nothing else is loaded
  local set = known()
  for _, name in ipairs(strange) do
    if IDLE[name] then
      lines[#lines + 1] = ("%s has no effect: %s; unset it"):format(name, IDLE[name])
    elseif not set[name] and not name:find "^XLA_" then -- which other programs read
      local near = nearest(name, set)
      lines[#lines + 1] = ("%s is set in the environment but never read; %s"):format(name,
        near and ("did you mean %s?"):format(near) or "unset it")
    end
  end
  return lines
end

return M
