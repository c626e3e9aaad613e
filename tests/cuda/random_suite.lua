-- Random calls of convolutions, pools, patches, resizing, norms and softmax on CUDA against the CPU: results and gradients, shapes and
-- options that nobody chose, operands at odd offsets of their storage.
--   accel-run tests/cuda/random_suite.lua [SEED [CALLS [KIND]]]
-- Runs as ops_suite.lua does.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local EPS = require("numbers").EPS
local seed, calls, only = tonumber(arg[1]) or 1, tonumber(arg[2]) or 350, arg[3]
local BAR = { f32 = 64, f64 = 64, bf16 = 8, f16 = 8 } -- roundings
local MORE = suite.emulated and 1 or 17 -- times as many channels where tiles are of their true size
math.randomseed(seed)
local R = math.random

local function pick(t) return t[R(#t)] end
local function channels(most) return R(most) * pick { 1, 1, MORE } end
-- Options as text, in one order.
local function text(t)
  local s = {}
  for k, v in pairs(t) do s[#s + 1] = k .. "=" .. (type(v) == "table" and "{" .. table.concat(v, ",") .. "}" or tostring(v)) end
  return table.concat(s, " ")
end

-- On the device, now and then behind a few elements of other things.
local function moved(t)
  local n, k = t:numel(), R(0, 3)
  if R() < 0.5 then return t:to "cuda" end
  local flat = accel.zeros(n + k, { dtype = t.dtype, device = "cuda" })
  if n > 0 then flat:narrow(1, k + 1, n):copy_(t:reshape(n):to "cuda") end
  return flat:narrow(1, k + 1, n):view(t.shape):detach()
end

-- f(tensors) and its gradients on both devices. scales[i]: of the terms of sums that may cancel in gradient i; in 16 bits sums are made in
-- f32, and only what is left is rounded.
local function both(inputs, dtype, f, what, scales)
  local got = {}
  for _, device in ipairs { "cpu", "cuda" } do
    local t = {}
    for i, x in ipairs(inputs) do
      t[i] = device == "cpu" and x:clone():detach() or moved(x)
      t[i].requires_grad = true
    end
    local y = f(t)
    accel.manual_seed(9)
    local dy = accel.rand(y.shape, { dtype = y.dtype, device = "cpu" }):to(device)
    got[device] = { y:detach(), table.unpack(accel.grad(y, t, { grad_outputs = dy })) }
  end
  for i, want in ipairs(got.cpu) do
    local bar, scale = BAR[want.dtype], scales and scales[i - 1]
    if scale and bar < BAR.f32 then scale = scale * BAR.f32 * EPS.f32 / (bar * EPS[want.dtype]) end
    local e, why = suite.roundings(got.cuda[i], want, scale)
    assert(e <= bar, ("%s%s: error of %.3g roundings, bar %d%s"):format(what, i > 1 and " gradient " .. i - 1 or "", e, bar,
      why and " (" .. why .. ")" or ""))
  end
end

-- Gradients by the input of a norm are differences of terms as large as its steepest line's 1 / deviation (x: lines first).
local function steepest(x)
  local d = x:to "f64":reshape(x.shape[1], -1)
  d = d - d:mean(2, true)
  return math.max(1, (d * d):mean(2):add(1e-5):rsqrt():max():item())
end

-- Gradients by its weight sum over a channel's members, each with the error of the mean.
local function members_of(x) return x:numel() / x.shape[2] / 16 end

local kinds = {}
function kinds.conv()
  local n = R(3)
  local groups = pick { 1, 1, 2, 3 }
  local ci, co = channels(5), channels(20)
  local dtype = pick { "f32", "f32", "f64", "bf16", "f16" }
  local xs, ws, st, pad, dil = { R(1, 3), ci * groups }, { co * groups, ci }, {}, {}, {}
  for d = 1, n do
    local k = R(1, 4)
    st[d], pad[d], dil[d] = R(1, 4), R(0, 3), R(1, 3)
    ws[#ws + 1] = k
    xs[#xs + 1] = math.max(R(1, n == 3 and 6 or 11), dil[d] * (k - 1) + 1 - 2 * pad[d])
  end
  local o = { stride = st, padding = pad, dilation = dil, groups = groups }
  local x, w, b = accel.randn(xs):to(dtype), accel.randn(ws):to(dtype), accel.randn(co * groups):to(dtype)
  both({ x, w, b }, dtype, function(t) return accel["conv" .. n .. "d"](t[1], t[2], t[3], o) end,
    text(o) .. " " .. text { x = xs, w = ws, dt = dtype })
end
function kinds.transposed()
  local n = R(3)
  local groups = pick { 1, 1, 2, 3 }
  local ci, co = channels(9), channels(6)
  local dtype = pick { "f32", "f64", "bf16" }
  local xs, ws, st, pad, dil, more = { R(1, 3), ci * groups }, { ci * groups, co }, {}, {}, {}, {}
  for d = 1, n do
    local k = R(1, 4)
    st[d], dil[d] = R(1, 4), R(1, 3)
    local l = R(1, n == 3 and 4 or 7)
    local span = (l - 1) * st[d] + dil[d] * (k - 1) + 1
    pad[d] = R(0, math.min(3, (span - 1) // 2))
    more[d] = R(0, math.max(st[d], dil[d]) - 1)
    ws[#ws + 1] = k
    xs[#xs + 1] = l
  end
  local o = { stride = st, padding = pad, dilation = dil, groups = groups, output_padding = more }
  local x, w, b = accel.randn(xs):to(dtype), accel.randn(ws):to(dtype), accel.randn(co * groups):to(dtype)
  both({ x, w, b }, dtype, function(t) return accel["conv_transpose" .. n .. "d"](t[1], t[2], t[3], o) end,
    text(o) .. " " .. text { x = xs, w = ws, dt = dtype })
end
function kinds.pool()
  local n = R(2)
  local dtype = pick { "f32", "f64", "bf16" }
  local xs = { R(1, 3), R(1, 4) }
  local k, st, pad, dil = {}, {}, {}, {}
  local op = pick { "max", "avg", "amax", "aavg" }
  for d = 1, n do
    k[d] = R(1, op == "avg" and pick { 4, 12 } or 4)
    st[d], dil[d] = R(1, 4), op == "max" and R(1, 3) or 1
    pad[d] = R(0, k[d] // 2)
    xs[#xs + 1] = math.max(R(1, 30), dil[d] * (k[d] - 1) + 1)
  end
  local x = accel.randn(xs):mul(2):round():to(dtype) -- with ties
  local o = { stride = st, padding = pad, ceil_mode = R() < 0.5 }
  if op == "max" then o.dilation = dil elseif op == "avg" then o.count_include_pad = R() < 0.5 end
  local what = text(o) .. " " .. text { k = k, x = xs, dt = dtype, op = op }
  if op == "max" then both({ x }, dtype, function(t) return (accel["max_pool" .. n .. "d"](t[1], k, o)) end, what)
  elseif op == "avg" then both({ x }, dtype, function(t) return accel["avg_pool" .. n .. "d"](t[1], k, o) end, what)
  else
    for d = 1, n do k[d] = R(1, 7) end
    both({ x }, dtype, function(t) return (accel["adaptive_" .. op:sub(2) .. "_pool" .. n .. "d"](t[1], k)) end, what)
  end
end
function kinds.patches()
  local dtype = pick { "f32", "f64", "bf16" }
  local k, o, xs = {}, { dilation = {}, padding = {}, stride = {} }, { R(1, 3), R(1, 4) }
  for d = 1, 2 do
    k[d] = R(1, 4)
    o.dilation[d], o.padding[d], o.stride[d] = R(1, 3), R(0, 3), R(1, 4)
    xs[#xs + 1] = math.max(R(1, 9), o.dilation[d] * (k[d] - 1) + 1)
  end
  both({ accel.randn(xs):to(dtype) }, dtype, function(t) return accel.unfold(t[1], k, o) end, text(o) .. " " .. text { x = xs, k = k })
end
function kinds.resize()
  local n = R(3)
  local mode = pick(n == 1 and { "linear", "nearest", "area", "nearest_exact" } or n == 2 and { "bilinear", "bicubic", "area", "nearest" }
    or { "trilinear", "area", "nearest" })
  local dtype = pick { "f32", "f64", "bf16" }
  local xs, o = { R(1, 2), R(1, 6) }, { mode = mode }
  local size, factor = {}, {}
  for d = 1, n do
    xs[#xs + 1] = R(1, n == 3 and 6 or 14)
    size[d] = R(1, n == 3 and 8 or 20)
    factor[d] = 0.3 + 3 * R()
    if xs[#xs] * factor[d] < 1 then factor[d] = 1.5 end
  end
  if R() < 0.5 then o.size = size else o.scale_factor = factor end
  if mode ~= "area" and not mode:find "nearest" then o.align_corners = R() < 0.4 end
  both({ accel.randn(xs):to(dtype) }, dtype, function(t) return t[1]:interpolate(o) end, text(o) .. " " .. text { x = xs, dt = dtype })
end
function kinds.channel()
  local dtype = pick { "f32", "f64", "bf16" }
  local groups, cg = R(1, 5), R(1, 9)
  local xs = { R(1, 9), groups * cg }
  for _ = 1, R(0, 2) do xs[#xs + 1] = pick { 1, 2, 3, 4, 8, 15, 16, 24, 32 } end
  local x = (accel.randn(xs) * 2 + 3):to(dtype)
  local wdt = dtype == "bf16" and pick { "bf16", "f32" } or dtype
  local w, b = accel.randn(xs[2]):to(wdt), accel.randn(xs[2]):to(wdt)
  local members = cg
  for d = 3, #xs do members = members * xs[d] end
  if R() < 0.5 then
    if members == 1 then return end
    both({ x, w, b }, dtype, function(t) return t[1]:group_norm(groups, t[2], t[3]) end, text { x = xs, groups = groups, dt = dtype },
      { steepest(x:reshape(xs[1] * groups, members)), members_of(x) })
  else
    local per = members // cg * xs[1]
    local train = per > 2
    local mean, var = accel.randn(xs[2]), accel.rand(xs[2]) + 0.5
    both({ x, w, b }, dtype, function(t)
      return t[1]:batch_norm(mean:to(t[1].device), var:to(t[1].device), t[2], t[3], { training = train })
    end, text { x = xs, dt = dtype, train = train }, { steepest(x:transpose(1, 2)), members_of(x) })
  end
end
function kinds.rows()
  local dtype = pick { "f32", "f64", "bf16", "f16" }
  local n = pick { MORE * 500, 1, 2, 3, 8, 16, 31, 64, 100, 128, 129, 200, 256, 264, 500, 512, 520, 1000 }
  local xs = { R(1, 40), n }
  local x = (accel.randn(xs) * 2 + 1):to(dtype)
  local wdt = (dtype == "bf16" or dtype == "f16") and pick { dtype, "f32" } or dtype
  local w, b = accel.randn(n):to(wdt), accel.randn(n):to(wdt)
  local op = pick { "layer", "layer", "rms", "add_layer", "add_rms", "softmax", "log_softmax", "layer_nb", "plain" }
  local what = text { x = xs, dt = dtype, wdt = wdt, op = op }
  local dim = pick { -1, -1, 1 }
  if n == 1 and op ~= "softmax" then return end
  local scales = { steepest(x) }
  if op == "layer" then both({ x, w, b }, dtype, function(t) return t[1]:layer_norm({ n }, t[2], t[3]) end, what, scales)
  elseif op == "layer_nb" then both({ x, w }, dtype, function(t) return t[1]:layer_norm({ n }, t[2]) end, what, scales)
  elseif op == "plain" then both({ x }, dtype, function(t) return t[1]:layer_norm { n } end, what, scales)
  elseif op == "add_layer" or op == "add_rms" then
    local residual = accel.randn(xs):to(wdt)
    local scale = op == "add_rms" and 1 or steepest(residual + x)
    both({ x, residual, w, op == "add_layer" and b or nil }, dtype, function(t)
      local y, sum = t[1][op .. "_norm"](t[1], t[2], { n }, table.unpack(t, 3))
      return y + sum
    end, what, { scale, scale })
  elseif op == "rms" then both({ x, w }, dtype, function(t) return t[1]:rms_norm({ n }, t[2]) end, what, { 1 })
  else both({ x }, dtype, function(t) return t[1][op](t[1], dim) end, what) end
end
local names = {}
for name in pairs(kinds) do names[#names + 1] = name end
if only then names = { only } end
for i = 1, calls do
  local name = names[(i - 1) % #names + 1]
  accel.manual_seed(seed * 1000 + i)
  local ok, why = pcall(kinds[name])
  if not ok then
    print(("FAIL %s, call %d of seed %d: %s"):format(name, i, seed, why))
    suite.failed = suite.failed + 1
  end
end
suite.finish(calls)
