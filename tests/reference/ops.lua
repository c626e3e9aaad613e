-- Runs every case of a folder of reference results (see README.md here) whose op exists, in f64, f32, bf16 and f16, gradients included.
--   accel-run tests/reference/ops.lua DIR [--only NAME] [--verbose]
-- Prints what fails with its error and bar, then "N passed, M failed, K skipped"; exit status 1 if anything failed.
local accel = require "accel"
local here = (arg and arg[0] or ""):match("^(.*)/[^/]*$") or "."
package.path = here .. "/?.lua;" .. package.path
local adapters = require "ops_adapters"

local dir, only, verbose
do
  local i = 1
  while arg[i] do
    if arg[i] == "--only" then only, i = arg[i + 1], i + 1
    elseif arg[i] == "--verbose" then verbose = true
    elseif not dir then dir = arg[i]
    else io.stderr:write("unexpected argument '", arg[i], "'\n"); os.exit(2) end
    i = i + 1
  end
end
if not dir then
  io.stderr:write("usage: accel-run tests/reference/ops.lua DIR [--only NAME] [--verbose]\n")
  os.exit(2)
end
if not io.open(dir .. "/manifest.json") and io.open(dir .. "/ops/manifest.json") then dir = dir .. "/ops" end

-- The cases there are. A folder without them counts as one failure, in the same last line as any other.
local function read_cases(path)
  local f, why = io.open(path, "rb")
  local s = f and f:read "a"
  if f then f:close() end
  local ok, decoded, message = pcall(accel.json.decode, s or "")
  if s and ok and type(decoded) == "table" then return decoded end
  if s then why = path .. ": " .. tostring(decoded or message) end
  print(("FAIL %s: no reference results here (%s)"):format(dir, why))
  print "0 passed, 1 failed, 0 skipped"
  os.exit(1, true)
end

local manifest = read_cases(dir .. "/manifest.json")
local EPS = { f64 = 2.0 ^ -52, f32 = 2.0 ^ -23, bf16 = 2.0 ^ -7, f16 = 2.0 ^ -10 }
local FLOATS = { f64 = true, f32 = true, bf16 = true, f16 = true }

local files = {}
local function tensors_of(family)
  if not files[family] then files[family] = assert(accel.load(dir .. "/ops_" .. family .. ".safetensors")) end
  return files[family]
end

local F16_OVERFLOWS, F16_VANISHES = 65520.0, 2.0 ^ -25 -- round to infinity, to zero

-- Largest error on the scale of the largest finite magnitude of the reference (at least `floor`); infinities and NaN must agree exactly.
local function error_of(got, want, floor)
  if #got.shape ~= #want.shape then return math.huge, "rank " .. #got.shape .. " instead of " .. #want.shape end
  for d = 1, #want.shape do
    if got.shape[d] ~= want.shape[d] then return math.huge, "shape differs in dim " .. d end
  end
  local a = got:detach():to("f64"):reshape(-1):tolist()
  local b = want:to("f64"):reshape(-1):tolist()
  local worst, scale = 0.0, floor or 0.0
  for i = 1, #b do
    local x, y = a[i] + 0.0, b[i] + 0.0
    if got.dtype == "f16" and math.abs(y) >= F16_OVERFLOWS then y = y > 0 and math.huge or -math.huge end
    if got.dtype == "f16" and math.abs(y) <= F16_VANISHES then y = 0.0 end
    if y ~= y or y == math.huge or y == -math.huge then
      if not (x == y or (x ~= x and y ~= y)) then return math.huge, "element " .. i .. " is " .. x .. " instead of " .. y end
    else
      scale = math.max(scale, math.abs(y))
      local e = math.abs(x - y)
      if e ~= e then return math.huge, "element " .. i .. " is NaN" end
      worst = math.max(worst, e)
    end
  end
  return scale > 0 and worst / scale or worst
end

-- PyTorch's own error in a dtype of this width, or nil where it was not measured.
local function measured(case, dtype) return case.torch_error and case.torch_error[dtype == "f32" and "f32" or "bf16"] end

local function bar_of(case, dtype, what)
  if dtype == "f64" then return 1e-12 end
  local t = measured(case, dtype)
  local own = t and t[what] or 0
  return math.max(4 * own, 4 * EPS[dtype])
end

-- Positions of extremes: rounding to 16 bits makes ties, so what counts is that the element found is as large as the one expected.
local function same_pick(case, x, got, want)
  local d = case.kwargs.dim
  if d == nil then return false end
  d = d >= 0 and d + 1 or d
  if #got.shape < #x.shape then got, want = got:unsqueeze(d), want:unsqueeze(d) end
  return x:gather(d, got):eq(x:gather(d, want)):to("f32"):amin():item() == 1
end

