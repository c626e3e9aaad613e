-- A configuration in Lua: a table with the keys of Accelerate's files. A project's accel.lua is read by every accel-run launch in its
-- folder. It runs in a sandbox, without io and os.
--   accel-run config show --origin --config_file examples/launch/accel.lua
local ranks <const> = 2

---@type accel.Config by which editors check and complete the keys
return {
  distributed_type = "MULTI_CPU",
  use_cpu = true,
  num_processes = ranks,
  mixed_precision = "bf16",
}
