-- adapter_only: save_state, save_model and get_state_dict hold the adapter alone, by PEFT's names, and load_state puts it back; on one
-- rank and cut over two by FSDP, in both forms, each loaded by the other world.
--   accel-run tests/stdlib/peft/adapter_only_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, peft, ckpt = accel.nn, accel.peft, require "accel.ckpt"
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/peft_adapter_only"

local WAYS <const> = { "plain", "SHARDED_STATE_DICT", "FULL_STATE_DICT" }
local GPT <const> = { vocab_size = 65, n_positions = 16, n_embd = 32, n_layer = 2, n_head = 2 }
accel.manual_seed(3)
local ids = accel.randint(0, 65, { 4, 8 })

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

--- A model with an adapter and its optimizer, prepared in one of the ways.
local function make(way, seed)
  local sharded = way ~= "plain"
  local accelerator = accel.Accelerator { fsdp_plugin = sharded and accel.FullyShardedDataParallelPlugin {
    state_dict_type = way, auto_wrap_policy = "transformer_based_wrap", transformer_cls_names_to_wrap = { "GPT2Block" },
    use_orig_params = true,
  } or nil }
  accel.manual_seed(5)
  local base = accel.models.GPT2LMHeadModel(GPT)
  accel.manual_seed(seed)
  local p = peft.get_peft_model(base, peft.LoraConfig { r = 2, modules_to_save = { "ln_f" }, init_lora_weights = "gaussian" })
  local learning = {}
  for _, t in ipairs(p:parameters()) do learning[#learning + 1] = t.requires_grad and t or nil end
  local model, optimizer = accelerator:prepare(p, accel.optim.AdamW(learning, { lr = 0.01 }))
  return accelerator, model, optimizer
end

local function train(accelerator, model, optimizer)
  for _ = 1, 2 do
    accelerator:backward(model(ids, { labels = ids }))
    optimizer:step()
    optimizer:zero_grad()
  end
end

local function digest(state)
  local h, names = 7, {}
  for name in accel.pairs(state) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local text = name .. state[name]:to_bytes()
    for i = 1, #text do h = (h ~ text:byte(i)) * 0x100000001b3 end
  end
  return ("%016x"):format(h)
end

if arg[1] == "save" then
  for _, way in ipairs(WAYS) do
    local accelerator, model, optimizer = make(way, 1)
    train(accelerator, model, optimizer)
    local name = ("%s/%s-%s"):format(tmp, arg[2], way)
    accelerator:save_state(name, { adapter_only = true })
    accelerator:save_model(model, name .. "-model", { adapter_only = true })
    local state = accelerator:get_state_dict(model, { adapter_only = true })
    if accelerator.is_main_process then
      local n = 0
      for key, t in accel.pairs(state) do
        n = n + 1
        assert(key:find "^base_model%.model%.transformer%." and not key:find "default" and t.device == "cpu", key)
      end
      assert(n == 2 * 2 + 2, n) -- A and B of two layers, weight and bias of the norm
      print("digest", way, digest(state))
      local c <close> = assert(ckpt.open(name))
      local stored = {}
      for _, s in ipairs(c:tensors "model") do stored[#stored + 1] = s.name end
      assert(#stored == n, #stored .. " tensors are stored")
      for _, key in ipairs(stored) do assert(state[key], key) end
      local file = accel.load(name .. "-model/adapter_model.safetensors")
      assert(digest(file) == digest(state))
      assert(not io.open(name .. "-model/model.safetensors"))
    else
      assert(next(state) == nil or digest(state) == digest(accelerator:get_state_dict(model, { adapter_only = true })))
    end
    accelerator:wait_for_everyone()
  end
  return
elseif arg[1] == "load" then
  for _, word in ipairs { table.unpack(arg, 2) } do
    local from, to = word:match "^(%d%-[%w_]+):([%w_]+)$"
    local accelerator, model, optimizer = make(to, 2)
    train(accelerator, model, optimizer)
    local before = {}
    for name, t in accel.pairs(accelerator:get_state_dict(model)) do before[name] = t:to_bytes() end
    accelerator:load_state(tmp .. "/" .. from)
    local after = accelerator:get_state_dict(model)
    for name, bytes in accel.pairs(before) do
      local own = name:find "lora_" or name:find "modules_to_save"
      assert((bytes == after[name]:to_bytes()) == not own, name)
    end
    local state = accelerator:get_state_dict(model, { adapter_only = true })
    if accelerator.is_main_process then print("digest", word, digest(state)) end
    train(accelerator, model, optimizer) -- the optimizer's states are there, too
  end
  return
end

os.execute(("rm -rf '%s'; mkdir -p '%s'"):format(tmp, tmp))
do -- what was saved of one adapter goes to that one, whichever is active then
  local config = peft.LoraConfig { r = 2, target_modules = { "0" } }
  local p = peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 4)), config, { adapter_name = "a" })
  p:add_adapter("b", peft.LoraConfig { r = 2, target_modules = { "0" } })
  local accelerator, b = accel.Accelerator {}, p.base_model.model[1].lora_B
  accelerator:prepare(p)
  accel.no_grad(function() b.a.weight:fill_(1) end)
  accelerator:save_state(tmp .. "/named", { adapter_only = true })
  p:set_adapter "b"
  accel.no_grad(function() b.a.weight:fill_(5) b.b.weight:fill_(6) end)
  accelerator:load_state(tmp .. "/named")
  assert(b.a.weight:mean():item() == 1 and b.b.weight:mean():item() == 6)
