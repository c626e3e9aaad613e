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

local function read_file(path)
  local f = assert(io.open(path, "rb"))
  local s = f:read("a")
  f:close()
  return s
end

local manifest = accel.json.decode(read_file(dir .. "/manifest.json"))
local EPS = { f64 = 2.0 ^ -52, f32 = 2.0 ^ -23, bf16 = 2.0 ^ -7, f16 = 2.0 ^ -10 }
local FLOATS = { f64 = true, f32 = true, bf16 = true, f16 = true }

local files = {}
local function tensors_of(family)
  if not files[family] then files[family] = assert(accel.load(dir .. "/ops_" .. family .. ".safetensors")) end
  return files[family]
end

-- Largest error on the scale of the largest finite magnitude of the reference; infinities and NaN must agree exactly.
local function error_of(got, want)
  if #got.shape ~= #want.shape then return math.huge, "rank " .. #got.shape .. " instead of " .. #want.shape end
  for d = 1, #want.shape do
    if got.shape[d] ~= want.shape[d] then return math.huge, "shape differs in dim " .. d end
  end
  local a = got:detach():to("f64"):reshape(-1):tolist()
  local b = want:to("f64"):reshape(-1):tolist()
  local worst, scale = 0.0, 0.0
  for i = 1, #b do
    local x, y = a[i] + 0.0, b[i] + 0.0
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

local function bar_of(case, dtype, what)
  if dtype == "f64" then return 1e-12 end
  local t = case.torch_error and case.torch_error[dtype == "f32" and "f32" or "bf16"]
  local own = t and t[what] or 0
  return math.max(4 * own, 4 * EPS[dtype])
end

-- Builds inputs in order of appearance; keeps which of them are float tensors.
local function build(case, data, dtype)
  local inputs = {}
  local function value(v)
    if type(v) == "table" and v.tensor then
      local t = data[v.tensor]
      if FLOATS[t.dtype] then t = t:to(dtype):detach():clone() else t = t:clone() end
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

local function run(case, dtype)
  local data = tensors_of(case.family)
  local fn = adapters[case.op]
  if type(fn) == "table" then fn = fn[case.name] end
  local args, kwargs, inputs = build(case, data, dtype)
  local wants = {}
  for i, key in ipairs(case.grad or {}) do
    if not is_null(key) and inputs[i] then
      inputs[i].requires_grad = true
      wants[#wants + 1] = { input = inputs[i], key = key, index = i }
    end
  end
  local outs = table.pack(fn(args, kwargs, case, inputs))
  for i, key in ipairs(case.out) do
    local e, why = error_of(outs[i], data[key])
    local bar = bar_of(case, dtype, "out")
    if not (e <= bar) then return false, ("output %d: error %.3g, bar %.3g%s"):format(i, e, bar, why and " (" .. why .. ")" or "") end
  end
  if #wants == 0 then return true end
  local froms, cots, ins = {}, {}, {}
  for i, key in ipairs(case.cot) do
    if not is_null(key) then
      froms[#froms + 1] = outs[i]
      cots[#cots + 1] = data[key]:to(outs[i].dtype)
    end
  end
  for i, w in ipairs(wants) do ins[i] = w.input end
  local grads = table.pack(accel.grad(froms, ins, { grad_outputs = cots }))
  if type(grads[1]) == "table" then grads = grads[1] end
  for i, w in ipairs(wants) do
    local e, why = error_of(grads[i], data[w.key])
    local bar = bar_of(case, dtype, "grad")
    if not (e <= bar) then
      return false, ("gradient of input %d: error %.3g, bar %.3g%s"):format(w.index, e, bar, why and " (" .. why .. ")" or "")
    end
  end
  return true
end

local passed, failed, skipped = 0, 0, 0
local cases = 0
for _, case in ipairs(manifest.cases) do
  if not only or case.name == only then
    local fn = adapters[case.op]
    if type(fn) == "table" then fn = fn[case.name] end
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
os.exit(failed == 0 and 0 or 1, true)
