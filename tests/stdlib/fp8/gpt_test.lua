--- A small GPT for 300 steps: in fp8, by every recipe, it ends within 1 % of the loss in bf16.
-- tier: slow
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local gpt = dofile(here .. "gpt.lua")
local A = accel.accelerator

local function mean_of_last(losses, n)
  local sum = 0
  for i = #losses - n + 1, #losses do sum = sum + losses[i] end
  return sum / n
end
local function train(precision, recipe)
  local losses, a = gpt { steps = 300, precision = precision, recipe = recipe, width = 128, layers = 3 }
  return mean_of_last(losses, 20), a, losses
end

local want, _, plain = train "bf16"
assert(want < 0.8 and plain[1] > 4, ("bf16 itself: from %g to %g"):format(plain[1], want))
for _, recipe in ipairs { A.TERecipeKwargs {}, A.TERecipeKwargs { fp8_format = "E4M3", amax_compute_algo = "max", amax_history_len = 16, margin = 1 },
  A.TERecipeKwargs { use_mxfp8_block_scaling = true }, A.AORecipeKwargs {}, A.AORecipeKwargs { config = "rowwise" },
  A.AORecipeKwargs { config = "rowwise_with_gw_hp" }, A.MSAMPRecipeKwargs { opt_level = "O1" }, A.MSAMPRecipeKwargs { opt_level = "O2" } } do
  local got, a, losses = train("fp8", recipe)
  assert(losses[2] ~= plain[2], "fp8 changed nothing")
  assert(math.abs(got / want - 1) < 0.01, ("%s: %.5f, in bf16 %.5f"):format(a.fp8_backend, got, want))
  print(("%s: %.5f, in bf16 %.5f"):format(a.fp8_backend, got, want))
end
