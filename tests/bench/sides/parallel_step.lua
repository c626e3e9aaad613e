-- Training step of a GPT-2 that several ranks hold together, by tensor parallelism or as a pipeline: forward, backward and AdamW,
-- f32, head not tied. Started by accel-run --num_processes N; rank 0 prints one JSON object: the median step in ms, and the losses of
-- all steps. With --make FOLDER (one process) it writes the weights and tokens that both sides start from, and ends.
--   --mode tp|sp|pp  --size char|small|124M  --micros N (pp)  --schedule 1f1b|gpipe|zero_bubble (pp)
--   --split auto|even (pp)  --data FOLDER
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local dist, parallel = accel.dist, accel.parallel
local o = side.options { mode = "tp", size = "small", steps = 12, drop = 3, micros = 8, schedule = "1f1b", split = "auto",
  data = "", make = "" }
if o.quick then o.steps, o.drop = 2, 1 end

local B <const>, T <const>, BATCHES <const> = 8, 64, 4
local sizes = { char = { 128, 128, 4, 4 }, small = { 8000, 256, 4, 4 }, ["124M"] = { 50304, 768, 12, 12 } }
local V, width, layers, heads = table.unpack(sizes[o.size])
local config = { vocab_size = V, n_positions = T, n_embd = width, n_layer = layers, n_head = heads, resid_pdrop = 0, embd_pdrop = 0,
  attn_pdrop = 0, tie_word_embeddings = false }
accel.manual_seed(1)
local model = accel.models.GPT2(config)
if o.make ~= "" then
  side.save(o.make, "weights", model:state_dict())
  local tokens = accel.randint(0, V, { BATCHES, B, T + 1 })
  side.save(o.make, "tokens", { x = tokens:narrow(3, 1, T):contiguous(), y = tokens:narrow(3, 2, T):contiguous() })
  return
end

local weights, tokens = side.load(o.data, "weights"), side.load(o.data, "tokens")
for name, p in accel.pairs(model:state_dict()) do p:copy_(weights[name]) end
weights = nil
local n = dist.get_world_size()
local mesh = parallel.init_device_mesh("cpu", { n }, { mesh_dim_names = { o.mode == "pp" and "pp" or "tp" } })
local run = model
if o.mode == "pp" then
  run = accel.nn.parallel.PipelineParallel(model, mesh, { num_micro_batches = o.micros, schedule = o.schedule, split_points = o.split })
else
  parallel.parallelize_module(model, mesh, nil, { sequence_parallel = o.mode == "sp" })
end
local optimizer = accel.optim.AdamW(run:parameters(), { lr = 1e-4 })
collectgarbage()

local figures = side.train(o.steps, o.drop, function(i)
  dist.barrier()
  local k = (i - 1) % BATCHES + 1
  local loss = run(tokens.x[k], { shift_labels = tokens.y[k] })
  local forward = accel.clock()
  if o.mode ~= "pp" then loss:backward() end
  local backward = accel.clock()
  optimizer:step()
  optimizer:zero_grad()
  return loss, forward, backward
end)
if dist.get_rank() == 0 then side.finish(figures) end
