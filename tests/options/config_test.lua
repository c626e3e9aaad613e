-- Every key of a configuration and every flag of a launch (config/keys), set to a value that is not its default, in a launch of each kind
-- that takes it: the ranks' environment or accel-run's own words are others, the launch names it in a warning, or it refuses. A variable
-- that ranks get must be read somewhere. A file says the same in YAML, JSON and Lua. Nothing is started: the launch runs in here.
--   accel-run tests/options/config_test.lua [KEY]
-- tier: sampled
local accel = require "accel"
local machine = require "accel.config.machine"
local read = require "accel.config.read"
local schema = require "accel.config.schema"
local ONLY <const> = arg[1]
local sample = dofile((arg[0]:match "^.*/" or "") .. "../support/sample.lua")
local taken = sample.one_of(4) -- of the files; flags are all tried
local source = os.getenv "ACCEL_TEST_SRC" or arg[0]:match "^(.*)/tests/" or "."

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/keys-"))
local function write(name, text)
  local file <close> = assert(io.open(root .. "/" .. name, "w"))
  file:write(text)
  return root .. "/" .. name
end

-- ---- a launch in here ----
local DONE <const> = {}
local seen -- what a launch did: words and variables, or the exit status; and what it said

local function text_of(list)
  local parts = {}
  for key, value in accel.pairs(list) do parts[#parts + 1] = ("%s=%s"):format(tostring(key), tostring(value)) end
  return table.concat(parts, "\n")
end

local complete = machine.complete
function machine.complete()
  return complete { gpus = 1, cores = 8, mpi = "Open MPI", fp8 = true, cwd = root, interpreter = "accel-run",
    free_port = function() return 61000 end, port_in_use = function() return false end }
end
local spawn = require "accel.cli.launch_spawn"
function spawn.run(argv, env)
  seen.words, seen.env = argv, env
  error(DONE)
end
function spawn.over_hosts(p, _, line)
  seen.words, seen.env = line(1), p.env
  local v = p.values
  seen.words[#seen.words + 1] = text_of { v.deepspeed_hostfile or "", v.deepspeed_inclusion_filter or "", v.deepspeed_exclusion_filter or "" }
  error(DONE)
end
_G.accel_run = { again = function(kind, text) -- luacheck: ignore 122
  if kind == "word" then seen.words[#seen.words + 1] = text else seen.variables[#seen.variables + 1] = text end
end }
local launch = require "accel.cli.launch"
collectgarbage "restart"

local function run(words)
  seen = { words = {}, variables = {}, env = {}, said = {} }
  local stderr, exit = io.stderr, os.exit
  io.stderr = { write = function(_, ...) seen.said[#seen.said + 1] = table.concat { ... } end } -- luacheck: ignore 122
  os.exit = function(status) -- luacheck: ignore 122
    seen.status = status
    error(DONE)
  end
  local ok, why = pcall(launch, table.unpack(words))
  io.stderr, os.exit = stderr, exit -- luacheck: ignore 122
  if not ok and why ~= DONE then error(why, 0) end
  collectgarbage "restart"
  table.sort(seen.variables)
  return { plan = table.concat(seen.words, " ") .. "\n" .. table.concat(seen.variables, "\n") .. "\n" .. text_of(seen.env),
    said = table.concat(seen.said), status = seen.status }
end

-- ---- kinds of launches: flags, and files with the same meaning ----
local KINDS <const> = {
  { "one process", {}, { distributed_type = "NO" } },
  { "CPUs", { "--cpu", "--num_processes=2" }, { distributed_type = "MULTI_CPU", num_processes = 2, use_cpu = true } },
  { "GPUs", { "--multi_gpu", "--num_processes=2" }, { distributed_type = "MULTI_GPU", num_processes = 2 } },
  { "two machines", { "--multi_gpu", "--num_processes=4", "--num_machines=2", "--main_process_ip=h1" },
    { distributed_type = "MULTI_GPU", num_processes = 4, num_machines = 2, main_process_ip = "h1" } },
  { "FSDP 1", { "--use_fsdp", "--num_processes=2" }, { distributed_type = "FSDP", num_processes = 2, fsdp_config = {} } },
  { "FSDP 2", { "--use_fsdp", "--num_processes=2", "--fsdp_version=2" },
    { distributed_type = "FSDP", num_processes = 2, fsdp_config = { fsdp_version = 2 } } },
  { "a mesh", { "--use_fsdp", "--num_processes=8", "--fsdp_version=2", "--use_parallelism_config", "--parallelism_config_cp_size=2",
    "--parallelism_config_sp_size=2", "--parallelism_config_ep_size=2" },
    { distributed_type = "FSDP", num_processes = 8, fsdp_config = { fsdp_version = 2 },
      parallelism_config = { parallelism_config_cp_size = 2, parallelism_config_sp_size = 2, parallelism_config_ep_size = 2 } } },
  { "DeepSpeed", { "--use_deepspeed", "--num_processes=2" }, { distributed_type = "DEEPSPEED", num_processes = 2, deepspeed_config = {} } },
  { "DeepSpeed on hosts", { "--use_deepspeed", "--num_processes=4", "--num_machines=2", "--deepspeed_hostfile=h" },
    { distributed_type = "DEEPSPEED", num_processes = 4, num_machines = 2, deepspeed_config = { deepspeed_hostfile = "h" } } },
  { "Megatron", { "--use_megatron_lm", "--num_processes=2" },
    { distributed_type = "MEGATRON_LM", num_processes = 2, megatron_lm_config = {} } },
  { "fp8", { "--mixed_precision=fp8" }, { distributed_type = "NO", mixed_precision = "fp8" } },
  { "TE", { "--mixed_precision=fp8", "--fp8_backend=TE" },
    { distributed_type = "NO", mixed_precision = "fp8", fp8_config = { fp8_backend = "TE" } } },
  { "AO", { "--mixed_precision=fp8", "--fp8_backend=AO" },
    { distributed_type = "NO", mixed_precision = "fp8", fp8_config = { fp8_backend = "AO" } } },
  { "MS-AMP", { "--mixed_precision=fp8", "--fp8_backend=MSAMP" },
    { distributed_type = "NO", mixed_precision = "fp8", fp8_config = { fp8_backend = "MSAMP" } } },
  { "a compiler", { "--dynamo_backend=inductor" }, { distributed_type = "NO", dynamo_config = { dynamo_backend = "INDUCTOR" } } },
}

-- ---- values ----
local VALUES <const> = {
  distributed_type = "MULTI_GPU", compute_environment = "AMAZON_SAGEMAKER", num_processes = 6, num_machines = 3, machine_rank = 1,
  main_process_ip = "h9", main_process_port = 4711, gpu_ids = "0,1", rdzv_backend = "c10d", rdzv_conf = "join_timeout=7",
  config_file = write("other.yaml", "distributed_type: 'NO'\nmixed_precision: fp16\ndebug: true\n"), mixed_precision = "bf16", module = true,
  deepspeed_config_file = write("ds.json", "{}"), tee = "3", fsdp_reshard_after_forward = false,
}

local function value_of(row)
  if VALUES[row.key] ~= nil then return VALUES[row.key] end
  local default = row.default
  if default == nil then default = row.file end
  if row.allowed then
    for i = #row.allowed, 1, -1 do
      local word = row.allowed[i]
      if word ~= default and tostring(word):upper() ~= tostring(default):upper() and type(word) ~= "boolean" then return word end
    end
  end
  if row.type == "bool" or row.type == "switch" then return not default end
  if row.type == "bools" then return { true, false, true } end
  if row.type == "texts" then return { "A=1" } end
  if row.type == "table" then return { a = 1 } end
  if row.type:find "int" then return (math.tointeger(default) or 1) + 2 end
  if row.type:find "float" then return (tonumber(default) or 1) + 0.5 end
  return "something"
end

local function flag_text(value)
  if type(value) == "table" then
    local words = {}
    for i, each in ipairs(value) do words[i] = tostring(each) end
    return table.concat(words, ",")
  end
  return tostring(value)
end

local function yaml_text(config)
  local lines = {}
  local function put(map, indent)
    for key, value in accel.pairs(map) do
      if type(value) == "table" and next(value) == nil then lines[#lines + 1] = indent .. key .. ": {}"
      elseif type(value) == "table" and #value == 0 then
        lines[#lines + 1] = indent .. key .. ":"
        put(value, indent .. "  ")
      else lines[#lines + 1] = ("%s%s: %s"):format(indent, key, accel.json.encode(value)) end
    end
  end
  put(config, "")
  return table.concat(lines, "\n") .. "\n"
end

-- ---- variables that something reads ----
local sources = {}
local function gather(folder)
  for _, name in ipairs(accel.listdir(folder) or {}) do
    local path = folder .. "/" .. name
    if name:find "%.lua$" or name:find "%.[ch]$" then
      local file <close> = assert(io.open(path, "rb"))
      sources[#sources + 1] = file:read "a"
    elseif not name:find "%." and name ~= "config" then gather(path) end
  end
end
gather(source .. "/stdlib/accel")
gather(source .. "/host")
local all_sources = table.concat(sources, "\n")

local function is_read(name, topic)
  if all_sources:find('"' .. name .. '"', 1, true) or all_sources:find(name, 1, true) then return true end
  local prefix = topic.env_prefix or ""
  if name:sub(1, #prefix) ~= prefix then return false end
  local rest = name:sub(#prefix + 1)
  return all_sources:find('"' .. rest .. '"', 1, true) or all_sources:find('"' .. rest:lower() .. '"', 1, true) -- by the field's name
    or rest:find "^OVERRIDE_%u+$" and all_sources:find('"OVERRIDE_"', 1, true) or topic.title == "tpu" -- of which there are none
end

-- ---- the sweep ----
local failures, n = {}, { keys = 0, values = 0, effect = 0, warns = 0, refused = 0 }
local function fail(...) failures[#failures + 1] = (...):format(select(2, ...)) end

local function judge(row, where, base, got)
  n.values = n.values + 1
  if got.status and got.status ~= 0 then
    n.refused = n.refused + 1
    if got.said == "" then fail("%s: %s ends with status %s and says nothing", row.key, where, got.status) end
  elseif got.plan ~= base.plan or row.key == "quiet" and not got.said:find(": num_processes", 1, true) then
    n.effect = n.effect + 1
    return true
  elseif got.said:find(row.key, 1, true) and not base.said:find(row.key, 1, true) then n.warns = n.warns + 1
  else fail("%s: SILENT: %s, value %s", row.key, where, flag_text(value_of(row))) end
end

--- Where the effect is seen by a test of its own.
local ELSEWHERE <const> = { policy = "tests/stdlib/cli/launch_policy_test.lua", policy_env = "tests/stdlib/cli/launch_policy_test.lua" }

local flags_of = {}
for name, row in next, schema.by_flag do flags_of[row] = flags_of[row] or name end
local plain_flags, plain_files = {}, {}
for i, kind in ipairs(KINDS) do
  local words = table.move(kind[2], 1, #kind[2], 1, {})
  words[#words + 1] = "s.lua"
  plain_flags[i] = run(words)
  assert(not plain_flags[i].status, kind[1] .. ": " .. plain_flags[i].said)
  plain_files[i] = run { "--config_file=" .. write(("plain%d.yaml"):format(i), yaml_text(kind[3])), "s.lua" }
  assert(not plain_files[i].status, kind[1] .. ": " .. plain_files[i].said)
end

local function by_flag(row, name)
  for i, kind in ipairs(KINDS) do
    local given = row.key == "multi_gpu" and kind[1] == "Megatron" -- which is on several GPUs in any case
    for _, word in ipairs(kind[2]) do given = given or word:match "^%-%-([^=]+)" == name end
    if not given then
      local words = table.move(kind[2], 1, #kind[2], 1, {})
      words[#words + 1] = "--" .. name .. (row.type == "switch" and "" or "=" .. flag_text(value_of(row)))
      words[#words + 1] = "s.lua"
      judge(row, kind[1] .. " by flag", plain_flags[i], run(words))
    end
  end
end

local function with(config, row)
  local out, found = {}, false
  for key, value in next, config do
    out[key] = value
    if type(value) == "table" then
      out[key] = {}
      for k, v in next, value do out[key][k] = v end
    end
  end
  local at = out
  if row.topic.section then
    out[row.topic.section] = out[row.topic.section] or {}
    at = out[row.topic.section]
  end
  found = at[row.key] ~= nil
  at[row.key] = value_of(row)
  return out, found
end

local function same(a, b) return accel.json.encode(a) == accel.json.encode(b) end

local function by_file(row)
  for i, kind in ipairs(KINDS) do
    local config, found = with(kind[3], row)
    if not found and (i == 1 or ONLY or taken()) then
      local text = yaml_text(config)
      judge(row, kind[1] .. " by file", plain_files[i], run { "--config_file=" .. write("with.yaml", text), "s.lua" })
      if i == 1 then
        local yaml, json, lua = read.yaml(text, "x.yaml"), read.json(accel.json.encode(config), "x.json"), read.table(config, "x.lua")
        if not (same(yaml.values[row.key], json.values[row.key]) and same(yaml.values[row.key], lua.values[row.key])) then
          fail("%s: YAML, JSON and Lua differ: %s %s %s", row.key, flag_text(yaml.values[row.key]), flag_text(json.values[row.key]),
            flag_text(lua.values[row.key]))
        end
      end
    end
  end
end

for _, row in ipairs(schema.list) do
  if not ONLY or ONLY == row.key then
    n.keys = n.keys + 1
    local effects = n.effect + n.refused
    if ELSEWHERE[row.key] then
      local file <close> = assert(io.open(source .. "/" .. ELSEWHERE[row.key], "rb"))
      assert(file:read "a":find(row.key, 1, true), row.key)
    else
      if flags_of[row] then by_flag(row, flags_of[row]) end
      if schema.by_key[row.key] == row and not row.topic.environment then by_file(row) end
      if row.env and row.when ~= "tpu" and (ONLY or sample.full) and n.effect + n.refused == effects then fail("%s: has an effect nowhere",
        row.key) end
    end
    for _, name in ipairs(type(row.env) == "table" and row.env or { row.env }) do
      if not is_read(name, row.topic) then fail("%s: nothing reads %s", row.key, name) end
    end
  end
end

table.sort(failures)
print(("configuration: %d keys and flags, %d values: %d effects, %d warn, %d refused"):format(n.keys, n.values, n.effect, n.warns, n.refused))
assert(#failures == 0, #failures .. " failures\n" .. table.concat(failures, "\n"))
