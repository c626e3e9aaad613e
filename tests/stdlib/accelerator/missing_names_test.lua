--- Names of Accelerate that were missing in silence, from the table ../shared/cases/face/missing.tsv: each is there, or an error that
--- says what to use. Skips where the table is absent. Rows about arguments, flags and behaviour: missing_rows_test.lua.
local accel = require "accel"
local src = os.getenv "ACCEL_TEST_SRC"
local file = io.open(src .. "/../shared/cases/face/missing.tsv")
if not file then
  io.write "skipped: ../shared/cases/face/missing.tsv is absent\n"
  os.exit(77, true)
end

local A = accel.accelerator
local model = accel.nn.Linear(2, 2)
local a = accel.Accelerator {}
local loader, optimizer = a:prepare(accel.data.DataLoader(accel.data.TensorDataset(accel.ones(4, 2))), accel.optim.SGD(model:parameters()))
local scheduler = a:prepare(accel.optim.lr_scheduler.StepLR(optimizer.optimizer, 1))
-- Objects that show the attributes of their class.
local objects = { GradientState = a.gradient_state, AcceleratedScheduler = scheduler, AcceleratorState = a.state, PartialState = accel.PartialState(),
  ParallelismConfig = accel.ParallelismConfig {}, DataLoader = loader }
-- Fields that have no value until something sets them.
local UNSET <const> = { ["ParallelismConfig.device_mesh"] = true }
-- Constructor options of classes: tried by the sweep of options.
local OPTIONS <const> = { ["DVCLiveTracker.run_name"] = true, ["DVCLiveTracker.live"] = true }

local function state_of(owner, name)
  local ok, value = pcall(function() return owner[name] end)
  if not ok then return #tostring(value) > 20 and "refused" or "silent" end
  return value ~= nil and "works" or "silent"
end

local counts, silent = { works = 0, refused = 0, elsewhere = 0 }, {}
for line in file:lines() do
  local name, _, kind = line:match "^([^\t]*)\t([^\t]*)\t([^\t]*)"
  local class, member = (name or ""):match "^(%u%w*)%.([%w_]+)$"
  local state = "elsewhere"
  if class and not OPTIONS[name] then
    local ok, cls = pcall(function() return A[class] end)
    state = not ok and "refused" or cls == nil and "silent" or state_of(cls, member)
    if state == "silent" and objects[class] then state = UNSET[name] and "works" or state_of(objects[class], member) end
  elseif (name or ""):find "^[%a_][%w_]*$" and name ~= "name" and kind ~= "env" and kind ~= "CLI flag" then
    state = state_of(A, name)
  end
  if state == "silent" then silent[#silent + 1] = name else counts[state] = counts[state] + 1 end
end
file:close()
io.write(("%d work, %d refused with a reason, %d tried by missing_rows_test.lua, %d silent\n"):format(counts.works, counts.refused,
  counts.elsewhere, #silent))
assert(#silent == 0, "missing in silence: " .. table.concat(silent, " "))

-- A refusal names what to use.
for name, use in accel.pairs { DataLoaderShard = "accelerator:prepare", SkipDataLoader = "skip_first_batches", pippy_forward = "prepare_pippy" } do
  local ok, message = pcall(function() return A[name] end)
  assert(not ok and message:find(use, 1, true), tostring(message))
end
local ok, message = pcall(function() accel.MegatronLMPlugin {}:set_optimizer_type() end)
assert(not ok and message:find("give the values to the constructor", 1, true), tostring(message))
ok, message = pcall(a.get_state_dict, a, model, { unwrap = false })
assert(not ok and message:find("whose names never change", 1, true), tostring(message))
ok, message = pcall(function() return accel.deepspeed.get_fp32_state_dict_from_zero_checkpoint end)
assert(not ok and message:find("merge-weights", 1, true), tostring(message))
assert(accel.util.options and require "accel.util.absent".flag "--use-xpu" and require "accel.util.absent".flag "--use_xpu")
-- The fields of handlers as a table.
assert(accel.AutocastKwargs({ enabled = false }):to_dict().enabled == false)
local p = accel.ParallelismConfig { tp_size = 2, dp_shard_size = 2 }
assert(p.tp_enabled and not p.cp_enabled and table.concat(p.dp_dim_names, ",") == "dp_shard" and p:to_json().tp_size == 2)
