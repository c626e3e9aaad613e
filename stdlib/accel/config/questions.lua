--- The questions of accel-run config: the schema's, in its order, for keys that have an effect with the answers so far. Pure: how
--- an answer comes is the caller's (`ask`). Answers may go back to the question before.
local conditions = require "accel.config.conditions"
local scalar = require "accel.config.scalar"
local schema = require "accel.config.schema"

local M = {}

--- Questions that decide whether a topic is asked about at all.
local GATES <const> = {
  dynamo = "Do you wish to optimize your script with torch dynamo?",
  deepspeed_file = "Do you want to specify a json file to a DeepSpeed config?",
  parallelism = "Do you want to use the parallelism config?",
  mpirun = "Do you want accelerate to launch mpirun?",
}

local KINDS <const> = { "NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM", "XLA" }

--- Keys that are asked, in order: the kind of distribution comes first, precision when the section that may decide it is done.
local function rows()
  local out = { schema.by_key.distributed_type }
  local apart = { distributed_type = true, mixed_precision = true, compute_environment = true }
  for _, row in ipairs(schema.list) do
    if row.topic.title == "fp8" and not apart.asked then
      apart.asked = true
      out[#out + 1] = schema.by_key.mixed_precision
    end
    if row.question and not apart[row.key] and not row.topic.environment then out[#out + 1] = row end
  end
  return out
end

--- Defaults of questions that differ from the schema's: the most likely answers.
local DEFAULTS <const> = {
  distributed_type = function(_, machine) return machine.gpus > 1 and "MULTI_GPU" or "NO" end,
  num_processes = function(v, machine)
    if v.distributed_type == "NO" then return 1 end
    return v.distributed_type == "MULTI_CPU" and 2 or math.max(machine.gpus, 1)
  end,
  use_cpu = function(_, machine) return machine.gpus == 0 end,
  fsdp_state_dict_type = function(v) return v.fsdp_version == 1 and "FULL_STATE_DICT" or "SHARDED_STATE_DICT" end,
  mixed_precision = "no", gpu_ids = "all", same_network = true, zero_stage = 2, fsdp_version = 2, gradient_accumulation_steps = 1,
  offload_optimizer_nvme_path = "/nvme", offload_param_nvme_path = "/nvme", fsdp_auto_wrap_policy = "TRANSFORMER_BASED_WRAP",
  megatron_lm_num_micro_batches = 1, megatron_lm_sequence_parallelism = true, megatron_lm_recompute_activations = true,
  megatron_lm_use_distributed_optimizer = true,
}

--- A key's default: from the machine, or the schema's.
function M.default(row, values, machine)
  local own = DEFAULTS[row.key]
  if type(own) == "function" then return own(values, machine) end
  if own ~= nil then return own end
  if row.default ~= nil then return row.default end
  if row.file ~= nil then return row.file end
  if row.type == "bool" or row.type == "switch" then return false end
  return nil
end

local function not_several_kinds(v) return v.distributed_type == "NO" or v.distributed_type == "XLA" end
local function without_devices(v)
  return not (v.distributed_type == "MULTI_GPU" or v.distributed_type == "NO" and not v.use_cpu)
end

local SKIPPED <const> = { -- not asked if they follow from other answers
  num_processes = function(v) return v.distributed_type == "NO" end,
  num_machines = not_several_kinds,
  debug = not_several_kinds,
  use_cpu = function(v) return v.distributed_type ~= "NO" end,
  gpu_ids = without_devices,
  enable_cpu_affinity = without_devices,
  mixed_precision = function(v) return v.distributed_type == "XLA" or v.deepspeed_config_file ~= nil end,
  mpirun_hostfile = function(v) return v.distributed_type ~= "MULTI_CPU" end,
  mpirun_ccl = function(v) return v.distributed_type ~= "MULTI_CPU" end,
  fp8_backend = function(v) return v.mixed_precision ~= "fp8" end,
  offload_optimizer_nvme_path = function(v) return v.offload_optimizer_device ~= "nvme" end,
  offload_param_nvme_path = function(v) return v.offload_param_device ~= "nvme" end,
  offload_param_device = function(v) return v.zero_stage ~= 3 end,
  zero3_init_flag = function(v) return v.zero_stage ~= 3 and v.deepspeed_config_file == nil end,
  zero3_save_16bit_model = function(v) return v.zero_stage ~= 3 end,
  deepspeed_config_file = function(_, gates) return not gates.deepspeed_file end,
  deepspeed_hostfile = function(v) return v.deepspeed_multinode_launcher == "standard" end,
  deepspeed_exclusion_filter = function(v) return v.deepspeed_hostfile == nil end,
  deepspeed_inclusion_filter = function(v) return v.deepspeed_hostfile == nil end,
  fsdp_sync_module_states = function(v) return v.fsdp_cpu_ram_efficient_loading ~= false end, -- which needs it
  megatron_lm_sequence_parallelism = function(v) return (v.megatron_lm_tp_degree or 1) < 2 end,
  megatron_lm_num_micro_batches = function(v) return (v.megatron_lm_pp_degree or 1) < 2 end,
}

local function gate_of(row)
  if row.key == "deepspeed_config_file" then return "deepspeed_file" end
  return GATES[row.topic.title] and row.topic.title or nil
end

--- Whether the topic's own condition holds: the gate is asked only then.
local function applies(row, values, gates)
  local skip = SKIPPED[row.key]
  if row.key == "dynamo_backend" then return true end
  if skip and row.key ~= "deepspeed_config_file" and skip(values, gates) then return false end
  local when = row.asked_when or row.when
  return not when or conditions.holds[when](values)
end

local FSDP2_STATES <const> = { "SHARDED_STATE_DICT", "FULL_STATE_DICT" }

local function choices(row, values)
  if row.key == "distributed_type" then return KINDS end
  if row.key == "fsdp_state_dict_type" and values.fsdp_version == 2 then return FSDP2_STATES end
  if row.key == "dynamo_backend" then return table.move(row.allowed, 2, #row.allowed, 1, {}) end
  return row.allowed
end

--- Converts an answer's text into a value. nil and the expected form on failure. An empty text is the default.
function M.answer(row, text, default, values)
  if text == "" then return default end
  local list = choices(row, values or {})
  local number = math.tointeger(tonumber(text))
  if list and number and list[number + 1] ~= nil and math.type(list[1]) ~= "integer" then return list[number + 1] end
  local value, expected = scalar.typed(row, text)
  if value == nil then return nil, expected end
  return scalar.allowed(row, value)
end

--- Asks everything. ask(question, { choices =, default =, kind = }) returns a text, nil to stop, or M.BACK. Returns
--- values by key, or nil if it was stopped.
M.BACK = {}

---@param ask fun(question: string, how: table): any
---@param machine accel.config.Machine
---@return table<string, any>?
function M.run(ask, machine)
  local list, values, gates, trail = rows(), { compute_environment = "LOCAL_MACHINE" }, {}, {}
  local i = 1
  while i <= #list do
    local row = list[i]
    local gate = gate_of(row)
    if applies(row, values, gates) then
      local step = { index = i, key = row.key }
      if gate and gates[gate] == nil then
        local text = ask(GATES[gate], { default = false, kind = "bool" })
        if text == nil then return nil end
        if text == M.BACK then goto back end
        gates[gate] = text ~= "" and scalar.truth(text) or false
        step.gate = gate
      end
      if not gate or gates[gate] then
        local default, value, why = M.default(row, values, machine), nil, nil
        repeat
          local text = ask(row.question, { choices = choices(row, values), default = default, kind = row.type, why = why })
          if text == nil then return nil end
          if text == M.BACK then goto back end
          value, why = M.answer(row, text, default, values)
        until value ~= nil or not why
        values[row.key] = value
      end
      trail[#trail + 1] = step
    end
    i = i + 1
    goto continue
    ::back::
    do
      local last = table.remove(trail)
      if last then
        i = last.index
        values[last.key] = nil
        if last.gate then gates[last.gate] = nil end
      end
    end
    ::continue::
  end
  return values
end

--- Values by key as the fields of a configuration file.
---@param values table<string, any>
---@return table<string, any>
function M.fields(values)
  local out = {}
  for _, row in ipairs(schema.list) do
    local topic, value = row.topic, values[row.key]
    if schema.by_key[row.key] == row and not topic.environment then
      if topic.section then
        if value ~= nil then
          out[topic.section] = out[topic.section] or {}
          out[topic.section][row.key] = value
        end
      else
        if value == nil then value = schema.file_default(row) end
        out[row.key] = value
      end
    end
  end
  if out.num_processes == -1 and out.distributed_type == "NO" then out.num_processes = 1 end
  if out.distributed_type == "MULTI_CPU" and values.use_cpu == nil then out.use_cpu = true end
  return out
end

--- The output of `accelerate config default` for this machine.
---@param mixed_precision string
---@param machine accel.config.Machine
---@return table<string, any>
function M.basic(mixed_precision, machine)
  local kind = machine.gpus > 1 and "MULTI_GPU" or "NO"
  return M.fields { compute_environment = "LOCAL_MACHINE", distributed_type = kind, mixed_precision = mixed_precision,
    num_processes = math.max(machine.gpus, 1), use_cpu = machine.gpus == 0 }
end

return M
