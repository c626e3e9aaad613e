-- Options of accel.amp: each one changes what is seen, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/amp_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "amp"

--- Scales after three updates, of which the middle one overflows, and what the gradients were.
local function scales(call, given)
  local scaler = call()
  if given.device == "meta" then return scaler.device end
  local list = {}
  local p = accel.ones(2, { requires_grad = true })
  local opt = accel.optim.SGD({ p }, { lr = 0.1 })
  for i = 1, 5 do
    scaler:scale((p * (i == 3 and 1e38 or 1)):sum() * (i == 3 and 1e5 or 1)):backward()
    list[#list + 1] = p.grad and p.grad:clone()
    scaler:step(opt)
    scaler:update()
    opt:zero_grad()
    list[#list + 1] = scaler:get_scale()
  end
  return list, p
end
s:recipe("accel.amp.GradScaler", {
  base = function() return { growth_interval = 2 } end, run = scales,
  values = { init_scale = { 8 }, growth_factor = { 3 }, backoff_factor = { 0.25 }, growth_interval = { 1 } },
})
s:recipe("accel.amp.GradScaler:update", { run = function(call)
  local scaler = accel.amp.GradScaler { device = "cpu" }
  local p = accel.ones(1, { requires_grad = true })
  local opt = accel.optim.SGD({ p }, { lr = 0.1 })
  scaler:scale(p:sum()):backward()
  scaler:step(opt)
  call(scaler)
  return scaler:get_scale()
end, values = { new_scale = { 3 } } })
s:leave("accel.amp.GradScaler:step", "its arguments are those of the optimizer's step; none are taken")

s:finish()
