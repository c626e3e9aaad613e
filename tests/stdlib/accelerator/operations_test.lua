-- Functions on nested tables of tensors: what Accelerate computed on 1, 2 and 3 processes, its documented numbers, and
-- what ranks say that differ. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/operations_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, ordered = accel.accelerator, require "accel.util.ordered"

if ranks.start { 1, 2, 3, 4 } and ranks.start { 2, args = "differ" } then return end
local R, P, same, says = ranks.rank, ranks.size, ranks.same, ranks.fails

-- ---- what Accelerate computed ----
local function reference()
  if P > 3 then return end
  local cases = ranks.json(("reference/accelerate/accelerate_%d.json"):format(P))
  local a = accel.Accelerator { cpu = true }
  local function f32(x) return accel.tensor(x, { dtype = "f32" }) end
  local function check(name, call)
    local case = cases[name][R + 1]
    same(call(case["in"]), case.out, name)
  end
  check("gather", function(x) return a:gather(f32(x)) end)
  check("gather_nested", function(x)
    local given = { a = f32(x.a), b = { f32(x.b[1]), f32(x.b[2]) } }
    local out = a:gather(given)
    same(given, x, "the input of gather")
    return out
  end)
  check("gather_rank0", function(x) return a:gather(f32(x)) end)
  check("gather_object", A.gather_object)
  check("gather_object", function(x) return a:gather_object(x) end)
  check("broadcast_object_list", function(x)
    assert(A.broadcast_object_list(x) == x)
    return x
  end)
  check("reduce_sum", function(x) return a:reduce(f32(x)) end)
  check("reduce_sum", function(x)
    local given = f32(x)
    local out = A.reduce(given, { reduction = "sum" })
    same(given, x, "the input of reduce")
    return out
  end)
  check("reduce_mean", function(x) return A.reduce(f32(x)) end)
  check("reduce_mean", function(x) return a:reduce(f32(x), "mean") end)
  -- the recorded result lacks the scale
  check("reduce_scale", function(x) return a:reduce(f32(x), "sum", 0.5) * 2 end)
  check("reduce_scale", function(x) return a:reduce(f32(x), "sum", { scale = 0.5 }) * 2 end)
  check("pad_across_processes_dim1", function(x) return a:pad_across_processes(f32(x), 2, -1) end)
  check("pad_across_processes_dim1", function(x)
    return A.pad_across_processes(f32(x), { dim = -1, pad_index = -1 })
  end)
  check("pad_across_processes_first", function(x) return a:pad_across_processes(f32(x), 2, -1, true) end)
  check("pad_across_processes_dim0", function(x) return a:pad_across_processes(f32(x)) end)
end

