-- Loads model folders as Transformers wrote them through models.from_pretrained, runs them on in/* of their
-- expected.safetensors and compares with out/logits (computed in f64).
--   accel-run tests/reference/models.lua DIR [--only NAME]
-- Bars: 1e-5 of the largest logit in f32. In f64 1e-10; 1e-6 for llama, mixtral and t5, of which Transformers
-- computes angles, norms and routing in single precision whatever the dtype. Ends with "N passed, M failed, K
-- skipped"; exit status 1 if anything failed, 77 if DIR holds no model.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
local inputs = dofile(here .. "/model_inputs.lua")

local dir, only
do
  local i = 1
  while arg[i] do
    if arg[i] == "--only" then only, i = arg[i + 1], i + 1
    else dir = arg[i] end
    i = i + 1
  end
end
if not dir then
  io.stderr:write("usage: accel-run tests/reference/models.lua DIR [--only NAME]\n")
  os.exit(2)
end

local function exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end
if not exists(dir .. "/gpt2/config.json") and exists(dir .. "/files/gpt2/config.json") then dir = dir .. "/files" end

local bars = { llama = 1e-6, mixtral = 1e-6, t5 = 1e-6 }
local passed, failed, skipped = 0, 0, 0

local function check(name)
  local path = dir .. "/" .. name
  local expected = assert(accel.load(path .. "/expected.safetensors"))
  local model, info = assert(accel.models.from_pretrained(path))
  assert(#info.missing_keys == 0 and #info.unexpected_keys == 0, accel.inspect(info))
  local errors = {}
  for _, dtype in ipairs { "f32", "f64" } do
    local got = inputs.run(model:to(dtype), inputs.of(expected))
    assert(got.dtype == dtype, ("logits are %s, the model is %s"):format(got.dtype, dtype))
    errors[dtype] = inputs.relative(got, expected["out/logits"])
  end
  local f64_bar = bars[name] or 1e-10
  local line = ("%s: %s, f32 %.3g (bar 1e-05), f64 %.3g (bar %g)"):format(name, accel.util.class.of(model).__name,
    errors.f32, errors.f64, f64_bar)
  return errors.f32 <= 1e-5 and errors.f64 <= f64_bar, line
end

for _, name in ipairs(inputs.families) do
  if only and name ~= only then
    -- not asked for
  elseif not exists(dir .. "/" .. name .. "/config.json") then
    skipped = skipped + 1
    print(("skip %s: %s/%s/config.json is not there"):format(name, dir, name))
  else
    local ran, good, line = pcall(check, name)
    if ran and good then passed = passed + 1 else failed = failed + 1 end
    if not ran then print(("FAIL %s: %s"):format(name, tostring(good)))
    elseif not good then print("FAIL " .. line)
    else print("ok   " .. line) end
  end
end
print(("%d passed, %d failed, %d skipped"):format(passed, failed, skipped))
os.exit(failed > 0 and 1 or passed == 0 and 77 or 0, true)
