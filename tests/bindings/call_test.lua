-- Arguments of ops as scripts write them, and what is said about wrong ones: bindings/ops/call.c.
local accel = require "accel"

-- The error of f(...): its fields are checked, and every part must stand in its message.
local function fails(code, parts, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "expected an error: " .. table.concat(parts, " ... "))
  assert(type(err) == "table" and err.code == code,
    ("code %s instead of %s: %s"):format(tostring(err.code), code, tostring(err)))
  local text = tostring(err)
  for _, part in ipairs(parts) do
    assert(text:find(part, 1, true), ("'%s' is not in: %s"):format(part, text))
  end
  return err
end

local function equal(t, values)
  local got = t:tolist()
  local function same(a, b)
    if type(a) ~= "table" then return a == b end
    if type(b) ~= "table" or #a ~= #b then return false end
    for i = 1, #a do
      if not same(a[i], b[i]) then return false end
    end
    return true
  end
  assert(same(got, values), accel.inspect(got) .. " is not " .. accel.inspect(values))
end

local x = accel.tensor { { 1, 2, 3 }, { 4, 5, 6.0 } }

-- Function and method, positional and by name.
equal(accel.sum(x, 1), { 5, 7, 9 })
equal(x:sum(1), { 5, 7, 9 })
equal(x:sum(-1), { 6, 15 })
equal(x:sum { dim = 2 }, { 6, 15 })
equal(x:sum(2, { keepdim = true }), { { 6 }, { 15 } })
equal(x:sum({ 1, 2 }, true), { { 21 } })
equal(accel.sum { x = x, dim = { 1, 2 } }, 21)
equal(x:sum(nil, { keepdim = true }), { { 21 } })
equal(x:add(1, 2), { { 3, 4, 5 }, { 6, 7, 8 } })
equal(x:add(1, { alpha = 2 }), { { 3, 4, 5 }, { 6, 7, 8 } })

