-- Making tensors: bindings/tensor/lac_factory.c and lac_bytes.c; the list of ops: lac_ops.c.
local accel = require "accel"

local function fails(code, part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "expected an error with '" .. part .. "'")
  assert(err.code == code and tostring(err):find(part, 1, true), tostring(err.code) .. ": " .. tostring(err))
end

local function equal(t, values)
  assert(accel.inspect(t:tolist()) == accel.inspect(values), accel.inspect(t:tolist()))
end

-- dtypes follow the values unless given.
assert(accel.tensor { 1, 2 }.dtype == "i64" and accel.tensor { 1, 2.5 }.dtype == "f32"
  and accel.tensor { true }.dtype == "bool")
assert(accel.tensor({ 1, 2 }, { dtype = "f16" }).dtype == "f16" and accel.tensor {}.dtype == "f32")
assert(#accel.tensor(3).shape == 0 and accel.tensor {}.shape[1] == 0
  and accel.tensor { {}, {} }.shape[1] == 2)
equal(accel.tensor { { { 1 }, { 2 } }, { { 3 }, { 4 } } }, { { { 1 }, { 2 } }, { { 3 }, { 4 } } })
equal(accel.tensor { accel.tensor(1), 2 }, { 1, 2 })
local src = accel.ones(2, { requires_grad = true })
local copy = accel.tensor(src)
copy:fill_(5)
assert(src:sum():item() == 2 and not copy.requires_grad
  and accel.tensor(src, { dtype = "f64" }).dtype == "f64")
fails("shape", "ragged", accel.tensor, { { 1, 2 }, { 3 } })
fails("shape", "ragged", accel.tensor, { { 1 }, 2 })
fails("invalid_argument", "element 2: expected number or boolean, got string", accel.tensor, { 1, "2" })
fails("invalid_argument", "expected table, number or boolean, got string", accel.tensor, "1")
local endless = {}
endless[1] = endless
fails("shape", "dims at most", accel.tensor, endless)

equal(accel.zeros(2, 2), { { 0.0, 0.0 }, { 0.0, 0.0 } })
equal(accel.ones({ 2 }, { dtype = "i32" }), { 1, 1 })
equal(accel.full({ 2 }, 7), { 7, 7 })
equal(accel.full({ 1 }, true), { true })
assert(accel.full({ 2 }, 0.5).dtype == "f32" and accel.full(3, 1).shape[1] == 3 and #accel.zeros().shape == 0)
assert(accel.empty(3, 4).shape[2] == 4 and accel.zeros(0).shape[1] == 0)
equal(accel.zeros_like(accel.ones(2, { dtype = "i64" })), { 0, 0 })
assert(accel.ones_like(accel.zeros(2), { dtype = "f64", requires_grad = true }).requires_grad)
assert(accel.full_like(accel.zeros(2), 3):sum():item() == 6
  and accel.empty_like(accel.zeros(2, 5)).shape[2] == 5)
assert(accel.zeros(2, 3, { device = "meta" }).device == "meta")

equal(accel.arange(4), { 0, 1, 2, 3 })
equal(accel.arange(2, 5), { 2, 3, 4 })
equal(accel.arange(5, 0, -2), { 5, 3, 1 })
equal(accel.arange(0, 1, 0.25), { 0.0, 0.25, 0.5, 0.75 })
assert(accel.arange(3, { dtype = "f64" }).dtype == "f64" and accel.arange(5, 2).shape[1] == 0)
fails("invalid_argument", "step not 0", accel.arange, 1, 2, 0)
-- numpy.linspace(-3, 7, 5) and its ends are exact
equal(accel.linspace(-3, 7, 5), { -3.0, -0.5, 2.0, 4.5, 7.0 })
equal(accel.linspace(2, 9, 1), { 2.0 })
assert(accel.linspace(0, 0.1, 11, { dtype = "f64" })[11]:item() == 0.1)
equal(accel.eye(2, 3), { { 1.0, 0.0, 0.0 }, { 0.0, 1.0, 0.0 } })

-- Random ones: ranges, seeds, generators.
accel.manual_seed(5)
local a = accel.randn(1000)
accel.manual_seed(5)
assert(accel.randn(1000):eq(a):to("i64"):sum():item() == 1000)
assert(math.abs(a:mean():item()) < 0.15)
local u = accel.rand(1000)
assert(u:min():item() >= 0 and u:max():item() < 1 and math.abs(u:mean():item() - 0.5) < 0.05)
local g, h = accel.Generator(7), accel.Generator(7)
assert(accel.rand(8, { generator = g }):eq(accel.rand(8, { generator = h })):to("i64"):sum():item() == 8)
assert(accel.rand(8, { generator = g }):eq(accel.rand(8,
  { generator = accel.Generator(7) })):to("i64"):sum():item() < 8)
local i = accel.randint(2, 5, { 200 })
assert(i.dtype == "i64" and i:min():item() == 2 and i:max():item() == 4
  and accel.randint(3, { 2, 2 }).shape[2] == 2)
fails("invalid_argument", "must be above low", accel.randint, 5, 5, { 1 })
local perm, seen = accel.randperm(50), {}
for _, k in ipairs(perm:tolist()) do seen[k] = true end
for k = 0, 49 do assert(seen[k]) end
local state = accel.get_rng_state()
local first = accel.rand(4):tolist()
accel.set_rng_state(state)
assert(accel.inspect(accel.rand(4):tolist()) == accel.inspect(first))
state = g:get_state()
first = accel.rand(4, { generator = g }):tolist()
g:set_state(state)
assert(accel.inspect(accel.rand(4, { generator = g }):tolist()) == accel.inspect(first)
  and g:initial_seed() == 7)
fails("invalid_argument", "no such option", accel.set_rng_state, { sed = 1 })
fails("invalid_argument", "expected generator", accel.rand, 2, { generator = 3 })

-- Bytes.
local bytes = string.pack("<i4i4i4i4", 1, -2, 3, 4)
equal(accel.from_bytes(bytes, "i32"), { 1, -2, 3, 4 })
equal(accel.from_bytes(bytes, "i32", { 2, 2 }), { { 1, -2 }, { 3, 4 } })
assert(accel.from_bytes(bytes, "i32", { 2, 2 }):to_bytes() == bytes)
assert(accel.from_bytes(bytes, "i32", { 2, 2 }):transpose(1, 2):to_bytes() == string.pack("<i4i4i4i4", 1,
  3, -2, 4))
fails("shape", "16 bytes are not 3 elements", accel.from_bytes, bytes, "i32", { 3 })
fails("shape", "bytes", accel.from_bytes, "abc", "i32")

-- Wrong options.
fails("invalid_argument", "did you mean 'dtype'", accel.zeros, 2, { dtyp = "f32" })
fails("invalid_argument", "no dtype 'flt32'", accel.zeros, 2, { dtype = "flt32" })
fails("device", "no device 'gpu'", accel.zeros, 2, { device = "gpu" })
fails("shape", "extent 1 is negative", accel.zeros, -1)
fails("invalid_argument", "expected integer", accel.zeros, 1.5)
fails("dtype", "i64", accel.zeros, 2, { dtype = "i64", requires_grad = true })

-- More than there is: an error, and everything goes on.
fails("out_of_memory", "", accel.empty, 1 << 40, 1 << 10)
assert(accel.ones(2):sum():item() == 2)
