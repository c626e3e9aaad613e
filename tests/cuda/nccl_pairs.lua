-- Sends and receives between devices through NCCL's calls, by the stand-in (twin/nccl.cpp): each direction between two ranks has a communicator
-- and a stream of its own, messages are matched by tags in any order, in sub-groups and beside collectives; what does not fit is named, and a link
-- that fails, a message that never ends and a rank that dies end the job. Plans that send: pipelines of every schedule, context parallelism by a
-- ring and by exchanged heads, experts; their losses are those of the host, nothing of theirs goes through the host, and their messages are those
-- that the plan says. With "gpu", on the real library: values and plans where there are GPUs for their ranks, else through the host on one.
-- tier: sampled
local accel = require "accel"
local dist = accel.dist
local support = (arg[0]:match "^.*/" or "") .. "../support/"
local log, sample = dofile(support .. "nccl_log.lua"), dofile(support .. "sample.lua")

local self, mode, device = arg[0], arg[1], arg[2]
local STEPS <const>, B <const>, T <const>, D <const>, V <const> = 2, 4, 8, 16, 33

-- ---- what runs on every rank ----

local cases = {}
local function rank_and_device()
  local dev = ("cuda:%d"):format(dist.get_rank())
  dist.init_process_group(nil, { device_id = dev })
  return dist.get_rank(), dist.get_world_size(), dev
end

