-- Training on the device: a small GPT in f32, bf16 and f16 with loss scaling comes within tolerance of the CPU's losses and repeats bit
-- for bit; its steps never make the host wait (counted by the twin). Runs as ops_suite.lua does.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local temporary = suite.temporary
local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run "

-- Losses of `steps` steps; of each weight its sum in all digits, over the root of how many there are: the size of what an element has of
-- independent errors. Keys' biases have no gradient but noise, which AdamW makes as large as any: they are left out.
local TRAIN = [[
local accel = require "accel"
local dtype, steps, momentum, how = arg[1], tonumber(arg[2]), tonumber(arg[3]), arg[4]
accel.manual_seed(7)
local model = accel.models.GPT2 { vocab_size = 61, n_positions = 8, n_embd = 16, n_layer = 1, n_head = 2, resid_pdrop = 0.1,
  embd_pdrop = 0, attn_pdrop = 0 }
local params = model:parameters()
local opt = momentum and accel.optim.SGD(params, { lr = 0.05, momentum = momentum }) or accel.optim.AdamW(params, { lr = 3e-3 })
local scaler = accel.amp.GradScaler { enabled = dtype == "f16", init_scale = 2.0 ^ 20, growth_interval = 3 }
local tokens = accel.randint(0, 61, { 3, 9 })
local x, y = tokens:narrow(2, 1, 8):contiguous(), tokens:narrow(2, 2, 8):reshape(-1)
local losses = {}
for i = 1, steps do
  local loss
  do
    local _ <close> = accel.autocast { dtype = dtype == "f32" and "bf16" or dtype, enabled = dtype ~= "f32" }
    loss = accel.cross_entropy(model(x):reshape(-1, 61), y)
  end
  scaler:scale(loss):backward()
  scaler:unscale_(opt)
  accel.nn.utils.clip_grad_norm_(params, 1.0, { optimizer = opt })
  scaler:step(opt)
  scaler:update()
  opt:zero_grad()
  losses[i] = loss:detach()
  if how == "item" then loss:item() end
end
if how then return end
for i, loss in ipairs(losses) do io.write(("%.17g "):format(loss:item())) end
for name, p in model:named_parameters() do
  p = p:detach():double()
  if name:find "c_attn.bias" then p = accel.cat { p:narrow(1, 1, 16), p:narrow(1, 33, 16) } end
  io.write(("%.17g "):format(p:sum():item() / p:numel() ^ 0.5))
end
print(scaler:get_scale())
]]

local script <close> = temporary(TRAIN)
local log <close> = temporary ""

local function train(device, args, env)
  local text, ok = suite.output(("env -u ACCEL_DEVICE %s %s --device %s %s %s"):format(env or "", run, device, script.path, args))
  assert(ok, text)
  return text
end
local function numbers(text)
  local list = {}
  for word in text:gmatch "%S+" do list[#list + 1] = tonumber(word) or error(text) end
  return list
end

-- What is seen on the twin: losses 0, 1.8e-5, 2.9e-6, 1e-6 apart, weights 5e-9, 1.8e-4, 1.9e-4, 7e-6; AdamW moves a weight by up to 1.5e-2.
-- In 16 bits sums in another order round otherwise now and then.
local STEPS <const> = 5
for _, case in ipairs {
  { "f32", loss = 2e-6, weight = 1e-6 }, { "bf16", loss = 3e-4, weight = 1e-3 }, { "f16", loss = 5e-5, weight = 1e-3 },
  { "f16", loss = 5e-5, weight = 1e-4, momentum = 0.9 },
} do
  local dtype = case[1]
  local args = ("%s %d %s"):format(dtype, STEPS, case.momentum or "")
  local cpu, cuda = numbers(train("cpu", args)), train("cuda", args)
  assert(cuda == train("cuda", args), dtype .. ": another run gave other bits")
  local got = numbers(cuda)
  assert(#got == #cpu and #got > 2 * STEPS and got[#got] == cpu[#cpu], dtype .. ": another loss scale")
  for i = 1, #got - 1 do
    local off = math.abs(got[i] - cpu[i])
    if i <= STEPS then
      assert(off <= case.loss * math.abs(cpu[i]), ("%s, step %d: loss %.9g, the CPU's is %.9g"):format(dtype, i, got[i], cpu[i]))
    else
      assert(off <= case.weight, ("%s, weight %d: %.9g, the CPU's is %.9g"):format(dtype, i - STEPS, got[i], cpu[i]))
    end
  end
  assert(got[STEPS] < got[1], dtype .. ": it does not learn")
  assert(dtype ~= "f16" or got[#got] < 2 ^ 20, "the overflow of the first steps was not met")
end

if suite.emulated then
  local function waits(args)
    train("cuda", args, "CUDA_TWIN_WAITS=" .. log.path)
    local f <close> = assert(io.open(log.path))
    return assert(f:read "n", "the twin counted nothing")
  end
  for _, dtype in ipairs { "f32", "bf16", "f16" } do
    local few, many = waits(dtype .. " 2 - quiet"), waits(dtype .. " 4 - quiet")
    assert(few == many, ("%s: 2 steps wait %d times for the device, 4 steps %d times"):format(dtype, few, many))
  end
  assert(waits "f32 4 - item" >= waits "f32 2 - item" + 2, "a loss that is read waits, and is not counted")
end
suite.finish()
