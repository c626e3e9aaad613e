--- Blocks and rows with a NaN or an infinity: no quantiser makes a number of them. Random shapes, block sizes and places (ACCEL_TEST_SEED
--- repeats them), every instruction set, and all that quantises: 4 bits, the dynamic map, int8 rows, blocks that gradients travel in, GGUF's
--- blocks, products with quantised weights, states of 8 bits, the int8 cache of keys and values. Other blocks keep their bits.
--- tier: every change, memory
package.path = arg[0]:match("^(.*)/host/ops/quant/[^/]*$") .. "/support/?.lua;" .. package.path
local accel = require "accel"

if not arg[1] then
  local seed = os.getenv "ACCEL_TEST_SEED" or "11"
  print("ACCEL_TEST_SEED=" .. seed)
  for _, isa in ipairs(require "isas") do
    local command = ("ACCEL_CPU_ISA=%s '%s' '%s' %s"):format(isa, accel.process.program(), arg[0], seed)
    assert(os.execute(command), "ACCEL_TEST_SEED=" .. seed .. ", ACCEL_CPU_ISA=" .. isa)
  end
  return
end

math.randomseed(tonumber(arg[1]))
accel.manual_seed(tonumber(arg[1]))
local BAD <const> = { nan = 0 / 0, inf = 1 / 0, ["-inf"] = -1 / 0 }

