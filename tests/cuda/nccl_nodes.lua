-- NCCL inside of nodes and the backend between them (ACCEL_NCCL_INTER_NODE=host), on two nodes that are two launchers here: every collective and
-- awkward lengths against closed forms, sub-groups, models that train as they do by NCCL alone and on the host, calls that differ, a node that dies.
-- The stand-in (twin/nccl.cpp) tells that its communicators never reach over a node, and that their memory is registered.
local accel = require "accel"
local dist = accel.dist
local here = arg[0]:match "^.*/" or ""
local machines = dofile(here .. "../support/machines.lua")
local log = dofile(here .. "../support/nccl_log.lua")

local mode, place = arg[1], arg[2]
local NODES <const>, PER <const> = 2, 2
local N <const> = NODES * PER

-- ---- what runs on every rank ----

local cases = {}

local function device() return ("cuda:%d"):format(dist.get_local_rank()) end -- of the node's GPUs, as on a cluster

local function check(t, want, what)
  local off, high = t:to "cpu":double():sub(want:double()):abs():max():item(), want:double():abs():max():item()
  local rounds = t.dtype == "bf16" or t.dtype == "f16" -- sums of small integers and their quarters are exact in all others
  assert(off <= (rounds and 1e-2 * math.max(1, high) or 0), ("%s: off by %g of %g"):format(what, off, high))
end

-- Two lengths that one member carries, one of shards that are not equally long, one of more bytes than a slot holds.
local LENGTHS <const>, LONG <const> = { 1, 5, 20001 }, (2 << 20) + 3

local function pattern(n, dtype, factor)
  return (accel.arange(n, { dtype = "i64", device = "cpu" }) % 13):mul(factor):to(dtype)
end

