-- Child of determinism_test.lua: losses of a small GPT with dropout, as exact hexadecimal floats, and a digest of the final weights.
local accel = require "accel"
local dtype = arg[1] or "f32"
accel.manual_seed(5)
local V, T, B = 65, 64, 6
local model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = 96, n_layer = 2, n_head = 3 }
local opt = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
local out = {}
for step = 1, 12 do
  local ids = accel.randint(0, V, { B, T })
  local loss
  do
    local _ <close> = accel.autocast { dtype = "bf16", enabled = dtype == "bf16" }
    loss = accel.cross_entropy(model(ids):reshape(-1, V), ids:reshape(-1))
  end
  loss:backward()
  accel.nn.utils.clip_grad_norm_(model:parameters(), 1.0)
  opt:step()
  opt:zero_grad()
  out[step] = ("%a"):format(loss:item())
end
local digest = 0
for _, p in ipairs(model:parameters()) do
  local bytes = accel.to_bytes and accel.to_bytes(p:detach()) or p:detach():to_bytes()
  for i = 1, #bytes - 3, 4 do digest = (digest * 31 + string.unpack("<I4", bytes, i)) & 0xffffffffffff end
end
print(table.concat(out, " "), ("%x"):format(digest))
