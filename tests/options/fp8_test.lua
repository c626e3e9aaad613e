-- Options of accel.fp8: each one changes numbers, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/fp8_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "fp8"
local fp8, nn = accel.fp8, accel.nn

s:recipe("accel.fp8.convert_model", {
  base = function()
    accel.manual_seed(1)
    return { model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)) }
  end,
  run = function(call, given)
    local scaling = call()
    local kinds = {}
    for _, m in ipairs(given.model:modules()) do kinds[#kinds + 1] = getmetatable(m).__name end
    return scaling.converted, kinds, given.model(accel.ones(16, 16) / 3)
  end,
  values = { recipe = { accel.accelerator.AORecipeKwargs { module_filter_func = function() return false end } } },
})
s:recipe("accel.fp8.autocast", {
  base = function()
    accel.manual_seed(1)
    local model = nn.Sequential(nn.Linear(16, 16))
    return { scaling = fp8.convert_model(model), fn = function(x) return model(x) end }
  end,
  run = function(call, given)
    local scaling, fn = given.scaling, given.fn
    given.scaling, given.fn = nil, nil
    return call(scaling, fn, accel.ones(16, 16) / 3)
  end,
  passes_on = true,
})
s:leave({ "accel.fp8.CurrentScaling", "accel.fp8.DelayedScaling", "accel.fp8.GranularScaling" },
  "convert_model makes them from a recipe, whose options accelerator_settings_test.lua sweeps")
s:finish()
