-- tier: sampled
-- ZeRO++ over tcp, between machines: parameters gathered in 8 bits, gradients exchanged in 4, a secondary copy within machines. Bytes that
-- ranks send fall by 4 and more, the loss after 200 steps is within 1 %, all ranks hold the same parameters, and what is saved is exact.
--   accel-run tests/stdlib/deepspeed/zeropp_test.lua
local accel = require "accel"
local machines = dofile((arg[0]:match "^.*/" or "") .. "../../support/machines.lua")
local dist = accel.dist

if machines.start({ 2, 1 }, { 2, 2 }) then return end
local P <const>, L <const> = dist.get_world_size(), dist.get_local_world_size()

--- Sequences of which 9 tokens of 10 follow from the one before: x[t + 1] = (7 x[t] + 3) mod 61, the rest are random.
local function batch(step)
  local g = accel.Generator(step * 64 + dist.get_rank())
  local random, keep = accel.randint(0, 61, { 8, 24 }, { generator = g }):tolist(), accel.rand(8, 24, { generator = g }):tolist()
  for i, row in ipairs(random) do
    for t = 2, 24 do
      if keep[i][t] < 0.9 then row[t] = (7 * row[t - 1] + 3) % 61 end
    end
  end
  return accel.tensor(random, { dtype = "i64" })
end

local function train(zero, steps)
  accel.accelerator.AcceleratorState._reset_state(true)
  zero.stage, zero.stage3_param_persistence_threshold = 3, 0
  zero.stage3_gather_16bit_weights_on_model_save = true
  local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = {
    zero_optimization = zero, optimizer = { type = "AdamW", params = { lr = 3e-3 } }, gradient_clipping = 1.0,
  }, zero3_init_flag = false } }
  accel.manual_seed(11)
  local net = accel.models.GPT2LMHeadModel { vocab_size = 61, n_positions = 24, n_embd = 64, n_layer = 2, n_head = 2, resid_pdrop = 0,
    embd_pdrop = 0, attn_pdrop = 0 }
  local dummy = accel.DummyOptim(net:parameters())
  local model, optimizer = a:prepare(net, dummy)
  local sent, last = nil, 0
  for step = 1, steps do
    local x = batch(step)
    local before = dist.bytes_sent()
    local loss = model(x, { labels = x })
    a:backward(loss)
    optimizer:step()
    sent = dist.bytes_sent() - before
    if step > steps - 20 then last = last + loss:item() / 20 end
  end
  local mean = accel.full({ 1 }, last)
  dist.all_reduce(mean, { op = "avg" })
  return { sent = sent, loss = mean:item(), steps = steps, model = model, net = net, accelerator = a }
end

local function report(name, run, base)
  if dist.get_rank() ~= 0 then return end
  print(("%-28s %9d bytes a step, %.2fx less, loss %.4f (%+.2f %%)"):format(name, run.sent, base.sent / run.sent, run.loss,
    (run.loss / base.loss - 1) * 100))
end

local steps <const> = L == 1 and 200 or 20
local plain = train({}, steps)
report("plain", plain, plain)
local weights = train({ zero_quantized_weights = true }, 20)
report("zero_quantized_weights", weights, plain)
local both = train({ zero_quantized_weights = true, zero_quantized_gradients = true }, steps)
report("and gradients", both, plain)
local all = train({ zero_quantized_weights = true, zero_quantized_gradients = true, zero_hpz_partition_size = L == 1 and 2 or L },
  os.getenv "ACCEL_TEST_FULL" == "1" and steps or 20)
report("and hpz", all, plain)
for _, run in ipairs { both, all } do
  assert(plain.sent / run.sent >= 4, plain.sent / run.sent)
  if run.steps == 200 then assert(math.abs(run.loss / plain.loss - 1) < 0.01, ("%.4f, not %.4f"):format(run.loss, plain.loss)) end
end
assert(weights.sent < plain.sent and (steps < 200 or plain.loss < 1))

do -- what is saved is what the owners hold, not what was rounded for the way
  local run = train({ zero_quantized_weights = true }, 2)
  local state = run.accelerator:get_state_dict(run.model)
  local owners = require "accel.shard.owners"
  local own
  for name, p in run.net:named_parameters() do
    local place = owners.of[p]
    local from, count = place.unit:range(place.i)
    if from and dist.get_rank() == 0 then
      own = true
      assert(accel.equal(state[name]:reshape(-1):narrow(1, from + 1, count), place.unit:piece_of(place.unit.own, place.i)), name)
    end
  end
  assert(own or dist.get_rank() > 0)
end

do -- a gather that is not divisible, and stages that have none of it
  local ok, e = pcall(train, { zero_hpz_partition_size = 3 }, 1)
  assert(not ok and tostring(e):find("must divide the number of ranks, " .. P, 1, true), tostring(e))
  accel.accelerator.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = { zero_optimization = { stage = 2,
    zero_quantized_weights = true } } } }
  ok, e = pcall(a.prepare, a, accel.nn.Linear(2, 2))
  assert(not ok and tostring(e):find "zero_quantized_weights is of stage 3", tostring(e))
end
