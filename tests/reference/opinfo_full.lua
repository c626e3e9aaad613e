-- tier: slow
-- The whole of PyTorch's test database: make/opinfo.py and make/modinfo.py write its samples, opinfo.lua (in three layouts of
-- the inputs) and modinfo.lua compare.
-- Needs python3 with torch, safetensors, expecttest and numpy; exit status 77 with a reason without them. About 10 minutes. The seed of the
-- samples is printed; ACCEL_TEST_SEED=N repeats them.
local here = arg[0]:match "^(.*)/[^/]*$" or "."
local run = (os.getenv "ACCEL_TEST_BUILD" or "build/dev") .. "/bin/accel-run"
local out = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/opinfo"

if not os.execute "python3 -c 'import torch, safetensors, expecttest, numpy' >/dev/null 2>&1" then
  print "skip: python3 with torch, safetensors, expecttest and numpy is not here"
  os.exit(77, true)
end

local failed, seed = false, math.tointeger(tonumber(os.getenv "ACCEL_TEST_SEED")) or 0
print(("samples of ACCEL_TEST_SEED=%d"):format(seed))
for _, name in ipairs { "opinfo", "modinfo" } do
  assert(os.execute(("python3 '%s/make/%s.py' '%s' --seed %d"):format(here, name, out, seed & 0x7fffffff)), name .. ".py failed")
  for _, layout in ipairs(name == "opinfo" and { "", "--strided", "--transposed" } or { "" }) do
    if not os.execute(("'%s' '%s/%s.lua' '%s' %s"):format(run, here, name, out, layout)) then failed = true end
  end
end
os.exit(not failed, true)
