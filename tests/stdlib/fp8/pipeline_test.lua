--- Pipelines in fp8: with TransformerEngine's recipe all micro-batches of a batch have the same scales, and the next ones follow from the largest
--- of all of them, on every rank and in every schedule; losses, scales and histories are those of one rank that does the same.
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A = accel.accelerator
local stateful = require "accel.accelerator.recipes".stateful

local STEPS <const>, ROWS <const>, T <const>, V <const> = 4, 8, 8, 48
local cases = {
  { pp = 2, micros = 1, schedule = "1f1b" }, { pp = 2, micros = 4, schedule = "gpipe" }, { pp = 2, micros = 4, schedule = "1f1b" },
  { pp = 2, micros = 4, schedule = "interleaved", chunks = 2 }, { pp = 2, micros = 4, schedule = "zero_bubble" },
  { pp = 2, dp = 2, micros = 2, schedule = "1f1b" }, { pp = 2, micros = 2, schedule = "1f1b", recompute = true },
}

local function ids_of(step) return accel.randint(0, V, { ROWS, T }, { generator = accel.Generator(step), device = "cpu" }) end

local function print_state(step, loss, scaling)
  local state, text = scaling:state_dict(), {}
  for _, name in ipairs { "scale_fwd", "history_fwd", "scale_bwd", "history_bwd" } do
    for _, v in ipairs(state[name]:flatten():tolist()) do text[#text + 1] = ("%.6g"):format(v) end
  end
  print(("state %d %.6f %s"):format(step, loss, table.concat(text, " ")))
end

local function made(case, config)
  local a = accel.Accelerator { mixed_precision = "fp8", parallelism_config = config, kwargs_handlers = { A.TERecipeKwargs {
    amax_history_len = 3, amax_compute_algo = "max", interval = case.micros > 1 and 2 or 1 } } }
  accel.manual_seed(3)
  local model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = 32, n_layer = 4, n_head = 4, resid_pdrop = 0, embd_pdrop = 0,
    attn_pdrop = 0 }
  if case.recompute then model:gradient_checkpointing_enable() end
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  return a, a:prepare(model, optimizer)
end

-- One rank: micro-batches of all data ranks, one after the other, as one forward of the scaling.
local function alone(case)
  local a, model, optimizer = made(case)
  local scaling, n = stateful(a)[1], case.micros * (case.dp or 1)
  for step = 1, STEPS do
    local ids, total = ids_of(step), 0
    do
      local _ <close> = scaling:batch(true, a.device)
      for m = 1, n do
        local part = ids:narrow(1, (m - 1) * (ROWS // n) + 1, ROWS // n)
        local loss = model(part, { labels = part }) / case.micros
        loss:backward()
        total = total + loss:item() / (case.dp or 1)
      end
    end
    for _, p in ipairs(model:parameters()) do p.grad:div_(case.dp or 1) end -- as data ranks do, behind backward
    optimizer:step()
    optimizer:zero_grad()
    print_state(step, total, scaling)
  end
end

local function shared(case)
  local dp = case.dp or 1
  local a, model, optimizer = made(case, accel.ParallelismConfig { pp_size = case.pp, dp_shard_size = dp,
    pp_handler = A.PipelineParallelConfig { num_micro_batches = case.micros, schedule = case.schedule, virtual_stages = case.chunks or 1 } })
  local axis = a._parallel:axis "data"
  for step = 1, STEPS do
    local share = ROWS // dp
    local ids = ids_of(step):narrow(1, 1 + share * axis.rank, share)
    local loss = model(ids, { labels = ids })
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    local mean = loss:detach():clone()
    if axis.size > 1 then accel.dist.all_reduce(mean, { group = axis.group, op = "mean" }) end
    local scaling = stateful(a)[1]
    local state = scaling:state_dict() -- on all ranks
    for _, name in ipairs { "scale_fwd", "history_fwd", "scale_bwd", "history_bwd" } do
      local all = a:gather(state[name]:reshape(1, -1))
      for r = 1, a.num_processes do assert(accel.equal(all[r], state[name]:reshape(-1)), name) end
    end
    if a.is_main_process then print_state(step, mean:item(), scaling) end
    if step == 2 then -- an evaluation between steps moves nothing
      model:eval()
      model(ids)
      model:train()
    end
  end
end

if ranks.launched then return shared(cases[tonumber(arg[1])]) end
if arg[1] then return alone(cases[tonumber(arg[1])]) end

local function states(text)
  local list = {}
  for line in text:gmatch "state ([^\n]+)" do
    local row = {}
    for word in line:gmatch "%S+" do row[#row + 1] = tonumber(word) end
    list[#list + 1] = row
  end
  assert(#list == STEPS, text)
  return list
end

local take = ranks.sample.one_of(3)
local function compare(i, case)
  local want = states(ranks.run(nil, { args = tostring(i), capture = true }))
  local got = states(ranks.run(case.pp * (case.dp or 1), { args = tostring(i), capture = true }))
  for step = 1, STEPS do
    assert(#want[step] == #got[step])
    for k, v in ipairs(want[step]) do
      -- sums of gradients of micro-batches come in another order, which moves parameters, and amax with them, by roundings of f32 and bf16
      assert(math.abs(got[step][k] - v) <= 0.01 * math.abs(v),
        ("case %d, step %d, number %d: %g, on one rank %g"):format(i, step, k, got[step][k], v))
    end
    assert(math.abs(got[step][2] / want[step][2] - 1) < 1e-3)
  end
  local moved = 0 -- scales and histories, so that the above says something
  for k = 3, #got[STEPS] do moved = moved + (got[STEPS][k] ~= got[1][k] and 1 or 0) end
  assert(moved > 20)
end
for i, case in ipairs(cases) do
  if take() then compare(i, case) end
end
print "scales of pipelines are those of one rank"
