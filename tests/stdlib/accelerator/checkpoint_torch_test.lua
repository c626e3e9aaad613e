-- A checkpoint that four ranks wrote, read by PyTorch: its distributed reader of safetensors puts together the tensors that ranks have
-- shared out, of the model and of the optimizer, and safetensors.torch reads what one rank wrote.
-- tier: slow
-- Needs python3 with torch and safetensors; exit status 77 with a reason without them.
--   accel-run tests/stdlib/accelerator/checkpoint_torch_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, optim = accel.nn, accel.optim
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/torch"

if not ranks.launched then
  if not os.execute "python3 -c 'import torch.distributed.checkpoint, safetensors' >/dev/null 2>&1" then
    print "skip: python3 with torch and safetensors is not here"
    os.exit(77, true)
  end
  for _, n in ipairs { 1, 4 } do
    os.execute(("rm -rf '%s'"):format(tmp))
    ranks.run(n)
    assert(os.execute(("python3 '%sstdlib/accelerator/checkpoint_torch.py' '%s' %d"):format(ranks.tests, tmp, n)))
  end
  return
end

accel.set_seed(2)
local a = accel.Accelerator()
local net = nn.Sequential(nn.Linear(50, 700), nn.BatchNorm1d(700), nn.Tanh(), nn.Linear(700, 90))
local model, optimizer = a:prepare(net, optim.AdamW(net:parameters()))
for _ = 1, 2 do
  a:backward(model(accel.randn(4, 50)):pow(2):mean())
  optimizer:step()
  optimizer:zero_grad()
end
a:save_state(tmp)
if ranks.rank == 0 then -- what they should read
  local whole = {}
  for name, t in pairs(a:get_state_dict(model)) do whole["model." .. name] = t end
  local state, i = optimizer:state_dict(), 0
  for name in a:unwrap_model(model):named_parameters() do
    for key, t in pairs(state.state[i]) do whole[("optimizer.state.%s.%s"):format(name, key)] = t end
    i = i + 1
  end
  assert(accel.save(tmp .. ".expected.safetensors", whole))
end