--- Calls fn(clean, spoilt, first, last, bad) with n values, elements first .. last of the block or row of `size` that was spoilt.
local function cases(fn)
  for name, bad in accel.pairs(BAD) do
    for _ = 1, 4 do
      local size = 2 ^ math.random(5, 9) // 1 | 0
      local n = math.random(1, 4 * size)
      local clean = accel.randn(n)
      local spoilt, at = clean:clone(), math.random(0, n - 1)
      spoilt[at + 1]:fill_(bad)
      if bad == bad and math.random() < 0.5 then spoilt[at // size * size + 1]:fill_(bad) end
      local first = at // size * size
      fn(clean, spoilt, size, first, math.min(n, first + size), name)
    end
  end
end

--- What a quantiser made of both: nothing finite in the block, all else as before. nan: not even an infinity.
local function compare(what, clean, spoilt, first, last, nan)
  clean, spoilt = clean:reshape(-1), spoilt:reshape(-1)
  local block = spoilt:narrow(1, first + 1, last - first)
  assert(not block:isfinite():any():item(), ("%s: a finite number in the block %d .. %d"):format(what, first, last))
  if nan then assert(block:isnan():all():item(), what .. ": a number in a block with a NaN") end
  for _, part in ipairs { { 0, first }, { last, clean:numel() - last } } do
    if part[2] > 0 then
      assert(clean:narrow(1, part[1] + 1, part[2]):equal(spoilt:narrow(1, part[1] + 1, part[2])), what .. ": another block changed")
    end
  end
end

cases(function(clean, spoilt, size, first, last, bad)
  local function both(name, f, nan) compare(("%s of %d, %s"):format(name, size, bad), f(clean), f(spoilt), first, last, nan or bad == "nan") end
  for _, dtype in ipairs { "f32", "bf16", "f16" } do
    for _, kind in ipairs { "nf4", "fp4" } do
      both(kind .. dtype, function(x) return accel.quantize_4bit(x:to(dtype), kind, size):dequantize() end)
    end
    both("dynamic" .. dtype, function(x) return accel.quantize_dynamic(x:to(dtype), size):dequantize() end)
  end
  both("nf4 as bf16", function(x) return accel.quantize_4bit(x, "nf4", size):dequantize "bf16" end)
  both("unsigned", function(x) return accel.quantize_dynamic(x:square(), size, false):dequantize() end)
  for _, bits in ipairs { 4, 8 } do
    both("blockwise" .. bits, function(x)
      local q, scale = x:quantize_blockwise(bits, size)
      return accel.dequantize_blockwise(q, scale, { x:numel() }, bits, size)
    end, true)
  end
  -- nested: scales are stored relative to their mean, so that the whole tensor is lost, as in bitsandbytes
  local whole = accel.quantize_4bit(spoilt, "nf4", size, true):dequantize()
  assert(not whole:isfinite():any():item(), "nested")
end)

--- A weight with one bad row, and x with one bad row: what of a product comes of them is NaN, the rest has its bits.
for name, bad in accel.pairs(BAD) do
  for _, x_rows in ipairs { 1, 3, 130 } do
    local w, x = accel.randn(9, 128), accel.randn(x_rows, 128)
    local spoilt = w:clone()
    spoilt[4][math.random(128)]:fill_(bad)
    for kind, f in accel.pairs {
      int8 = accel.quantize_int8, nf4 = function(t) return accel.quantize_4bit(t, "nf4", 64) end,
      fp4 = function(t) return accel.quantize_4bit(t, "fp4", 64) end,
    } do
      for _, dtype in ipairs { "f32", "bf16" } do
        local good, lost = accel.linear_quantized(x:to(dtype), f(w)), accel.linear_quantized(x:to(dtype), f(spoilt))
        assert(not lost:select(2, 4):isfinite():any():item(), ("%s %s: product with a row of %s"):format(kind, dtype, name))
        for c = 1, 9 do assert(c == 4 or good:select(2, c):equal(lost:select(2, c)), kind .. ": another column changed") end
      end
    end
    if x_rows > 1 then
      local y = x:clone()
      y[2][5]:fill_(bad)
      for _, threshold in ipairs { 0, 6 } do
        local lost = accel.linear_quantized(y, accel.quantize_int8(w), nil, threshold)
        assert(not lost[2]:isfinite():any():item(), ("int8, threshold %d: x with %s"):format(threshold, name))
        assert(lost[1]:isfinite():all():item() or threshold > 0 and bad == bad, "another row of x was lost")
      end
    end
  end
  -- rows in int8
  local x = accel.randn(3, 40)
  x[2][7]:fill_(bad)
  compare("int8, " .. name, accel.quantize_int8(accel.where(x:isfinite(), x, 0)):dequantize(), accel.quantize_int8(x):dequantize(), 40, 80, true)
  local _, stats = accel.int8_vectorwise_quant(x)
  assert(not stats:isfinite()[2]:item() and stats:isfinite()[1]:item())
  _, stats = accel.int8_vectorwise_quant(x, 6)
  assert(stats:isfinite()[2]:item() == (bad == bad), "with a threshold an infinity is an outlier, a NaN is none")
  -- GGUF
  for _, kind in ipairs { "Q8_0", "Q4_0" } do
    local clean = accel.randn(2, 96)
    local lost = clean:clone()
    lost[2][40]:fill_(bad)
    local read = {}
    for k, t in ipairs { clean, lost } do
      read[k] = require "accel.file.core".gguf_quantize(t, kind == "Q8_0" and 8 or 2)
    end
    local bytes = kind == "Q8_0" and 34 or 18
    for b = 0, 5 do
      local a, c = read[1]:reshape(-1):narrow(1, b * bytes + 1, bytes), read[2]:reshape(-1):narrow(1, b * bytes + 1, bytes)
      if b == 4 then
        local scale = string.unpack("<I2", c:to_bytes())
        assert(scale & 0x7c00 == 0x7c00 and scale & 0x3ff ~= 0, kind .. ": the scale is not NaN")
      else
        assert(a:equal(c), kind .. ": another block changed")
      end
    end
  end
  -- states of 8 bits: the block of 256 is lost, and the others go on
  for _, make in ipairs { accel.optim.AdamW8bit, accel.optim.SGD8bit, accel.optim.Lion8bit } do
    local p = accel.zeros(8192, { requires_grad = true })
    local o = make({ p }, make == accel.optim.SGD8bit and { lr = 0.1, momentum = 0.9 } or { lr = 0.1 })
    for step = 1, 2 do
      p.grad = accel.ones(8192)
      if step == 1 then p.grad[300]:fill_(bad) end
      o:step()
    end
    local finite = p:detach():isfinite()
    -- Lion takes the sign of an infinity, as with states of f32
    local most = make == accel.optim.Lion8bit and bad == bad and 1 or 0
    assert(finite:narrow(1, 257, 256):sum():item() <= most, "a state of 8 bits forgot " .. name)
    assert(finite:narrow(1, 1, 256):all():item() and finite:narrow(1, 513, 512):all():item())
  end
  -- keys and values in int8
  local cache, kv = accel.models.QuantizedCache(1, { 1, 1, 4, 8 }), accel.randn(1, 1, 2, 8)
  kv[1][1][1][2]:fill_(bad)
  local k, v = cache:append(1, kv, kv)
  for _, t in ipairs { k, v } do
    assert(not t[1][1][1]:isfinite():any():item() and t[1][1][2]:isfinite():all():item(), "the cache forgot " .. name)
  end
end
