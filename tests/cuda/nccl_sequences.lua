-- What training plans ask of NCCL, call by call, by the stand-in that is particular about it (twin/nccl.cpp): data parallelism, ZeRO 1 to 3
-- and tensor parallelism make the same calls on every rank, of the kinds, dtypes, reductions and counts that their plan says, on memory that
-- is registered, segment by segment and not call by call; their losses are those of the host. Memory that goes is taken back first; a library
-- that refuses is asked once; a rank that dies ends the job.
local accel = require "accel"
local dist = accel.dist
local log = dofile((arg[0]:match "^.*/" or "") .. "../support/nccl_log.lua")
local of_rank = log.of_rank

local self, mode, device = arg[0], arg[1], arg[2]
local STEPS <const>, B <const>, T <const>, D <const>, LAYERS <const>, V <const> = 3, 2, 8, 16, 2, 33

-- ---- what runs on every rank ----

local cases = {}

local function options(kind)
  local o = { cpu = device == "cpu" or nil }
  if kind == "tp" then
    o.parallelism_config = accel.ParallelismConfig { tp_size = 2 }
  elseif kind ~= "ddp" then
    o.deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = math.tointeger(kind:match "%d") }
  end
  return o
end

local function train(kind)
  local a = accel.Accelerator(options(kind))
  accel.manual_seed(1)
  local model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = D, n_layer = LAYERS, n_head = 4, resid_pdrop = 0, embd_pdrop = 0,
    attn_pdrop = 0 }
  local elements, seen = 0, {}
  for _, p in ipairs(model:parameters()) do
    if not seen[p] then elements = elements + p:numel() end
    seen[p] = true
  end
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  model, optimizer = a:prepare(model, optimizer)
  local rows = kind == "tp" and 0 or a.process_index -- ranks that share a model read the same rows
  for step = 1, STEPS do
    local ids = accel.randint(0, V, { B, T }, { generator = accel.Generator(step * 10 + rows), device = "cpu" }):to(a.device)
    local loss = accel.cross_entropy(model(ids):reshape(-1, V), ids:reshape(-1))
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    print(("loss %d %d %.5f of %d"):format(a.process_index, step, loss:item(), elements))
  end
end
for _, kind in ipairs { "ddp", "zero1", "zero2", "zero3", "tp" } do cases[kind] = function() train(kind) end end

-- A large tensor is let go of and its segment given back to the device, then another takes its place.
function cases.trim()
  local dev = ("cuda:%d"):format(dist.get_rank())
  for round = 1, 3 do
    do
      local t <close> = accel.ones(9 << 20, { device = dev })
      dist.all_reduce(t)
      assert(t[1]:item() == dist.get_world_size())
    end
    collectgarbage()
    accel.empty_cache(dev)
    print(("round %d"):format(round))
  end
end

function cases.refused()
  local t = accel.ones(100, { device = ("cuda:%d"):format(dist.get_rank()) })
  for _ = 1, 3 do dist.all_reduce(t) end
  assert(t[1]:item() == dist.get_world_size() ^ 3)
end

function cases.dies()
  local dev = ("cuda:%d"):format(dist.get_rank())
  for i = 1, 4 do
    if i == 3 and dist.get_rank() == 1 then os.exit(9, false) end
    dist.all_reduce(accel.ones(2, { device = dev }))
  end
end

if mode then
  cases[mode]()
  print("done " .. mode)
  return
end

-- ---- the test: starts them ----

local AVG <const>, SUM <const>, F32 <const> = "4", "0", "7"
local function sum(list, kind, op)
  local n, elements = 0, 0
  for _, c in ipairs(list) do
    if c.kind == kind then
      assert(op == nil or c.op == op, ("%s by reduction %s"):format(kind, c.op))
      n, elements = n + 1, elements + c.count
    end
  end
  return n, elements
end

