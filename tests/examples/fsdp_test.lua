--- Example 29: the same accuracy however the model is cut, less memory where it is, weights that are whole.
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local accel = require "accel"
local tmp = os.getenv "ACCEL_TEST_TMP"

examples.of("29_fsdp_with_peak_mem_tracking", function()
  local name = "@29_fsdp_with_peak_mem_tracking.lua --epochs 2"
  local function figures(out)
    local kept = out:match "epoch 2\n  train%s+before%s+(%d+) KB"
    return tonumber(out:match "test accuracy: ([%d.]+) %%"), tonumber(kept)
  end
  local accuracy, whole = figures(examples.run(name .. " --strategy none", 2))
  local same, parts = figures(examples.run(name .. " --output-dir ~model", 2))
  assert(accuracy > 50 and same == accuracy and parts < 0.62 * whole, ("%s %s, %s %s"):format(accuracy, same, parts, whole))
  assert(accel.load(tmp .. "/model/model.safetensors")["2.3.down.weight"].shape[1] == 128)
  assert(math.abs(figures(examples.run(name .. " --precision bf16", 2)) - accuracy) < 5)
  examples.refused("@29_fsdp_with_peak_mem_tracking.lua --epoch 2", "unknown option '--epoch'")
end)
