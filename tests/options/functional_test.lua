-- Options of accel.functional: each one changes results, or raises (support/option_sweep.lua).
--   accel-run tests/options/functional_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "functional"

local x = accel.tensor { { 1.0, 2.0, 0.5 }, { 3.0, 0.5, 4.0 }, { 5.0, 1.5, 2.5 } }
s:recipe("accel.functional.nonzero_static", { base = function() return { x = accel.tensor { 0, 1, 0 }, size = 3 } end,
  values = { fill_value = { 5 } } })
s:recipe("accel.functional.nonzero", { base = function() return { op = accel.op "nonzero", x = x } end, values = { as_tuple = { true } } })
s:recipe("accel.functional.tensordot", { base = function() return { x = x, other = x } end, values = { dims = { 1, { { 1 }, { 2 } } } } })
local factors = { beta = { 0.5 }, alpha = { 2 } }
s:recipe({ "accel.functional.addbmm", "accel.functional.addbmm_" }, { base = function()
  return { x = x:clone(), batch1 = x:reshape(1, 3, 3), batch2 = x:reshape(1, 3, 3) }
end, values = factors })
s:recipe({ "accel.functional.addmv", "accel.functional.addmv_" }, { base = function() return { x = x[1]:clone(), mat = x, vec = x[2] } end,
  values = factors })
s:recipe({ "accel.functional.addr", "accel.functional.addr_" }, { base = function() return { x = x:clone(), vec1 = x[1], vec2 = x[2] } end,
  values = factors })
local made = { dtype = { "f64" }, device = { "meta" }, requires_grad = { true }, copy = { true } }
local function shown(call)
  local t = call()
  return t.dtype, t.device, t.requires_grad, t:stride(), t:data_ptr() == x:data_ptr()
end
s:recipe({ "accel.functional.as_tensor", "accel.functional.asarray" }, { base = function() return { data = x } end, run = shown, values = made })
s:recipe("accel.functional.scalar_tensor", { base = function() return { value = 2 } end, run = shown, values = made })
s:recipe("accel.functional.logspace", { base = function() return { start = 0, stop = 2, n = 3 } end, run = function(call)
  local t = call()
  return t.dtype, t.device, t.requires_grad, t.device ~= "meta" and t:tolist() or nil
end, values = setmetatable({ base = { 2 } }, { __index = made }) })
s:recipe("accel.functional.empty_strided", { base = function() return { size = { 2, 2 }, stride = { 1, 2 } } end, run = shown, values = made })
s:recipe("accel.functional.new_empty_strided", { base = function() return { x = x, size = { 2, 2 }, stride = { 1, 2 } } end,
  run = shown, values = made })
s:recipe("accel.functional.empty_permuted", { base = function() return { size = { 2, 3 }, physical_layout = { 2, 1 } } end,
  run = shown, values = made })
local index = accel.tensor { 0, 1, 0 }
s:recipe("accel.functional.combinations", { base = function() return { x = accel.tensor { 1, 2, 3 } } end,
  values = { r = { 3 }, with_replacement = { true } } })
s:recipe("accel.functional.gradient", { base = function() return { x = x } end, values = { spacing = { 2 }, dim = { 1 }, edge_order = { 2 } } })
s:recipe("accel.functional.scatter_reduce_", { base = function()
  return { x = x[1]:clone(), dim = 1, index = index, src = x[2], reduce = "sum" }
end, values = { include_self = { false } } })
s:recipe("accel.functional.index_reduce_", { base = function()
  return { x = x[1]:clone(), dim = 1, index = index, source = x[2], reduce = "prod" }
end, values = { include_self = { false } } })
s:recipe("accel.functional.normal", { base = function() return { mean = 1, size = { 4 } } end, run = function(call, given)
  if given.generator then given.generator = accel.Generator(99) end
  return call()
end, values = { std = { 3 }, size = { { 2, 2 } }, dtype = { "f64" }, device = { "meta" }, generator = { "own" }, requires_grad = { true } } })
s:recipe("accel.functional.pdist", { base = function() return { x = x } end, values = { p = { 1 } } })
s:recipe("accel.functional.randint_like", { base = function() return { x = x, low = 5 } end, run = function(call, given)
  if given.generator then given.generator = accel.Generator(99) end
  return call()
end, values = { high = { 90 }, dtype = { "i64" }, device = { "meta" }, generator = { "own" }, requires_grad = { true } } })
s:recipe({ "accel.functional.tril_indices", "accel.functional.triu_indices" }, { base = function() return { row = 3, col = 4 } end,
  values = { offset = { 1 }, dtype = { "i32" }, device = { "meta" } } })
s:leave({ "accel.functional.atleast_1d", "accel.functional.atleast_2d", "accel.functional.atleast_3d", "accel.functional.broadcast_shapes",
  "accel.functional.broadcast_tensors", "accel.functional.sum_to_size" },
  "they take any number of tensors or extents; reference/calls/layout.py calls them")
s:finish()
