-- safe_serialization of every function that writes tensors. false: a file of torch.save by the reference's name, which holds what
-- safetensors hold and which every reader of weights finds, also where safetensors of an earlier save stood. save_state raises, since
-- accel's own checkpoints have one format. accel.save goes by the name.
local accel = require "accel"
local nn, peft = accel.nn, accel.peft

local root = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/safe"
os.execute(("rm -rf '%s'"):format(root)) -- of an earlier run
assert(accel.makedirs(root))
local accelerator = accel.Accelerator()
local model = accelerator:prepare(nn.Linear(2, 3))
local gpt2 = accel.models.GPT2(accel.models.tiny.gpt2) -- its head is tied to the embedding
local adapted = peft.get_peft_model(accel.models.GPT2(accel.models.tiny.gpt2), peft.LoraConfig { r = 2, target_modules = { "c_attn" } })

local function names(dir) return table.concat(accel.listdir(dir), " ") end
local function head(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read(2)
end
local function same(a, b)
  local n = 0
  for name, t in pairs(a) do
    assert(accel.equal(b[name], t), name)
    n = n + 1
  end
  for _ in pairs(b) do n = n - 1 end
  assert(n == 0)
end

-- one file
for name, save in pairs {
  method = function(...) accelerator:save(...) end, alone = function(...) accel.accelerator.save(...) end,
} do
  local path = root .. "/" .. name
  local tree = { state = model:state_dict(), epoch = 3 }
  save(tree, path, { safe_serialization = false })
  assert(head(path) == "PK" and accel.load(path).epoch == 3 and accel.load(path).state.weight.shape[1] == 3)
  assert(not pcall(save, tree, path)) -- safetensors hold no numbers
  save(model:state_dict(), path .. ".bin")
  assert(head(path .. ".bin") == "PK")
  save(model:state_dict(), path .. ".bin", { safe_serialization = true })
  assert(head(path .. ".bin") ~= "PK" and accel.load(path .. ".bin").weight.shape[1] == 3)
end

-- folders
accelerator:save_model(model, root .. "/model")
assert(names(root .. "/model") == "model.safetensors")
accelerator:save_model(model, root .. "/model", { safe_serialization = false })
assert(names(root .. "/model") == "pytorch_model.bin", names(root .. "/model")) -- readers would prefer the old safetensors
same(model:state_dict(), accel.load(root .. "/model/pytorch_model.bin"))
assert(not accel.load(root .. "/model/pytorch_model.bin").weight.requires_grad)
accel.load_checkpoint_in_model(nn.Linear(2, 3), root .. "/model")
accelerator:save_model(model, root .. "/adapter", { safe_serialization = false })
for _, size in ipairs { false, 2000 } do
  local dir = root .. "/pretrained" .. tostring(size)
  assert(gpt2:save_pretrained(dir, { safe_serialization = false, max_shard_size = size or nil }))
  local wanted = size and "pytorch_model%-00001%-of%-%d+%.bin .*pytorch_model%.bin%.index%.json" or "pytorch_model%.bin"
  assert(names(dir):find(wanted), names(dir))
  assert(not names(dir):find "safetensors")
  same(gpt2:state_dict(), assert(accel.models.from_pretrained(dir)):state_dict())
end
accelerator:save_model(gpt2, root .. "/tied", { safe_serialization = false })
local tied = accel.load(root .. "/tied/pytorch_model.bin") -- both names, one storage
assert(tied["lm_head.weight"]:data_ptr() == tied["transformer.wte.weight"]:data_ptr())
assert(adapted:save_pretrained(root .. "/lora"))
assert(adapted:save_pretrained(root .. "/lora", { safe_serialization = false }))
assert(names(root .. "/lora") == "adapter_config.json adapter_model.bin", names(root .. "/lora"))
local again = assert(peft.PeftModel.from_pretrained(accel.models.GPT2(accel.models.tiny.gpt2), root .. "/lora"))
same(peft.get_peft_model_state_dict(adapted), peft.get_peft_model_state_dict(again))
accelerator:save_model(adapted, root .. "/active", { adapter_only = true, safe_serialization = false })
assert(names(root .. "/active") == "adapter_config.json adapter_model.bin")

local ok, err = pcall(accelerator.save_state, accelerator, root .. "/state", { safe_serialization = false })
assert(not ok and tostring(err):find "save_state: safe_serialization = false .*accel's own checkpoints are safetensors", tostring(err))
assert(not io.open(root .. "/state"))
