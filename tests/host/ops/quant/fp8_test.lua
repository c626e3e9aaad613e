--- fp8_cast, scaled_mm, fp8_update_scale_: values against plain ops in f64, edges of the formats, what is refused.
-- tier: memory
local accel = require "accel"

local MOST = { e4m3 = 448, e5m2 = 57344 }
local inf, nan = 1 / 0, 0 / 0

local function says(text, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(text, 1, true), ("expected '%s', got %s"):format(text, tostring(err)))
end

accel.manual_seed(5)
for format, most in accel.pairs(MOST) do
  -- scales of the tensor at hand: amax lands on the largest number, or below it where scales are powers of two
  for _, dtype in ipairs { "f32", "bf16", "f16" } do
    local x = (accel.randn(33, 70) * 3):to(dtype)
    local amax = x:to("f64"):abs():max():item()
    local y, inverse = accel.fp8_cast(x, nil, nil, format)
    local scale = accel.tensor({ most / amax }, { dtype = "f64" }):to "f32"
    assert(inverse:item() == (1 / scale):item() and y.dtype == "f8_" .. format)
    assert(accel.equal(y:to "f32", (x:to "f32" * scale):clamp(-most, most):to("f8_" .. format):to "f32"))
    local _, power = accel.fp8_cast(x, nil, nil, format, true)
    local exponent = math.log(power:item(), 2)
    assert(exponent == math.floor(exponent) and power:item() >= inverse:item() and power:item() < 2 * inverse:item())
    -- strides change nothing
    local turned, again = accel.fp8_cast(x:t(), nil, nil, format)
    assert(again:item() == inverse:item() and accel.equal(turned:to "f32", y:to("f32"):t()))
  end
  -- a scale that is given: what is too large is cut, infinity too, NaN stays; amax is kept where it is larger
  local amax = accel.full({ 1 }, 2.0)
  local x = accel.tensor { 1.5, -inf, inf, 1e30, nan, -0.0 }
  local y, inverse = accel.fp8_cast(x, accel.full({ 1 }, 8.0), amax, format)
  local got = y:to("f32"):tolist()
  assert(got[1] == 12 and got[2] == -most and got[3] == most and got[4] == most and got[5] ~= got[5] and 1 / got[6] == -inf)
  assert(inverse:item() == 0.125 and amax:item() == inf)
  amax:fill_(2)
  accel.fp8_cast(accel.tensor { 1.5, nan }, accel.ones(1), amax, format)
  assert(amax:item() == 2)
  accel.fp8_cast(accel.tensor { 1.5, -3 }, accel.ones(1), amax, format)
  assert(amax:item() == 3)
  -- of zeros the scale is that of 1e-12, as torchao's; it stays finite
  local _, none = accel.fp8_cast(accel.zeros(3), nil, nil, format)
  assert(math.abs(none:item() * most / 1e-12 - 1) < 1e-6)
end

-- products of every layout and pair of formats equal those of the values in f64
for _, pair in ipairs { { "e4m3", "e4m3" }, { "e5m2", "e4m3" }, { "e4m3", "e5m2" }, { "e5m2", "e5m2" } } do
  local x, sx = accel.fp8_cast(accel.randn(37, 48), nil, nil, pair[1])
  local w, sw = accel.fp8_cast(accel.randn(29, 48), nil, nil, pair[2])
  local bias = accel.randn(29)
  local function value(t, s) return t:to "f64" * s:to "f64" end
  local want = value(x, sx):matmul(value(w, sw):t())
  local function check(got, expected, bar)
    local off = (got:to "f64" - expected):abs():max():item()
    assert(off <= bar * (1 + expected:abs():max():item()), ("%s %s: off by %g"):format(pair[1], pair[2], off))
  end
  check(accel.scaled_mm(x, w:t(), sx, sw, { dtype = "f32" }), want, 3e-7)
  check(accel.scaled_mm(x, w:t(), sx, sw, bias, "f32"), want + bias:to "f64", 3e-7)
  check(accel.scaled_mm(x, w:t(), sx, sw, bias:to "bf16"), want + bias:to("bf16"):to "f64", 2 ^ -8)
  check(accel.scaled_mm(x, w:t(), sx, sw, nil, "f16"), want, 2 ^ -11)
  check(accel.scaled_mm(w, x:t(), sw, sx, nil, "f32"), want:t(), 3e-7)
  check(accel.scaled_mm(x:t(), x, sx, sx, nil, "f32"), value(x, sx):t():matmul(value(x, sx)), 3e-7)
  local part = x:narrow(2, 5, 20) -- rows that lie apart
  check(accel.scaled_mm(part, w:narrow(2, 5, 20):t(), sx, sw, nil, "f32"), value(part, sx):matmul(value(w:narrow(2, 5, 20), sw):t()), 3e-7)
