-- The questions of accel-run config in a terminal: arrow keys and plain typing, each path of the reference's tree. What they write is what
-- was answered, gives the environment of a launch, and (where python3 has Accelerate) is read by Accelerate and gives the same one.
--   accel-run tests/stdlib/cli/config_menu_test.lua
local accel = require "accel"
local machine = require "accel.config.machine"
local questions = require "accel.config.questions"
local pty = dofile((arg[0]:match "^.*/" or "") .. "../../support/pty.lua")

local here = arg[0]:match "^(.*)/" or "."
local UP <const>, DOWN <const>, LEFT <const> = "\\e[A", "\\eOB", "\\e[D"

-- Answers by key, beside which the default is taken; gates: sections that are asked about.
local GPUS <const> = { distributed_type = "MULTI_GPU", num_processes = "4", mixed_precision = "bf16" }
local FSDP <const> = { distributed_type = "FSDP", num_processes = "4" }
local DEEPSPEED <const> = { distributed_type = "DEEPSPEED", num_processes = "2" }
local SEVERAL <const> = { num_machines = "2", machine_rank = "1", main_process_ip = "10.0.0.1", main_process_port = "29700" }

local function with(...)
  local out = {}
  for _, t in ipairs { ... } do
    for k, v in next, t do out[k] = v end
  end
  return out
end

local paths <const> = {
  { "one process", {} },
  { "one process on GPUs", { use_cpu = "no", gpu_ids = "0", mixed_precision = "fp16", enable_cpu_affinity = "no" } },
  { "dynamo", { dynamo_backend = "INDUCTOR", dynamo_mode = "max-autotune", dynamo_use_dynamic = "yes" }, gate = "torch dynamo" },
  { "several CPUs", { distributed_type = "MULTI_CPU", num_processes = "3" } },
  { "mpirun", with({ distributed_type = "MULTI_CPU", num_processes = "4", mpirun_hostfile = "hosts" }, SEVERAL), gate = "mpirun" },
  { "GPUs", with(GPUS, { gpu_ids = "0,2", enable_cpu_affinity = "yes" }) },
  { "GPUs of machines", with(GPUS, SEVERAL, { rdzv_backend = "c10d", same_network = "no" }) },
  { "FSDP 1 by class", with(FSDP, { fsdp_version = "1", fsdp_sharding_strategy = "SHARD_GRAD_OP",
    fsdp_transformer_layer_cls_to_wrap = "Block,Head" }) },
  { "FSDP 1 by size", with(FSDP, { fsdp_version = "1", fsdp_auto_wrap_policy = "SIZE_BASED_WRAP", fsdp_min_num_params = "2000",
    fsdp_backward_prefetch = "BACKWARD_POST", fsdp_state_dict_type = "SHARDED_STATE_DICT", fsdp_forward_prefetch = "yes" }) },
  { "FSDP 1 whole", with(FSDP, { fsdp_version = "1", fsdp_auto_wrap_policy = "NO_WRAP", fsdp_cpu_ram_efficient_loading = "no",
    fsdp_sync_module_states = "yes", fsdp_use_orig_params = "no" }) },
  { "FSDP 2", with(FSDP, { fsdp_version = "2", fsdp_reshard_after_forward = "no", fsdp_offload_params = "yes",
    fsdp_activation_checkpointing = "yes" }) },
  { "FSDP 2 with a mesh", with(FSDP, { fsdp_version = "2", parallelism_config_dp_shard_size = "2", parallelism_config_tp_size = "2" }),
    gate = "parallelism config" },
  { "FSDP 2 with long sequences", with(FSDP, { fsdp_version = "2", parallelism_config_cp_size = "4",
    parallelism_config_cp_comm_strategy = "alltoall" }), gate = "parallelism config" },
  { "DeepSpeed 0", with(DEEPSPEED, { zero_stage = "0" }) },
  { "DeepSpeed 2", with(DEEPSPEED, { zero_stage = "2", offload_optimizer_device = "cpu", gradient_clipping = "1.0",
    gradient_accumulation_steps = "4" }) },
  { "DeepSpeed 3", with(DEEPSPEED, { zero_stage = "3", offload_optimizer_device = "nvme", offload_optimizer_nvme_path = "/nvme0",
    offload_param_device = "nvme", offload_param_nvme_path = "/nvme1", zero3_init_flag = "yes", zero3_save_16bit_model = "yes" }) },
  { "DeepSpeed with experts", with(DEEPSPEED, { zero_stage = "3", deepspeed_moe_layer_cls_names = "MixtralSparseMoeBlock" }) },
  { "DeepSpeed's file", with(DEEPSPEED, { deepspeed_config_file = "ds.json" }), gate = "json file" },
  { "DeepSpeed over machines", with(DEEPSPEED, SEVERAL, { num_processes = "4", zero_stage = "1", deepspeed_multinode_launcher = "pdsh",
    deepspeed_hostfile = "hosts", deepspeed_exclusion_filter = "w1" }) },
  { "DeepSpeed on each machine", with(DEEPSPEED, SEVERAL, { num_processes = "4", deepspeed_multinode_launcher = "standard" }) },
  { "Megatron-LM", with(GPUS, { distributed_type = "MEGATRON_LM", megatron_lm_tp_degree = "2", megatron_lm_pp_degree = "2",
    megatron_lm_num_micro_batches = "4", megatron_lm_sequence_parallelism = "yes", megatron_lm_use_distributed_optimizer = "yes" }) },
  { "fp8 of TE", with(GPUS, { mixed_precision = "fp8", fp8_backend = "TE", fp8_margin = "1", fp8_format = "E4M3",
    fp8_override_linear_precision = "yes,no,no" }) },
  { "fp8 of AO", with(GPUS, { mixed_precision = "fp8", fp8_backend = "AO", fp8_pad_inner_dim = "no" }) },
  { "fp8 of MS-AMP", with(GPUS, { mixed_precision = "fp8", fp8_backend = "MSAMP", fp8_opt_level = "O1" }) },
  { "TPUs", { distributed_type = "XLA", num_processes = "8", downcast_bf16 = "yes" } },
}