-- ---- documented numbers ----
local function on_ranks()
  reference()
  local own, all = accel.tensor { 1, 2 } + 2 * R, {}
  for k = 1, 2 * P do all[k] = k end
  same(A.gather(own), all, "gather")
  same(A.reduce(own, "sum"), accel.tensor { 1, 2 } * P + P * (P - 1), "sum")
  same(A.reduce(own), accel.tensor { 1.0, 2.0 } + (P - 1), "mean of integers")
  same(A.reduce(own, "max"), { 2 * P - 1, 2 * P }, "max")
  same(A.reduce(own, "none"), own, "none")
  local bools = accel.tensor { R == P - 1, true, false }
  same(A.reduce(bools, "sum"), accel.tensor { true, true, false }, "the sum of bools is their or")
  same(A.reduce(bools, "max"), accel.tensor { true, true, false }, "max of bools")
  same(A.reduce(bools, "mean"), accel.tensor { 1 / P, 1, 0 }, "mean of bools")
  same(A.broadcast(own), { 1, 2 }, "broadcast")
  same(A.broadcast(own, P - 1), { 2 * P - 1, 2 * P }, "broadcast from the last")
  same(own, accel.tensor { 1, 2 } + 2 * R, "the input")
  local ids = {}
  for r = 0, P - 1 do ids[r + 1] = r end
  same(A.gather_object { R }, ids, "gather_object")

  local short = accel.arange(R == 0 and P + 1 or P)
  local padded, front = A.pad_across_processes(short), A.pad_across_processes(short, { pad_first = true })
  for k = 1, P + 1 do
    same(padded[k]:item(), (R == 0 or k <= P) and P > 1 and k - 1 or P == 1 and k - 1 or 0, "pad at the end")
    same(front[k]:item(), (R == 0 or P == 1) and k - 1 or k == 1 and 0 or k - 2, "pad in front")
  end
  local wide = accel.ones(R + 2, 10)
  same(A.pad_across_processes(wide).shape, { P + 1, 10 }, "pad to the longest")
  same(A.pad_across_processes(wide, -2).shape, { P + 1, 10 }, "negative dim")
  same(A.pad_across_processes(wide, 4).shape, { R + 2, 10 }, "a dim that is not there")
  local mixed = A.pad_across_processes({ wide, { y = accel.ones(R + 1):to "i64" } }, 1, 7)
  same(mixed[2].y[P]:item(), R == P - 1 and 1 or 7, "nested, its own length")
  for _, row in ipairs { { 1, 2, 2 }, { 3, 2, 4 }, { 4, 3, 6 }, { 3, 4, 4 }, { 4, 6, 6 }, { 1, 6, 6 }, { 2, 6, 6 },
    { 61, 6, 66 }, { 6, 3, 6 }, { 0, 4, 0 } } do
    local size, n, want = table.unpack(row)
    local t = A.pad_input_tensors({ accel.ones(size, 2) }, size, n)[1]
    same(t.shape, { want, 2 }, "pad_input_tensors")
    same(t:sum():item(), 2.0 * size, "zeros at the end")
  end
  same(A.copy_tensor_to_devices(R == 0 and accel.tensor { 1, 2, 3 } or nil), { 1, 2, 3 }, "copy_tensor_to_devices")
  local list = R == 0 and { { a = 1 }, "x" } or { false, false }
  same(A.broadcast_object_list(list), { { a = 1 }, "x" }, "broadcast_object_list")
  same(list, { { a = 1 }, "x" }, "in place")

  -- many tensors, dtypes, sizes, layouts and kinds of container at once
  local tree, class = ordered.new(), accel.util.class("Pair")
  tree.z = accel.arange(6):view(2, 3):t() + R
  tree.a = class()
  tree.a.big = accel.full({ 300, 300 }, R + 0.5, { dtype = "f64", requires_grad = true }) * 1
  tree.a.bit, tree.a.none = accel.tensor { R == 0, true }, accel.zeros(0, 4)
  tree.list = { accel.tensor(R * 1.5), accel.ones(2, { dtype = "bf16" }) * R, { accel.ones(1, 2, 2) } }
  local got, order = A.gather(tree), {}
  for key in got do order[#order + 1] = key end
  same(order, { "z", "a", "list" }, "order")
  assert(accel.util.class.isinstance(got.a, class) and ordered.is(got))
  same(got.z.shape, { 3 * P, 2 }, "rows")
  for r = 0, P - 1 do
    same(got.z:narrow(1, 3 * r + 1, 3), accel.arange(6):view(2, 3):t() + r, "a transposed tensor")
    same(got.a.big[300 * r + 7]:sum():item(), 300 * (r + 0.5), "a large one")
    same(got.a.bit[2 * r + 1]:item(), r == 0, "bool")
    same(got.list[1][r + 1]:item(), r * 1.5, "no dims")
    same(got.list[2][2 * r + 1]:item(), r * 1.0, "bf16")
  end
  assert(not got.a.big.requires_grad and got.a.big.dtype == "f64" and got.list[2].dtype == "bf16")
  same(got.a.none.shape, { 0, 4 }, "empty")
  same(got.list[3][1].shape, { P, 2, 2 }, "nested lists")
  local mean = A.reduce(tree.list)
  same(mean[1]:item(), (P - 1) * 0.75, "mean of no dims")
  assert(mean[2].dtype == "bf16")

  if P == 1 then return end
  says("rank 0 has f32 (2) (ranks.lua:", A.gather, accel.ones(R == 0 and 2 or 3))
  says(P == 2 and "; rank 1 has f32 (3) (ranks.lua:" or "; ranks 1, 2", A.gather, accel.ones(R == 0 and 2 or 3))
  says("f32 (1, 6) at 'x'", A.reduce, { x = accel.ones(R == 0 and 1 or 2, R == 0 and 6 or 3) }) -- the same count
  says("i64 (2)", A.broadcast, R == 0 and accel.ones(2) or accel.ones(2):to "i64")
  says("nothing, after 1 of them", A.gather, R == 0 and { accel.ones(2) } or { accel.ones(2), accel.ones(1) })
  says("at 'b'", A.gather, { [R == 0 and "a" or "b"] = accel.ones(2) })
  says("'text' at 'x', no tensor", A.gather, { x = R == 0 and "text" or accel.ones(2) })
  says("with 2 dims", A.pad_across_processes, accel.ones(table.unpack(R == 0 and { 2 } or { 2, 2 })))
  same(A.gather(own), all, "afterwards")
end

--- What every rank does alone.
local function local_part()
  local t = accel.ones(4, 2)
  says("gather: entry 'x' is 'text'; expected tensors", A.gather, { x = "text" })
  says("there is no dim 0", A.pad_across_processes, t, 0)
  says("did you mean 'scale'", A.reduce, t, { scal = 1 })
  says("reduction must be one of sum, mean, max, none", A.reduce, t, "avg")
  says("scale must be a number", A.reduce, t, "sum", "x")
  says("not one of the", A.broadcast, t, 99)
  says("expected a list", A.gather_object, 3)

  local moved = { to = function(self, device) return { self, device } end }
  local skipped = accel.ones(1)
  local out = A.send_to_device({ x = t, n = { moved, "s", 3 }, keep = skipped }, "cpu",
    { non_blocking = true, skip_keys = "keep" })
  assert(out.x == t and out.n[1][1] == moved and out.n[1][2] == "cpu" and out.n[2] == "s" and out.n[3] == 3)
  assert(A.send_to_device({ x = t }, "meta").x.device == "meta" and A.send_to_device("s", "meta") == "s")
  local kept = A.send_to_device({ a = { k = t }, k = t }, "meta", { skip_keys = { "k" } })
  assert(kept.k == t and kept.a.k == t)
  says("unknown option 'nonblocking'", A.send_to_device, t, "cpu", { nonblocking = true })

  assert(A.find_batch_size { { x = accel.ones(4, 3) }, accel.ones(2) } == 4)
  says("an empty table", A.find_batch_size, {})
  says("found 'a'", A.find_batch_size, { "a", t })
  assert(A.ignorant_find_batch_size {} == nil and A.ignorant_find_batch_size { t } == 4)
  assert(A.find_device { a = { 1, t } } == "cpu" and A.find_device { 1 } == nil)
  same(A.listify { accel.ones(1, { dtype = "bf16" }), { a = accel.tensor(2.5), s = "x" } },
    { { 1.0 }, { a = 2.5, s = "x" } }, "listify")

  says("'s' is not a leaf for the function of", A.recursively_apply, function(x) return x end, { "s" },
    { error_on_other_type = true })
  same(A.recursively_apply(function(x) return x * 2 end, { 1, { a = 2, b = "s" } },
    { test_type = function(x) return type(x) == "number" end }), { 2, { a = 4, b = "s" } }, "recursively_apply")
  local loop = {}
  loop[1] = loop
  says("does a table contain itself", A.gather, loop)

  local info = A.get_data_structure { x = { t, "s" } }
  assert(A.is_tensor_information(info.x[1]) and not A.is_tensor_information(t) and info.x[2] == "s")
  local made = A.initialize_tensors(info)
  same(made.x[1].shape, { 4, 2 }, "initialize_tensors")
  same(A.slice_tensors({ accel.arange(5), "s" }, 2, 3), { { 1, 2 }, "s" }, "slice_tensors")
  same(A.slice_tensors(accel.arange(5), 4, 9), { 3, 4 }, "past the end")
  assert(A.slice_tensors(accel.arange(5), 7, 9).shape[1] == 0)
  same(A.concatenate { { a = accel.ones(1), l = { accel.zeros(1) } }, { a = accel.zeros(2), l = { accel.ones(1) } } },
    { a = { 1.0, 0.0, 0.0 }, l = { { 0.0, 1.0 } } }, "concatenate")
  same(A.concatenate({ accel.ones(1, 1), accel.zeros(1, 1) }, 2), { { 1.0, 0.0 } }, "along a dim")
  assert(A.concatenate { "one" } == "one")
  says("'one' is not a tensor", A.concatenate, { "one", "two" })
  says("batch 2 has no entry 'a'", A.concatenate, { { a = t }, { b = t } })

  local function one(dtype) return accel.ones(1, { dtype = dtype }) end
  local half = { one "f16", { one "bf16", one "i64" } }
  local wide = A.convert_to_fp32(half)
  assert(wide[1].dtype == "f32" and wide[2][1].dtype == "f32" and wide[2][2] == half[2][2] and half[1].dtype == "f16")
  local f = A.convert_outputs_to_fp32(function(x, y) return x, y, nil end)
  local a, b = f(half[1], half[2])
  assert(a.dtype == "f32" and b[1].dtype == "f32" and select("#", f(1, 2)) == 3)

  local list = ordered.new()
  list.b = 1
  list.a = 2
  local honored, keys = A.honor_type(list, { a = 4, b = 3 }), {}
  for key, value in honored do keys[#keys + 1] = key .. value end
  same(keys, { "b3", "a4" }, "honor_type")
end

--- One rank fails: the other one hears of it and does not wait.
local function differ()
  local ok, err = pcall(function()
    if R == 1 then error "told" end
    A.gather(accel.ones(2))
  end)
  assert(not ok and tostring(err):find(R == 1 and "told" or "rank 1", 1, true), tostring(err))
end

if arg[1] == "differ" then
  if R == 1 then os.exit(0) end
  return differ()
end
on_ranks()
local_part()