local function reduces(n, dtype, dev)
  local rank = dist.get_rank()
  local t = pattern(n, dtype, rank + 1):to(dev)
  dist.all_reduce(t)
  check(t, pattern(n, dtype, N * (N + 1) // 2), ("sum of %d %s"):format(n, dtype))
  t = pattern(n, dtype, rank + 1):to(dev)
  dist.all_reduce(t, "max")
  check(t, pattern(n, dtype, N), ("max of %d %s"):format(n, dtype))
  if dtype == "i64" or dtype == "u8" then return end
  t = pattern(n, dtype, 2 * rank + 1):to(dev)
  dist.all_reduce(t, "mean") -- of 1, 3, ... 2N - 1: N
  check(t, pattern(n, dtype, N), ("mean of %d %s"):format(n, dtype))
end

local function spreads(n, dtype, dev, root)
  local t = (dist.get_rank() == root and pattern(n, dtype, root + 2) or accel.zeros(n, { dtype = dtype })):to(dev)
  dist.broadcast(t, root)
  check(t, pattern(n, dtype, root + 2), ("broadcast of %d %s from %d"):format(n, dtype, root))
end

local function parts(n, dtype, dev)
  local rank = dist.get_rank()
  local out, all = accel.zeros(N, n, { dtype = dtype }):to(dev), accel.zeros(N, n, { dtype = dtype })
  dist.all_gather_into_tensor(out, pattern(n, dtype, rank + 1):to(dev))
  for r = 0, N - 1 do check(out[r + 1], pattern(n, dtype, r + 1), ("all_gather of %d %s"):format(n, dtype)) end
  for r = 0, N - 1 do all[r + 1]:copy_(pattern(n, dtype, r + 1 + rank % 2)) end
  local part = accel.zeros(n, { dtype = dtype }):to(dev)
  dist.reduce_scatter_tensor(part, all:to(dev))
  check(part, pattern(n, dtype, N * (rank + 1) + N // 2), ("reduce_scatter of %d %s"):format(n, dtype))
  if dtype == "i64" or dtype == "u8" then return end
  dist.reduce_scatter_tensor(part, all:mul(2):to(dev), "mean")
  check(part, pattern(n, dtype, 2 * rank + 3), ("mean of parts of %d %s"):format(n, dtype))
end

function cases.values()
  local rank, dev = dist.get_rank(), device()
  for _, dtype in ipairs { "f32", "bf16", "f64", "i64", "u8" } do
    for _, n in ipairs(LENGTHS) do
      reduces(n, dtype, dev)
      for root = 0, N - 1 do spreads(n, dtype, dev, root) end
      parts(n, dtype, dev)
    end
  end
  local t = accel.full({ 3 }, rank + 0.0, { device = dev })
  dist.all_reduce(t, "mean")
  check(t, accel.full({ 3 }, (N - 1) / 2), "mean")
  local list = {}
  for r = 1, N do list[r] = accel.zeros(7 * r - 7, { device = dev }) end
  dist.all_gather(list, accel.full({ 7 * rank }, rank + 0.5, { device = dev }))
  for r = 2, N do check(list[r], accel.full({ 7 * r - 7 }, r - 0.5), "all_gather of uneven parts") end
  -- kinds that go through the host
  t = accel.full({ 2 }, rank + 1, { device = dev })
  dist.reduce(t, 3)
  check(t, accel.full({ 2 }, rank == 3 and 10 or rank + 1), "reduce")
  local from, to = {}, {}
  for r = 0, N - 1 do from[r + 1], to[r + 1] = accel.full({ 2 }, rank * 10.0 + r, { device = dev }), accel.zeros(2, { device = dev }) end
  dist.all_to_all(to, from)
  for r = 0, N - 1 do check(to[r + 1], accel.full({ 2 }, r * 10 + rank), "all_to_all") end
  -- works, one of them never waited for
  local a, b = accel.full({ 50000 }, rank, { device = dev }), accel.ones(3, { device = dev })
  local first, second = dist.all_reduce(a, { async_op = true }), dist.all_reduce(b, { async_op = true })
  first:wait()
  second:wait()
  check(a, accel.full({ 50000 }, N * (N - 1) / 2), "a work")
  check(b, accel.full({ 3 }, N), "a second work")
  dist.all_reduce(accel.ones(2, { device = dev }), { async_op = true })
  -- messages: inside of a node from GPU to GPU, between nodes through the host
  dist.init_process_group { device_id = dev }
  for shift = 1, N - 1 do
    local got = accel.zeros(4, { device = dev })
    local sent = dist.isend(accel.full({ 4 }, rank + 0.0, { device = dev }), (rank + shift) % N)
    dist.recv(got, (rank - shift) % N)
    sent:wait()
    check(got, accel.full({ 4 }, (rank - shift) % N), ("a message from %d on"):format(shift))
  end
  reduces(LONG, "f32", dev) -- several pieces
  spreads(LONG, "f32", dev, 2)
  parts((1 << 19) + 1003, "f32", dev)
end

function cases.groups()
  local rank, dev = dist.get_rank(), device()
  local function try(list, what)
    local group, sum, member = dist.new_group(list), 0, false
    for _, r in ipairs(list) do
      sum = sum + r + 1
      member = member or r == rank
    end
    if not member then return end
    local t = accel.full({ 40001 }, rank + 1, { device = dev })
    dist.all_reduce(t, { group = group })
    check(t, accel.full({ 40001 }, sum), what)
  end
  for round = 1, 2 do -- before and after the world has a communicator
    try({ 0, 1 }, "a node")
    try({ 0, 2 }, "one member a node")
    try({ 0, 1, 2, 3 }, "both nodes")
    try({ 0, 1, 2 }, "nodes of 2 and 1")
    if round == 1 then dist.all_reduce(accel.ones(2, { device = dev })) end
  end
end

local function train(options)
  accel.manual_seed(5)
  local a = accel.Accelerator(options)
  local net = accel.nn.Sequential(accel.nn.Linear(8, 300), accel.nn.GELU(), accel.nn.Linear(300, 1))
  local model, opt = a:prepare(net, accel.optim.AdamW(net:parameters(), { lr = 0.02 }))
  for step = 1, 5 do
    local x = (accel.arange(32, { dtype = "f32" }):view(4, 8) * (0.01 * step) + a.process_index * 0.1):sin():to(a.device)
    local loss = model(x):pow(2):mean()
    a:backward(loss)
    opt:step()
    opt:zero_grad()
    print(("loss %d %d %.7f"):format(a.process_index, step, loss:item()))
  end
end
function cases.ddp() train { cpu = place == "cpu" or nil } end
function cases.zero2() train { cpu = place == "cpu" or nil, deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 2 } } end
function cases.zero3() train { cpu = place == "cpu" or nil, deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 3 } } end

function cases.differ()
  dist.all_reduce(accel.ones(2, { device = device() }))
  dist.all_reduce(accel.ones(dist.get_rank() == 3 and 4 or 3, { device = device() }))
end

function cases.dies()
  for i = 1, 4 do
    if i == 3 and dist.get_rank() >= PER then os.exit(9, false) end
    dist.all_reduce(accel.ones(100000, { device = device() }))
  end
end

if mode then
  if mode == "values" or mode == "groups" then accel.set_default_device "cpu" end
  cases[mode]()
  print("done " .. mode)
  return
end

-- ---- the test: starts them ----

local function run(name, where)
  local calls = ("%s/nodes_%s.log"):format(os.getenv "ACCEL_TEST_TMP" or "/tmp", name)
  os.remove(calls)
  local ok, out = pcall(machines.run, NODES, PER, ("%s %s"):format(name, where), nil,
    ("-u ACCEL_DEVICE CUDA_TWIN_STAGED=1 NCCL_TWIN_STRICT=1 NCCL_TWIN_LOG='%s' ACCEL_NCCL_INTER_NODE=host"):format(calls))
  return ok and table.concat(out) or out, ok, log.read(calls)
end

local function succeeds(name, where)
  local text, ok, calls = run(name, where)
  assert(ok and select(2, text:gsub("done " .. name, "")) == N and not text:find("nccl_twin", 1, true), text)
  return text, calls
end

local function kinds(calls)
  local of = {}
  for _, c in ipairs(calls) do
    assert(c.ranks == PER, ("a communicator of %d ranks"):format(c.ranks))
    of[c.kind] = (of[c.kind] or 0) + 1
  end
  return of
end

local text, calls = succeeds("values", "node")
local of = kinds(calls)
for _, kind in ipairs { "all_gather", "reduce_scatter", "broadcast", "reduce", "messages" } do assert((of[kind] or 0) > 0, kind) end
assert(not of.all_reduce and not text:find("warning: comm", 1, true), text)

text, calls = succeeds("groups", "node")
kinds(calls)
assert(select(2, text:gsub("members on a node are not equally many, or do not follow each other", "")) == 2, text)

for _, name in ipairs { "ddp", "zero2", "zero3" } do
  local by_node, over = succeeds(name, "node")
  local flat, code, whole = log.run(arg[0], name, N, nil, { args = "node" }) -- one node, NCCL alone
  kinds(over)
  assert(code == 0 and #over > 0 and #whole > 0 and whole[1].ranks == N, flat)
  log.same_losses(name, by_node, flat, 5 * N)
  log.same_losses(name, by_node, succeeds(name, "cpu"), 5 * N)
end

local ok
text, ok = run("differ", "node")
assert(not ok and text:find "ranks differ in count at call %d+ of the world" and text:find "nccl_nodes.lua:%d+", text)
local began = accel.clock()
text, ok = run("dies", "node")
assert(not ok and text:find "rank [23]" and accel.clock() - began < 60, text)
print "two nodes"
