-- safe_serialization = false of every function that writes tensors: an error that names safetensors, and no file. true is what they do.
-- accel.save warns, once, of a name that is taken for PyTorch's format.
local accel = require "accel"
local nn, peft = accel.nn, accel.peft

local root = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/safe"
os.execute(("rm -rf '%s'"):format(root)) -- of an earlier run
assert(accel.makedirs(root))
local accelerator = accel.Accelerator()
local model = accelerator:prepare(nn.Linear(2, 3))
local gpt2 = accel.models.GPT2(accel.models.tiny.gpt2)
local adapted = peft.get_peft_model(accel.models.GPT2(accel.models.tiny.gpt2), peft.LoraConfig { r = 2, target_modules = { "c_attn" } })

local writers = {
  save = function(path, opts) accelerator:save(model:state_dict(), path, opts) end,
  ["save alone"] = function(path, opts) accel.accelerator.save(model:state_dict(), path, opts) end,
  save_model = function(path, opts) accelerator:save_model(model, path, opts) end,
  ["save_model of an adapter"] = function(path, opts)
    accelerator:save_model(adapted, path, { adapter_only = true, safe_serialization = opts.safe_serialization })
  end,
  save_state = function(path, opts) accelerator:save_state(path, opts) end,
  ["save_pretrained"] = function(path, opts) assert(gpt2:save_pretrained(path, opts)) end,
  ["save_pretrained of an adapter"] = function(path, opts) assert(adapted:save_pretrained(path, opts)) end,
}
for name, write in pairs(writers) do
  local path = root .. "/" .. name:gsub(" ", "_")
  local ok, err = pcall(write, path, { safe_serialization = false })
  local want = name:match "^%S+" .. ": safe_serialization = false .*only writes safetensors"
  assert(not ok and tostring(err):find(want), ("%s: %s"):format(name, tostring(err)))
  assert(not io.open(path), name .. " wrote something")
  write(path, { safe_serialization = true })
  assert(io.open(path), name .. " wrote nothing")
end

for _, name in ipairs { "w.safetensors", "weights.bin", "weights.pt", "ckpt" } do
  local out = assert(io.popen(("'%s' -e 'require \"accel\".save(\"%s/%s\", { a = require \"accel\".ones(1) })' 2>&1"):format(
    accel.process.program(), root, name)))
  local text = out:read "a"
  assert(out:close())
  assert((text:find("holds safetensors, which torch.load does not read", 1, true) ~= nil) == (name:find "^weights" ~= nil), name .. ": " .. text)
end
