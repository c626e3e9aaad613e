-- Accelerator:save_model and load_checkpoint_in_model: what one writes the other reads, by every form of a checkpoint; ties, dtypes,
-- what does not fit, what is damaged. On 1 and 2 ranks.
--   accel-run tests/stdlib/accelerator/load_checkpoint_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local nn = accel.nn
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2 } then return end

local accelerator = accel.Accelerator()
local rank = accelerator.process_index
local root
if rank == 0 then root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/load_checkpoint-")) end
root = accel.accelerator.broadcast_object_list { root or "" }[1]
local load = accel.accelerator.load_checkpoint_in_model
local warned = {}
function _G.warn(...) warned[#warned + 1] = table.concat { ... } end

local Net = nn.Module:extend "Net"
function Net:init(classes)
  self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm2d(8), nn.Linear(8, classes)
end
function Net:forward(x) return self.last(self.first(x)) end

local function state_of(model)
  local out = {}
  for name, t in pairs(model:state_dict()) do out[name] = t:clone() end
  return out
end

local function same(a, b)
  for name, t in pairs(a) do
    if not accel.equal(t, b[name]) then return false, name end
  end
  return true
end

local function fails(pattern, ...)
  local ok, err = pcall(load, ...)
  assert(not ok, "no error with " .. pattern)
  assert(tostring(err):find(pattern), ("%q has no %q"):format(tostring(err), pattern))
end

accel.manual_seed(7)
local net = Net(4)
local wanted = state_of(net)
local prepared = accelerator:prepare(net)
accelerator:save_model(prepared, root .. "/one")
accelerator:save_model(prepared, root .. "/many", 200)
accelerator:save_model(prepared, root .. "/table", { max_shard_size = "0.2KB" })
accelerator:wait_for_everyone()

do -- names: those from before prepare
  local files = accel.listdir(root .. "/many")
  assert(#files == 5 and files[5] == "model.safetensors.index.json", accel.inspect(files))
  assert(accel.inspect(accel.listdir(root .. "/table")) == accel.inspect(files))
  assert(accel.inspect(accel.listdir(root .. "/one")) == accel.inspect { "model.safetensors" })
  local names = accel.load(root .. "/one/model.safetensors")
  for name in pairs(wanted) do assert(names[name], name) end
end

for _, path in ipairs { "one", "one/model.safetensors", "many", "many/model.safetensors.index.json" } do
  local other = Net(4)
  local result = load(other, root .. "/" .. path, { strict = true })
  assert(same(wanted, state_of(other)), path)
  assert(#result.missing_keys == 0 and #result.unexpected_keys == 0)
end

do -- dtype: floating tensors alone, but for the parts that stay
  local other = Net(4)
  load(other, root .. "/one", { dtype = "bf16", keep_in_fp32_modules = { "last" } })
  assert(other.first.weight.dtype == "bf16" and other.last.weight.dtype == "f32")
  assert(other.norm.num_batches_tracked.dtype == "i64")
  assert(accel.equal(other.first.weight:detach(), wanted["first.weight"]:to "bf16"))
  assert(accel.equal(other.last.weight:detach(), wanted["last.weight"]))
end

do -- one process reads for all: each rank has a file with other values, and all get those of rank 0
  local own, values = ("%s/own%d.safetensors"):format(root, rank), {}
  for name, t in pairs(wanted) do values[name] = accel.no_grad(function() return t + rank end) end
  assert(accel.save(own, values))
  for _, o in ipairs { {}, { device_map = { [""] = "cpu" } } } do
    local function loaded(from_rank0)
      local other, given = Net(4), { broadcast_from_rank0 = from_rank0 }
      for key, value in pairs(o) do given[key] = value end
      if o.device_map then accel.accelerator.load_checkpoint_and_dispatch(other, own, given) else load(other, own, given) end
      return state_of(other)
    end
    assert(same(wanted, loaded(true)) and same(values, loaded(false)))
  end
end
case "one process reads for all"

do -- names that differ: a warning, or an error; shapes: an error; the model stays as it was
  local other = nn.Sequential(nn.Linear(6, 8))
  other:register_module("first", nn.Linear(6, 8))
  local before = state_of(other)
  local result = load(other, root .. "/one")
  assert(accel.equal(other.first.weight:detach(), wanted["first.weight"]))
  assert(accel.inspect(result.missing_keys) == accel.inspect { "0.weight", "0.bias" }, accel.inspect(result.missing_keys))
  assert(#warned == 2 and warned[1]:find("'last.weight'", 1, true) and warned[2]:find("'0.weight'", 1, true))
  assert(accel.equal(before["0.weight"], other[1].weight:detach()))
  fails("unexpected .*'last%.weight'.*missing '0%.weight'", other, root .. "/one", { strict = true })
  local dispatch = accel.accelerator.load_checkpoint_and_dispatch
  for _, map in ipairs { false, { [""] = "cpu" } } do
    ranks.fails("missing '0.weight'", dispatch, other, root .. "/one", { strict = true, device_map = map or nil })
  end
  local wide = Net(5)
  before = state_of(wide)
  fails("'last%.weight' has shape %(4, 8%), the model needs %(5, 8%)", wide, root .. "/many")
  assert(same(before, state_of(wide)))
end

do -- tied weights are written once and read into both names
  local tied = Net(4)
  tied.again = nn.Linear(6, 8)
  tied.again.weight = tied.first.weight
  local before = state_of(tied)
  accelerator:save_model(tied, root .. "/tied" .. rank)
  if accelerator.is_main_process then
    local file = accel.load(root .. "/tied0/model.safetensors")
    assert((file["again.weight"] == nil) ~= (file["first.weight"] == nil))
  end
  accelerator:wait_for_everyone()
  local other = Net(4)
  other.again = nn.Linear(6, 8)
  other.again.weight = other.first.weight
  load(other, root .. "/tied0", { strict = true })
  assert(same(before, state_of(other)))
end

accelerator:wait_for_everyone()
if accelerator.is_main_process then -- damage: found before the first tensor is touched
  local function change(path, at, byte)
    local f = assert(io.open(path, "r+b"))
    f:seek("set", at)
    f:write(byte)
    f:close()
  end
  local path = root .. "/many/model-00002-of-00004.safetensors"
  local f = assert(io.open(path, "rb"))
  local size = f:seek "end"
  f:close()
  change(path, size - 3, "\x55")
  local other = Net(4)
  local before = state_of(other)
  fails("model%-00002%-of%-00004%.safetensors: rule R15 at byte %d+: tensor '[%w_.]+' does not match its checksum", other, root .. "/many")
  assert(same(before, state_of(other)))
  os.remove(path)
  fails("model%-00002%-of%-00004%.safetensors: .*No such file", other, root .. "/many")
  assert(accel.write_file(root .. "/many/other.index.json", "{}"))
  fails("holds several indexes %(model%.safetensors%.index%.json, other%.index%.json%)", other, root .. "/many")
  fails("other%.index%.json: has no weight_map", other, root .. "/many/other.index.json")
  assert(accel.write_file(root .. "/many/other.index.json", '{"weight_map":{"a":"../x.safetensors"}}'))
  fails("'%.%./x%.safetensors' is not the name of a weights file in its folder", other, root .. "/many/other.index.json")
  fails("/nowhere: no such file or folder", other, "/nowhere")
  fails("neither model%.safetensors nor pytorch_model%.bin nor an index", other, root)
end

do -- a second save over the first: what is no longer of it goes; a folder that cannot be made is an error
  accelerator:save_model(prepared, root .. "/again", 200)
  accelerator:save_model(prepared, root .. "/again")
  accelerator:wait_for_everyone()
  assert(accel.inspect(accel.listdir(root .. "/again")) == accel.inspect { "model.safetensors" })
  accelerator:wait_for_everyone()
  if accelerator.is_main_process then
    for _, size in ipairs { "5MBB", "-1GB", "GB", -1 } do
      local ok, err = pcall(accelerator.save_model, accelerator, prepared, root .. "/again", size)
      assert(not ok and tostring(err):find "max_shard_size must be", tostring(err))
    end
    local ok, err = pcall(accelerator.save_model, accelerator, prepared, root .. "/again/model.safetensors")
    assert(not ok and tostring(err):find "load_checkpoint_test.lua:%d+: save_model: .*model.safetensors", tostring(err))
    local full = root .. "/again"
    local before = accel.load(full .. "/model.safetensors")
    local out = io.popen(("ulimit -f 2; '%s' -e 'accel.Accelerator():save_model(accel.nn.Linear(100, 100), %q)' 2>&1"):format(
      accel.process.program(), full))
    local text = out:read "a"
    assert(not out:close() and text:find "save_model: ", text)
    assert(same(before, accel.load(full .. "/model.safetensors")))
    assert(accel.inspect(accel.listdir(full)) == accel.inspect { "model.safetensors" }, "nothing is left behind")
  end
  local ok, err = pcall(accelerator.save_model, accelerator, accel.device("meta", Net, 4), root .. "/meta")
  assert(not ok and tostring(err):find "is on the meta device", tostring(err))
end
