-- Options of accel.config's functions: each one changes what is read or planned, or raises (support/option_sweep.lua). Keys of configurations
-- and flags of launches: config_test.lua.
--   accel-run tests/options/config_functions_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "config"

s:recipe("accel.config.parse", {
  base = function() return { text = "mixed_precision: bf16" } end,
  run = function(call)
    local fields, why = call()
    return fields and fields.mixed_precision, why
  end,
  values = { format = { "json" } },
})
s:recipe({ "accel.config.environment", "accel.config.plan" }, {
  base = function() return { argv = { "train.lua" } } end,
  run = function(call)
    local made, why = call()
    return why, made and (made.env or made)
  end,
  values = { machine = { { gpus = 2 }, { gpus = 3 }, any = true } }, passes_on = true, -- answers of a machine, checked below
})
for _, name in ipairs { "environment", "plan" } do -- a machine has known answers alone
  local ok, why = pcall(accel.config[name], { "train.lua" }, { gpu = 0 })
  assert(not ok and tostring(why):find("unknown option 'gpu'; did you mean 'gpus'?", 1, true), why)
end
s:finish()