-- What each plan says, given the ranks, the elements of the model and those of its flat units (padded, over all ranks).
local plans = {}
function plans.ddp(list, _, elements)
  local _, sent = sum(list, "broadcast")
  assert(sent == elements, "parameters go round once")
  local n, reduced = sum(list, "all_reduce", AVG)
  assert(reduced == STEPS * elements and n < 3 * STEPS, "every gradient is averaged once a step, in buckets")
  assert(#list == n + (sum(list, "broadcast")), "nothing else is called")
end
local function zero(stage)
  return function(list, ranks, elements)
    local units, sent = sum(list, "broadcast")
    assert(sent >= elements and sent % (256 * ranks) == 0 and sent < elements + units * 256 * ranks, "units are padded to 256 a rank")
    local scattered, mine = sum(list, "reduce_scatter", AVG)
    assert(scattered == STEPS * units and mine * ranks == STEPS * sent, "every unit's gradients are scattered once a step")
    local gathered, parts = sum(list, "all_gather")
    assert(parts * ranks >= STEPS * sent and gathered >= STEPS * units, "every unit is gathered each step")
    assert(sum(list, "all_reduce") == 0 and sum(list, "messages") == 0)
    if stage == 3 then return end
    assert(gathered == STEPS * units and parts * ranks == STEPS * sent, "and not twice")
    local phase = 0 -- of one step: gradients of all units, then all units
    for i = units + 1, #list do
      local at = (i - units - 1) % (2 * units)
      phase = at < units and "reduce_scatter" or "all_gather"
      assert(list[i].kind == phase, ("call %d is %s, not %s"):format(i, list[i].kind, phase))
    end
  end
end
plans.zero1, plans.zero2, plans.zero3 = zero(1), zero(2), zero(3)
function plans.tp(list, ranks)
  local n, elements = sum(list, "all_reduce", SUM) -- two a layer and one of the embedding forward, as many backward
  local each = 2 * (2 * LAYERS + 1)
  assert(n == STEPS * each and elements == n * B * T * D, ("%d sums of %d elements"):format(n, elements))
  local gathered, logits = sum(list, "all_gather")
  assert(gathered == STEPS and logits == STEPS * B * T * ((V + ranks - 1) // ranks), "logits by parts of the vocabulary")
end

local function run(name, ranks, env, where) return log.run(self, name, ranks, env, { args = where }) end

for _, case in ipairs { { "ddp", 2 }, { "zero1", 2 }, { "zero2", 3 }, { "zero3", 2 }, { "tp", 2 } } do
  local name, ranks = table.unpack(case)
  -- gradients are reduced in memory that NCCL made; tensor parallelism reduces activations
  local text, code, calls = run(name, ranks, { NCCL_TWIN_STRICT = name == "tp" and "1" or "memory" })
  assert(code == 0 and select(2, text:gsub("done " .. name, "")) == ranks, text)
  assert(not text:find("nccl_twin", 1, true), text)
  local first = of_rank(calls, 0)
  for rank = 0, ranks - 1 do
    local list, known, taken = of_rank(calls, rank)
    assert(#list == #first and #list > 0)
    for i, c in ipairs(list) do
      local f = first[i]
      for _, key in ipairs { "comm", "kind", "dtype", "op", "root", "count", "messages" } do
        assert(c[key] == f[key], ("%s: call %d of rank %d: %s %s, of rank 0 %s"):format(name, i, rank, key, c[key], f[key]))
      end
      assert(c.registered and c.dtype == F32, name)
    end
    assert(known >= 1 and known <= 3 and taken == known, ("%s: %d segments registered, %d taken back"):format(name, known, taken))
  end
  plans[name](first, ranks, math.tointeger(text:match "of (%d+)"))
  log.same_losses(name, text, run(name, ranks, nil, "cpu"), STEPS * ranks)
end

local text, code, calls = run("trim", 2, { NCCL_TWIN_STRICT = "1" })
assert(code == 0 and not text:find("nccl_twin", 1, true), text)
for rank = 0, 1 do
  local list, known, taken = of_rank(calls, rank)
  assert(#list == 3 and known == 3 and taken == 3, ("%d calls, %d registered, %d taken back"):format(#list, known, taken))
end

text, code, calls = run("refused", 2, { NCCL_TWIN_REGISTER = "no" })
assert(code == 0 and select(2, text:gsub("NCCL registers no memory", "")) == 2, text) -- once a rank
assert(#calls == 6 and not calls[1].registered)
text, code, calls = run("refused", 2, { ACCEL_NCCL_REGISTER = "0" })
assert(code == 0 and not text:find("registers", 1, true) and #calls == 6, text)

-- a library that makes no memory, and one that is not asked
for _, env in ipairs { { NCCL_TWIN_MEMORY = "no", NCCL_TWIN_STRICT = "1" }, { ACCEL_NCCL_MEMORY = "0", NCCL_TWIN_STRICT = "1" } } do
  text, code, calls = run("ddp", 2, env)
  assert(code == 0 and not text:find("nccl_twin", 1, true) and #calls > 0, text)
  env.NCCL_TWIN_STRICT = "memory"
  text, code = run("ddp", 2, env)
  assert(code ~= 0 and text:find("in memory that is not of ncclMemAlloc", 1, true), text)
end

local began = accel.clock()
text, code = run("dies", 3)
assert(code ~= 0 and text:find "rank 1" and accel.clock() - began < 60, text)
print "the plans' calls are those that they say"
