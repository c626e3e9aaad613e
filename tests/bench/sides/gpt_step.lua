-- Training step of a GPT (6 layers x 384, T 256, B 8, vocabulary 256), synthetic tokens. Prints one JSON object of medians.
local accel = require "accel"
local dtype, steps, drop = "f32", 12, 3
for i = 1, #arg do
  if arg[i] == "--dtype" then dtype = arg[i + 1] end
  if arg[i] == "--steps" then steps = tonumber(arg[i + 1]) end
end
local L, C, H, V, T, B = 6, 384, 6, 256, 256, 8
accel.manual_seed(1)
local model = accel.models.GPT2 {
  vocab_size = V, n_positions = T, n_embd = C, n_layer = L, n_head = H, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0,
}
local opt = accel.optim.AdamW(model:parameters(), { lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 })
local x = accel.randint(0, V, { B, T })
local y = accel.cat({ x:narrow(2, 2, T - 1), x:narrow(2, 1, 1) }, 2)
local clock = accel.clock
local times = { ms = {}, forward_ms = {}, backward_ms = {}, update_ms = {} }
local loss
for step = 1, steps do
  local t0 = clock()
  do
    local _ <close> = accel.autocast { device = "cpu", dtype = "bf16", enabled = dtype == "bf16" }
    local logits = model(x)
    loss = accel.cross_entropy(logits:reshape(-1, V), y:reshape(-1))
  end
  local t1 = clock()
  loss:backward()
  local t2 = clock()
  accel.nn.utils.clip_grad_norm_(model:parameters(), 1.0)
  opt:step()
  opt:zero_grad()
  local t3 = clock()
  if step > drop then
    for k, v in pairs { ms = t3 - t0, forward_ms = t1 - t0, backward_ms = t2 - t1, update_ms = t3 - t2 } do
      table.insert(times[k], v * 1e3)
    end
  end
end
local out = { loss = loss:item() }
for k, v in pairs(times) do
  table.sort(v)
  out[k] = v[(#v + 1) // 2]
end
print(accel.json.encode(out))
