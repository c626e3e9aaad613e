-- Adapters that PEFT saved load with PEFT's logits, loss, gradients and merged weights; those whose weights cannot be had from the file
-- alone are refused by name.
--   accel-run tests/stdlib/peft/folders_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
package.path = here .. "../../reference/?.lua;" .. package.path
local dir = here .. "../../../../shared/reference/folders/peft/"

local file = io.open(dir .. "lora/expected.json", "rb")
if not file then
  print "skipped: ../shared/reference/folders is not there"
  os.exit(77)
end
file:close()

local LOADS <const> = { "bert", "dora", "dora_embedding", "dora_gpt2", "gaussian", "gpt2", "gpt2_all", "gpt2_head", "ia3", "ia3_gpt2", "ia3_t5",
  "lora", "lora_all_linear_bias", "lora_b_bias", "lora_bf16", "lora_bias_lora_only", "lora_bin", "lora_embedding", "lora_embedding_tied",
  "lora_head_tied", "lora_layers", "lora_modules_to_save", "lora_modules_to_save_tied", "lora_no_task", "lora_patterns", "lora_patterns_rs",
  "lora_regex", "olora", "orthogonal", "pissa_converted", "prompt", "prompt_t5", "t5", "two_adapters" }
local check = require("folders_peft").check
local wrong = {}
for _, name in ipairs(LOADS) do
  check(dir .. name, function(quantity, distance, bar)
    wrong[#wrong + 1] = ("%s: %s: %s (bar %s)"):format(name, quantity, tostring(distance), tostring(bar))
  end)
end
assert(#wrong == 0, "\n" .. table.concat(wrong, "\n"))

-- Ignoring how these began would give wrong logits: PEFT changes the model's weights again when it loads them.
local base = assert(accel.models.from_pretrained(dir .. "base_llama"))
local none, why, code = accel.peft.PeftModel.from_pretrained(base, dir .. "pissa")
assert(none == nil and code == "format" and why:find "init_lora_weights = 'pissa' changes the model's weights", why)

-- What PEFT's own initialisations promise: nothing changes yet, and orthogonal A and B both learn from the first step.
accel.manual_seed(5)
local ids = accel.randint(0, 31, { 2, 6 })
for _, init in ipairs { "orthogonal", "olora", "gaussian", true } do
  local model = accel.models.Llama(accel.models.tiny.llama)
  local before = model(ids:remainder(accel.models.tiny.llama.vocab_size)):detach()
  local p = accel.peft.get_peft_model(model, accel.peft.LoraConfig { r = 4, init_lora_weights = init,
    target_modules = { "q_proj", "v_proj", "embed_tokens" } })
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
