--- The questions of accel-run config: those of the schema, in its order, of keys that have an effect with what was answered so far.
--- Pure: how an answer comes is the caller's (`ask`). Answers may go back to the question before.
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

--- Keys that are asked, in order; the kind of distribution comes first.
local function rows()
  local out = { schema.by_key.distributed_type }
  for _, row in ipairs(schema.list) do
    if row.question and row.key ~= "distributed_type" and row.key ~= "compute_environment" and not row.topic.environment then
      out[#out + 1] = row
    end
  end
  return out
end

--- What a key is unless something else is said: from the machine, else the schema's.
function M.default(row, values, machine)
  local key = row.key
  if key == "distributed_type" then return machine.gpus > 1 and "MULTI_GPU" or "NO" end
  if key == "num_processes" then
    if values.distributed_type == "NO" then return 1 end
    return values.distributed_type == "MULTI_CPU" and 2 or math.max(machine.gpus, 1)
  end
  if key == "use_cpu" then return machine.gpus == 0 end
  if key == "mixed_precision" then return "no" end
  if key == "gpu_ids" then return "all" end
  if key == "zero_stage" then return 2 end
  if key == "fsdp_auto_wrap_policy" then return "TRANSFORMER_BASED_WRAP" end
  if key == "fsdp_state_dict_type" then return values.fsdp_version == 1 and "FULL_STATE_DICT" or "SHARDED_STATE_DICT" end
  if row.default ~= nil then return row.default end
  if row.file ~= nil then return row.file end
  if row.type == "bool" or row.type == "switch" then return false end
  return nil
end

local SKIPPED <const> = { -- not asked where they follow from other answers
  num_processes = function(v) return v.distributed_type == "NO" end,
  num_machines = function(v) return v.distributed_type == "NO" end,
  use_cpu = function(v) return v.distributed_type ~= "NO" end,
  gpu_ids = function(v) return v.distributed_type ~= "MULTI_GPU" end,
  enable_cpu_affinity = function(v) return v.distributed_type ~= "MULTI_GPU" end,
  fp8_backend = function(v) return v.mixed_precision ~= "fp8" end,
  offload_optimizer_nvme_path = function(v) return v.offload_optimizer_device ~= "nvme" end,
  offload_param_nvme_path = function(v) return v.offload_param_device ~= "nvme" end,
  offload_param_device = function(v) return v.zero_stage ~= 3 end,
  zero3_init_flag = function(v) return v.zero_stage ~= 3 and v.deepspeed_config_file == nil end,
  zero3_save_16bit_model = function(v) return v.zero_stage ~= 3 end,
  deepspeed_config_file = function(_, gates) return not gates.deepspeed_file end,
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

local function choices(row)
  if row.key == "distributed_type" then return KINDS end
  if row.key == "dynamo_backend" then return table.move(row.allowed, 2, #row.allowed, 1, {}) end
  return row.allowed
end

--- Takes an answer's text into a value, or nil and what was expected. An empty text is the default.
function M.answer(row, text, default)
  if text == "" then return default end
  local list = choices(row)
  local number = math.tointeger(tonumber(text))
  if list and number and list[number + 1] ~= nil and math.type(list[1]) ~= "integer" then return list[number + 1] end
  local value, expected = scalar.typed(row, text)
  if value == nil then return nil, expected end
  return scalar.allowed(row, value)
end

--- Asks everything. ask(question, { choices =, default =, kind = }) returns a text, nil to stop, or M.BACK.
--- Returns values by key, or nil where it was stopped.
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
          local text = ask(row.question, { choices = choices(row), default = default, kind = row.type, why = why })
          if text == nil then return nil end
          if text == M.BACK then goto back end
          value, why = M.answer(row, text, default)
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
  return out
end

--- What `accelerate config default` writes for this machine.
---@param mixed_precision string
---@param machine accel.config.Machine
---@return table<string, any>
function M.basic(mixed_precision, machine)
  local kind = machine.gpus > 1 and "MULTI_GPU" or "NO"
  return M.fields { compute_environment = "LOCAL_MACHINE", distributed_type = kind, mixed_precision = mixed_precision,
    num_processes = math.max(machine.gpus, 1), use_cpu = machine.gpus == 0 }
end

return M
