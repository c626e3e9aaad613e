-- The loop of Accelerate's quicktour, line by line in Lua, as the README shows it beside the Python one: the README's
-- own text is what runs here, unchanged on 1 and on 4 ranks, with the same results.
--   accel-run tests/stdlib/accelerator/migration_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")

local file = assert(io.open(ranks.tests .. "../README.md"))
local readme = file:read "a"
file:close()
local section = assert(readme:match "\n## The Accelerator\n(.-)\n## ", "the README has no section on the Accelerator")
local python, lua = section:match "```python\n(.-)```", section:match "```lua\n(.-)```"

--- What both are about: words that a statement and its translation share.
local function words(text)
  local list = {}
  for word in text:gmatch "[%a_]+" do
    if #word > 4 and word ~= "local" and word ~= "table" and word ~= "unpack" then list[word] = true end
  end
  return list
end

if not ranks.launched then
  local there, here = words(python), words(lua)
  for word in accel.pairs(there) do assert(here[word], "the Lua loop lacks " .. word) end
  local said = ranks.start { 1, 4, capture = true }
  assert(said[1]:find "accuracy" and said[4] == said[1], ("on 4 ranks: %son 1: %s"):format(said[4], said[1]))
  return
end

-- Around the loop: the same global batch of 16 on any number of ranks.
local nn, optim, data = accel.nn, accel.optim, accel.data
accel.set_seed(42)
local x = accel.randn(203, 6)
local y = x:sum(2):gt(0):to "i64"
local env = setmetatable({ accel = accel }, { __index = _G })
env.model = nn.Linear(6, 2)
env.optimizer = optim.SGD(env.model:parameters(), { lr = 0.5 })
env.scheduler = optim.lr_scheduler.LinearLR(env.optimizer, { start_factor = 1, end_factor = 0.1, total_iters = 12 })
env.loss_function = nn.CrossEntropyLoss()
env.training_dataloader = data.DataLoader(data.TensorDataset(x:narrow(1, 1, 192), y:narrow(1, 1, 192)),
  { batch_size = 16 // ranks.size, shuffle = true })
env.validation_dataloader = data.DataLoader(data.TensorDataset(x, y), { batch_size = 16 // ranks.size })
env.metric = accel.metrics.Accuracy()
assert(load(lua .. "\nreturn accelerator", "=README", "t", env))()

local accelerator = accel.accelerator.GradientState.current() and accel.PartialState()
local result = env.metric:compute()
local rate = env.scheduler:get_last_lr()[1]
assert(env.metric.count == nil or env.metric.count == 203)
if accelerator.is_main_process then
  print(("accuracy %.4f rate %.6f weight %.4f"):format(result.accuracy, rate,
    env.model:state_dict().weight[1][1]:item()))
end
