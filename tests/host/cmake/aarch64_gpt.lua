--- Trains a small GPT for some steps and prints the loss of each, for aarch64.sh.
---   accel-run aarch64_gpt.lua STEPS f32|bf16
local accel = require "accel"
local steps, dtype = tonumber(arg[1]), arg[2]
accel.manual_seed(3)
local B, T, V = 4, 64, 128
local model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = 96, n_layer = 2, n_head = 4, resid_pdrop = 0,
  embd_pdrop = 0, attn_pdrop = 0 }
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
for _ = 1, steps do
  local ids = accel.randint(0, V, { B, T })
  local loss
  local function forward() loss = accel.nn.functional.cross_entropy(model(ids):reshape(B * T, V), ids:reshape(B * T)) end
  if dtype == "bf16" then
    local guard <close> = accel.autocast { dtype = "bf16" }
    forward()
  else
    forward()
  end
  loss:backward()
  optimizer:step()
  optimizer:zero_grad()
  print(("loss %.9g"):format(loss:item()))
end