end
-- the scale is applied to the sum, not to its rounded value
do
  local one, s = accel.ones(1, 1):to "f8_e4m3", accel.full({ 1 }, 1 + 2 ^ -20)
  assert(accel.scaled_mm(one, one, s, accel.full({ 1 }, 256.0), accel.full({ 1 }, -256.0), "f32"):item() == 2 ^ -12)
end

-- histories: the formula, written out
local function reference(scale, history, most, margin, recent)
  local amax = history[1]
  for r = 2, recent and 1 or #history do amax = math.max(amax, history[r]) end
  local new = scale
  if amax > 0 and amax < inf then
    new = accel.tensor({ most / 2.0 ^ margin }):div(accel.tensor({ amax })):item()
    if new == inf then new = 3.4028234663852886e38 end
  end
  local moved = { 0 }
  for r = 3, #history do moved[r - 1] = history[r] end
  if #history > 1 then moved[#history] = history[1] end
  return new, moved
end
for _, recent in ipairs { true, false } do
  for rows = 1, 5 do
    local columns = {}
    for i, amax in ipairs { 3.0, 0.0, inf, 1e-40, 7.25 } do
      columns[i] = { amax }
      for r = 2, rows do columns[i][r] = i == 3 and inf or (i * r * 0.37) % 5 * (i == 4 and 1e-40 or 1.0) end
    end
    local s, h = accel.arange(1, 6):to "f32", accel.tensor(columns, { dtype = "f32" }):t():contiguous()
    local read = h:t():tolist()
    accel.fp8_update_scale_(s, h, 448, 3, recent)
    for i = 1, 5 do
      local want, moved = reference(i, read[i], 448, 3, recent)
      assert(s[i]:item() == want, ("column %d of %d rows: %.9g, not %.9g"):format(i, rows, s[i]:item(), want))
      for r = 1, rows do assert(h[r][i]:item() == moved[r]) end
    end
  end
end

says("x must be f32, f16 or bf16, not f64", accel.fp8_cast, accel.ones(2, { dtype = "f64" }))
says("scale must be one f32", accel.fp8_cast, accel.ones(2), accel.ones(2))
says("amax must be one f32", accel.fp8_cast, accel.ones(2), accel.ones(1), accel.ones(1, { dtype = "bf16" }))
says("needs matrices of f8_e4m3 or f8_e5m2, which fp8_cast makes", accel.scaled_mm, accel.ones(2, 2), accel.ones(2, 2), accel.ones(1), accel.ones(1))
local e = accel.ones(2, 3):to "f8_e4m3"
says("cannot be multiplied: 3 and 2 must be equal", accel.scaled_mm, e, e, accel.ones(1), accel.ones(1))
says("results are f32, f16 or bf16", accel.scaled_mm, e, e:t(), accel.ones(1), accel.ones(1), nil, "f64")
says("bias must be (2)", accel.scaled_mm, e, e:t(), accel.ones(1), accel.ones(1), accel.ones(3))
says("needs scale (n) and history (rows, n)", accel.fp8_update_scale_, accel.ones(2), accel.ones(2, 3), 448)
says("fp8_max must be above 0", accel.fp8_update_scale_, accel.ones(2), accel.ones(2, 2), 0)
