-- accel.dist in a world of one, and as one rank of a simulated world: every function, closed forms, what tensors may be
-- written, bad input. Several ranks: tests/stdlib/dist/collectives_test.lua.
local accel = require "accel"
local dist = accel.dist

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("expected %q, got %s"):format(pattern, tostring(err)))
  return err
end
local function same(a, b) assert(accel.equal(a, b), tostring(a) .. " is not " .. tostring(b)) end

-- ---- a world of one, made by its first use ----
assert(dist.is_available() and not dist.is_initialized())
assert(dist.get_rank() == 0 and dist.get_world_size() == 1 and dist.is_initialized())
assert(dist.get_backend() == "solo" and dist.get_local_rank() == 0 and dist.get_local_world_size() == 1)
assert(dist.get_node_local_rank() == 0 and dist.get_node_rank() == 0 and dist.get_num_nodes() == 1)
assert(accel.inspect(dist.get_process_group_ranks()) == accel.inspect { 0 })
assert(dist.get_rank(dist.group.WORLD) == 0 and tostring(dist.group.WORLD) == "Group(all ranks)")
dist.init_process_group()
dist.init_process_group { timeout = 12.5, rank = 0, world_size = 1 }
assert(dist.get_timeout() == 12.5)
dist.init_process_group("gloo", { timeout = 20 })
dist.init_process_group(nil, { timeout = 21 })
assert(dist.get_timeout() == 21)
dist.set_timeout(30)
assert(dist.get_timeout() == 30 and dist.heap_bytes() == 0)
fails("rank 0 of 1", dist.init_process_group, { rank = 1, world_size = 2 })
fails("with backend solo, not tcp", dist.init_process_group, "tcp")
fails("did you mean 'backend'", dist.init_process_group, { backnd = "tcp" })
fails("seconds", dist.set_timeout, 0)
fails("seconds", dist.set_timeout, 0 / 0)
fails("timeout", dist.init_process_group, { timeout = -1 })

