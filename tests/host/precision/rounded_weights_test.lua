-- Under autocast, products of many rows read their f32 weights without a cast: results and gradients of activations have the bits that a
-- bf16 copy of the weight gives, gradients of weights those bits once they are rounded; in every layout, through recompute and gradients
-- of gradients; and what is refused.
local accel = require "accel"

accel.manual_seed(3)
local ROWS <const>, IN <const>, OUT <const> = 150, 24, 40

local function leaf(t)
  t = t:detach()
  t.requires_grad = true
  return t
end
local function same(a, b, what)
  assert(a.dtype == b.dtype and accel.json.encode(a.shape) == accel.json.encode(b.shape), what)
  assert(a:eq(b):all():item(), what .. ": other bits")
end
local function lowered(f, ...) return accel.autocast({ dtype = "bf16" }, f, ...) end

-- f(x, w, ...) with weights of f32 in a region, and with copies of bf16 outside of one
local function compare(what, x, weights, f)
  local copies = {}
  for i, w in ipairs(weights) do copies[i] = leaf(w:detach():to "bf16") end
  local y = lowered(f, x, table.unpack(weights))
  local want = f(x, table.unpack(copies))
  same(y, want, what)
  local dy = accel.randn(y.shape):to "bf16"
  local got = accel.grad(y, { x, table.unpack(weights) }, { grad_outputs = dy })
  local ref = accel.grad(want, { x, table.unpack(copies) }, { grad_outputs = dy })
  same(got[1], ref[1], what .. ", gradient of x")
  for i = 2, #got do
    assert(got[i].dtype == "f32", what)
    same(got[i]:to "bf16", ref[i], what .. ", gradient of weight " .. i - 1)
  end
end

local x = leaf(accel.randn(ROWS, IN):to "bf16")
local x3 = leaf(accel.randn(3, 64, IN):to "bf16")
local turned = leaf(accel.randn(64, 3, IN):to "bf16")
local bias = accel.randn(OUT):to "bf16"
local full = accel.randn(ROWS, OUT):to "bf16"
local w, wt = leaf(accel.randn(OUT, IN)), leaf(accel.randn(IN, OUT))
local w2, w2t = leaf(accel.randn(IN, OUT)), leaf(accel.randn(OUT, IN))
local apart = leaf(accel.randn(IN, OUT):t()) -- a leaf that does not lie in rows

compare("linear", x, { w }, accel.linear)
compare("linear with bias", x, { w }, function(a, b) return accel.linear(a, b, bias) end)
compare("linear of 3 dims", x3, { w }, accel.linear)
compare("linear of permuted rows", turned, { w }, function(a, b) return accel.linear(a:transpose(1, 2), b) end)
compare("linear, weight by columns", x, { apart }, accel.linear)
compare("addmm", x, { wt }, function(a, b) return accel.addmm(bias, a, b) end)
compare("addmm with factors", x, { wt }, function(a, b) return accel.addmm(full, a, b, { beta = 0.5, alpha = 2 }) end)
compare("addmm of 3 dims", x3, { wt }, function(a, b) return accel.addmm(bias, a, b) end)
for _, act in ipairs { "gelu", "gelu_tanh", "relu", "silu" } do
  compare("mlp " .. act, x, { w, w2 }, function(a, b, c) return accel.mlp(a, b, c, nil, nil, { activation = act }) end)
  compare("mlp transposed " .. act, x3, { wt, w2t },
    function(a, b, c) return accel.mlp(a, b, c, bias, nil, { activation = act, transposed = true }) end)
end

-- recompute meets what it met: the same bits, also of weights that were used before the region, and are again in it
do
  local function block(a) return accel.linear(accel.linear(accel.linear(accel.linear(a, w), w2), w), w2) end
  local function before(a) return accel.linear(accel.linear(accel.linear(a, w), w2), w):narrow(2, 1, IN) end
  local y = lowered(function() return block(before(x)) end)
  local z = lowered(function() return accel.checkpoint(block, before(x)) end)
  same(z, y, "recompute")
  local got, want = accel.grad(z:float():sum(), { x, w, w2 }), accel.grad(y:float():sum(), { x, w, w2 })
  same(got[1], want[1], "recompute, gradient of x")
  for i = 2, 3 do -- of some uses summed in bf16, of others in f32
    local off = (got[i] - want[i]):abs():max():item() / want[i]:abs():max():item()
    assert(off < 0.02, off)
  end
end

-- gradients of gradients, also of what has no elements
do
  local function penalty(f)
    local dx = accel.grad(f():float():square():sum(), { x }, { create_graph = true })[1]
    return accel.grad(dx:float():square():sum(), { w, w2 })
  end
  local function net(a) return accel.mlp(a, w, w2, nil, nil, { activation = "silu" }) end
  local got = penalty(function() return lowered(net, x) end)
  local want = penalty(function() return accel.mlp(x:float(), w, w2, nil, nil, { activation = "silu" }) end)
  for i, g in ipairs(got) do
    assert(g.dtype == "f32")
    local off = (g - want[i]):abs():max():item() / want[i]:abs():max():item()
    assert(off < 0.05, off)
  end
  local none = leaf(accel.randn(0, IN))
  local y = lowered(accel.linear, x3, none)
  assert(accel.json.encode(y.shape) == "[3,64,0]")
  local dx = accel.grad(y:float():sum(), { x3 }, { create_graph = true })[1]
  assert(dx:float():abs():sum():item() == 0)
  local dw = accel.grad(dx:float():sum(), { none })[1]
  assert(accel.json.encode(dw.shape) == accel.json.encode(none.shape))
  for _, dtype in ipairs { "f32", "bf16" } do -- as does plain mlp
    local a, b, c = leaf(accel.randn(2, 3, 5):to(dtype)), leaf(accel.randn(0, 5):to(dtype)), leaf(accel.randn(4, 0):to(dtype))
    local g = accel.grad(accel.mlp(a, b, c):sum(), { a, b, c })
    assert(g[1]:abs():sum():item() == 0 and accel.json.encode(g[3].shape) == "[4,0]")
  end
end

-- outside of a region the dtypes have to agree
for name, f in accel.pairs {
  linear = function() return accel.linear(x, w) end,
  addmm = function() return accel.addmm(bias, x, wt) end,
  mlp = function() return accel.mlp(x, w, w2) end,
} do
  local ok, e = pcall(f)
  assert(not ok and tostring(e):find("cast one of them", 1, true), name .. ": " .. tostring(e))
end

-- a weight that changed before backward is refused, or, where a copy was made, counts as it was: never as it is
do
  local v = leaf(accel.randn(OUT, IN))
  local function dx(change)
    local y = lowered(accel.linear, x, v)
    if change then accel.no_grad(function() v:mul_(2) end) end
    return accel.grad(y:float():sum(), { x })[1]
  end
  local want = dx(false)
  local ok, got = pcall(dx, true)
  if ok then same(got, want, "changed weight")
  else assert(tostring(got):find("changed in place", 1, true), tostring(got)) end
end
print "ok"
