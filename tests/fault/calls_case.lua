-- What test_calls.c runs: everything that maps memory, starts threads and opens files. Errors are raised.
local accel = require "accel"
local nn, data, tmp = accel.nn, accel.data, arg[1]
local src = os.getenv "ACCEL_TEST_SRC" or "."
if not package.path:find(src .. "/tests/support/", 1, true) then package.path = src .. "/tests/support/?.lua;" .. package.path end

-- Kernels on all threads, blocks too large for the pool's first slab.
accel.manual_seed(3)
local net = nn.Sequential(nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 2))
local opt = accel.optim.AdamW(net:parameters(), { lr = 0.01 })
for _ = 1, 2 do
  net(accel.ones(200, 300)):pow(2):mean():backward()
  opt:step()
  opt:zero_grad()
end

-- One file, and a checkpoint that is written in the background.
assert(accel.save(tmp .. "/w.safetensors", net:state_dict()))
assert(accel.load(tmp .. "/w.safetensors"))
local accelerator = accel.Accelerator { log_with = { "jsonl", "tensorboard" }, project_dir = tmp }
local model, optimizer = accelerator:prepare(net, opt)
accelerator:save_state(tmp .. "/state", { asynchronous = true })
accelerator:wait_for_save()
accelerator:load_state(tmp .. "/state")

-- A tracker, and event files.
accelerator:init_trackers("run", { lr = 0.01 })
accelerator:log({ loss = 0.5 }, { step = 1 })
accelerator:end_training()
assert(model and optimizer)

-- A model with its configuration, and where the time of a call went.
assert(accel.models.GPT2({ vocab_size = 17, n_positions = 8, n_embd = 8, n_layer = 1, n_head = 2 }):save_pretrained(tmp .. "/gpt2"))
local loaded = assert(accel.models.GPT2.from_pretrained(tmp .. "/gpt2"))
local profile = accel.profiler.profile()
loaded(accel.tensor { { 1, 2, 3 } })
profile:stop()
assert(profile:export_chrome_trace(tmp .. "/trace.json"))

-- Data workers, which are threads.
local seen = 0
for batch in data.DataLoader(data.worker_dataset("worker_data:Random", 6), { batch_size = 2, num_workers = 2 })() do
  seen = seen + #batch.i
end
assert(seen == 6)

-- Weights that rest in files.
local layer = nn.parallel.FullyShardedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)), {
  offload = { parameters = "file", parameters_folder = tmp } })
layer(accel.ones(2, 64)):sum():backward()
collectgarbage()