local function check(t, want, what)
  local got = t:to("cpu", "f64"):flatten():tolist()
  assert(#got == #want, what)
  for i = 1, #want do assert(got[i] == want[i], ("%s: [%d] is %s, not %s"):format(what, i, got[i], want[i])) end
end

function cases.values()
  local rank, n, dev = rank_and_device()
  local F32 <const> = { dtype = "f32", device = dev }
  local to, from = (rank + 1) % n, (rank - 1) % n
  local function on(list, dtype) return accel.tensor(list, { dtype = dtype or "f32", device = dev }) end
  local function around(t, opts) -- a ring, in which every rank sends first
    local got = accel.zeros(t.shape, { dtype = t.dtype, device = dev })
    local works = { dist.isend(t, to, opts), dist.irecv(got, from, opts) }
    for _, w in ipairs(works) do w:wait() end
    return got
  end
  for _, dtype in ipairs { "f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8" } do
    check(around(on({ rank + 1, 3 }, dtype)), { from + 1, 3 }, dtype)
  end
  check(around(on { rank }, { tag = 2147483647 }), { from }, "the greatest tag")
  check(around(accel.zeros(0, 3, F32)), {}, "no elements")
  check(around(accel.full({ 2, 3 }, rank, F32):transpose(1, 2)), { from, from, from, from, from, from }, "a transposed view")
  local large = around(accel.full({ 1 << 20 }, rank + 1, F32))
  assert(large:sum():item() == (1 << 20) * (from + 1), "4 MiB")
  -- received in another order than sent, from a tensor that the next kernel overwrites
  local sent, got, works = {}, {}, {}
  for i = 1, 6 do sent[i] = accel.full({ i }, 100 * rank + i, F32) end
  for i = 1, 6 do works[#works + 1] = dist.isend(sent[i], to, { tag = i }) end
  for _, i in ipairs { 6, 2, 4, 1, 3, 5 } do
    got[i] = accel.zeros(i, F32)
    works[#works + 1] = dist.irecv(got[i], from, { tag = i })
  end
  for _, w in ipairs(works) do w:wait() end
  for i = 1, 6 do sent[i]:zero_() end
  for i = 1, 6 do check(got[i], accel.full({ i }, 100 * from + i):tolist(), "tag " .. i) end
  -- of one tag: in order
  works = {}
  for i = 1, 3 do works[#works + 1] = dist.isend(on { rank, i }, to) end
  for i = 1, 3 do
    got[i] = on { 0, 0 }
    works[#works + 1] = dist.irecv(got[i], from)
  end
  for _, w in ipairs(works) do w:wait() end
  for i = 1, 3 do check(got[i], { from, i }, "message " .. i .. " of one tag") end
  -- calls that wait, in turn; collectives between them
  local x = on { rank * 10 }
  if rank > 0 then assert(dist.recv(x, rank - 1) == rank - 1) end
  if rank < n - 1 then dist.send(x + 1, rank + 1) end
  check(x, { rank }, "passed down the line")
  dist.all_reduce(x)
  check(x, { n * (n - 1) // 2 }, "a collective beside messages")
  local p2p = dist.batch_isend_irecv { dist.P2POp(dist.isend, on { rank + 7 }, to), dist.P2POp(dist.irecv, x, from) }
  for _, w in ipairs(p2p) do w:wait() end
  check(x, { from + 7 }, "a batch")
  -- in a sub-group, by its ranks
  local pair = dist.new_group { 0, n - 1 }
  if rank == 0 then dist.send(on { 5 }, { group = pair, group_dst = 1 }) end
  if rank == n - 1 then
    dist.recv(x, { group = pair, group_src = 0 })
    check(x, { 5 }, "a sub-group")
  end
  dist.isend(on { rank }, to) -- nobody waits for it
  dist.recv(x, from)
  check(x, { from }, "a work that nobody waits for")
  x = accel.tensor({ rank }, { device = "cpu" })
  local w = dist.isend(x, to, { tag = 3 }) -- the host's go as before
  local y = accel.zeros(1, { dtype = "i64", device = "cpu" })
  dist.recv(y, from, { tag = 3 })
  w:wait()
  check(y, { from }, "on the host")
end

-- A device is told that the ranks share, or nothing is told: through memory of the host.
function cases.host()
  local rank, n = dist.get_rank(), dist.get_world_size()
  local dev = ("cuda:%d"):format(rank % accel.features().devices.cuda.count)
  if device == "told" then dist.init_process_group(nil, { device_id = dev }) end
  local t, got = accel.ones(2, { device = dev }) * rank, accel.zeros(2, { device = dev })
  local w = dist.isend(t, (rank + 1) % n)
  dist.recv(got, (rank - 1) % n)
  w:wait()
  check(got, { (rank - 1) % n, (rank - 1) % n }, "through the host")
end

function cases.differ()
  local rank, _, dev = rank_and_device()
  if rank == 0 then dist.send(accel.ones(2, { device = dev }), 1)
  else dist.recv(accel.ones(3, { device = dev }), 0) end
end

function cases.places() -- one on the device, one on the host
  local rank, _, dev = rank_and_device()
  if rank == 0 then dist.send(accel.ones(2, { device = dev }), 1)
  else dist.recv(accel.ones(2, { device = "cpu" }), 0) end
end

function cases.fails()
  local rank, _, dev = rank_and_device()
  local t = accel.ones(2, { device = dev })
  for _ = 1, 4 do
    if rank == 0 then dist.send(t, 1) else dist.recv(t, 0) end
  end
  print(t[1]:item()) -- the device is waited for
end
cases.lost = cases.fails

function cases.dies()
  local rank, _, dev = rank_and_device()
  local t = accel.ones(2, { device = dev })
  for i = 1, 3 do
    if i == 2 and rank == 1 then os.exit(9, false) end
    if rank == 0 then dist.send(t, 1) elseif rank == 1 then dist.recv(t, 0) end
  end
  dist.barrier()
end

local plans = {
  gpipe = { ranks = 2, pp_size = 2, schedule = "gpipe" },
  onefoneb = { ranks = 3, pp_size = 3, schedule = "1f1b" },
  interleaved = { ranks = 2, pp_size = 2, schedule = "interleaved", chunks = 2 },
  zero_bubble = { ranks = 2, pp_size = 2, schedule = "zero_bubble" },
  pp_tp = { ranks = 4, pp_size = 2, tp_size = 2 },
  pp_dp = { ranks = 4, pp_size = 2, dp_shard_size = 2 },
  pp_zero = { ranks = 4, pp_size = 2, dp_shard_size = 2, zero = true },
  cp_ring = { ranks = 2, cp_size = 2, model = "llama", rotate = "alltoall" },
  cp_gather = { ranks = 2, cp_size = 2, model = "llama", rotate = "allgather" },
  sp = { ranks = 2, sp_size = 2, model = "llama" },
  ep = { ranks = 2, dp_shard_size = 2, ep_size = 2, model = "mixtral" },
  ep_tp = { ranks = 4, dp_shard_size = 2, tp_size = 2, ep_size = 2, model = "mixtral" },
}

local function model_of(kind)
  accel.manual_seed(1)
  if kind == nil then
    return accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = D, n_layer = 6, n_head = 4, resid_pdrop = 0, embd_pdrop = 0,
      attn_pdrop = 0 }
  end
  local c = { vocab_size = V, hidden_size = D, intermediate_size = 24, num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4,
    max_position_embeddings = T }
  if kind == "llama" then return accel.models.Llama(c) end
  c.num_local_experts, c.num_experts_per_tok = 4, 2
  return accel.models.MixtralForCausalLM(c)
end

local function train(plan)
  local config = { pp_handler = accel.accelerator.PipelineParallelConfig { num_micro_batches = 4, schedule = plan.schedule or "1f1b",
    virtual_stages = plan.chunks or 1 } }
  for _, key in ipairs { "pp_size", "tp_size", "cp_size", "sp_size", "ep_size", "dp_shard_size" } do config[key] = plan[key] end
  if plan.rotate then config.cp_handler = accel.accelerator.TorchContextParallelConfig { cp_comm_strategy = plan.rotate } end
  local a = accel.Accelerator { cpu = device == "cpu" or nil, parallelism_config = accel.ParallelismConfig(config),
    fsdp_plugin = plan.zero and accel.FullyShardedDataParallelPlugin { sharding_strategy = "FULL_SHARD" } or nil }
  local model = model_of(plan.model)
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  model, optimizer = a:prepare(model, optimizer)
  local rows = a.data_parallel_rank or 0
  for step = 1, STEPS do
    local ids = accel.randint(0, V, { B, T }, { generator = accel.Generator(step * 10 + rows), device = "cpu" }):to(a.device)
    local labels, loss = ids:roll(-1, 2), nil
    a:maybe_context_parallel({ buffers = { ids, labels }, buffer_seq_dims = { 2, 2 } }, function()
      loss = model(ids, { shift_labels = labels })
      a:backward(loss)
    end)
    optimizer:step()
    optimizer:zero_grad()
    print(("loss %d %d %.5f"):format(a.process_index, step, loss:item()))
  end
end
for name, plan in pairs(plans) do cases[name] = function() train(plan) end end

if mode and mode ~= "gpu" then
  cases[mode]()
  print("done " .. mode)
  return
end

-- ---- the test: starts them ----

local function run(name, ranks, env, o) return log.run(self, name, ranks, env, o) end
local function succeeds(name, ranks, env, o)
  local text, code, calls = run(name, ranks, env, o)
  assert(code == 0 and select(2, text:gsub("done " .. name, "")) == ranks and not text:find("nccl_twin", 1, true), text)
  return text, calls
end

-- Messages between devices alone; every one is a call of two ranks' own communicator, on a stream of its own; segments that are registered are
-- taken back.
local function messages(calls)
  local n, of, known = 0, {}, 0
  for _, c in ipairs(calls) do
    if c.kind == "register" then known = known + 1 elseif c.kind == "deregister" then known = known - 1 end
    if c.ranks == 2 and c.kind == "messages" and c.messages == 1 then
      n = n + 1
      local key = c.comm .. c.rank
      assert((of[key] or c.stream) == c.stream and c.registered)
      of[key] = c.stream
    end
  end
  assert(known == 0, "segments are left registered")
  return n
end

if mode == "gpu" then
  local cuda = accel.features().devices.cuda
  if not cuda or cuda.count == 0 then
    print "skipped: no GPU is here"
    os.exit(77)
  end
  succeeds("host", 2, nil, { args = "told" })
  for _, ranks in ipairs { 2, 3 } do
    if cuda.count >= ranks then succeeds("values", ranks) end
  end
  for name, plan in accel.pairs(plans) do
    if cuda.count >= plan.ranks then
      log.same_losses(name, succeeds(name, plan.ranks), run(name, plan.ranks, nil, { args = "cpu" }), STEPS * plan.ranks)
    end
  end
  print(("messages on %d GPUs"):format(cuda.count))
  return
end

for _, ranks in ipairs { 2, 3 } do
  for _, backend in ipairs { "", "--backend tcp" } do
    local _, calls = succeeds("values", ranks, { NCCL_TWIN_STRICT = "1" }, { options = backend })
    -- 9 dtypes, the greatest tag, a view, 4 MiB, six tags, three of one tag, the line, the batch, the group, the last: both ends each
    local n = messages(calls)
    assert(n == 2 * ((9 + 3 + 6 + 3 + 1 + 1) * ranks + ranks - 1 + 1), n .. " messages of values")
  end
end
local text, calls = succeeds("host", 2, nil, { args = "untold" })
assert(#calls == 0 and not text:find "warning", text)
text, calls = succeeds("host", 2, { CUDA_TWIN_DEVICES = "1" }, { args = "told" })
assert(#calls == 0 and text:find("members 0 and 1 share a GPU", 1, true), text)
succeeds("host", 2, { ACCEL_NCCL = "off" }, { args = "told" })

local code
for _, backend in ipairs { "", "--backend tcp" } do
  text, code = run("differ", 2, nil, { options = backend })
  assert(code ~= 0 and text:find("(2)", 1, true) and text:find("(3)", 1, true) and text:find "on a device at [^\n]-nccl_pairs.lua:%d+", text)
  text, code = run("places", 2, nil, { options = backend })
  assert(code ~= 0 and text:find "device" and text:find "nccl_pairs.lua:%d+", text)
end
text, code = run("fails", 2, { NCCL_TWIN_FAIL = "3" })
assert(code ~= 0 and text:find "unhandled system error", text)
local began = accel.clock()
text, code = run("lost", 2, { NCCL_TWIN_LOST = "3" }, { options = "--timeout 2" })
assert(code ~= 0 and text:find "waited 2" and text:find "nccl_pairs.lua:%d+", text)
text, code = run("dies", 3)
assert(code ~= 0 and text:find "rank 1", text)
assert(accel.clock() - began < 60, "what waits for ever was not given up")

-- Messages of a step, both ends: activations there, gradients back, for each micro-batch and border between stages.
local want = { gpipe = 2 * 2 * 4, onefoneb = 2 * 2 * 4 * 2, interleaved = 2 * 2 * 4 * 3, zero_bubble = 2 * 2 * 4, pp_tp = 2 * 2 * 4 * 2,
  pp_dp = 2 * 2 * 4 * 2, pp_zero = 2 * 2 * 4 * 2, cp_gather = 0, sp = 0, ep = 0, ep_tp = 0 }
local function follows(name, plan)
  text, calls = succeeds(name, plan.ranks, { NCCL_TWIN_STRICT = "1" })
  log.same_losses(name, text, run(name, plan.ranks, nil, { args = "cpu" }), STEPS * plan.ranks)
  local n, grouped = messages(calls), 0
  for _, c in ipairs(calls) do grouped = grouped + (c.kind == "messages" and c.messages > 1 and 1 or 0) end
  if want[name] then assert(n == STEPS * want[name], ("%s: %d messages, not %d"):format(name, n, STEPS * want[name])) end
  if name == "cp_ring" then assert(n > 0 and n % (2 * plan.ranks * STEPS) == 0, n .. " messages of a ring") end
  if name == "sp" or name:find "^ep" then assert(grouped > 0, name .. ": no all-to-all in groups of calls") end
end
local take = sample.one_of(4)
for name, plan in accel.pairs(plans) do
  if take() then follows(name, plan) end
end
print "devices send to each other as their plans say"