-- ---- every collective gives back what went in ----
for _, dtype in ipairs { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool" } do
  local t = dtype == "bool" and accel.tensor { true, false } or accel.tensor({ 1, 2, 3 }, { dtype = dtype })
  local want = t:clone()
  for _, op in ipairs { "sum", "min", "max", "prod", "product" } do
    assert(dist.all_reduce(t, op) == nil)
    dist.all_reduce(t, { op = op })
    dist.reduce(t, 0, op)
    same(t, want)
  end
  dist.broadcast(t, 0)
  same(t, want)
end
local x = accel.randn(4, 3)
local want = x:clone()
dist.all_reduce(x, dist.ReduceOp.AVG)
dist.all_reduce(x, "mean")
dist.reduce(x, { dst = 0 })
dist.reduce(x, 0, "max", { async_op = false })
dist.reduce(x, { group_dst = 0, op = "min" })
dist.broadcast(x, { src = 0 })
dist.broadcast(x, { group_src = 0, group = dist.group.WORLD })
dist.barrier()
dist.barrier { group = dist.group.WORLD }
same(x, want)
local out = accel.zeros(4, 3)
dist.all_gather_into_tensor(out, x)
same(out, want)
dist.reduce_scatter_tensor(out:zero_(), x, "sum")
same(out, want)
dist.reduce_scatter(out:zero_(), { x })
same(out, want)
dist.all_gather({ out:zero_() }, x)
same(out, want)
dist.gather(x, { gather_list = { out:zero_() } })
same(out, want)
dist.scatter(out:zero_(), { scatter_list = { x }, src = 0 })
same(out, want)
dist.all_to_all({ out:zero_() }, { x })
same(out, want)
dist.all_to_all_single(out:zero_(), x)
same(out, want)
dist.all_to_all_single(out:zero_(), x, { input_split_sizes = { 4 }, output_split_sizes = { 4 } })
same(out, want)
dist.all_gather_into_tensor(x, x) -- the own part in its place
same(x, want)
dist.all_to_all_single(x, x)
same(x, want)
local flag = accel.tensor { true, false }
dist.all_reduce(flag, "max")
same(flag, accel.tensor { true, false })
for _, shape in ipairs { {}, { 0 }, { 3, 0 } } do -- no dims, no elements
  local t = accel.ones(shape)
  dist.all_reduce(t)
  dist.all_gather({ accel.zeros(shape) }, t)
  dist.all_to_all_single(accel.zeros(shape), t)
  same(t, accel.ones(shape))
end

-- ---- works ----
local work = dist.all_reduce(x, { async_op = true })
assert(work:wait() == true and work:wait() and work:is_completed() and tostring(work) == "Work(all_reduce, done)")
for _, fn in ipairs { function(o) return dist.reduce(x, 0, o) end, function(o) return dist.broadcast(x, 0, o) end,
  dist.barrier, function(o) return dist.all_gather({ out }, x, o) end,
  function(o) return dist.all_gather_into_tensor(out, x, o) end,
  function(o) return dist.reduce_scatter(out, { x }, o) end,
  function(o) return dist.reduce_scatter_tensor(out, x, o) end,
  function(o) return dist.all_to_all({ out }, { x }, o) end,
  function(o) return dist.all_to_all_single(out, x, o) end,
  function(o) return dist.gather(x, { gather_list = { out }, async_op = o.async_op }) end,
  function(o) return dist.scatter(out, { scatter_list = { x }, async_op = o.async_op }) end } do
  out:zero_()
  assert(fn { async_op = true }:wait())
end
same(out, want)
for _ = 1, 50 do dist.all_reduce(x, { async_op = true }) end -- nobody waits for these
collectgarbage()
dist.barrier()
fails("work", work.wait, {})
assert(#dist.batch_isend_irecv {} == 0)
for _, fn in ipairs { dist.send, dist.recv, dist.isend, dist.irecv } do fails("to itself", fn, x, 0) end
assert(dist.P2POp(dist.isend, x, 1, nil, 3).tag == 3)
fails("isend or accel.dist.irecv", dist.P2POp, dist.send, x, 1)
fails("expected tensor", dist.P2POp, dist.isend, 1, 1)
fails("entry 1 is not a P2POp", dist.batch_isend_irecv, { 1 })

-- ---- tensors whose bytes do not lie in order travel through a copy ----
local wide = accel.arange(24, { dtype = "f32" }):view(4, 6)
local odd = wide:t():narrow(1, 2, 3) -- 3 x 4
local keep = odd:clone()
dist.all_reduce(odd)
dist.broadcast(odd, 0)
dist.all_gather_into_tensor(odd, odd:clone())
dist.all_to_all({ odd }, { keep })
assert(dist.all_reduce(odd, { async_op = true }):wait())
same(odd, keep)
same(wide, accel.arange(24, { dtype = "f32" }):view(4, 6))
dist.reduce_scatter(odd, { keep * 2 })
same(odd, keep * 2)
dist.all_gather({ odd }, keep * 3)
same(odd, keep * 3)
dist.gather(keep, { gather_list = { odd } })
same(odd, keep)
same(wide, accel.arange(24, { dtype = "f32" }):view(4, 6))
-- parts of one tensor, overlapping
local line = accel.arange(6, { dtype = "f32" })
dist.all_gather_into_tensor(line:narrow(1, 1, 4), line:narrow(1, 3, 4))
same(line, accel.tensor({ 2.0, 3, 4, 5, 4, 5 }))
dist.all_gather({ line:narrow(1, 3, 2) }, line:narrow(1, 2, 2))
same(line, accel.tensor({ 2.0, 3, 3, 4, 4, 5 }))

-- ---- gradients ----
local p = accel.ones(3, { requires_grad = true })
local e = fails("a leaf that requires gradients is written in place", dist.all_reduce, p)
assert(e.code == "autograd" and e.op == "all_reduce")
fails("a view of a leaf", dist.all_reduce, p:view(3))
fails("a leaf that requires", dist.all_gather, { p }, accel.ones(3))
dist.broadcast(p, 0) -- the root's is only read
accel.no_grad(function() dist.all_reduce(p) end)
local y = p * 2
local z = y * y -- saved
dist.all_reduce(y)
assert(not y.requires_grad and y.grad_fn == nil) -- its history says nothing about its values any more
fails("changed in place afterwards", function() z:sum():backward() end)
y = p * 2
z = (y * y):sum()
dist.reduce_scatter_tensor(accel.zeros(3), y) -- reading does no harm
z:backward()
same(p.grad, accel.tensor { 8.0, 8, 8 })
fails("share memory", dist.all_reduce, accel.ones(1):expand(3))
dist.all_gather_into_tensor(accel.zeros(3), accel.ones(1):expand(3))

-- ---- a place for gradients ----
do
  local w, flat = accel.ones(2, 2, { requires_grad = true }), dist.empty(4)
  flat:fill_(7)
  assert(w:set_grad_slot_(flat:view(2, 2)) == w and w.grad == nil)
  for i = 1, 2 do
    (w * 3):sum():backward()
    same(flat, accel.full({ 4 }, 3.0 * i))
    same(w.grad, flat:view(2, 2))
  end
  w.grad = nil
  assert(w.grad == nil);
  (w * 2):sum():backward()
  same(flat, accel.full({ 4 }, 2.0))
  w:set_grad_slot_(nil)
  assert(w.grad == nil)
  fails("slot", w.set_grad_slot_, w, accel.ones(3))
  fails("float tensor for a leaf", w.set_grad_slot_, w, accel.ones({ 2, 2 }, { dtype = "i64" }))
  fails("expected tensor", w.set_grad_slot_, w, 1)
  fails("its own gradient slot", w.set_grad_slot_, w, w)
end

-- ---- rows of the global batch: dropout does not depend on how the batch is cut ----
do
  local batch = accel.ones(8, 16)
  local function draw(first, last)
    accel.micro_batch(first)
    local rows = batch:narrow(1, first + 1, last - first)
    local a = accel.nn.functional.dropout(rows, 0.5)
    return a, accel.nn.functional.dropout(rows, 0.5)
  end
  accel.manual_seed(3)
  local a, b = draw(0, 8)
  local c, d = draw(4, 8)
  same(c, a:narrow(1, 5, 4))
  same(d, b:narrow(1, 5, 4))
  assert(not accel.equal(a, b) and not accel.equal(a:narrow(1, 1, 4), c))
  assert(accel.get_rng_state().row0 == 4)
  -- Numbers that belong to no row do not come again in the next micro-batch, and a resumed state goes on the same way.
  accel.manual_seed(3)
  accel.micro_batch(0)
  local first = accel.randn(16)
  accel.micro_batch(0)
  local state = accel.get_rng_state()
  local second = accel.randn(16)
  assert(not accel.equal(first, second) and state.drawn == 1)
  accel.step()
  assert(accel.get_rng_state().drawn == 0)
  accel.set_rng_state(state)
  same(accel.randn(16), second)
  accel.manual_seed(3)
  assert(accel.get_rng_state().row0 == 0)
  fails("count from 0", accel.micro_batch, -1)
  fails("expected integer", accel.micro_batch)
end

-- ---- shared memory ----
local s = dist.empty(2, 3, { dtype = "bf16" })
assert(s.dtype == "bf16" and accel.inspect(s.shape) == accel.inspect { 2, 3 } and not s.requires_grad)
assert(#dist.empty { 5 } == 5 and dist.empty({}).ndim == 0)
fails("did you mean 'dtype'", dist.empty, 2, { dtyp = "f32" })
fails("dtype", dist.empty, 2, { dtype = "f31" })
fails("negative", dist.empty, -1)

-- ---- bad input names what is wrong ----
local five = accel.ones(5)
fails("expected tensor, got number", dist.all_reduce, 1.5)
fails("expected tensor", dist.all_reduce)
fails("no reduction 'add'; there are sum, avg, min, max, prod", dist.all_reduce, x, "add")
fails("did you mean 'async_op'", dist.all_reduce, x, { async = true })
fails("group", dist.all_reduce, x, { group = 3 })
fails("expected boolean", dist.all_reduce, x, { async_op = 1 })
e = fails("the mean of i64 is not i64", dist.all_reduce, accel.ones(2, { dtype = "i64" }), "avg")
assert(e.code == "dtype" and e.where:find "dist_test.lua:%d+$")
fails("the mean of bool is not bool", dist.all_reduce, flag, "avg")
fails("src is rank 3 of a world of 1; ranks count from 0", dist.broadcast, x, 3)
fails("src is rank %-1", dist.broadcast, x, -1)
fails("expected a rank as src", dist.broadcast, x)
fails("expected a rank as dst", dist.reduce, x)
fails("expected integer", dist.broadcast, x, "0")
fails("group_src.*give only one of them", dist.broadcast, x, { src = 0, group_src = 0 })
fails("group_src.*1 in a group of 1", dist.broadcast, x, { group_src = 1 })
fails("output_tensor f32 %(5%).* must have 1 times the elements of input_tensor f32 %(4, 3%)",
  dist.all_gather_into_tensor, five, x)
fails("input f32 %(4, 3%).* must have 1 times .* output f32 %(5%)", dist.reduce_scatter_tensor, five, x)
fails("output_tensor is f64 %(5%).*, input_tensor is f32 %(5%).*; both must have the same dtype",
  dist.all_gather_into_tensor,
  accel.ones(5, { dtype = "f64" }), five)
fails("tensor_list has 2 tensors, the group has 1 rank; give one for each", dist.all_gather, { x, x }, x)
fails("tensor_list: expected list of 1 tensors, one for each rank, got f32 tensor", dist.all_gather, x, x)
fails("tensor_list: expected list of 1 tensors, one for each rank, got integer 1", dist.all_gather, 1, x)
fails("tensor_list%[1%]: expected tensor, got integer 1", dist.all_gather, { 1 }, x)
fails("tensor_list%[1%] is f32 %(5%).*, tensor is f32 %(4, 3%).*; they must have one shape",
  dist.all_gather, { five }, x)
fails("tensor_list%[1%] is f64", dist.all_gather, { x:to "f64" }, x)
fails("rank 0 receives: it needs gather_list", dist.gather, x)
fails("rank 0 sends: it needs scatter_list", dist.scatter, x)
fails("gather_list%[1%] is f32 %(5%)", dist.gather, x, { gather_list = { five } })
fails("output_list%[1%] is f32 %(5%)", dist.all_to_all, { five }, { x })
fails("input_list has 0 tensors", dist.all_to_all, { x }, {})
fails("the sum is 3, input .* has 4 rows", dist.all_to_all_single, out, x, { input_split_sizes = { 3 } })
fails("list of 1 numbers", dist.all_to_all_single, out, x, { output_split_sizes = { 2, 2 } })
fails("entry 1 is %-1", dist.all_to_all_single, out, x, { output_split_sizes = { -1 } })
fails("entry 1 is 5", dist.all_to_all_single, out, x, { output_split_sizes = { 5 } })
fails("tag", dist.send, x, 0, { tag = -1 })
local gone = accel.ones(2)
gone:release()
fails("released at", dist.all_reduce, gone)
fails("tensor_list%[1%]: expected tensor, got released tensor", dist.all_gather, { gone }, x)
e = fails("backend solo carries values, this one is f32 %(2%) on meta",
  dist.all_reduce, accel.ones(2, { device = "meta" }))
assert(e.code == "unsupported")

-- ---- groups ----
local g = dist.new_group { 0 }
assert(g:rank() == 0 and g:size() == 1 and #g:ranks() == 1 and tostring(g) == "Group(rank 0)")
assert(dist.get_rank(g) == 0 and dist.get_world_size(g) == 1 and dist.get_backend(g) == "solo")
assert(dist.get_global_rank(g, 0) == 0 and dist.get_group_rank(g, 0) == 0 and dist.get_group_rank(g, 1) == nil)
dist.all_reduce(x, { group = g })
dist.barrier { group = g }
work = dist.all_reduce(x, { group = g, async_op = true })
dist.destroy_process_group(g)
fails("the group was destroyed", dist.all_reduce, x, { group = g })
fails("the group was destroyed", dist.get_rank, g)
dist.destroy_process_group(nil and g) -- the world, below
assert(work:wait() and tostring(g) == "Group(destroyed)")
fails("the process group was destroyed at .*dist_test.lua:%d+", dist.get_rank)
fails("init_process_group", dist.all_reduce, x)
assert(not dist.is_initialized())
dist.destroy_process_group()
dist.init_process_group()
for _ = 1, 300 do dist.new_group() end -- more than can be alive at once: those without a handle go
collectgarbage()
fails("the group was destroyed", dist.barrier, { group = g })
fails("entry 1: expected rank 0 .. 0, got 1", dist.new_group, { 1 })
fails("entry 1: expected rank", dist.new_group, { "0" })
fails("2 ranks in a world of 1", dist.new_group, { 0, 0 })
fails("new_group: 0 ranks", dist.new_group, {})
fails("expected list of ranks", dist.new_group, 0)
fails("1 in a group of 1", dist.get_global_rank, nil, 1)

-- ---- the flight recorder ----
do
  dist.all_reduce(five, "max")
  local before = #dist.records()
  dist.all_reduce(five, { async_op = true }):wait()
  local list = dist.records()
  local a, b = list[#list - 1], list[#list]
  assert(#list == before + 1 and a.kind == "all_reduce" and a.op == "max" and a.dtype == "f32" and a.count == 5)
  assert(a.bytes == 20 and not a.async and b.async and a.status == "ok"
    and b.number == a.number + 1 and b.seq == a.seq + 1)
  assert(a.group == 0 and a.site:find "dist_test.lua:%d+$")
  assert(a.queued <= a.began and a.began <= a.ended and a.ended <= b.ended and b.ended <= accel.clock())
  assert(#dist.records(1) == 1 and dist.records(1)[1].number == b.number and #dist.records(0) == 0)
  fails("0 or more", dist.records, -1)
  assert(dist.bytes_sent() >= 40)
end

-- ---- one rank of a world that is not there ----
dist.destroy_process_group()
fails("no device 'cuda:99' here", dist.init_process_group, nil, { device_id = "cuda:99" })
assert(not dist.is_initialized()) -- a bad option is told of before others are met
fails("world_size >= 1", dist.init_process_group, "sim")
fails("world_size >= 1", dist.init_process_group, "sim", { rank = 4, world_size = 4 })
dist.init_process_group("sim", { rank = 1, world_size = 4 })
assert(dist.get_rank() == 1 and dist.get_world_size() == 4 and dist.get_backend() == "sim")
do
  local sent = dist.bytes_sent()
  local t = accel.full({ 8 }, 2.0)
  dist.all_reduce(t)
  same(t, accel.full({ 8 }, 8.0)) -- as if all ranks had the same
  assert(dist.bytes_sent() - sent == 2 * 3 * 32 / 4)
  local m = accel.empty(1000, 100, { device = "meta" })
  dist.all_reduce(m)
  dist.all_reduce(m:t():narrow(1, 1, 10), { async_op = true }):wait()
  dist.all_gather_into_tensor(accel.empty(4000, 100, { device = "meta" }), m)
  dist.all_gather({ m, accel.empty(7, 100, { device = "meta" }), m, m }, accel.empty(7, 100, { device = "meta" }))
  local _ <close> = accel.device("meta")
  assert(dist.empty(5).device == "meta" and dist.empty(5, { device = "cpu" }).device == "cpu")
  fails("both must have the same device", dist.all_gather_into_tensor, accel.empty(4),
    accel.empty(1, { device = "cpu" }))
  local pair = dist.new_group { 3, 1 } -- in rising order, as in PyTorch
  assert(pair:rank() == 0 and pair:size() == 2 and accel.inspect(pair:ranks()) == accel.inspect { 1, 3 })
  assert(tostring(pair) == "Group(ranks 1, 3)" and dist.get_group_rank(pair, 3) == 1
    and dist.get_global_rank(pair, 1) == 3)
  dist.broadcast(m, 3, { group = pair })
  fails("src is rank 2, which is not a member of the group; group_src takes its ranks",
    dist.broadcast, m, 2, { group = pair })
  local others = dist.new_group { 0, 2 }
  assert(others:rank() == -1 and others:size() == -1 and #others:ranks() == 2)
  fails("rank 1 is not a member of the group", dist.all_reduce, m, { group = others })
  dist.send(m, 0)
  assert(dist.recv(m, 2) == 2 and dist.irecv(m, 2, { tag = 5 }):wait())
  fails("gather_list is for dst alone", dist.gather, m, { gather_list = { m, m, m, m } })
  dist.gather(m)
  dist.gather(m, { dst = 1, gather_list = { m, m, m, m } })
  fails("does not divide by 4 ranks; give input_split_sizes", dist.all_to_all_single, m, accel.empty(3, 100))
end
for _ = 1, 20 do -- groups and works as garbage
  local h = dist.new_group { 0, 1 }
  for _ = 1, 5 do dist.all_reduce(x, { group = h, async_op = true }) end
end
collectgarbage()
collectgarbage()
