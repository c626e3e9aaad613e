-- join_uneven_inputs with a model's loss of labels: ranks have different numbers of batches and of labels, and the steps are those of one rank
-- that has the rows of all ranks. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/join_labels_test.lua
-- tier: every change
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 2, 3 } then return end
local P, R = ranks.size, ranks.rank

local function net()
  accel.manual_seed(2)
  return accel.models.Llama { vocab_size = 11, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
    num_key_value_heads = 2, max_position_embeddings = 8 }:to "f64"
end

--- The batch of a rank in a step: rank r has r + 1 of them, and no labels in some.
local function batch(step, r)
  local g = accel.Generator(10 * step + r)
  local ids = accel.randint(0, 11, { 2, 5 }, { generator = g })
  return ids, ids:masked_fill(accel.rand(2, 5, { generator = g }):lt((step + r) % 3 == 2 and 2 or 0.2 * r), -100)
end

local want = net()
local alone = accel.optim.SGD(want:parameters(), { lr = 0.3, momentum = 0.9 })
for step = 1, P do
  local ids, labels = {}, {}
  for r = step - 1, P - 1 do
    ids[#ids + 1], labels[#labels + 1] = batch(step, r)
  end
  want(accel.cat(ids, 1), { labels = accel.cat(labels, 1) }):backward()
  alone:step()
  alone:zero_grad()
end

local accelerator = accel.Accelerator()
local model, optimizer = net(), nil
optimizer = accel.optim.SGD(model:parameters(), { lr = 0.3, momentum = 0.9 })
model, optimizer = accelerator:prepare(model, optimizer)
accelerator:join_uneven_inputs({ model }, function()
  for step = 1, R + 1 do
    local ids, labels = batch(step, R)
    accelerator:backward(model(ids, { labels = labels }))
    optimizer:step()
    optimizer:zero_grad()
  end
end)
local found = accelerator:unwrap_model(model):state_dict()
for name, w in accel.pairs(want:state_dict()) do
  ranks.close((found[name] - w):abs():max():item(), 0, name, 1e-12)
end
