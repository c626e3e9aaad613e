-- Fields of FullyShardedDataParallelPlugin that have no effect with the others: one warning each. Values from the environment are a launch's,
-- which sets all of them.
--   accel-run tests/stdlib/accelerator/fsdp_unused_fields_test.lua
local accel = require "accel"
local no_effect = require "accel.util.no_effect"

local told
rawset(_G, "warn", function(...) told = told .. table.concat { ... } .. "\n" end)

local function plugin(fields)
  told = ""
  no_effect.reset()
  return accel.FullyShardedDataParallelPlugin(fields)
end

plugin {}
assert(told == "", told)
plugin { auto_wrap_policy = "SIZE_BASED_WRAP", min_num_params = 10, sync_module_states = false, use_orig_params = true }
assert(told == "", told)
plugin { fsdp_version = 2, cpu_ram_efficient_loading = true }
assert(told == "", told)
plugin { auto_wrap_policy = "TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap = { "Block" } }
assert(told == "", told)
for name, fields in accel.pairs {
  min_num_params = { auto_wrap_policy = "TRANSFORMER_BASED_WRAP", min_num_params = 10 },
  transformer_cls_names_to_wrap = { auto_wrap_policy = "SIZE_BASED_WRAP", transformer_cls_names_to_wrap = { "Block" } },
  sync_module_states = { cpu_ram_efficient_loading = true, sync_module_states = false },
  use_orig_params = { fsdp_version = 2, use_orig_params = true },
  param_init_fn = { fsdp_version = 2, param_init_fn = function(module) return module end },
} do
  local p = plugin(fields)
  assert(told:find("FullyShardedDataParallelPlugin: " .. name .. " has no effect ", 1, true) and select(2, told:gsub("\n", "")) == 1, told)
  assert(name ~= "sync_module_states" or p.sync_module_states == true)
end
