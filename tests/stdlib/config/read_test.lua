-- Reading of configurations: types by key, places of faults, the same values from YAML, JSON and Lua tables, and accel.config's
-- functions. Against files of the reference: reference/configs.
local accel = require "accel"
local config = accel.config
local read = require "accel.config.read"

local function faults(text, ...)
  local file, want = read.yaml(text, "x.yaml"), { ... }
  assert(#file.problems == #want, ("%d problems, the first: %s"):format(#file.problems,
    file.problems[1] and read.explain(file, file.problems[1])))
  for i, line in ipairs(want) do
    local said = read.explain(file, file.problems[i])
    assert(said == line, said)
  end
end

-- Words keep their text, whatever YAML 1.1 made of them.
local fields = config.parse "distributed_type: NO\nmixed_precision: no\nuse_cpu: yes\nnum_processes: '4'\nmain_process_ip: 1.2\n"
assert(fields.distributed_type == "NO" and fields.mixed_precision == "no" and fields.use_cpu == true)
assert(fields.num_processes == 4 and fields.main_process_ip == "1.2" and fields.rdzv_backend == "static")
assert(next(fields.fsdp_config) == nil and fields.gpu_ids == nil)

faults("distributed_type: NO\nnum_proceses: 2\n", "x.yaml:2: unknown key 'num_proceses'; did you mean 'num_processes'?")
faults("distributed_type: NO\nnum_processes: two\n", "x.yaml:2: num_processes must be a whole number, got 'two'")
faults("distributed_type: NO\nuse_cpu: maybe\n", "x.yaml:2: use_cpu must be true or false, got 'maybe'")
faults("distributed_type: NO\nuse_cpu: [true]\n", "x.yaml:2: use_cpu must be one value, got a list")
faults("distributed_type: FSDP\nfsdp_config:\n  fsdp_shard_strategy: 1\n",
  "x.yaml:3: unknown key 'fsdp_shard_strategy' in fsdp_config; did you mean 'fsdp_sharding_strategy'?")
faults("distributed_type: FSDP\nfsdp_version: 2\n", "x.yaml:2: unknown key 'fsdp_version'; move it into fsdp_config")
faults("distributed_type: FSDP\nfsdp_config:\n  num_machines: 2\n",
  "x.yaml:3: unknown key 'num_machines' in fsdp_config; move it to the top of the file")
faults("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 3\n", "x.yaml:3: fsdp_version must be one of 1, 2, got '3'")
faults("distributed_type: MULTI_GPU\nmain_process_port: 70000\n",
  "x.yaml:2: main_process_port must be a number in 0 .. 65535, got '70000'")
faults("num_processes: 2\n", "x.yaml: distributed_type is missing; add it")
faults("", "x.yaml: the file is empty")
faults("- a\n", "x.yaml:1: a configuration is a table of keys and values, not a list")
faults("distributed_type: NO\nfsdp_config: 3\n", "x.yaml:2: fsdp_config must be a table, got '3'")

-- Keys of earlier versions.
assert(config.parse "distributed_type: MULTI_GPU\nfp16: true\n".mixed_precision == "fp16")
assert(config.parse "distributed_type: 'NO'\ndynamo_backend: EAGER\n".dynamo_config.dynamo_backend == "EAGER")
assert(next(config.parse "distributed_type: 'NO'\ndynamo_backend: 'NO'\n".dynamo_config) == nil)

-- The same values from JSON, with lines, and from Lua.
local json = '{\n "distributed_type": "FSDP",\n "fsdp_config": {"fsdp_version": 2, "min_num_params": 12}\n}'
local from_json = config.parse(json, "json")
assert(from_json.fsdp_config.fsdp_version == 2 and from_json.fsdp_config.min_num_params == 12)
local bad = read.json('{\n "distributed_type": "FSDP",\n "debgu": true\n}', "x.json")
assert(read.explain(bad, bad.problems[1]) == "x.json:3: unknown key 'debgu'; did you mean 'debug'?")
local twice = read.json('{"debug": true, "debug": true}', "x.json")
assert(#twice.problems == 1)
local from_table = read.table({ distributed_type = "FSDP", fsdp_config = { fsdp_version = 2, fsdp_min_num_params = 12 } }, "x.lua")
assert(#from_table.problems == 0 and from_table.values.fsdp_version == 2 and from_table.values.fsdp_min_num_params == 12)

-- Files and messages of accel.config.
local path = os.getenv "ACCEL_TEST_TMP" and os.getenv "ACCEL_TEST_TMP" .. "/c.yaml" or os.tmpname()
local file = assert(io.open(path, "w"))
file:write "distributed_type: MULTI_GPU\nnum_processes: 2\nx: 1\nuse_cpu: 7\n"
file:close()
local none, message, code = config.load(path)
assert(none == nil and code == "format" and message:find(":3: unknown key 'x'", 1, true) and message:find(":4: use_cpu", 1, true))
assert(select(3, config.load "/no/such/file.yaml") == "not_found")

-- Flags: both spellings, both forms; the script's own are left alone.
local plan = assert(config.plan({ "--num-processes=3", "--main_process_port", "4444", "--multi-gpu", "t.lua", "--num_processes", "9" },
  { gpus = 4 }))
assert(plan.values.num_processes == 3 and plan.world.master_port == "4444" and plan.args[2] == "9" and plan.origins.num_processes == "flag")
for _, case in ipairs {
  { { "--num_proceses", "2", "x" }, "did you mean '--num-processes'" }, { { "--num_processes", "x", "t.lua" }, "'x' is not a whole number" },
  { { "--num_processes" }, "needs a value" }, { { "--debug=1", "t.lua" }, "takes no value" },
  { { "--mixed_precision", "fp12", "t.lua" }, "one of no, fp16, bf16, fp8" },
  { { "--multi_gpu", "--cpu", "t.lua" }, "only one of" }, { { "--config_file", path, "t.lua" }, "unknown key 'x'" },
} do
  local nothing, why = config.plan(case[1], { gpus = 0 })
  assert(nothing == nil and why:find(case[2], 1, true), why)
end

-- Values as Python writes them.
local scalar = require "accel.config.scalar"
for _, case in ipairs { { 1.0, "1.0" }, { 0.1, "0.1" }, { 1e-5, "1e-05" }, { 1e16, "1e+16" }, { 123456789.0, "123456789.0" },
  { 1 / 0, "inf" }, { 7, "7" }, { 0.00015, "0.00015" }, { 1e15, "1000000000000000.0" } } do
  assert(scalar.python_number(case[1]) == case[2], case[2] .. " " .. scalar.python_number(case[1]))
end

-- The schema: no key twice, every condition and every env variable known once.
local schema, conditions = require "accel.config.schema", require "accel.config.conditions"
local seen, variables = {}, {}
for _, row in ipairs(schema.list) do
  assert(not seen[row.key], row.key)
  seen[row.key] = true
  assert(row.help and #row.help > 0, row.key)
  assert(not row.when or conditions.holds[row.when] and conditions.words[row.when], row.key)
  for _, name in ipairs(type(row.env) == "table" and row.env or { row.env }) do
    assert(not variables[name], name)
    variables[name] = true
  end
end
print "ok"
