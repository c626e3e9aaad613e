-- Tensors as Lua values: fields, indexing, conversion, table keys: bindings/tensor/lac_tensor.c,
-- bindings/core/box.c.
local accel = require "accel"

local function fails(code, part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "expected an error with '" .. part .. "'")
  assert(err.code == code and tostring(err):find(part, 1, true), tostring(err.code) .. ": " .. tostring(err))
end

local x = accel.tensor { { 1, 2, 3 }, { 4, 5, 6.5 } }
assert(x.dtype == "f32" and x.device == "cpu" and x.ndim == 2 and #x == 2 and #x.shape == 2)
assert(x.shape[1] == 2 and x.shape[2] == 3 and x:size(2) == 3 and x:size(-1) == 3 and x:numel() == 6
  and x:dim() == 2)
assert(x:stride(1) == 3 and x:stride()[2] == 1 and x:storage_offset() == 0 and x:element_size() == 4)
assert(x.requires_grad == false and x.is_leaf and x.grad == nil and x.grad_fn == nil)
assert(type(x:data_ptr()) == "number" and x[2]:data_ptr() == x:data_ptr() + 12 and x[2]:storage_offset() == 3)
assert(accel.is_tensor(x) and not accel.is_tensor({}) and not accel.is_tensor(nil))
assert(getmetatable(x) == "accel.Tensor" and not pcall(setmetatable, x, {}))
fails("invalid_argument", "did you mean 'shape'", function() return x.shap end)
fails("invalid_argument", "did you mean 'sum'", function() return x:summ() end)
fails("invalid_argument", "cannot be assigned", function() x.shape = { 1 } end)
fails("index_out_of_range", "out of range", function() return x:size(3) end)

-- t[i]: a view that shares bytes; one past the end is nil, so that ipairs works.
local row = x[1]
row[2] = 20
assert(x[1][2]:item() == 20 and x[-1][-1]:item() == 6.5 and x[3] == nil)
local n = 0
for i, r in ipairs(x) do
  n = n + 1
  assert(r.shape[1] == 3 and r == r and r ~= x[i])
end
assert(n == 2)
x[2] = accel.tensor { 7, 8, 9 }
assert(x[2]:sum():item() == 24)
x[1] = 0
assert(x[1]:sum():item() == 0)
fails("index_out_of_range", "4 is out of range", function() return x[4] end)
fails("index_out_of_range", "-3 is out of range", function() return x[-3] end)
fails("index_out_of_range", "count from 1", function() return x[0] end)
fails("index_out_of_range", "out of range", function() x[3] = 1 end)
fails("index_out_of_range", "rank 0", function() return accel.tensor(1)[1] end)
fails("invalid_argument", "expected tensor or number to assign, got string", function() x[1] = "a" end)
fails("shape", "rank 0", function() return #accel.tensor(1) end)
fails("unsupported", "a:lt(b)", function() return x < x end)
fails("unsupported", "a:le(b)", function() return x <= x end)
assert(x:lt(8).dtype == "bool")

-- Plain Lua data.
assert(accel.tensor(2):item() == 2 and math.type(accel.tensor(2):item()) == "integer")
assert(accel.tensor(2.0):item() == 2 and math.type(accel.tensor(2.0):item()) == "float")
assert(accel.tensor(true):item() == true and accel.tensor { { true }, { false } }:tolist()[2][1] == false)
assert(accel.tensor { { 1, 2 }, { 3, 4 } }:transpose(1, 2):tolist()[1][2] == 3)
assert(#accel.zeros(0, 3):tolist() == 0 and #accel.zeros(2, 0):tolist() == 2)
fails("shape", "(2, 3)", function() return x:item() end)

-- to: dtype, device, tensor, options; nothing to do gives the same value.
assert(x:to("f64").dtype == "f64" and x:to("float64").dtype == "f64" and x:to("meta").device == "meta")
assert(rawequal(x:to("f32"), x) and rawequal(x:to("cpu"), x) and x:to("f32", { copy = true }) ~= x)
assert(x:to { dtype = "bf16", device = "meta" }.dtype == "bf16"
  and x:to(accel.zeros(1, { dtype = "i64" })).dtype == "i64")
assert(x:double().dtype == "f64" and x:half().dtype == "f16" and x:long().dtype == "i64"
  and x:bool().dtype == "bool")
assert(accel.tensor { 1.75, -1.75 }:to("i32"):tolist()[2] == -1)
fails("invalid_argument", "neither a dtype nor a device", function() return x:to("f33") end)
fails("invalid_argument", "did you mean 'dtype'", function() return x:to { dtyp = "f32" } end)

-- A leaf that requires grad has one Lua value: it is found again in tables wherever it comes from.
local w = accel.ones(3, { requires_grad = true })
local names = { [w] = "w" }
local through_hook
w:register_hook(function() through_hook = true end)
w:register_post_accumulate_grad_hook(function(p)
  assert(rawequal(p, w) and names[p] == "w" and p.grad:sum():item() == 6)
end);
(w * 2):sum():backward()
assert(through_hook and w.grad == w.grad and w.is_leaf and names[w] == "w")
w.grad = accel.zeros(3)
assert(w.grad:sum():item() == 0)
w.grad = nil
assert(w.grad == nil)
fails("shape", "(2)", function() w.grad = accel.zeros(2) end)
local v = accel.zeros(2)
v.requires_grad = true
assert(v.requires_grad and v:requires_grad_(false).requires_grad == false)
fails("dtype", "i64", function() accel.zeros(2, { dtype = "i64" }).requires_grad = true end)

-- Values die with the last reference, and nothing else holds their bytes.
through_hook, names, row = nil, nil, nil -- luacheck: ignore
accel.collect()
local live, bytes = accel.live(), accel.mem_stats().live_bytes
do
  local keep = {} -- luacheck: ignore
  for i = 1, 100 do keep[i] = accel.zeros(1000) end
  assert(accel.live() == live + 100 and accel.mem_stats().live_bytes >= bytes + 400000)
end
accel.collect()
assert(accel.live() == live and accel.mem_stats().live_bytes == bytes)

-- A released leaf makes room for a new one at its address.
for _ = 1, 50 do
  local p = accel.ones(4, { requires_grad = true })
  local t = { [p] = 1 }
  assert(t[p] == 1)
  p:release()
end
do
  local c <close> = accel.ones(2)
  assert(c:sum():item() == 2)
  v = c
end
fails("released", "released at", function() return v + 1 end)

-- Printing follows PyTorch.
assert(tostring(accel.tensor { 1.5, 2 }) == "tensor([1.5000, 2.0000])")
assert(tostring(accel.ones(1, { requires_grad = true })) == "tensor([1.], requires_grad=True)")

-- Shapes are plain lists that print.
do
  local t = accel.zeros(2, 3)
  assert(tostring(t.shape) == "(2, 3)" and tostring(t:size()) == "(2, 3)")
  assert(tostring(t:stride()) == "(3, 1)" and t.shape .. t:stride() == "(2, 3)(3, 1)")
  assert("is " .. t.shape == "is (2, 3)" and t.shape .. "!" == "(2, 3)!")
  assert(tostring(accel.zeros(4).shape) == "(4)" and tostring(accel.tensor(1.0).shape) == "()")
  local keys = {}
  for key in next, t.shape do keys[#keys + 1] = key end
  assert(#keys == 2 and #t.shape == 2 and select("#", table.unpack(t.shape)) == 2)
  local sum = 0
  for i, extent in ipairs(t.shape) do sum = sum + i * extent end
  assert(sum == 8 and accel.json.encode(t.shape) == "[2,3]" and accel.inspect(t.shape) == "{ 2, 3 }")
  assert(accel.ones(t.shape):numel() == 6 and table.concat(t.shape, "x") == "2x3")
end

-- a // b divides as Lua does: towards minus infinity, integers by integers.
do
  local values = { 7, -7, 8, -8, 0, 1 }
  for _, by in ipairs { 2, -2, 3, -3, 1 } do
    for _, dtype in ipairs { "i64", "i32", "f32", "f64" } do
      local t = accel.tensor(values, { dtype = dtype })
      local divisor = t:is_floating_point() and by + 0.0 or by
      for _, q in ipairs { t // divisor, t // accel.full({ 6 }, by, { dtype = dtype }) } do
        assert(q.dtype == dtype)
        for i, got in ipairs(q:tolist()) do
          assert(got == values[i] // by, ("%d // %d = %s"):format(values[i], by, got))
        end
      end
    end
  end
  assert((9 // accel.tensor { 2, -4 }):tolist()[2] == -3 and (accel.tensor { 7.5 } // 2):item() == 3)
  assert((accel.tensor { 1 << 52 } // 3):item() == (1 << 52) // 3)
  assert(not pcall(function() return accel.tensor { 1 } // 0 end))
  assert((accel.zeros(2, 1) // accel.ones(1, 3)).shape .. "" == "(2, 3)")
end

-- Shapes are compared by their numbers; dtypes go by PyTorch's names, too.
do
  local x = accel.ones(2, 3)
  assert(x.shape == accel.zeros(2, 3).shape and x.shape == { 2, 3 } and { 2, 3 } == x.shape)
  assert(x.shape ~= accel.zeros(3, 2).shape and x.shape ~= { 2 } and x.shape ~= { 2, 3, 1 } and x.shape ~= "(2, 3)")
  assert(accel.ones(1):sum().shape == {} and x.shape == x:t():t().shape)
  assert(accel.ones(1, { dtype = accel.float16 }).dtype == "f16" and x.dtype == accel.float32)
  assert(accel.arange(2).dtype == accel.long and x:gt(0).dtype == accel.bool and accel.bfloat16 == "bf16")
end
