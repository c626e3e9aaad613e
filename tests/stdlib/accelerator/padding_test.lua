-- Rows that are padding have no part in training: after three epochs over 1437 rows (or fewer) in batches of 36, which no number of ranks
-- divides, parameters on 2, 3 and 4 ranks are those of one rank within rounding: losses of one's own, sums with weights, a model's loss of
-- labels; batches that are split, dispatched, and each rank's own; with accumulation. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/padding_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, nn, P = accel.accelerator, accel.nn, ranks.size

local take = ranks.sample.one_of(3)
local numbers = { 1, capture = true }
for n = 2, 4 do numbers[#numbers + 1] = take() and n or nil end
local outputs = ranks.start(numbers)
if outputs then
  local want, trained = {}, nil
  for what, sum in outputs[1]:gmatch "(%S+) = (%S+)\n" do want[what] = tonumber(sum) end
  for n, out in accel.pairs(outputs) do
    local count = 0
    for what, sum in out:gmatch "(%S+) = (%S+)\n" do
      local far = math.abs(tonumber(sum) / want[what] - 1)
      assert(far < 1e-9, ("%s: %d ranks differ from one by %.3g"):format(what, n, far))
      count = count + 1
    end
    trained = trained or count
    assert(count == trained and count >= (ranks.sample.full and 13 or 4), out)
  end
  return
end

accel.manual_seed(1)
local x = accel.randn(1437, 4, { dtype = "f64" })
local y = (x * accel.arange(1, 5)):sum(2, true):sin()
local classes = (y:squeeze(2):abs() * 2.99):to "i64"
local ids = accel.randint(0, 11, { 150, 5 })
local labels = ids:masked_fill(accel.rand(150, 5):lt(0.5), -100)

local function train(what, set, net, loss_of, o)
  if not take() then return end
  A.AcceleratorState._reset_state(true)
  local accelerator = accel.Accelerator { gradient_accumulation_steps = o.steps, dataloader_config = A.DataLoaderConfiguration {
    split_batches = not o.whole, dispatch_batches = o.dispatch or nil } }
  accel.manual_seed(2)
  local model = net():to "f64"
  local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
  local loader = accel.data.DataLoader(set, { batch_size = o.whole and 36 // P or 36, shuffle = true, seed = 3 })
  model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
  for _ = 1, 3 do
    for batch in loader() do
      local _ <close> = accelerator:accumulate(model)
      local loss, weight = loss_of(model, batch)
      accelerator:backward(loss, weight and { weight = weight })
      accelerator:clip_grad_norm_(model:parameters(), 0.7)
      optimizer:step()
      optimizer:zero_grad()
    end
  end
  local sum = 0
  for _, p in ipairs(model:parameters()) do sum = sum + p:detach():abs():sum():item() end
  accelerator:print(("%s = %.15g"):format(what, sum))
  if o.evaluates then
    local mean = accel.metrics.MeanLoss()
    model:eval()
    accel.no_grad(function()
      for batch in loader() do mean:update((loss_of(model, batch))) end
    end)
    accelerator:print(("%s,evaluation = %.15g"):format(what, mean:value()))
  end
end

local function regression() return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)) end
local function classifier() return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)) end
local function decoder()
  return accel.models.Llama { vocab_size = 11, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
    num_key_value_heads = 2, max_position_embeddings = 8 }
end

local all = accel.data.TensorDataset(x, y)
x, y, classes = x:narrow(1, 1, 325), y:narrow(1, 1, 325), classes:narrow(1, 1, 325)
local numbers, classed = accel.data.TensorDataset(x, y), accel.data.TensorDataset(x, classes)
local function mixture()
  return accel.models.MixtralForCausalLM { vocab_size = 11, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
    num_key_value_heads = 2, max_position_embeddings = 8, num_local_experts = 4, num_experts_per_tok = 2, output_router_logits = true,
    router_aux_loss_coef = 0.5, router_z_loss_coef = 0.1 }
end

local full = accel.data.TensorDataset(ids:narrow(1, 1, 144), labels:narrow(1, 1, 144)) -- routers see every token of a batch
local texts = accel.data.TensorDataset(ids, labels)
local function squares(model, batch) return accel.mse_loss(model(batch[1]), batch[2]) end
for what, o in accel.pairs { split = {}, whole = { whole = true }, dispatched = { dispatch = true }, ["split,steps"] = { steps = 3 } } do
  o.steps = o.steps or 1
  train("mse," .. what, what == "split" and all or numbers, regression, squares, o)
end
local plain = { steps = 1 }
train("classes", classed, classifier, function(model, batch) return accel.cross_entropy(model(batch[1]), batch[2]) end, plain)
train("weights", numbers, regression, function(model, batch) return (model(batch[1]) - batch[2]):abs():sum(), #batch[1] end, plain)
train("labels", texts, decoder, function(model, batch) return model(batch[1], { labels = batch[2] }) end, { steps = 1, evaluates = true })
train("labels,steps", texts, decoder, function(model, batch) return model(batch[1], { labels = batch[2] }) end, { steps = 2 })
train("routers", full, mixture, function(model, batch) return (model(batch[1], { labels = batch[2] })) end, plain)
train("labels,weights", texts, decoder, function(model, batch)
  local n = batch[2]:narrow(2, 2, 4):ne(-100):sum()
  return model(batch[1], { labels = batch[2] }) * n, n
end, plain)

-- labels of a script's own model, to which -100 is a number like others, and a model with another one inside
local Own, Around = nn.Module:extend "Own", nn.Module:extend "Around"
function Own:init() self.linear = nn.Linear(4, 1) end
function Own:forward(rows, o)
  local out = self.linear(rows)
  return { loss = accel.binary_cross_entropy_with_logits(out:squeeze(2), o.labels:to(out.dtype)), logits = out }
end
function Around:init() self.inner = decoder() end
function Around:forward(rows, o) return { loss = self.inner(rows, { labels = o.targets }) } end
local binary = accel.data.TensorDataset(x, y:squeeze(2):gt(0):to "i64")
train("own,labels", binary, Own, function(model, batch) return model(batch[1], { labels = batch[2] }).loss end, plain)
train("inner,labels", texts, Around, function(model, batch) return model(batch[1], { targets = batch[2] }).loss end, plain)
