-- accel-run merge-weights: weights of our sharded checkpoints and of torch's, equal to what went in; what cannot be merged.
--   accel-run tests/stdlib/cli/merge_weights_test.lua
local accel = require "accel"
local ckpt = require "accel.ckpt"
local dcp = (arg[0]:match "^.*/" or "") .. "../../reference/dcp"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/merge-"))

local function run(args, status, pattern)
  local pipe = assert(io.popen(("cd '%s' && '%s' merge-weights %s 2>&1"):format(root, accel.process.program(), args)))
  local text = pipe:read "a"
  local _, _, got = pipe:close()
  assert(got == status, ("merge-weights %s: status %d, wanted %d\n%s"):format(args, got, status, text))
  assert(text:find(pattern), ("merge-weights %s: %q lacks %q"):format(args, text, pattern))
end

local w = accel.randn(7, 3)
do -- two parts of one checkpoint
  local path = root .. "/checkpoint_0"
  local a = assert(ckpt.create(path, { part = 0, parts = 2 }))
  local b = assert(ckpt.create(path, { part = 1, parts = 2, folder = a.folder }))
  a:add_tensors("model/shard-00001-model-00001-of-00001.safetensors", {
    { name = "w", tensor = w:narrow(1, 1, 4):clone(), shape = { 7, 3 }, offsets = { 0, 0 } },
    { name = "b", tensor = accel.full({ 2 }, 5, { dtype = "i64" }) } })
  b:add_tensors("model/shard-00002-model-00001-of-00001.safetensors", {
    { name = "w", tensor = w:narrow(1, 5, 3):clone(), shape = { 7, 3 }, offsets = { 4, 0 } } })
  a:add_tensors("optimizer.safetensors", { { name = "state.w.exp_avg", tensor = w } })
  a:start { state = { step = 1 } }
  b:start {}
  assert(a:wait() and b:wait())
end

local function check(file)
  local got, metadata = assert(accel.load(root .. "/" .. file)), accel.open_safetensors(root .. "/" .. file):metadata()
  assert(accel.equal(got.w, w) and got.b:tolist()[2] == 5 and metadata.format == "pt")
  assert(got["state.w.exp_avg"] == nil)
end
run("checkpoint_0 out", 0, "^out/model.safetensors\n$")
check "out/model.safetensors"
run("checkpoint_0 unsafe --unsafe_serialization", 0, "^unsafe/pytorch_model.bin\n$")
assert(accel.equal(accel.load(root .. "/unsafe/pytorch_model.bin").w, w))
run("checkpoint_0/ sharded --max_shard_size 50X", 2, "max_shard_size must be")
run("checkpoint_0/ sharded --max-shard-size 0.05KB", 0, "model%-00001%-of%-00002.safetensors\n.*index.json")
assert(#accel.listdir(root .. "/sharded") == 3)
run("checkpoint_0 other --object model_1", 1, "no object 'model_1'; choose from model, optimizer")
run("checkpoint_0 checkpoint_0/out --remove_checkpoint_dir", 1, "OUT lies in DIR")
run("/nowhere out", 1, "/nowhere")
run("checkpoint_0", 2, "needs DIR OUT")
do -- damage is found before anything is written
  local path = root .. "/checkpoint_0/model/shard-00002-model-00001-of-00001.safetensors"
  local f = assert(io.open(path, "r+b"))
  f:seek("end", -2)
  local byte = f:read(1)
  f:seek("end", -2)
  f:write(string.char(byte:byte() ~ 4))
  f:close()
  run("checkpoint_0 damaged", 1, "shard%-00002.*'w'")
  assert(not accel.listdir(root .. "/damaged"))
  f = assert(io.open(path, "r+b"))
  f:seek("end", -2)
  f:write(byte)
  f:close()
end
run("checkpoint_0 last --remove_checkpoint_dir", 0, "last/model.safetensors")
check "last/model.safetensors"
assert(not accel.listdir(root .. "/checkpoint_0"))

-- torch's own folders, by both of its formats, and under the name that Accelerate gives them
if accel.listdir(dcp) then
  for _, folder in ipairs { "distcp_2", "hf_sharded_2" } do
    os.execute(("mkdir -p '%s/%s' && cp -r '%s/%s' '%s/%s/pytorch_model_fsdp_0'"):format(root, folder, dcp, folder, root, folder))
    run(folder .. " merged_" .. folder, 0, "model.safetensors")
    local got = assert(accel.load(("%s/merged_%s/model.safetensors"):format(root, folder)))
    local n, wanted = 0, nil -- torch's own format keeps a tree: of that the model is taken
    if folder:find "hf" then
      wanted = assert(accel.load(dcp .. "/expected_hf_2.safetensors"))
    else
      wanted = assert(accel.load(dcp .. "/distcp_2.as_torch_save.pt")).model
    end
    for name, t in pairs(wanted) do
      if not (folder:find "hf" and name:find "running") then -- the record has another rank's
        assert(got[name] and accel.equal(got[name], t), folder .. ": " .. name)
        n = n + 1
      end
    end
    assert(n > 3)
  end
end
