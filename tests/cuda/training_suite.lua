-- Training on the device: a small GPT in f32, bf16 and f16 with loss scaling comes within tolerance of the CPU's losses and repeats bit
-- for bit; its steps never make the host wait (counted by the twin). Runs as ops_suite.lua does.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run "

-- Losses of `steps` steps and what the weights sum up to, in all digits.
local TRAIN = [[
local accel = require "accel"
local dtype, steps, momentum = arg[1], tonumber(arg[2]), tonumber(arg[3])
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
end
if arg[4] then return end
for i, loss in ipairs(losses) do io.write(("%.17g "):format(loss:item())) end
for _, p in ipairs(params) do io.write(("%.17g "):format(p:double():sum():item())) end
print(scaler:get_scale())
]]
local file = os.tmpname()
do
  local f = assert(io.open(file, "w"))
  f:write(TRAIN)
  f:close()
end

local function train(device, args, env)
  local text, ok = suite.output(("env -u ACCEL_DEVICE %s %s --device %s %s %s"):format(env or "", run, device, file, args))
  assert(ok, text)
  return text
end
local function numbers(text)
  local list = {}
  for word in text:gmatch "%S+" do list[#list + 1] = tonumber(word) or error(text) end
  return list
end

local STEPS <const> = 5
for _, case in ipairs { { "f32", 1e-5 }, { "bf16", 2e-2 }, { "f16", 3e-3 }, { "f16", 3e-3, 0.9 } } do
  local args = ("%s %d %s"):format(case[1], STEPS, case[3] or "")
  local cpu, cuda = numbers(train("cpu", args)), train("cuda", args)
  assert(cuda == train("cuda", args), case[1] .. ": another run gave other bits")
  local got = numbers(cuda)
  assert(#got == #cpu and got[#got] == cpu[#cpu], case[1] .. ": another loss scale")
  for i = 1, STEPS do
    assert(math.abs(got[i] - cpu[i]) <= case[2] * math.abs(cpu[i]),
      ("%s, step %d: loss %.9g, the CPU's is %.9g"):format(case[1], i, got[i], cpu[i]))
  end
  assert(got[STEPS] < got[1], case[1] .. ": it does not learn")
  assert(case[1] ~= "f16" or got[#got] < 2 ^ 20, "the overflow of the first steps was not met")
end

if suite.emulated then
  local log = os.tmpname()
  local function waits(args)
    train("cuda", args .. " - quiet", "CUDA_TWIN_WAITS=" .. log)
    local f = assert(io.open(log))
    local n = f:read "n"
    f:close()
    return n
  end
  for _, dtype in ipairs { "f32", "bf16", "f16" } do
    local few, many = waits(dtype .. " 2"), waits(dtype .. " 4")
    assert(few == many, ("%s: 2 steps wait %d times for the device, 4 steps %d times"):format(dtype, few, many))
  end
  os.remove(log)
end
os.remove(file)
