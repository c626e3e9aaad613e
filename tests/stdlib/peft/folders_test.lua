-- Adapters that PEFT saved load with PEFT's logits, loss, gradients and merged weights: every fourth row of the manifest, all with
-- ACCEL_TEST_FULL=1 (accel-run tests/reference/folders.lua DIR --only peft/ runs all as well).
--   accel-run tests/stdlib/peft/folders_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
package.path = here .. "../../reference/?.lua;" .. package.path
local dir = here .. "../../../../shared/reference/folders/"

local file = io.open(dir .. "manifest.json", "rb")
if not file then
  print "skipped: ../shared/reference/folders is not there"
  os.exit(77)
end
local rows = {}
for _, row in ipairs(accel.json.decode(file:read "a").rows) do
  if row.name:find "^peft/" then rows[#rows + 1] = row.name end
end
file:close()
table.sort(rows)

local check = require("folders_peft").check
local wrong, step = {}, os.getenv "ACCEL_TEST_FULL" == "1" and 1 or 4
for i = 1, #rows, step do
  check(dir .. rows[i], function(quantity, distance, bar)
    wrong[#wrong + 1] = ("%s: %s: %s (bar %s)"):format(rows[i], quantity, tostring(distance), tostring(bar))
  end)
end
assert(#wrong == 0, "\n" .. table.concat(wrong, "\n"))
assert(#rows > 0)

-- What PEFT's own initialisations promise: nothing changes yet, and orthogonal A and B both learn from the first step.
accel.manual_seed(5)
local ids = accel.randint(0, 31, { 2, 6 })
for _, init in ipairs { "orthogonal", "olora", "pissa", "gaussian", true } do
  local model = accel.models.Llama(accel.models.tiny.llama)
  local before = model(ids:remainder(accel.models.tiny.llama.vocab_size)):detach()
  local p = accel.peft.get_peft_model(model, accel.peft.LoraConfig { r = 4, init_lora_weights = init,
    target_modules = init == "pissa" and { "q_proj", "v_proj" } or { "q_proj", "v_proj", "embed_tokens" } })
  local after = p(ids:remainder(accel.models.tiny.llama.vocab_size)):detach()
  local size = before:abs():max():item()
  assert((after - before):abs():max():item() <= 1e-5 * size, ("init_lora_weights = %s changes the model"):format(tostring(init)))
  if init == "orthogonal" then
    local layer = p.base_model.model.model.layers[1].self_attn.q_proj
    assert(layer.lora_A.default.weight:abs():max():item() > 0 and layer.lora_B.default.weight:abs():max():item() > 0)
  end
end
local ok, err = pcall(accel.peft.LoraConfig, { r = 3, init_lora_weights = "orthogonal" })
assert(not ok and tostring(err):find "needs an even r, got 3", tostring(err))
