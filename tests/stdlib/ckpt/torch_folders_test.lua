-- accel.ckpt.torch_folders: a checkpoint of accelerator:save_state as folders of torch.distributed.checkpoint and of DeepSpeed. Both hold
-- its values and its optimizer, accel continues from DeepSpeed's with the same losses, and torch and zero_to_fp32.py read them where they
-- are installed.
--   accel-run tests/stdlib/ckpt/torch_folders_test.lua
local accel = require "accel"
local ckpt = require "accel.ckpt"
local folders = require "accel.ckpt.torch_folders"
local nn = accel.nn

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/folders-"))

local Net = nn.Module:extend "Net"
function Net:init()
  self.inp = nn.Linear(3, 4)
  self.norm = nn.BatchNorm1d(4)
  self.out = nn.Linear(4, 3)
  self.tied = nn.Linear(3, 4)
  self.tied.weight = self.inp.weight
end
function Net:forward(x) return self.tied(self.out(self.norm(self.inp(x)))) end

local x = accel.randn(8, 3)
local function training()
  accel.manual_seed(3)
  local accelerator, net = accel.Accelerator(), Net()
  local optimizer = accel.optim.AdamW({ { params = { net.inp.weight, net.out.weight }, weight_decay = 0.1 },
    { params = { net.inp.bias, net.norm.weight, net.norm.bias, net.out.bias, net.tied.bias }, lr = 0.05 } }, { lr = 0.02 })
  net, optimizer = accelerator:prepare(net, optimizer)
  return accelerator, net, function()
    local loss = net(x):pow(2):mean()
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    return loss:item()
  end
end
local accelerator, net, step = training()
for _ = 1, 3 do step() end
accelerator:save_state(root .. "/checkpoint")
local want, losses = {}, {}
for name, t in pairs(net:state_dict()) do want[name] = t:detach():clone() end
for i = 1, 3 do losses[i] = step() end

local c <close> = assert(ckpt.open(root .. "/checkpoint"))
assert(folders.dcp(c, root .. "/dcp"))
assert(folders.deepspeed(c, root .. "/deepspeed"))

local function same(name, got) assert(got and got.dtype == want[name].dtype and accel.equal(got, want[name]), name) end
local dcp = assert(accel.load(root .. "/dcp"))
for name in pairs(want) do same(name, dcp.model[name]) end
local state = dcp.optimizer.state["norm.weight"]
assert(state.step:item() == 3 and state.step.dtype == "f32" and state.exp_avg.shape[1] == 4 and dcp.optimizer.param_groups[2].lr == 0.05)
assert(dcp.optimizer.param_groups[1].params[1] == "inp.weight")

local whole, read = require "accel.ckpt.deepspeed".open(root .. "/deepspeed")
for name in pairs(want) do same(name, whole[name] and read(name)) end
local again, _, continue = training()
again:load_state(root .. "/deepspeed")
for i = 1, 3 do
  local loss = continue()
  assert(loss == losses[i], ("loss %d: %.17g, not %.17g"):format(i, loss, losses[i]))
end

-- weights alone: all floating values are one group
local alone = accel.Accelerator()
alone:prepare(nn.Linear(2, 3))
alone:save_state(root .. "/alone")
local d <close> = assert(ckpt.open(root .. "/alone"))
assert(folders.deepspeed(d, root .. "/alone_deepspeed"))
local plain = require "accel.ckpt.deepspeed".open(root .. "/alone_deepspeed")
assert(plain.weight.shape[1] == 3 and plain.bias.shape[1] == 3)

if not os.execute "python3 -c 'import torch, deepspeed, safetensors' >/dev/null 2>&1" then
  print "skipped: the comparison with torch and zero_to_fp32.py needs torch, deepspeed and safetensors"
  return
end
assert(accel.save(root .. "/want.safetensors", want))
assert(accel.write_file(root .. "/program.py", [[
import sys, torch
import torch.distributed.checkpoint as dcp
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from safetensors.torch import load_file
folder = sys.argv[1]
want = load_file(folder + "/want.safetensors")
whole = get_fp32_state_dict_from_zero_checkpoint(folder + "/deepspeed")
assert set(whole) == set(want), set(whole) ^ set(want)
for name, t in want.items(): assert torch.equal(whole[name], t), name
state = {"model": {name: torch.zeros_like(t) for name, t in want.items()},
         "optimizer": {"state": {"norm.weight": {"step": torch.zeros(()), "exp_avg": torch.zeros(4)}}}}
dcp.load(state, checkpoint_id=folder + "/dcp", no_dist=True)
for name, t in want.items(): assert torch.equal(state["model"][name], t), name
assert state["optimizer"]["state"]["norm.weight"]["step"] == 3
print("fine")
]]))
local pipe = assert(io.popen(("python3 '%s/program.py' '%s' 2>&1"):format(root, root)))
local text = pipe:read "a"
pipe:close()
assert(text:find "fine\n$", text)
