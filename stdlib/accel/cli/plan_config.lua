--- Plans in a line, "tp=2,pp=2,zero=1,micro_batches=8", and the configuration files of accel-run that they stand for. --dry-run --plan and
--- accel-run plan use the same form. Used by dry_run.lua and plan.lua.
local accel = require "accel"
local nearest = require "accel.util.nearest"

local M = {}

--- Plans that have a name.
M.named = {
  ddp = {}, zero1 = { zero = 1 }, zero2 = { zero = 2 }, zero3 = { zero = 3 },
  full_shard = { fsdp = "FULL_SHARD" }, shard_grad_op = { fsdp = "SHARD_GRAD_OP" },
}

local KEYS <const> = { tp = true, pp = true, cp = true, sp = true, ep = true, zero = true, micro_batches = true, sequence = true, recompute = true,
  schedule = true }

local SCHEDULES <const> = { gpipe = true, ["1f1b"] = true, zero_bubble = true }

--- A plan from its text. nil and the error otherwise.
---@param text string
---@return table? plan
---@return string? why
function M.parse(text)
  if M.named[text] then return M.named[text] end
  if not text:find("=", 1, true) then
    local near = nearest(text, M.named)
    return nil, ("no plan '%s'%s"):format(text, near and ("; did you mean '%s'?"):format(near)
      or "; choose from ddp, zero1, zero2, zero3, full_shard, shard_grad_op, and tp=2,pp=2,cp=1,sp=1,zero=1,micro_batches=4")
  end
  local plan = {}
  for word in text:gmatch "[^,]+" do
    local key, value = word:match "^([%w_]+)=([%w_]+)$"
    if not KEYS[key or ""] then
      local near = key and nearest(key, KEYS)
      return nil, ("'%s'%s"):format(word, near and ("; did you mean '%s'?"):format(near)
        or ": parts are tp, pp, cp, sp, ep, zero, micro_batches, sequence, schedule, recompute")
    end
    if key == "recompute" then
      if value ~= "full" and value ~= "selective" then return nil, ("'%s': recompute is full or selective"):format(word) end
    elseif key == "schedule" then
      if not SCHEDULES[value] then return nil, ("'%s': schedule is gpipe, 1f1b or zero_bubble"):format(word) end
    else
      value = math.tointeger(tonumber(value))
      if not value or value < 0 or value < 1 and key ~= "zero" and key ~= "sequence" or key == "zero" and value > 3 then
        return nil, ("'%s': expected an integer from 1, or for zero 0 to 3"):format(word)
      end
    end
    plan[key] = value
  end
  return plan, M.refuse(plan)
end

local function size(plan, key) return plan[key] or 1 end

--- Which words of the reference a plan is written in: "ddp", "deepspeed", "fsdp" or "megatron".
---@param plan table
---@return "ddp"|"deepspeed"|"fsdp"|"megatron"
function M.kind(plan)
  local zero = plan.zero or 0
  if plan.fsdp then return "fsdp" end
  local meshed = size(plan, "ep") > 1 or size(plan, "tp") > 1 or size(plan, "cp") > 1 or size(plan, "sp") > 1
  if size(plan, "pp") > 1 or meshed and zero < 2 and size(plan, "sp") == 1 or plan.recompute and zero < 2 or plan.micro_batches then
    return "megatron"
  end
  if meshed or plan.recompute then return "fsdp" end
  return zero > 0 and "deepspeed" or "ddp"
end

--- Settings that cannot be written to a file. nil if all can.
---@param plan table
---@return string?
function M.refuse(plan)
  local kind, zero = M.kind(plan), plan.zero or 0
  if plan.schedule and size(plan, "pp") == 1 then return "schedule is of pipelines: give pp as well" end
  if kind == "megatron" then
    if zero > 1 then
      return ("zero=%d with pp or micro_batches: stages of a pipeline share out states of the optimizer alone (zero=1)"):format(zero)
    end
    if size(plan, "sp") > 1 then return "sp with pp, micro_batches or recompute: share sequences out by cp there" end
  elseif plan.recompute == "selective" then
    return ("recompute=selective with zero=%d: there it is full"):format(zero)
  end
  if kind == "fsdp" and not plan.fsdp and zero < 2 and size(plan, "sp") == 1 then return nil end
  if size(plan, "cp") > 1 and size(plan, "sp") > 1 then return "cp and sp: a sequence is shared out in one way" end
end

