-- Plugins made under an environment (plugins.json, and the plugins of launch.json's rows), the Accelerator of one process there, and the
-- filling of `auto` (deepspeed_auto.json); required by configs.lua.
local accel = require "accel"
local A = accel.accelerator

local null = accel.json.null

--- What torch's objects are here.
local translate = {}

function translate.FullyShardedDataParallelPlugin(want)
  local out = {}
  for key, value in next, want do out[key] = value end
  local offload = want.cpu_offload
  out.cpu_offload = offload.class == "CPUOffload" and offload.offload_params or offload.class == "CPUOffloadPolicy"
  local policies = { ["function:transformer_auto_wrap_policy"] = "TRANSFORMER_BASED_WRAP",
    ["function:size_based_auto_wrap_policy"] = "SIZE_BASED_WRAP" }
  out.auto_wrap_policy = policies[want.auto_wrap_policy] or want.auto_wrap_policy
  for _, key in ipairs { "state_dict_config", "optim_state_dict_config" } do
    if type(want[key]) == "table" then
      local fields = {}
      for k, v in next, want[key] do fields[k] = v end
      fields.class = nil
      out[key] = fields
    end
  end
  return out
end

function translate.DeepSpeedPlugin(want)
  local out = {}
  for key, value in next, want do out[key] = value end
  out._selected = nil
  return out
end

function translate.ParallelismConfig(want)
  local out = {}
  for key, value in next, want do
    out[key] = value
    if type(value) == "table" and value.class then
      out[key] = {}
      for k, v in next, value do out[key][k] = v end
      out[key].class = nil
    end
  end
  out._sizes = nil
  return out
end

local OBJECT <const> = { ["object:HfDeepSpeedConfig"] = "table", ["function:<lambda>"] = "function" }

local function clean(value)
  if type(value) ~= "table" then return value == math.huge and "inf" or value end
  local out = setmetatable({}, getmetatable(value) == getmetatable(accel.json.array {}) and getmetatable(value) or nil)
  for key, item in next, value do
    if type(key) ~= "string" or key:sub(1, 1) ~= "_" or key == "_use_dtensor" then out[key] = clean(item) end
  end
  return out
end

local function fields_of(T, name, want, got)
  want = translate[name] and translate[name](want) or want
  for key, value in accel.pairs(want) do
    local kind = OBJECT[value]
    if kind then
      if type(got[key]) ~= kind then return ("%s: want a %s, got %s"):format(key, kind, tostring(got[key])) end
    else
      local d = T.difference(value, clean(got[key]), key)
      if d then return d end
    end
  end
end

--- The environment of a row; file names stand below yaml/.
local function environment_of(T, env)
  local out = { PATH = "/bin" }
  for key, value in next, env do out[key] = value end
  local path = env.ACCELERATE_DEEPSPEED_CONFIG_FILE
  if path and io.open(T.dir .. "/yaml/" .. path) then out.ACCELERATE_DEEPSPEED_CONFIG_FILE = T.dir .. "/yaml/" .. path end
  return out
end

local function under(T, env, fn)
  local _ <close> = A.clear_environment()
  return A.patch_environment(environment_of(T, env), pcall, fn)
end

local function plugin_row(T, where, name, want, env)
  local at = where .. " " .. name
  local ok, made = under(T, env, function() return A[name] {} end)
  if want.error == "ImportError" then
    return T.list(at, "the package of the recipe was absent; the recipe itself is plain data")
  end
  if want.error then
    if ok then return T.CRASH[want.error] and T.pass() or T.fail(at, "no error; the reference: %s", want.message) end
    if T.CRASH[want.error] or T.names_fault(want.message, tostring(made)) then return T.pass() end
    return T.fail(at, "'%s' names not what '%s' names", made, want.message)
  end
  if not ok then return T.fail(at, "%s", made) end
  local d = fields_of(T, name, want.fields, made)
  if d then return T.fail(at, "%s", d) end
  T.pass()
end

local COMPARED <const> = { "mixed_precision", "gradient_accumulation_steps", "distributed_type", "num_processes", "split_batches",
  "even_batches", "is_main_process" }

local function accelerator_row(T, at, want, env)
  local plain = {}
  for key, value in next, env do plain[key] = not key:find "^MASTER" and value or nil end
  A.AcceleratorState._reset_state(true)
  A.GradientState._reset_state()
  local ok, made = under(T, plain, function()
    local a = A.Accelerator()
    return { a = a, backend = A.TorchDynamoPlugin({}).backend }
  end)
  if want.error and want.message:find("`fp8` precision requires", 1, true) then
    if ok and made.a.mixed_precision == "fp8" then return T.list(at, "the packages of fp8 were absent; accel computes it itself") end
    return T.fail(at, "%s", ok and made.a.mixed_precision or made)
  end
  if want.error then
    if not ok and T.names_fault(want.message, tostring(made)) then return T.pass() end
    return T.fail(at, "want an error (%s), got %s", want.message, tostring(made))
  end
  if not ok then return T.fail(at, "%s", made) end
  for _, key in ipairs(COMPARED) do
    local d = T.difference(want[key], made.a[key], key)
    if d then return T.fail(at, "%s", d) end
  end
  if tostring(made.a.device) ~= want.device then return T.fail(at, "device %s, want %s", tostring(made.a.device), want.device) end
  if made.backend ~= want.dynamo_backend then return T.fail(at, "dynamo %s, want %s", made.backend, want.dynamo_backend) end
  T.pass()
end

local function auto_row(T, row, i)
  local at = "deepspeed_auto " .. i
  local values = {}
  for key, value in next, row.kwargs do values[key] = value end
  local ok, made = under(T, {}, function()
    local plugin = A.DeepSpeedPlugin { hf_ds_config = row.config }
    local before = T.difference(row.after_init, clean(plugin.deepspeed_config), "after_init")
    if before then return before end
    plugin:deepspeed_config_process(values, { must_match = row.must_match })
    return row.result and T.difference(row.result, clean(plugin.deepspeed_config), "result") or "no error"
  end)
  if row.error then
    if not ok and T.names_fault(row.message, tostring(made)) then return T.pass() end
    return T.fail(at, "want '%s', got '%s'", row.message, tostring(made))
  end
  if not ok then return T.fail(at, "%s", made) end
  if made ~= "no error" then return T.fail(at, "%s", made) end
  T.pass()
end

return function(T)
  for i, row in ipairs(T.launch_rows) do
    for name, want in accel.pairs(row.plugins or {}) do plugin_row(T, "launch " .. i, name, want, row.env) end
    local cpu = row.accelerator_cpu
    if cpu and cpu ~= null then accelerator_row(T, ("launch %d Accelerator"):format(i), cpu, row.env) end
  end
  for i, row in ipairs(T.read("plugins.json").rows) do
    for name, want in accel.pairs(row.plugins) do plugin_row(T, "plugins " .. i, name, want, row.env) end
  end
  for i, row in ipairs(T.read("deepspeed_auto.json").rows) do auto_row(T, row, i) end
end
