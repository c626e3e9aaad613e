-- A state that is saved between the micro-steps of an update, whose losses are joined by their labels: what goes on has the gradients of the whole.
--   accel-run tests/stdlib/accelerator/labels_resume_test.lua
-- tier: every change
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local folder = os.getenv "LABELS_RESUME" or accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/labels-resume")
if ranks.start { 1, 2, env = { LABELS_RESUME = folder } } then return end
local A, R, P = accel.accelerator, ranks.rank, ranks.size

local function open()
  A.AcceleratorState._reset_state(true)
  local accelerator = accel.Accelerator { gradient_accumulation_steps = 2 }
  accel.manual_seed(3)
  local model = accel.models.Llama { vocab_size = 29, hidden_size = 12, intermediate_size = 20, num_hidden_layers = 2, num_attention_heads = 2,
    num_key_value_heads = 2, max_position_embeddings = 16 }
  local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.5 })
  return accelerator, accelerator:prepare(model, optimizer)
end

local ids = accel.randint(0, 29, { 8, 8 }, { generator = accel.Generator(5) })
local labels = ids:clone()
labels:narrow(2, 1, 6):narrow(1, 1, 4):fill_(-100) -- the first micro-step has few

local function micro_step(accelerator, model, k)
  local _ <close> = accelerator:accumulate(model)
  local first = (k - 1) * 4 + R * 4 // P + 1
  accelerator:backward(model(ids:narrow(1, first, 4 // P), { labels = labels:narrow(1, first, 4 // P) }))
  return accelerator.sync_gradients and accelerator:clip_grad_norm_(model:parameters(), 1e9):item()
end

local accelerator, model = open()
local plain = accelerator:unwrap_model(model)
plain(ids, { labels = labels }):backward()
local want = accel.nn.utils.clip_grad_norm_(plain:parameters(), 1e9):item()
accelerator, model = open()
micro_step(accelerator, model, 1)
accelerator:save_state(folder .. "/" .. P)
ranks.close(micro_step(accelerator, model, 2), want, "at once", 1e-5)
accelerator, model = open()
accelerator:load_state(folder .. "/" .. P)
ranks.close(micro_step(accelerator, model, 2), want, "from the state", 1e-5)
