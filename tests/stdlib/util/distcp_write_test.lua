-- accel.save with format = "dcp": a folder of torch.distributed.checkpoint's own format comes back from accel.load as the tree that was
-- written, torch.distributed.checkpoint.load reads it where torch is installed, and what has no flat names is refused before a file is
-- there.
--   accel-run tests/stdlib/util/distcp_write_test.lua
local accel = require "accel"
local ordered = require "accel.util.ordered"
local pickle = require "accel.util.pickle"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/distcp-"))
local base = accel.arange(20, { dtype = "f32" }):view(4, 5)
local model = ordered()
model["layer.weight"], model["layer.bias"] = base, accel.ones(5):to "bf16"
model.turned = base:transpose(1, 2)
local tree = ordered()
tree.model = model
tree.optimizer = { state = { ["layer.weight"] = { step = accel.tensor(3.0), exp_avg = accel.full({ 4, 5 }, 0.5) } },
  param_groups = { { lr = 0.1, betas = pickle.tuple { 0.9, 0.99 }, params = { "layer.weight" } } } }
tree.epoch, tree.name, tree.list, tree.nothing = 3, "x", { 1, 2.5, "a" }, accel.json.array {}
tree.scalar, tree.empty = accel.tensor(7), accel.zeros(0, 2)
tree.parts = { accel.ones(2), { t = accel.zeros(3, { dtype = "i64" }) } }
local dir = root .. "/folder"
assert(accel.save(dir, tree, { format = "dcp" }))
assert(table.concat(accel.listdir(dir), " ") == ".metadata __0_0.distcp")

local back = assert(accel.load(dir))
for name, t in pairs(model) do
  assert(back.model[name].dtype == t.dtype and accel.equal(back.model[name]:to "f32", t:to "f32"), name)
end
assert(back.optimizer.state["layer.weight"].step:item() == 3 and back.optimizer.state["layer.weight"].exp_avg.shape[2] == 5)
assert(back.optimizer.param_groups[1].lr == 0.1 and back.optimizer.param_groups[1].betas[2] == 0.99)
assert(back.epoch == 3 and back.name == "x" and back.list[2] == 2.5 and #back.nothing == 0)
assert(back.scalar:item() == 7 and back.empty.shape[2] == 2)
assert(back.parts[1].shape[1] == 2 and back.parts[2].t.dtype == "i64")

local function raises(want, value, ...)
  local ok, err = pcall(accel.save, root .. "/none", value, ...)
  assert(not ok and tostring(err):find(want, 1, true), tostring(err))
  assert(#(accel.listdir(root .. "/none") or {}) == 0)
end
raises("two values have the flat name 'a.b'", { a = { b = 1 }, ["a.b"] = 2 }, { format = "dcp" })
local cycle = {}
cycle.x = cycle
raises("it contains itself", cycle, { format = "dcp" })
raises("f: ", { f = print }, { format = "dcp" })

if not os.execute "python3 -c 'import torch' >/dev/null 2>&1" then
  print "skipped: the comparison with torch.distributed.checkpoint needs torch"
  return
end
local program = root .. "/program.py"
assert(accel.write_file(program, [[
import sys, torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
folder = sys.argv[1]
state = {"model": {"layer.weight": torch.zeros(4, 5), "layer.bias": torch.zeros(5, dtype=torch.bfloat16), "turned": torch.zeros(5, 4)},
         "optimizer": {"state": {"layer.weight": {"step": torch.zeros(()), "exp_avg": torch.zeros(4, 5)}}}, "epoch": 0,
         "scalar": torch.zeros((), dtype=torch.int64),
         "parts": [torch.zeros(2), {"t": torch.ones(3, dtype=torch.int64)}]}
dcp.load(state, checkpoint_id=folder, no_dist=True)
w = torch.arange(20.0).view(4, 5)
assert torch.equal(state["model"]["layer.weight"], w) and torch.equal(state["model"]["turned"], w.t())
assert state["model"]["layer.bias"].sum() == 5
assert state["epoch"] == 3 and state["scalar"] == 7 and state["optimizer"]["state"]["layer.weight"]["step"] == 3
assert state["parts"][0].tolist() == [1, 1] and state["parts"][1]["t"].tolist() == [0, 0, 0]
dcp_to_torch_save(folder, folder + ".pt")
whole = torch.load(folder + ".pt", weights_only=False)
assert whole["list"] == [1, 2.5, "a"] and whole["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.99), whole
print("fine")
]]))
local pipe = assert(io.popen(("python3 '%s' '%s' 2>&1"):format(program, dir)))
local text = pipe:read "a"
pipe:close()
assert(text:find "fine\n$", text)
