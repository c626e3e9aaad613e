-- A GPT that tests train for real and play without ranks: arguments are steps, width, layers, positions. For real it writes, per rank, the
-- peak of its pool, the median step by the clock and in CPU time, and the collectives of the last step into the folder given last.
local accel = require "accel"
local steps, C, L, T, folder = tonumber(arg[1]), tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4]), arg[5]
local exact = os.getenv "ACCEL_GC" == "exact"
local V <const>, B <const> = 512, 4
local accelerator = accel.Accelerator()
accel.manual_seed(1)
local model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = C, n_layer = L, n_head = 4 }
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
local ids = accel.randint(0, V, { B * steps * accelerator.num_processes, T })
local loader = accel.data.DataLoader(accel.data.TensorDataset(ids), { batch_size = B, shuffle = true })
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
local n, mark, times, worked = 0, 0, {}, {}
for batch in loader() do
  local start, cpu, x, loss = accel.clock(), os.clock(), batch[1], nil
  local records = accel.dist.is_initialized() and accel.dist.records(1) or {}
  mark = records[1] and records[1].number or 0
  do
    local _ <close> = accelerator:autocast()
    loss = accel.cross_entropy(model(x):reshape(-1, V), x:reshape(-1))
  end
  accelerator:backward(loss)
  accelerator:clip_grad_norm_(model:parameters(), 1.0)
  optimizer:step()
  n, times[#times + 1], worked[#worked + 1] = n + 1, accel.clock() - start, os.clock() - cpu
  if not exact then accel.gc_phase((n - 1) / steps) end -- as in a dry run: each step finds the collector at another moment
  if n == steps then break end
  optimizer:zero_grad()
end
if folder then
  table.sort(times)
  table.sort(worked)
  local out = { peak = accel.mem_stats().peak_bytes, time = times[(#times + 1) // 2], cpu = worked[(#worked + 1) // 2],
    collectives = accel.json.array {} }
  for _, r in ipairs(accel.dist.is_initialized() and accel.dist.records() or {}) do
    if r.number > mark then
      out.collectives[#out.collectives + 1] = ("%s %s %d"):format(r.kind, r.kind ~= "barrier" and r.dtype or "u8", r.payload)
    end
  end
  assert(accel.write_file(("%s/%d.json"):format(folder, accelerator.process_index), accel.json.encode(out)))
end
