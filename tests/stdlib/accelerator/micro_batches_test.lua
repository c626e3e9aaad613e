-- Accelerator { micro_batches = M } with deterministic = "world": an unchanged training loop leaves the same bits on 1, 2, 3, 5 ranks, for
-- DDP, FSDP and ZeRO, over two shuffled epochs with dropout, a schedule, clipping and an evaluation of other layout; also if a run is
-- saved in the middle of an epoch on some ranks and goes on on others. The script starts itself on the ranks.
-- tier: sampled
--   accel-run tests/stdlib/accelerator/micro_batches_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local nn = accel.nn

local KINDS <const> = { "ddp", "full", "grad_op", "zero1", "zero2", "zero3" }

if not ranks.launched then
  local tmp = os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d"
  local taken = ranks.sample.one_of(2)
  for i, kind in ipairs(KINDS) do
    if taken() then
      local function run(n, args)
        return ranks.run(n, { capture = true, args = ("%s %s/%s%d %s"):format(kind, tmp, kind, n, args) }):match "hash (%x+ %x+)"
      end
      local want = run(1, "whole")
      assert(want)
      for _, n in ipairs(i % 2 == 0 and { 2, 5 } or { 3, 4 }) do
        local got = run(n, "whole")
        assert(got == want, ("%s on %d ranks: %s, on one %s"):format(kind, n, tostring(got), want))
      end
      local saved, goes_on = i % 2 == 0 and 3 or 1, i % 2 == 0 and 2 or 5
      run(saved, "save")
      local got = ranks.run(goes_on, { capture = true, args = ("%s %s/%s%d resume"):format(kind, tmp, kind, saved) }):match "hash (%x+)"
      assert(got == want:match "^%x+", ("%s, %d ranks and then %d: %s, not %s"):format(kind, saved, goes_on, tostring(got), want))
    end
  end
  case "the same bits with micro_batches"
  return
end

local kind <const>, folder <const>, what <const> = arg[1], arg[2], arg[3]
local M <const>, ROWS <const>, UPDATES <const> = 7, 2, 5 -- of an epoch
local STOP <const> = 7 -- updates before the save

local opts = { micro_batches = M, kwargs_handlers = { accel.DistributedDataParallelKwargs { deterministic = "world" } } }
if kind == "full" or kind == "grad_op" then
  opts.fsdp_plugin = accel.FullyShardedDataParallelPlugin { sharding_strategy = kind == "full" and "FULL_SHARD" or "SHARD_GRAD_OP" }
elseif kind ~= "ddp" then
  opts.deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = math.tointeger(tonumber(kind:sub(5))),
    zero3_save_16bit_model = kind == "zero3" or nil, gradient_clipping = 0.5 }
end
local accelerator = accel.Accelerator(opts)
accel.manual_seed(3)
local function rows(n, seed)
  local g = accel.Generator(seed)
  return accel.data.TensorDataset(accel.randn(n, 5, { generator = g }), accel.randn(n, 2, { generator = g }))
end
local model = nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Dropout(0.2), nn.Linear(40, 2))
local adam = accel.optim.AdamW(model:parameters(), { lr = 0.02 })
local schedule = accel.optim.lr_scheduler.StepLR(adam, 3, { gamma = 0.5 })
local loader = accel.data.DataLoader(rows(UPDATES * M * ROWS + 3, 1), { batch_size = ROWS, shuffle = true, drop_last = true, seed = 9 })
local eval = accel.data.DataLoader(rows(11, 2), { batch_size = ROWS })
model, adam, schedule, loader, eval = accelerator:prepare(model, adam, schedule, loader, eval)
if what == "resume" then accelerator:load_state(folder) end

local losses, updates = accel.zeros(2 * UPDATES * M, { dtype = "f64" }), what == "resume" and STOP or 0
local function evaluate()
  model:eval()
  local n = 0
  local _ <close> = accel.no_grad()
  for batch in eval() do
    local x, y = batch[1], batch[2]
    local all = accelerator:gather_for_metrics((model(x) - y):pow(2):mean(2))
    n = n + all:numel()
  end
  assert(n == 11, n)
  model:train()
end

local mine = 0
while loader.iteration < 2 and updates < 2 * UPDATES do
  for batch in loader() do
    local x, y = batch[1], batch[2]
    local _ <close> = accelerator:accumulate(model)
    local loss = (model(x) - y):pow(2):mean()
    losses[updates * M + loader.row0 // ROWS % M + 1] = loss:item()
    mine = mine + 1
    accelerator:backward(loss)
    if accelerator.sync_gradients and not opts.deepspeed_plugin then accelerator:clip_grad_norm_(model:parameters(), 0.5) end
    adam:step()
    schedule:step()
    adam:zero_grad()
    if accelerator.sync_gradients then
      updates = updates + 1
      if what == "save" and updates == STOP then
        model:eval() -- the position in the training data stays that of training
        accelerator:save_state(folder)
        return
      end
    end
  end
  evaluate()
end
assert(updates == 2 * UPDATES, updates)
accel.dist.all_reduce(losses)
local state = accelerator:get_state_dict(model)
local function hash(h, t)
  for c in t:detach():contiguous():to_bytes():gmatch "." do h = h * 0x100000001b3 ~ c:byte() end
  return h
end
local weights = 0
for _, t in accel.pairs(state) do weights = hash(weights, t) end
if accelerator.is_main_process then print(("hash %016x %016x"):format(weights, hash(0, losses))) end

-- what is refused
local function refused(part, f)
  local ok, message = pcall(f)
  assert(not ok and tostring(message):find(part, 1, true), tostring(message))
end
refused("cannot be set", function() accelerator.gradient_accumulation_steps = 2 end)
refused("deterministic", function() accel.Accelerator { micro_batches = 4 } end)
refused("not both", function()
  accel.Accelerator { micro_batches = 8, gradient_accumulation_steps = 2, kwargs_handlers = opts.kwargs_handlers }
end)
local short = accelerator:prepare(accel.data.DataLoader(rows(M * ROWS + 1, 1), { batch_size = ROWS }))
refused("do not fill the 7 micro-batches", function() for _ in short() do break end end)
