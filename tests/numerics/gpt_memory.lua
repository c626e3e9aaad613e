-- Child of memory_test.lua: a few training steps of a small GPT on the device given; prints peak and live native bytes and the KiB of
-- Lua's heap.
local accel = require "accel"
local device, dtype = arg[1] or "cpu", arg[2] or "f32"
accel.set_default_device(device)
accel.manual_seed(3)
-- the example's own size, and one with ten times the activations
local small = arg[3] == "small"
local V, T, B, C = 256, small and 64 or 256, small and 8 or 4, small and 128 or 256
local model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = C, n_layer = 4, n_head = 4 }
local opt = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
for step = 1, 8 do -- six are measured: where collections fall differs from step to step
  if step == 3 then accel.reset_peak_memory(device) end
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
end
assert(not package.loaded["accel.util.checked_faults"], "a check of arguments took the way of errors")
local m = accel.mem_stats(device)
collectgarbage()
collectgarbage()
print(m.peak_bytes, m.live_bytes, collectgarbage "count" // 1)