local function lines_of(section, list)
  local out = { section .. ":" }
  for _, row in ipairs(list) do
    if row[2] ~= nil then out[#out + 1] = ("  %s: %s"):format(row[1], row[2]) end
  end
  return table.concat(out, "\n")
end

--- The configuration file of a plan, YAML that accel-run --config_file takes.
---@param plan table
---@param o {num_processes: integer, num_machines: integer?, mixed_precision: string?, cpu: boolean?, gradient_clipping: number?,
--- gradient_accumulation_steps: integer?} the last: forwards of an update, which a DeepSpeed configuration has as well
---@return string
function M.yaml(plan, o)
  local kind, sections = M.kind(plan), {}
  local tp, pp, cp, sp, ep = size(plan, "tp"), size(plan, "pp"), size(plan, "cp"), size(plan, "sp"), size(plan, "ep")
  local kinds = { ddp = o.num_processes == 1 and "NO" or o.cpu and "MULTI_CPU" or "MULTI_GPU", deepspeed = "DEEPSPEED", fsdp = "FSDP",
    megatron = "MEGATRON_LM" }
  if kind == "megatron" then
    sections[1] = lines_of("megatron_lm_config", {
      { "megatron_lm_tp_degree", tp }, { "megatron_lm_pp_degree", pp }, { "megatron_lm_num_micro_batches", plan.micro_batches or 1 },
      { "megatron_lm_pipeline_schedule", plan.schedule }, { "megatron_lm_expert_model_parallel_size", ep > 1 and ep or nil },
      { "megatron_lm_context_parallel_size", cp > 1 and cp or nil }, { "megatron_lm_gradient_clipping", o.gradient_clipping or 1.0 },
      { "megatron_lm_sequence_parallelism", tostring(plan.sequence == 1) },
      { "megatron_lm_use_distributed_optimizer", tostring(plan.zero == 1) },
      { "megatron_lm_recompute_activations", plan.recompute == "selective" and "true" or nil },
      { "megatron_lm_recompute_granularity", plan.recompute }, { "megatron_lm_recompute_method", plan.recompute == "full" and "uniform" or nil },
    })
  elseif kind == "deepspeed" then
    sections[1] = lines_of("deepspeed_config", {
      { "zero_stage", plan.zero }, { "gradient_accumulation_steps", o.gradient_accumulation_steps or 1 },
    })
  elseif kind == "fsdp" then
    local cuts = plan.fsdp ~= "SHARD_GRAD_OP" and plan.zero ~= 2
    sections[1] = lines_of("fsdp_config", plan.fsdp and { { "fsdp_sharding_strategy", plan.fsdp } } or {
      { "fsdp_version", 2 }, { "fsdp_reshard_after_forward", tostring(cuts) }, { "fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP" },
      { "fsdp_activation_checkpointing", plan.recompute and "true" or nil },
    })
    if tp * cp * sp * ep > 1 then
      sections[2] = lines_of("parallelism_config", {
        { "parallelism_config_dp_shard_size", o.num_processes // (tp * cp * sp) }, { "parallelism_config_tp_size", tp },
        { "parallelism_config_cp_size", cp }, { "parallelism_config_sp_size", sp }, { "parallelism_config_ep_size", ep > 1 and ep or nil },
      })
    end
  end
  local head = {
    "compute_environment: LOCAL_MACHINE", "distributed_type: " .. kinds[kind], "use_cpu: " .. tostring(o.cpu or false),
    ("mixed_precision: '%s'"):format(o.mixed_precision or "no"), "num_machines: " .. (o.num_machines or 1),
    "num_processes: " .. o.num_processes, "machine_rank: 0",
  }
  if (o.num_machines or 1) > 1 then head[#head + 1] = "main_process_ip: 127.0.0.1 # of the first machine\nmain_process_port: 29500" end
  return table.concat(head, "\n") .. "\n" .. table.concat(sections, "\n") .. (#sections > 0 and "\n" or "")
end

--- Ranks that one of a plan's models takes: the number of processes is a multiple of them.
---@param plan table
---@return integer
function M.ranks(plan) return size(plan, "tp") * size(plan, "pp") * size(plan, "cp") * size(plan, "sp") end

--- The same in a line, as --plan takes it.
---@param plan table
---@return string
function M.text(plan)
  local parts = {}
  for _, key in ipairs { "tp", "pp", "cp", "sp", "ep", "zero", "micro_batches", "sequence" } do
    if (plan[key] or 0) > (key == "zero" and 0 or key == "sequence" and 0 or 1) then parts[#parts + 1] = key .. "=" .. plan[key] end
  end
  if plan.schedule then parts[#parts + 1] = "schedule=" .. plan.schedule end
  if plan.recompute then parts[#parts + 1] = "recompute=" .. plan.recompute end
  return #parts > 0 and table.concat(parts, ",") or "ddp"
end

--- Variables for ranks of a plan, from its configuration file in `folder`. nil and the reason on failure.
---@param plan table
---@param o table as of yaml
---@param folder string
---@return table<string, string>? env
---@return string? why
function M.environment(plan, o, folder)
  local kind = M.kind(plan)
  if kind == "ddp" then return {} end
  -- other variables of these plugins in the script's environment stay valid
  if kind == "deepspeed" then return { ACCELERATE_USE_DEEPSPEED = "true", ACCELERATE_DEEPSPEED_ZERO_STAGE = tostring(plan.zero) } end
  if plan.fsdp then return { ACCELERATE_USE_FSDP = "true", FSDP_SHARDING_STRATEGY = plan.fsdp } end
  local path = folder .. "/plan.yaml"
  assert(accel.write_file(path, M.yaml(plan, o)))
  return M.of_file(path)
end

--- The same for a configuration file, without the choice of the device.
---@param path string
---@return table<string, string>? env
---@return any why, or the launch
function M.of_file(path)
  local launch, why = require "accel.config".plan { "--config_file", path, "script.lua" }
  if not launch then return nil, why end
  local env = {}
  for name, value in next, launch.env do
    if name:find "^ACCELERATE_" or name:find "^FSDP_" or name:find "^MEGATRON_LM_" or name:find "^PARALLELISM_CONFIG_" then
      env[name] = value
    end
  end
  env.ACCELERATE_USE_CPU = nil
  return env, launch
end

return M
