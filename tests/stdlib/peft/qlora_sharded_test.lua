-- QLoRA over ranks: quantised weights under FSDP 1 and 2 and ZeRO-3, with memory that ranks share and with parts alone, learn as on one
-- rank; they lie once where memory is shared; ranks without values receive them; checkpoints pass from one world to the other.
--   accel-run tests/stdlib/peft/qlora_sharded_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, peft = accel.dist, accel.peft
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/peft_qlora_sharded"
local WAYS <const> = { "plain", "fsdp", "fsdp2", "full", "efficient", "zero3" }

local zero -- of the process: the first Accelerator gets it

--- A prepared model with an adapter over nf4 or int8, and its optimizer.
local function make(way, kind)
  local plugin, deepspeed
  if way == "zero3" then
    deepspeed = not zero and accel.DeepSpeedPlugin { zero_stage = 3 } or nil
    zero = true
  elseif way ~= "plain" then
    plugin = accel.FullyShardedDataParallelPlugin {
      fsdp_version = way == "fsdp2" and 2 or 1, use_orig_params = true, cpu_ram_efficient_loading = way == "efficient",
      sync_module_states = true, state_dict_type = way == "full" and "FULL_STATE_DICT" or "SHARDED_STATE_DICT",
      auto_wrap_policy = "transformer_based_wrap", transformer_cls_names_to_wrap = { "GPT2Block" },
    }
  end
  local accelerator = accel.Accelerator { fsdp_plugin = plugin, deepspeed_plugin = deepspeed }
  local quantization = accel.BnbQuantizationConfig {
    load_in_4bit = kind == "nf4", load_in_8bit = kind == "int8", bnb_4bit_quant_type = "nf4", bnb_4bit_use_double_quant = true,
    bnb_4bit_compute_dtype = "fp32", torch_dtype = "fp32",
  }
  local base = accel.models.from_pretrained(tmp .. "/gpt", { quantization_config = quantization })
  base = peft.prepare_model_for_kbit_training(base, { use_gradient_checkpointing = false })
  accel.manual_seed(3)
  local p = peft.get_peft_model(base, peft.LoraConfig { r = 4, init_lora_weights = "gaussian" })
  local learning = {}
  for _, t in ipairs(p:parameters()) do learning[#learning + 1] = t.requires_grad and t or nil end
  local model, optimizer = accelerator:prepare(p, accel.optim.AdamW(learning, { lr = 0.01 }))
  return accelerator, model, optimizer
end

--- Three updates on rows of one batch; the mean losses.
local function train(accelerator, model, optimizer)
  accel.manual_seed(9)
  local n, losses = accelerator.num_processes, {}
  local ids = accel.randint(0, 65, { 4, 8 }):narrow(1, accelerator.process_index * (4 // n) + 1, 4 // n)
  for i = 1, 3 do
    local loss = model(ids, { labels = ids })
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    losses[i] = ("%.9g"):format(accelerator:reduce(loss:detach(), { reduction = "mean" }):item())
  end
  return table.concat(losses, " ")
end

if arg[1] == "train" then
  local name, ways = arg[2], { table.unpack(WAYS, 1, accel.dist.get_world_size() == 1 and 1 or #WAYS) }
  for _, way in ipairs(ways) do -- zero3 last: the plugin is of the process
    for _, kind in ipairs { "nf4", "int8" } do
      local accelerator, model, optimizer = make(way, kind)
      local first = train(accelerator, model, optimizer)
      local folder = ("%s/%s-%s-%s"):format(tmp, name, kind, way)
      accelerator:save_state(folder)
      local second = train(accelerator, model, optimizer)
      if accelerator.is_main_process then print("losses", kind, way, first, second) end
      if way == "fsdp" and name == "2" then -- what one rank writes all have, since it is there once
        local w = accelerator:unwrap_model(model).base_model.model.transformer.h[1].attn.c_attn.base_layer.weight
        local scales, before = w:quant_part "absmax", w:quant_part("absmax"):to_bytes()
        dist.barrier()
        if dist.get_rank() == 0 then scales:add_(1) end
        dist.barrier()
        assert(scales:to_bytes() ~= before, "every rank has bytes of its own")
        dist.barrier()
      end
    end
  end
  return
elseif arg[1] == "load" then
  for _, word in ipairs { table.unpack(arg, 2) } do
    local kind, way = word:match "^%w+%-(%w+)%-%w+:(%w+)$"
    local accelerator, model, optimizer = make(way, kind)
    accelerator:load_state(tmp .. "/" .. word:match "^[^:]+")
    local losses = train(accelerator, model, optimizer)
    if accelerator.is_main_process then print("losses", word, losses) end
  end
  return
end

os.execute(("rm -rf '%s'; mkdir -p '%s'"):format(tmp, tmp))
accel.manual_seed(5)
local GPT <const> = { vocab_size = 65, n_positions = 16, n_embd = 64, n_layer = 2, n_head = 2 }
assert(accel.models.GPT2LMHeadModel(GPT):save_pretrained(tmp .. "/gpt"))

local function near(a, b, what)
  local x, y = {}, {}
  for v in a:gmatch "[%d.]+" do x[#x + 1] = tonumber(v) end
  for v in b:gmatch "[%d.]+" do y[#y + 1] = tonumber(v) end
  assert(#x == #y and #x > 0, what)
  for i, v in ipairs(x) do assert(math.abs(v - y[i]) < 2e-5 * v, ("%s: %s, on one rank %s"):format(what, a, b)) end
end
local function read(out, key) return assert(out:match("losses%s+" .. key:gsub("%p", "%%%0") .. "%s+([^\n]+)"), key .. " in " .. out) end

local one = ranks.run(1, { args = "train 1", capture = true })
for _, backend in ipairs { false, "tcp" } do
  local out = ranks.run(2, { args = "train " .. (backend or "2"), backend = backend or nil, capture = true })
  for _, kind in ipairs { "nf4", "int8" } do
    for _, way in ipairs(WAYS) do
      near(read(out, kind .. "\t" .. way), read(one, kind .. "\tplain"), ("%s %s %s"):format(kind, way, backend or "shm"))
    end
  end
end
for _, c in ipairs { { 1, "2-nf4-fsdp:plain", "2-nf4-full:plain", "tcp-int8-fsdp2:plain" }, { 2, "1-int8-plain:full", "1-nf4-plain:zero3" } } do
  local out = ranks.run(c[1], { args = "load " .. table.concat(c, " ", 2), capture = true })
  for i = 2, #c do
    near(read(out, c[i]), read(one, c[i]:match "%-(%w+)%-" .. "\tplain"):match "[%d.]+ [%d.]+ [%d.]+%s+(.*)", c[i])
  end
end
