-- The loss of a library model that was never prepared, while another model is: backward gives this rank's own mean, and no rank waits for
-- another. A model that shares parameters with a prepared one, or lets gradients through to one, has the mean over the labels of all ranks.
--   accel-run tests/stdlib/accelerator/unprepared_test.lua
-- tier: every change
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2, 3 } then return end
local models, nn, R = accel.models, accel.nn, ranks.rank

local ids = accel.randint(1, 9, { ranks.size, 8 }, { generator = accel.Generator(4) })
local labels = ids:clone()
for r = 1, ranks.size - 1 do labels:narrow(1, r + 1, 1):narrow(2, 1, 2 + r):fill_(-100) end
local x, y = ids:narrow(1, R + 1, 1), labels:narrow(1, R + 1, 1)

local function flat(params)
  local list = {}
  for i, p in ipairs(params) do
    list[i] = p.grad:detach():reshape(-1)
    p.grad = nil
  end
  return accel.cat(list)
end

local kinds = {
  GPT2 = function() return models.GPT2(models.tiny.gpt2) end, llama = function() return models.Llama(models.tiny.llama) end,
  mixtral = function() return models.MixtralForCausalLM(models.tiny.mixtral) end,
  T5 = function() return models.T5ForConditionalGeneration(models.tiny.t5) end,
  BERT = function() return models.BertForMaskedLM(models.tiny.bert) end,
}
for name, make in accel.pairs(kinds) do
  accel.AcceleratorState._reset_state(true)
  local a = accel.Accelerator()
  local other = a:prepare(nn.Linear(3, 3))
  accel.manual_seed(2)
  local net = make():eval()
  net(x, { labels = y }):backward()
  local own = flat(net:parameters())
  if R == 0 then a:backward((net(x, { labels = y }))) end -- the others never come
  if R == 0 then ranks.close(flat(net:parameters()), own, name .. ": alone", 1e-6) end
  local before = other(accel.ones(2, 3)):sum()
  a:backward((net(x, { labels = y })))
  ranks.close(flat(net:parameters()), own, name, 1e-6)
  a:backward(before)

  -- a prepared part
  local whole = make():eval()
  whole:load_state_dict(net:state_dict())
  whole(ids, { labels = labels }):backward()
  local at = net.lm_head and "lm_head" or "cls"
  net[at] = a:prepare(net[at])
  a:backward((net(x, { labels = y })))
  ranks.close(flat(net[at]:parameters()), flat(whole[at]:parameters()), name .. ": a part", 1e-4)
end
