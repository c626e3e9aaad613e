-- What cannot follow a change of the trained parameters says so, with the names and the ranks: a change on one rank alone, and one
-- while gradients wait to be averaged. A model that nobody changed pays no collective. The module inside a wrapper is converted: DDP follows,
-- parts of a sharded one stay.
--   accel-run tests/stdlib/shard/trained_errors_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn

if not ranks.launched then
  for _, what in ipairs { "ddp", "fsdp" } do
    for _, rank in ipairs { 0, 1 } do
      local out, err, status = ranks.try(2, { args = ("alone %s %d"):format(what, rank) })
      local text = out .. err
      assert(status ~= 0, text)
      assert(text:find("the trained parameters changed on rank " .. rank, 1, true) and text:find("'0.weight' is frozen now", 1, true), text)
      assert(text:find "rank 0" and text:find "rank 1", text)
    end
    local out, err, status = ranks.try(2, { args = "waiting " .. what })
    assert(status ~= 0 and (out .. err):find("no_sync() were not", 1, true)
    and (out .. err):find("'0.weight' is frozen now", 1, true), out .. err)
    ranks.run(2, { args = "converted " .. what })
  end
  return
end

accel.manual_seed(1)
local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
local model = arg[2] == "ddp" and nn.parallel.DistributedDataParallel(net) or nn.parallel.FullyShardedDataParallel(net)
if arg[1] == "converted" and arg[2] == "fsdp" then
  ranks.fails("ranks divide '0.weight' among them, so it cannot be moved or converted", net.double, net)
  return
end
local x = accel.ones(1, 2)
local function backward() model(x):sum():backward() end
backward()
if arg[1] == "converted" then
  local weight = net[1].weight
  net:double()
  x = accel.ones(1, 2, { dtype = "f64" }) * (1 + ranks.rank)
  model:zero_grad()
  backward()
  local want = net[2].weight:detach()[1]:unsqueeze(2) * accel.full({ 1, 2 }, 1.5, { dtype = "f64" }) -- the mean over ranks
  assert(net[1].weight == weight and weight.grad.dtype == "f64" and (weight.grad - want):abs():max():item() < 1e-15)
  return
elseif arg[1] == "alone" then
  if ranks.rank == tonumber(arg[3]) then net[1].weight:requires_grad_(false) end
  backward()
else
  model:no_sync(backward)
  net[1].weight:requires_grad_(false)
end
backward()