local function texts(how)
  if how.kind == "bool" or how.kind == "switch" then return { "yes", "no" }, how.default and 1 or 2 end
  local list, at = {}, 1
  for i, word in ipairs(how.choices or {}) do
    list[i] = tostring(word)
    if word == how.default then at = i end
  end
  return #list > 0 and list or nil, at
end

--- The keys that give an answer: arrows from where the menu stands, the other way round every second time, or the text itself.
local turn = 0
local function keys_for(how, answer)
  local list, at = texts(how)
  turn = turn + 1
  if answer == "" then return "\\r" end
  if not list or turn % 3 == 0 then return answer .. "\\r" end
  for i, word in ipairs(list) do
    if word == answer then
      local key, n = DOWN, (i - at) % #list
      if turn % 3 == 1 then key, n = UP, (at - i) % #list end
      return key:rep(n) .. "\\r"
    end
  end
  error(("no choice %s"):format(answer))
end

--- Walks through the questions as the program will: what was answered, and the script for the terminal.
local function walk(path)
  local name, answers, used, script = path[1], path[2], {}, {}
  local by_question = {}
  for _, row in ipairs(require "accel.config.schema".list) do
    if row.question then by_question[row.question .. "\0" .. row.type] = row.key end
  end
  local values = assert(questions.run(function(question, how)
    assert(not how.why, ("%s: %s"):format(name, how.why))
    local key = by_question[question .. "\0" .. tostring(how.kind)]
    local answer = key and answers[key] or ""
    if key then used[key] = true elseif path.gate and question:find(path.gate, 1, true) then answer = "yes" end
    script[#script + 1] = "expect " .. question
    script[#script + 1] = "expect ["
    script[#script + 1] = "send " .. keys_for(how, answer)
    return answer
  end, machine.complete()))
  for key in next, answers do assert(used[key], ("%s: %s is not asked for"):format(name, key)) end
  script[#script + 1] = "expect configuration written to"
  script[#script + 1] = "end 0\n"
  return values, table.concat(script, "\n")
end

local function same(want, got, what)
  for k, v in next, want do
    if type(v) == "table" then same(v, got[k] or {}, what .. "." .. k)
    else assert(got[k] == v, ("%s.%s: wanted %s, got %s"):format(what, k, tostring(v), tostring(got[k]))) end
  end
end

local files, ours = {}, {}
local there <const> = { gpus = 4, cores = 8, fp8 = true, mpi = "Open MPI", cwd = "/cwd", interpreter = "python" }
for i, path in ipairs(paths) do
  local values, script = walk(path)
  files[i] = ("%spath%02d.yaml"):format(pty.tmp, i)
  os.remove(files[i])
  pty.play(path[1], script, ("'%s' config --config_file '%s'"):format(pty.run, files[i]), { TERM = "xterm" })
  local fields, why = accel.config.load(files[i])
  assert(fields, why)
  same(questions.fields(values), fields, path[1])
  local env
  env, why = accel.config.environment({ "--config_file", files[i], "train.lua" }, there)
  ours[i] = env or assert(why)
end

-- Back, by the left arrow and by "<"; keys without a meaning; a mistyped line; a wrong answer; the end of the input and Ctrl-C write nothing
-- and leave the terminal as it was.
local one = pty.tmp .. "one.yaml"
os.remove(one)
local config = ("'%s' config --config_file '%s'"):format(pty.run, one)
pty.play("back and mend", [[
expect Which type of machine
send \e[B\r
expect Should distributed operations
send ]] .. LEFT .. [[

expect Which type of machine
send NO\x7f\x7f\x7fxyz\x15NO\r
expect CPU only
send <\r
expect Which type of machine
send \r
expect CPU only
send y\r
expect torch dynamo
send \e[15~\e[5~\ex\r
expect mixed precision
send fp12\r
expect that is not one of no, fp16, bf16, fp8
expect mixed precision
send bf\t\r
expect bf16
expect configuration written to
end 0
]], config)
local fields = assert(accel.config.load(one))
assert(fields.distributed_type == "NO" and fields.mixed_precision == "bf16" and fields.use_cpu == true)
os.remove(one)
for how, keys in next, { ["Ctrl-C"] = "\\x03", ["the end of the input"] = "\\x04" } do
  pty.play(how, ("expect Which type of machine\nexpect [\nsend %s\nexpect nothing was written\nend %d\n"):format(keys,
    how == "Ctrl-C" and 130 or 1), config)
  assert(not io.open(one, "rb"), "something was written")
end
pty.play("the terminal afterwards", "expect Which type of machine\nexpect [\nsend \\x03\nexpect nothing was written\nend 0\n",
  ("sh -c \"%s; stty -a > '%smodes'\""):format(config, pty.tmp))
local modes = " " .. pty.read "modes":gsub("%s+", " ")
for _, mode in ipairs { "icanon", "echo", "isig", "iexten" } do assert(modes:find(" " .. mode .. " ", 1, true), modes) end

-- Where the cursor cannot be moved, lines are asked for.
pty.play("a dumb terminal", "expect An empty line takes the default\nexpect Which type of machine\nexpect * 0  NO\nexpect [\nsend \\x04\n"
  .. "expect nothing was written\nend 1\n", ("env TERM=dumb %s"):format(config))

-- ---- Accelerate ----

if not os.execute "python3 -c 'import accelerate' >/dev/null 2>&1" then
  print "python3 has no package accelerate: its part is left out"
  os.exit(0)
end
local pipe = assert(io.popen(("PYTHONDONTWRITEBYTECODE=1 python3 '%s/config_environments.py' '%s' 2>/dev/null"):format(here,
  table.concat(files, "' '"))))

--- Why a variable differs, where Accelerate is known to be wrong (tests/reference/configs_launch.lua has the reasons).
local function excused(key, path)
  if key:find "NVME_PATH$" then return true end
  if key == "ACCELERATE_CPU_AFFINITY" then return path[2].enable_cpu_affinity end
  if key == "PYTHONPATH" then return true end
  return false
end

local compared = 0
for i, path in ipairs(paths) do
  local line = assert(pipe:read "l", "python3 has ended")
  local ok, theirs = pcall(accel.json.decode, line)
  assert(ok and type(theirs) == "table", line)
  if theirs.error then
    print(path[1], theirs.error, ours[i])
    assert(type(ours[i]) == "string", path[1])
  else
    assert(type(ours[i]) == "table", ours[i])
    for _, pair in ipairs { { theirs.env, ours[i] }, { ours[i], theirs.env } } do
      for key in next, pair[1] do
        assert(theirs.env[key] == ours[i][key] or excused(key, path), ("%s: %s is %s there, %s here"):format(path[1], key,
          tostring(theirs.env[key]), tostring(ours[i][key])))
      end
    end
  end
  compared = compared + 1
end
pipe:close()
print(("%d paths, each as Accelerate reads it"):format(compared))