-- Lists written out where nothing else can follow, and as tables.
equal(x:view(3, 2), { { 1, 2 }, { 3, 4 }, { 5, 6 } })
equal(x:view { 3, 2 }, { { 1, 2 }, { 3, 4 }, { 5, 6 } })
equal(x:view(-1), { 1, 2, 3, 4, 5, 6 })
equal(x:permute(2, 1), { { 1, 4 }, { 2, 5 }, { 3, 6 } })
equal(x:permute(-1, 1), { { 1, 4 }, { 2, 5 }, { 3, 6 } })
assert(#x:view { 6 }:view({ 1, 1, 1, 1, 1, 6 }).shape == 6)

-- A list followed by numbers is not written out: split(x, size, dim).
local parts = x:split(2, 2)
assert(#parts == 2)
equal(parts[1], { { 1, 2 }, { 4, 5 } })
equal(parts[2], { { 3 }, { 6 } })

-- Positions and dims count from 1, from the end with a minus.
equal(x:narrow(2, 2, 2), { { 2, 3 }, { 5, 6 } })
equal(x:select(1, -1), { 4, 5, 6 })
equal(x:transpose(1, 2), { { 1, 4 }, { 2, 5 }, { 3, 6 } })
equal(x:unsqueeze(1):squeeze(1), { { 1, 2, 3 }, { 4, 5, 6 } })
local values, indices = x:max(2)
equal(values, { 3, 6 })
equal(indices, { 2, 2 }) -- an index is a value: it counts from 0
equal(x:argmax(2), { 2, 2 })

-- Operators take numbers on either side.
equal(10 - x, { { 9, 8, 7 }, { 6, 5, 4 } })
equal(-x + x, { { 0, 0, 0 }, { 0, 0, 0 } })
equal(x ^ 2 / x, { { 1, 2, 3 }, { 4, 5, 6 } })
equal(x % 2, { { 1, 0, 1 }, { 0, 1, 0 } })
assert(x == x and x ~= x:clone() and x:view(6) ~= x)

-- In place gives back the same Lua value; so does an op that has nothing to do.
local z = accel.zeros(2)
assert(rawequal(z:add_(1), z) and rawequal(z:fill_(3), z) and rawequal(z:contiguous(), z))
assert(rawequal(accel.fill_ { x = z, value = 4 }, z) or accel.fill_ { x = z, value = 4 } == z)
equal(z, { 4, 4 })

-- Long lists go through a scratch that the collector owns.
local many = {}
for i = 1, 200 do many[i] = accel.full({ 1 }, i) end
local joined = accel.cat(many, 1)
assert(joined.shape[1] == 200 and joined:sum():item() == 20100)
joined = accel.cat { tensors = many, dim = 1 }
assert(joined:sum():item() == 20100)
local deep = {}
for i = 1, 60 do deep[i] = i end
fails("shape", { "split" }, function() return accel.zeros(7):split(deep, 1) end)

-- Wrong arguments: which, what was expected, what came.
local err = fails("invalid_argument",
  { "call_test.lua:", "bad argument #1 'dim' to 'sum'", "expected dims (integers), got string" },
  function() return x:sum("a") end)
assert(err.op == "sum" and err.where:find("call_test.lua:", 1, true)
  and err.traceback:find("stack traceback", 1, true))
fails("invalid_argument", { "bad argument #2 'dim' to 'sum'" }, function() return accel.sum(x, "a") end)

-- The traceback: names of the calls, the function itself in any case; the middle of a deep stack left out.
local function raise(n)
  if n > 0 then return (raise(n - 1)) end
  return (x:sum("a"))
end
local function trace_of(n)
  local _, got = pcall(raise, n)
  return got.traceback
end
local function lines_of(text) return select(2, text:gsub("\n", "")) end
local _, own = xpcall(function() return (raise(3)) end, function(e) return e.traceback end)
assert(own:find("in method 'sum'", 1, true) and own:find("in upvalue 'raise'", 1, true), own)
for depth = 15, 25 do
  local text = trace_of(depth)
  local total = lines_of(trace_of(5)) + depth - 5
  local skipped = tonumber(text:match "skipping (%d+) levels")
  if skipped then assert(lines_of(text) == 22 and skipped == total - 21, text) else assert(lines_of(text) == total) end
end
assert(trace_of(20000):find "skipping %d+ levels" and lines_of(trace_of(20000)) == 22)
assert(select(2, pcall(accel.relu, 3)).traceback:find "^stack traceback:\n\t%[C%]: in function 'relu'\n")
fails("invalid_argument", { "bad argument #1 'x' to 'relu'", "expected tensor, got integer 3" },
  accel.relu, 3)
fails("invalid_argument", { "'x'", "relu", "expected tensor, got no value" }, accel.relu)
fails("invalid_argument", { "bad argument #2 'dim' to 'softmax' (expected dim (integer), got number 1.5)" },
  accel.softmax, x, 1.5)
fails("invalid_argument", { "bad argument #2 'other' to 'add'", "expected tensor or number, got string" },
  function() return x + "1" end)
fails("invalid_argument", { "bad argument #1 'x' to 'add'", "got string" }, function() return "1" + x end)
fails("invalid_argument", { "entry 2 is integer 3" }, accel.cat, { x, 3 })
fails("invalid_argument", { "expected list of tensors, got f32 tensor" }, accel.cat, x)
fails("invalid_argument", { "bad option 'approximate' to 'gelu'", "did you mean \"tanh\"",
  "\"none\", \"tanh\"" },
  accel.gelu, x, { approximate = "tanhh" })
fails("invalid_argument", { "argument", "relu", "1 argument at most" }, accel.relu, x, 2)
fails("index_out_of_range", { "'dim'", "sum", "dims count from 1" }, accel.sum, x, 0)
fails("index_out_of_range", { "narrow", "positions count from 1" }, accel.narrow, x, 1, 0, 1)
fails("index_out_of_range", { "softmax", "3" }, accel.softmax, x, 3)
fails("index_out_of_range", { "select", "3" }, accel.select, x, 1, 3)
fails("dtype", { "x" }, function() return accel.tensor({ 1, 2 }):softmax(1) end)

-- Options: an unknown one names the nearest, none is given twice.
fails("invalid_argument", { "bad option 'keepdm' to 'sum'", "did you mean 'keepdim'?" }, accel.sum, x, 1,
  { keepdm = true })
fails("invalid_argument", { "bad option 'zzz' to 'gelu'", "there are approximate" }, accel.gelu, x,
  { zzz = 1 })
fails("invalid_argument", { "bad option 'dim' to 'sum'", "also given as argument 2" }, accel.sum, x, 1,
  { dim = 2 })
fails("invalid_argument", { "bad option 'keepdim' to 'sum' (expected boolean, got integer 1)" }, accel.sum,
  x, 1, { keepdim = 1 })

-- Shapes and dtypes: the op and both operands.
fails("shape", { "matmul", "(2, 3)", "(4, 5)" }, accel.matmul, x, accel.zeros(4, 5))
fails("shape", { "add", "(2, 3)", "(2, 2)" }, function() return x + accel.zeros(2, 2) end)
fails("device", { "cpu", "meta" }, function() return x + accel.zeros(2, 3, { device = "meta" }) end)

-- A released tensor says where it went; the others stay usable.
local gone = accel.ones(2)
gone:release() -- here
err = fails("released", { "the tensor was released at", "call_test.lua:" }, function() return gone + 1 end)
local line = debug.getinfo(1, "l").currentline - 2
assert(tostring(err):find(("released at %s:%d"):format(debug.getinfo(1, "S").short_src, line), 1, true),
  tostring(err))
fails("released", { "entry", "released" }, accel.backward, { gone })
fails("released", { "bad argument #1 'tensors' to 'cat'", "released" }, accel.cat, { gone })
assert(tostring(gone):find("released", 1, true))
gone:release() -- once more is nothing
equal(x:sum(), 21)

-- Errors are raised in the coroutine that called.
local co = coroutine.create(function() return x:matmul(x) end)
local ok, message = coroutine.resume(co)
assert(not ok and message.code == "shape" and coroutine.status(co) == "dead")
equal(x:sum(), 21)

-- Error objects work as the strings that Lua programs expect.
err = select(2, pcall(x.matmul, x, x))
assert(err:find("matmul", 1, true) and ("[" .. err .. "]"):sub(1, 1) == "["
  and err:match("%((%d), %d%)") == "2" and #err == #tostring(err))
assert(err.no_such_field == nil)

-- Every op has a name and a signature; hidden ones are reached by name.
local seen = {}
for _, op in ipairs(accel.ops()) do
  assert(op.signature:find("(", 1, true))
  seen[op.name] = op
  if not op.hidden then assert(type(accel[op.name]) == "function", op.name) end
end
assert(seen.matmul and seen.add_ and seen.add_.inplace and not seen.add.inplace and seen.relu_backward.hidden)
assert(accel.op("relu")(accel.tensor { -1.0 }):item() == 0)
fails("not_found", { "no op 'matmull'", "did you mean 'matmul'" }, accel.op, "matmull")
