-- t[key] and t[key] = value: bindings/tensor/lac_index.c against a plain Lua model of what a key names, for reading,
-- writing and gradients; then what views share, what a graph keeps, and what errors say.
local accel = require "accel"
package.path = arg[0]:match("^(.*)/[^/]*$") .. "/../support/?.lua;" .. package.path
local keys = require "index_model"

local function fails(code, part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "expected an error with '" .. part .. "'")
  assert(err.code == code and tostring(err):find(part, 1, true), tostring(err.code) .. ": " .. tostring(err))
end

local function flat(t) return t:numel() == 0 and {} or t:detach():reshape(-1):tolist() end
local function same(t, want, what)
  local got = flat(t)
  assert(#got == #want, ("%s: %d elements instead of %d"):format(what, #got, #want))
  for i, v in ipairs(want) do
    assert(math.abs(got[i] - v) < 1e-12, ("%s: element %d is %s, not %s"):format(what, i, got[i], v))
  end
end
local function shaped(t, shape, what)
  assert(tostring(t.shape) == "(" .. table.concat(shape, ", ") .. ")", what .. ": shape " .. t.shape)
end

local shapes = { { 3, 4 }, { 5 }, { 2, 3, 4 }, { 4, 1, 3, 2 } }
local n_keys = 0
for round = 1, 900 do
  local shape = shapes[round % #shapes + 1]
  local key = keys.random_key(shape)
  local fits, out, list = pcall(keys.model, shape, key)
  if not fits then
    assert(not pcall(function() return accel.zeros(shape)[keys.written(key)] end), "a key was taken that fits nothing")
  else
    n_keys = n_keys + 1
    local what = accel.json.encode { shape = shape, key = key }
    local n = keys.numel(shape)
    local t = accel.arange(n):reshape(shape)
    local got = t[keys.written(key)]
    shaped(got, out, what)
    same(got, list, what)

    -- gradients: every place adds its weight to the element that it shows
    local x = accel.arange(n):to("f64"):reshape(shape)
    x.requires_grad = true
    local y = (x * 1)[keys.written(key)]
    if y:numel() > 0 then
      local w, want = {}, {}
      for i = 1, #list do w[i] = i + 0.5 end
      for i = 1, n do want[i] = 0 end
      for i, at in ipairs(list) do want[at + 1] = want[at + 1] + w[i] end
      local cot = accel.tensor(w, { dtype = "f64" }):reshape(out)
      same(accel.grad(y, x, { grad_outputs = cot }), want, "gradient " .. what)
    end

    -- a number, then a tensor (the last of equal places stays)
    local z, want = t:clone(), {}
    for i = 1, n do want[i] = i - 1 end
    for _, at in ipairs(list) do want[at + 1] = -7 end
    z[keys.written(key)] = -7
    same(z, want, "number " .. what)
    if #list > 0 then
      local v = {}
      for i, at in ipairs(list) do
        v[i] = 100 + i
        want[at + 1] = 100 + i
      end
      z[keys.written(key)] = accel.tensor(v):reshape(out)
      same(z, want, "tensor " .. what)

      -- in a graph: what is written replaces history, the rest keeps it
      local value = accel.tensor(v, { dtype = "f64" }):reshape(out)
      value.requires_grad = true
      local g = x * 3
      g[keys.written(key)] = value
      for i = 1, n do want[i] = (i - 1) * 3 end
      for i, at in ipairs(list) do want[at + 1] = v[i] end
      same(g, want, "recorded " .. what)
      local weights = {}
      for i = 1, n do weights[i] = i * 0.25 end
      local cot = accel.tensor(weights, { dtype = "f64" }):reshape(shape)
      local dx, dv = table.unpack(accel.grad({ g }, { x, value }, { grad_outputs = { cot } }))
      local winner, wx, wv = {}, {}, {}
      for i, at in ipairs(list) do winner[at] = i end
      for i = 1, n do wx[i] = winner[i - 1] and 0 or weights[i] * 3 end
      for i, at in ipairs(list) do wv[i] = winner[at] == i and weights[at + 1] or 0 end
      same(dx, wx, "gradient of what was " .. what)
      same(dv, wv, "gradient of the value " .. what)
      local number = x * 3
      number[keys.written(key)] = 5
      same(accel.grad(number, x, { grad_outputs = cot }), wx, "gradient around a number " .. what)
    end
  end
end
assert(n_keys > 500, "only " .. n_keys .. " keys were tried")

-- ---- plain uses, written out ----
local t = accel.arange(24):reshape(2, 3, 4)
assert(accel.is_tensor(t[{}]) and t[{}] ~= t and t[{}]:data_ptr() == t:data_ptr())
same(t[{ 2, 3, 4 }], { 23 }, "three places")
shaped(t[{ 2, 3, 4 }], {}, "three places")
same(t[{ {}, {}, -1 }], { 3, 7, 11, 15, 19, 23 }, "last column")
same(t[{ 1, { 2 }, { 1, -1, 2 } }], { 4, 6, 8, 10 }, "from a on, every other")
same(t[{ "...", { 4 } }], { 3, 7, 11, 15, 19, 23 }, "...")
shaped(t[{ accel.newaxis, 1, "...", accel.newaxis }], { 1, 3, 4, 1 }, "newaxis")
shaped(t[{ { 1, 0 } }], { 0, 3, 4 }, "nothing in front")
shaped(t[{ { 3 } }], { 0, 3, 4 }, "nothing behind")
same(t[accel.tensor { 1, -1 }][{ {}, 1, 1 }], { 12, 12 }, "rows by number")
same(t[t:gt(20)], { 21, 22, 23 }, "a mask of every element")
same(t[accel.tensor { false, true }][{ 1, 1 }], { 12, 13, 14, 15 }, "a mask of rows")
same(t[{ {}, accel.tensor { 2, 0 }, accel.tensor { 1, 1 } }], { 9, 1, 21, 13 }, "pairs")
same(accel.arange(5)[{ { -3, -2 } }], { 2, 3 }, "from the end")
assert(t[{ {}, accel.tensor(1) }].ndim == 2, "a rank-0 index takes its dim away")

-- views share, in and out
local m = accel.zeros(3, 4)
local part = m[{ { 2, 3 }, { 1, 4, 3 } }]
part:fill_(5)
same(m, { 0, 0, 0, 0, 5, 0, 0, 5, 5, 0, 0, 5 }, "written through a view")
m[{ {}, 2 }] = accel.tensor { 1.0, 2.0, 3.0 }
m[{ 1, {} }] = accel.tensor { { 7, 8, 9, 6 } } -- a leading 1 more, another dtype
same(m, { 7, 8, 9, 6, 5, 2, 0, 5, 5, 3, 0, 5 }, "written by key")
m[m:gt(6)] = 0
m[accel.tensor { true, false, true }] = accel.tensor { 1, 2, 3, 4 }
same(m, { 1, 2, 3, 4, 5, 2, 0, 5, 1, 2, 3, 4 }, "written under masks")
m[{ {}, accel.tensor { 0, 3 } }] = accel.tensor({ { 9 }, { 8 }, { 7 } }, { dtype = "i64" })
same(m, { 9, 2, 3, 9, 8, 2, 0, 8, 7, 2, 3, 7 }, "written by numbers")
m[{ 2, accel.tensor { true, false, true, true } }] = -1
same(m[2], { -1, 2, -1, -1 }, "a mask behind a place")
m[1] = m[3]
same(m[1], { 7, 2, 3, 7 }, "a row onto another")
m[{ {}, { 2, 4 } }] = m[{ {}, { 1, 3 } }] -- overlaps what is read
same(m[1], { 7, 7, 2, 3 }, "a window onto its neighbour")
local b = accel.zeros({ 4 }, { dtype = "bool" })
b[{ { 2, 3 } }] = true
assert(b:tolist()[3] == true and b:tolist()[4] == false)
local h = accel.zeros({ 2, 2 }, { dtype = "bf16" })
h[accel.tensor { 1 }] = accel.tensor { 1.0, 2.0 }
h[h:eq(2)] = 3
same(h, { 0, 0, 1, 3 }, "16 bits")

-- double backward through reads and writes: d2/dx2 of the sum of cubes of what is read
local x = accel.tensor({ 1.0, 2.0, 3.0, 4.0 }, { dtype = "f64", requires_grad = true })
for _, key in ipairs { { { 1, 3, 2 } }, { accel.tensor { 2, 0, 2 } }, { accel.tensor { true, false, true, false } } } do
  local y = x * 1
  y[{ 2 }] = x[1]
  local s = (y[key] ^ 3):sum()
  local g = accel.grad(s, x, { create_graph = true })
  local gg = accel.grad(g:sum(), x)
  local twice = key[1] == nil and 0 or accel.is_tensor(key[1]) and key[1].dtype == "i64" and 2 or 1
  same(gg, { 6, 0, 18 * twice, 0 }, "second derivative")
end

-- on meta nothing has values, shapes are known
local e = accel.empty({ 4, 5 }, { device = "meta" })
shaped(e[{ { 2, 3 }, accel.empty({ 7 }, { dtype = "i64", device = "meta" }) }], { 2, 7 }, "meta")
e[{ 1 }] = 0

-- inside no_grad a leaf may be written, by any key
local w = accel.zeros({ 4 }, { requires_grad = true })
accel.no_grad(function()
  w[{ { 1, 2 } }] = 1
  w[w:eq(0)] = 2
  w[accel.tensor { 3 }] = 3
  w[1] = 4
end)
same(w, { 4, 1, 2, 3 }, "a leaf")
assert(w.is_leaf and w.requires_grad)

-- loops still end, and positions count as before
local n = 0
for i, row in ipairs(t) do
  n = n + 1
  assert(row[{ 1, 1 }]:item() == (i - 1) * 12)
end
assert(n == 2 and t[3] == nil)

-- ---- what errors say ----
local oor, inv = "index_out_of_range", "invalid_argument"
fails(oor, "{1, 4} is out of range for dim 1 of shape (2, 3, 4)", function() return t[{ { 1, 4 } }] end)
fails(oor, "{0, 2} is out of range for dim 2", function() return t[{ 1, { 0, 2 } }] end)
fails(oor, "{3, 1} is out of range for dim 2", function() return t[{ 1, { 3, 1 } }] end)
fails(oor, "{-5, -1} is out of range", function() return t[{ {}, {}, { -5 } }] end)
fails(oor, "5 is out of range for dim 3 of shape (2, 3, 4)", function() return t[{ "...", 5 }] end)
fails(oor, "count from 1", function() return t[{ {}, 0 }] end)
fails(oor, "entries for 4 dims, but the shape is (2, 3, 4)", function() return t[{ 1, 2, 3, 4 }] end)
fails(oor, "at most three numbers", function() return t[{ { 1, 2, 1, 1 } }] end)
fails(oor, "t:flip(1)", function() return t[{ { 1, 2, -1 } }] end)
fails(oor, "got string", function() return t[{ { "a" } }] end)
fails(oor, "without names", function() return t[{ { first = 1 } }] end)
fails(oor, "expected integer, got 1.5", function() return t[{ 1.5 }] end)
fails(oor, "entry 2: expected a position", function() return t[{ 1, "x" }] end)
fails(oor, "entry 1: expected a position", function() return t[{ true }] end)
fails(oor, "without names or holes", function() return t[{ dim = 1 }] end)
fails(oor, "without names or holes", function() return t[{ nil, 1 }] end)
fails(oor, "once", function() return t[{ "...", 1, "..." }] end)
fails(oor, "got function", function() return t[print] end)
fails(oor, "got boolean", function() t[true] = 1 end)
fails(oor, "holds 7 at (2), but dim 2 has 3 positions", function() return t[{ {}, accel.tensor { 0, 7 } }] end)
fails(oor, "holds -3", function() t[accel.tensor { -3 }] = 1 end)
fails(oor, "rank 0", function() return accel.tensor(1)[accel.tensor { 0 }] end)
fails("dtype", "got f32", function() return t[accel.tensor { 1.5 }] end)
fails("shape", "a mask of shape (3) does not fit shape (2, 3, 4) from dim 1 on",
  function() return t[accel.tensor { true, false, true }] end)
fails("shape", "do not broadcast", function() return t[{ accel.tensor { 0, 1 }, accel.tensor { 0, 1, 2 } }] end)
fails("shape", "(5) does not fit the part of shape (2, 4)", function() t[{ {}, 1 }] = accel.zeros(5) end)
fails("shape", "(5) do not fit the positions", function() t[accel.tensor { 0 }] = accel.zeros(5) end)
fails(inv, "expected tensor or number to assign, got string", function() t[{ {} }] = "a" end)
fails("autograd", "a leaf that requires gradients", function() w[{ { 1, 2 } }] = 1 end)
fails("autograd", "a leaf that requires gradients", function() w[1] = 1 end)
fails("autograd", "a leaf that requires gradients", function() w[w:eq(0)] = 1 end)
fails("autograd", "a leaf that requires gradients", function() w[accel.tensor { 1 }] = 1 end)
fails("autograd", "t[{ 2, 3 }] = v writes into t itself", function() (w * 1):view(2, 2)[1][1] = 1 end)
fails("shape", "share memory", function() accel.zeros(1, 3):expand(2, 3)[{ 1 }] = 1 end)
local gone = accel.tensor { 0 }
gone:release()
fails("released", "released", function() return t[gone] end)
fails("released", "released", function() return t[{ 1, gone }] end)
fails("released", "released", function() t[1] = gone end)
-- a step beyond every place takes the first one
same(accel.arange(4)[{ { 2, 3, math.maxinteger } }], { 1 }, "a large step")
-- nothing was written by what failed
same(t, (function() local v = {} for i = 1, 24 do v[i] = i - 1 end return v end)(), "untouched")

-- keys that a finalizer takes away while they are read
do
  local k = accel.tensor { 1, 0 }
  local trap = setmetatable({}, { __gc = function() k:release() end })
  trap = nil
  collectgarbage "step"
  local ok, r = pcall(function() return t[k] end)
  assert(ok and r.shape[1] == 2 or r.code == "released")
end

t, m, part, b, h, x, e, w, gone = nil, nil, nil, nil, nil, nil, nil, nil, nil
collectgarbage()
collectgarbage()
assert(accel.mem_stats().live_tensors == 0, "tensors are left: " .. accel.mem_stats().live_tensors)