-- Builds inputs in order of appearance, rounded to dtype and then, where asked, computed with in another.
local function build(case, data, dtype, compute)
  local inputs = {}
  local function value(v)
    if type(v) == "table" and v.tensor then
      local t = data[v.tensor]
      if FLOATS[t.dtype] then t = t:to(dtype):to(compute or dtype):detach():clone() else t = t:clone() end
      inputs[#inputs + 1] = t
      return t
    elseif v == "inf" then
      return math.huge
    elseif type(v) == "table" then
      local r = {}
      for i, x in ipairs(v) do r[i] = value(x) end
      return r
    end
    return v
  end
  local args, kwargs = {}, {}
  for i, v in ipairs(case.args) do args[i] = value(v) end
  -- kwargs tensors appear in the order of the manifest; every case has at most one
  for k, v in pairs(case.kwargs) do kwargs[k] = value(v) end
  return args, kwargs, inputs
end

local function is_null(v) return v == nil or v == accel.json.null end

-- Outputs and gradients (by key) of a case with inputs and cotangents rounded to dtype, computed in `compute` (nil: dtype itself).
local function evaluate(case, dtype, compute)
  local data = tensors_of(case.family)
  local fn = adapters[case.op]
  local args, kwargs, inputs = build(case, data, dtype, compute)
  local wants = {}
  for i, key in ipairs(case.grad or {}) do
    if not is_null(key) and inputs[i] then
      inputs[i].requires_grad = true
      wants[#wants + 1] = { input = inputs[i], key = key, index = i }
    end
  end
  local outs = table.pack(fn(args, kwargs, case, inputs))
  if #outs == 1 and type(outs[1]) == "table" then outs = outs[1] end -- an op that returns a list
  local result = {}
  for i, key in ipairs(case.out) do result[key] = outs[i] end
  if #wants == 0 then return result, wants, inputs end
  local froms, cots, ins = {}, {}, {}
  for i, key in ipairs(case.cot) do
    if not is_null(key) and outs[i].requires_grad then -- statistics that were written have no history
      froms[#froms + 1] = outs[i]
      cots[#cots + 1] = data[key]:to(dtype):to(outs[i].dtype)
    end
  end
  for i, w in ipairs(wants) do ins[i] = w.input end
  local grads = table.pack(accel.grad(froms, ins, { grad_outputs = cots }))
  if type(grads[1]) == "table" then grads = grads[1] end
  for i, w in ipairs(wants) do result[w.key] = grads[i] end
  return result, wants, inputs
end

-- Places among rounded inputs: what our f64 finds there, which is compared with PyTorch's on the inputs as they are.
local function same_place(case, dtype, key, got) return error_of(got, evaluate(case, dtype, "f64")[key]) == 0 end

local function run(case, dtype)
  local want = tensors_of(case.family)
  local got, wants, inputs = evaluate(case, dtype)
  local short = dtype == "bf16" or dtype == "f16"
  -- Inputs that mean something else once rounded have no bar of PyTorch's: there our f64 on the rounded inputs is the reference, and
  -- gradients that cancel count on the scale of the cotangent that cancels.
  local floor
  if short and not measured(case, dtype) then
    floor = case.cot[1] and want[case.cot[1]]:abs():amax():item()
    want = evaluate(case, dtype, "f64")
  end
  local function check(key, what, kind)
    local e, why = error_of(got[key], want[key], kind == "grad" and floor or nil)
    local bar = bar_of(case, dtype, kind)
    if e <= bar then return true end
    return false, ("%s: error %.3g, bar %.3g%s"):format(what, e, bar, why and " (" .. why .. ")" or "")
  end
  for i, key in ipairs(case.out) do
    local ok, why = check(key, "output " .. i, "out")
    if not ok and short and not FLOATS[got[key].dtype] then
      ok = same_pick(case, inputs[1], got[key], want[key]) or same_place(case, dtype, key, got[key])
    end
    if not ok then return false, why end
  end
  for _, w in ipairs(wants) do
    local ok, why = check(w.key, "gradient of input " .. w.index, "grad")
    if not ok then return false, why end
  end
  return true
end

local passed, failed, skipped = 0, 0, 0
local cases = 0
for _, case in ipairs(manifest.cases) do
  if not only or case.name == only then
    local fn = adapters[case.op]
    local needs = adapters.needs[case.op]
    if fn and needs and not accel[needs] then fn = nil end
    if not fn then
      skipped = skipped + 1
      if verbose then print(("skip %-24s no %s here"):format(case.name, case.op)) end
    else
      local bad
      for _, dtype in ipairs { "f64", "f32", "bf16", "f16" } do
        local ok, good, why = pcall(run, case, dtype)
        if not ok then good, why = false, tostring(good) end
        if not good then
          bad = true
          print(("FAIL %s [%s, %s]: %s"):format(case.name, case.op, dtype, why))
        end
      end
      cases = cases + 1
      if bad then failed = failed + 1 else passed = passed + 1 end
    end
  end
end

local optim_ok, optim = pcall(require, "optim_cases")
if optim_ok and not only then
  local p, f, s = optim(dir, manifest, verbose)
  passed, failed, skipped = passed + p, failed + f, skipped + s
elseif not optim_ok then
  print("FAIL optimizer cases: " .. tostring(optim))
  failed = failed + 1
end
print(("%d passed, %d failed, %d skipped"):format(passed, failed, skipped))
if failed > 0 then os.exit(1, true) end