end
local saved = {}
local function run(n, args) -- two ranks once with memory that they share, once with parts alone
  local options = { args = args, capture = true, backend = n == 3 and "tcp" or nil }
  return ranks.run(math.min(n, 2), options)
end
for n = 1, 3 do
  for way, hex in run(n, "save " .. n):gmatch "digest%s+(%S+)%s+(%x+)" do saved[n .. "-" .. way] = hex end
end
for m = 1, 3 do
  local list = {}
  for n = 1, 3 do
    for k, from in ipairs(WAYS) do list[#list + 1] = ("%d-%s:%s"):format(n, from, WAYS[(k + n) % 3 + 1]) end
  end
  local out = run(m, "load " .. table.concat(list, " "))
  for _, word in ipairs(list) do
    local hex = out:match("digest%s+" .. word:gsub("%p", "%%%0") .. "%s+(%x+)")
    assert(hex and hex == saved[word:match "^[^:]+"], word .. " on " .. m)
  end
end

-- the folder is PEFT's, and the checkpoint's names are those of the file
local base = accel.models.GPT2LMHeadModel(GPT)
local again = assert(peft.PeftModel.from_pretrained(base, tmp .. "/2-FULL_STATE_DICT-model"))
assert(digest(peft.get_peft_model_state_dict(again)) == saved["2-FULL_STATE_DICT"])

-- whole states of the model serve as PEFT's state_dict
local state = again:state_dict()
for name, t in accel.pairs(state) do state[name] = t:clone():fill_(0.5) end
for _, t in accel.pairs(peft.get_peft_model_state_dict(again, "default", { state_dict = state })) do assert(t:max():item() == 0.5) end
assert(again:save_pretrained(tmp .. "/half", { state_dict = state }))
assert(accel.load(tmp .. "/half/adapter_model.safetensors")["base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"]:min():item() == 0.5)
fails("state_dict has no 'base_model", peft.get_peft_model_state_dict, again, "default", { state_dict = {} })

-- what is refused, and models without adapters beside one with
local accelerator = accel.Accelerator()
local plain = accelerator:prepare(nn.Linear(2, 2))
fails("no prepared model has adapters", accelerator.save_state, accelerator, tmp .. "/none", { adapter_only = true })
fails("the model has no adapters", accelerator.save_model, accelerator, plain, tmp .. "/none", { adapter_only = true })
fails("the model has no adapters", accelerator.get_state_dict, accelerator, plain, { adapter_only = true })
fails("did you mean 'adapter_only'", accelerator.save_state, accelerator, tmp .. "/none", { adapters_only = true })
local both = accelerator:prepare(again)
assert(both)
accelerator:save_state(tmp .. "/both", { adapter_only = true })
local c <close> = assert(ckpt.open(tmp .. "/both"))
assert(#c:tensors "model" == 2 and #c:tensors "model_1" == 6)
local other = accel.Accelerator()
other:prepare(nn.Linear(2, 2), accel.models.GPT2LMHeadModel(GPT))
fails("model_1: it was saved with adapter_only", other.load_state, other, tmp .. "/both")
