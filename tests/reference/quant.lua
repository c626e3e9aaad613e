-- What bitsandbytes computes on a CPU: packed bytes, scales, nested states, dequantised values, products, 8-bit optimizers.
--   accel-run tests/reference/quant.lua DIR
-- DIR holds manifest.json and four_bit, linear4, int8, blockwise, optim8.safetensors; bars are those of its README. Prints the first
-- failures and ends with "N passed, M failed"; exit status 1 if anything failed.
local accel = require "accel"

local SHOWN <const> = 30
local dir = arg[1]
if not dir then
  io.stderr:write "usage: accel-run tests/reference/quant.lua DIR\n"
  os.exit(2)
end

local passed, failures, faults = 0, {}, 0
local function finish()
  if faults > 0 then print(("NOTE %d rows of wrong values in the reference, not compared"):format(faults)) end
  for i = 1, math.min(SHOWN, #failures) do print("FAIL " .. failures[i]) end
  print(("%d passed, %d failed"):format(passed, #failures))
  os.exit(#failures == 0 and 0 or 1, true)
end
local function check(name, ok, detail)
  if ok then passed = passed + 1 else failures[#failures + 1] = ("%s: %s"):format(name, detail or "differs") end
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end
local ok, manifest = pcall(function() return accel.json.decode(read(dir .. "/manifest.json")) end)
if not ok then
  failures[1] = tostring(manifest)
  finish()
end

local SHORT <const> = { float32 = "f32", float16 = "f16", bfloat16 = "bf16" }

-- The number of elements in which two tensors differ; NaN and a differing shape count as all.
local function differing(a, b)
  if not a or not b or a:numel() ~= b:numel() then return math.huge end
  if a:numel() == 0 then return 0 end
  return a:reshape(-1):to("f64"):ne(b:reshape(-1):to("f64")):sum():item()
end
local function equal(name, a, b)
  local n = differing(a, b)
  check(name, n == 0, ("%s elements of %d differ"):format(n, b and b:numel() or 0))
end
-- Largest difference, divided by the largest magnitude of b.
local function distance(a, b)
  local x, y = a:to "f64", b:to "f64"
  return (x - y):abs():max():item() / math.max(y:abs():max():item(), 1e-30)
end
local function near(name, a, b, bar)
  local d = distance(a, b)
  check(name, d <= bar, ("%.3g, bar %.3g"):format(d, bar))
end

-- ---- 4 bits ----
local function halves(packed)
  local bytes, out = packed:reshape(-1):tolist(), {}
  for i, b in ipairs(bytes) do out[2 * i - 1], out[2 * i] = b >> 4, b & 15 end
  return out
end

-- FP4: where two codes are equally near either is right.
local function ties_only(case, x, mine, theirs, absmax)
  local map, a, b, v = accel.quant_map(case.quant_type):tolist(), halves(mine), halves(theirs), x:to("f64"):reshape(-1):tolist()
  local most = absmax:tolist()
  for i = 1, #v do
    if a[i] ~= b[i] then
      local m = most[(i - 1) // case.blocksize + 1]
      local da, db = math.abs(v[i] - map[a[i] + 1] * m), math.abs(v[i] - map[b[i] + 1] * m)
      if math.abs(da - db) > 1e-6 * m then return false end
    end
  end
  return true
end

-- bitsandbytes 0.50 with AVX-512 takes a wrong absmax where rows are not a whole number of blocks: its values are farther from the input
-- than any code of the type is. Such rows are noted and compared with nothing.
local function wrong(case, x, theirs, absmax)
  local v, t, most = x:to("f64"):reshape(-1):tolist(), theirs:to("f64"):reshape(-1):tolist(), absmax:tolist()
  for i = 1, #v do
    if math.abs(v[i] - t[i]) > 0.25 * most[(i - 1) // case.blocksize + 1] then return true end
  end
  return false
end

local function four_bit()
  local T = accel.load(dir .. "/four_bit.safetensors")
  for _, kind in ipairs { "nf4", "fp4" } do equal("table " .. kind, accel.quant_map(kind), T["table." .. kind]) end
  for _, case in ipairs(manifest.four_bit) do
    local n, x = case.name, T[case.input]
    local q = accel.quantize_4bit(x, case.quant_type, case.blocksize, case.compress_statistics)
    local values = q:quant_part "values"
    if case.quant_type == "nf4" then
      equal(n .. " packed", values, T[n .. ".packed"])
    else
      local plain = accel.quantize_4bit(x, case.quant_type, case.blocksize)
      check(n .. " packed", ties_only(case, x, values, T[n .. ".packed"], plain:quant_part "absmax"), "a farther code")
      values:copy_(T[n .. ".packed"]:reshape(-1)) -- what follows is compared for the same codes
    end
    equal(n .. " absmax", q:quant_part "absmax", T[n .. ".absmax"])
    if case.compress_statistics then
      equal(n .. " nested absmax", q:quant_part "nested_absmax", T[n .. ".nested_absmax"])
      equal(n .. " offset", q:quant_part "offset", T[n .. ".offset"])
    end
    local y = q:dequantize()
    local plain = accel.quantize_4bit(x, case.quant_type, case.blocksize):quant_part "absmax"
    if case.shape[#case.shape] % case.blocksize ~= 0 and wrong(case, x, T[n .. ".dequantized"], plain) then
      faults = faults + 1
    else
      equal(n .. " dequantized", y, T[n .. ".dequantized"])
    end
    check(n .. " shape", y.shape == x.shape and y.dtype == x.dtype, tostring(y.shape))
    local files = accel.quant.state_dict_of("w", q)
    equal(n .. " state", files["w.quant_state.bitsandbytes__" .. case.quant_type], T[n .. ".packed_state"])
    local keys = {}
    for key in pairs(files) do keys[#keys + 1] = key ~= "w" and key:sub(3) or nil end
    table.sort(keys)
    check(n .. " keys", table.concat(keys, " ") == table.concat(case.state_dict_keys, " "), table.concat(keys, " "))
    local again = accel.quant.from_state_dict("w", files)
    equal(n .. " read again", again:dequantize(), y)
  end
end

local function linear4()
  local T = accel.load(dir .. "/linear4.safetensors")
  for _, case in ipairs(manifest.linear4) do
    local n, dtype = case.name, SHORT[case.dtype]
    local w = T[n .. ".weight"]
    local layer = accel.nn.Linear4bit(w.shape[2], w.shape[1], {
      compute_dtype = dtype, quant_type = case.quant_type, compress_statistics = case.compress_statistics,
    })
    layer:load_state_dict { weight = w, bias = T[n .. ".bias"] }
    local bar = dtype == "f32" and 1e-6 or 5e-3
    local x, theirs_y = T[n .. ".x"], T[n .. ".y"]
    local theirs = {} -- their file, in our layer
    for key in pairs(case.state_dict) do theirs[key] = T[n .. ".state/" .. key] end
    local other = accel.nn.Linear4bit(w.shape[2], w.shape[1], { compute_dtype = dtype, quant_type = case.quant_type })
    other:load_state_dict(theirs)
    -- where rows are no whole blocks, what was recorded may be no product of x with the values of its own state
    local product = accel.linear(x:to "f32", other.weight:dequantize "f32", T[n .. ".bias"]:to "f32")
    local compared = w.shape[2] % case.blocksize == 0 or distance(theirs_y, product) <= bar
    if not compared then faults = faults + 1 end
    near(n .. " y", layer(x), compared and theirs_y or product, bar)
    near(n .. " y of their state", other(x), compared and theirs_y or product, bar)
    local state = layer:state_dict()
    for key, info in pairs(case.state_dict) do
      local mine, theirs = state[key], T[n .. ".state/" .. key]
      check(n .. " " .. key, mine and mine.shape == info[1], mine and tostring(mine.shape) or "missing")
      if key ~= "bias" and not (key == "weight" and case.quant_type == "fp4") then equal(n .. " " .. key .. " values", mine, theirs) end
    end
    for key in pairs(state) do check(n .. " " .. key .. " known", case.state_dict[key] ~= nil, "not in the reference") end
  end
end

-- ---- int8 ----
local function int8()
  local T = accel.load(dir .. "/int8.safetensors")
  local bars = { f16 = 2e-3, bf16 = 7e-3, f32 = 1e-3 }
  for _, case in ipairs(manifest.int8) do
    local n, dtype = case.name, SHORT[case.dtype]
    local x, w, bias = T[n .. ".x"], T[n .. ".w"], T[n .. ".bias"]
    for _, threshold in ipairs { 0, 6 } do
      local key = ("%s.vec%d"):format(n, threshold)
      if case.results["vec" .. threshold] == "ok" then
        local q, stats, outliers = accel.int8_vectorwise_quant(x, threshold)
        equal(key .. " q", q, T[key .. ".q"])
        equal(key .. " stats", stats, T[key .. ".stats"])
        if T[key .. ".outlier_cols"] then equal(key .. " outliers", outliers:nonzero(), T[key .. ".outlier_cols"]) end
      end
      local linear = ("%s.linear%d"):format(n, threshold)
      if T[linear .. ".y"] then
        local layer = accel.nn.Linear8bitLt(w.shape[2], w.shape[1], { threshold = threshold })
        layer:load_state_dict { weight = w, bias = bias }
        layer.bias = accel.nn.Parameter(bias:clone(), false)
        near(linear .. " y", layer(x), T[linear .. ".y"], bars[dtype])
        equal(linear .. " CB", layer.weight:quant_part "values", T[linear .. ".CB"])
        equal(linear .. " SCB", layer.weight:quant_part "absmax", T[linear .. ".SCB"])
        local state = layer:state_dict()
        for name, info in pairs(case.state_dict) do
          check(("%s %s"):format(linear, name), state[name] and state[name].shape == info[1], "missing or of another shape")
        end
      end
    end
    if case.results.matmul == "ok" then
      local qx, sx = accel.int8_vectorwise_quant(x:to "f16")
      local qw, sw = accel.int8_vectorwise_quant(w:to "f16")
      equal(n .. " wq", qw, T[n .. ".wq"])
      equal(n .. " wstats", sw, T[n .. ".wstats"])
      local i32 = accel.matmul(qx:to "i32", qw:to("i32"):t())
      equal(n .. " i32", i32, T[n .. ".i32"])
      local scaled = i32:to "f32" * (sx:reshape(-1, 1) * sw:reshape(1, -1)) / 127 ^ 2 + bias:to "f16":to "f32"
      near(n .. " mm_dequant", scaled, T[n .. ".mm_dequant"], 1e-3)
      near(n .. " vec_dequant", qx:to "f32" * sx:reshape(-1, 1) / 127, T[n .. ".vec_dequant"], 1e-3)
    end
  end
end

-- ---- 8 bits by block ----
local function blockwise()
  local T = accel.load(dir .. "/blockwise.safetensors")
  equal("signed map", accel.quant_map "dynamic", T["dynamic_map.signed"])
  equal("unsigned map", accel.quant_map "udynamic", T["dynamic_map.unsigned"])
  for _, case in ipairs(manifest.blockwise) do
    local n = case.name
    local q = accel.quantize_dynamic(T[n .. ".x"], { blocksize = case.blocksize, signed = case.code == "signed", nested = case.nested })
    equal(n .. " q", q:quant_part "values", T[n .. ".q"])
    equal(n .. " absmax", q:quant_part "absmax", T[n .. ".absmax"])
    if case.nested then
      equal(n .. " nested absmax", q:quant_part "nested_absmax", T[n .. ".nested_absmax"])
      equal(n .. " offset", q:quant_part "offset", T[n .. ".offset"])
    end
    equal(n .. " dequantized", q:dequantize(T[n .. ".dequantized"].dtype), T[n .. ".dequantized"])
  end
end

-- ---- 8-bit optimizers: every step within 1e-4 of the largest update, which is a spacing of f32 of the parameters (seen: 7e-5, over three
-- seeds); codes of the states equal but for single ones ----
local function optimizers()
  local T = accel.load(dir .. "/optim8.safetensors")
  for _, case in ipairs(manifest.optim8) do
    local n = case.name
    local p = accel.nn.Parameter(T[n .. ".param0"]:clone())
    local o = accel.optim[case.class]({ p }, case.options)
    for t = 1, case.steps do
      p.grad = T[("%s.grad%d"):format(n, t - 1)]
      o:step()
      local before, after = T[("%s.param%d"):format(n, t - 1)], T[("%s.param%d"):format(n, t)]
      local largest = (after - before):abs():max():item()
      local off = (p:detach() - after):abs():max():item() / largest
      check(("%s step %d"):format(n, t), off <= 1e-4, ("%.3g of the largest update"):format(off))
    end
    local state = o.state[p]
    for _, key in ipairs { "state1", "state2", "absmax1", "absmax2", "state3", "absmax3" } do
      local theirs = T[("%s.state.%s"):format(n, key)]
      if case.class:find "AdEMAMix" and key:find "[13]$" then -- there the two means of the gradient stand in one tensor
        theirs = T[("%s.state.%s"):format(n, key:gsub("3", "1"))][key:find "1" and 1 or 2]
      end
      if theirs and state[key] then
        if theirs.dtype == "u8" then
          local d = differing(state[key], theirs) / theirs:numel()
          check(("%s %s"):format(n, key), d <= 1e-3, ("%.3g of the codes differ"):format(d))
        else
          near(("%s %s"):format(n, key), state[key]:reshape(-1), theirs:reshape(-1), 1e-5)
        end
      elseif theirs then
        check(("%s %s"):format(n, key), false, "there is none")
      end
    end
  end
end

for _, part in ipairs { { "four_bit", four_bit }, { "linear4", linear4 }, { "int8", int8 }, { "blockwise", blockwise }, { "optim8", optimizers } } do
  local fine, message = xpcall(part[2], debug.traceback)
  if not fine then check(part[1], false, message) end
end
finish()
