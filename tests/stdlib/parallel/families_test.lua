-- Every decoder family on two ranks, each with tensor parallelism, a pipeline, context parallelism, FSDP 2 and ZeRO-3: the losses of three
-- steps are those of one rank within 1e-5 relative. A family or layout that cannot be cut raises, and is counted by name.
--   accel-run tests/stdlib/parallel/families_test.lua [FAMILY]
-- tier: slow
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local families = require "accel.models.families"

local STEPS <const>, V <const> = 3, 33
local LAYOUTS <const> = { "tp", "pp", "cp", "fsdp2", "zero3" }

--- A small configuration with the keys that the family declares.
local function model_of(kind)
  local class = accel.models[families.usual[kind]]
  local c, fields = {}, class.schema.fields
  for key, value in next, {
    vocab_size = V, hidden_size = 32, n_embd = 32, num_hidden_layers = 2, n_layer = 2, num_layers = 2,
      num_attention_heads = 4, n_head = 4, num_heads = 4,
    num_key_value_heads = 2, num_kv_heads = 2, head_dim = 8, intermediate_size = 24, n_inner = 24, ffn_dim = 24, ffn_hidden_size = 24,
    max_position_embeddings = 16, n_positions = 16, sliding_window = 4, window_size = 4, attention_types = { { { "global", "local" }, 1 } },
    word_embed_proj_dim = 32, rotary_dim = 4, q_lora_rank = 8, kv_lora_rank = 8, qk_nope_head_dim = 4, qk_rope_head_dim = 4, v_head_dim = 6,
    n_routed_experts = 4, num_local_experts = 4, num_experts = 4, n_group = 2, topk_group = 1,
      num_experts_per_tok = kind == "llama4_text" and 1 or 2,
    moe_intermediate_size = 8, shared_expert_intermediate_size = 8, first_k_dense_replace = 1,
      intermediate_size_mlp = 24, attention_chunk_size = 4,
    floor_scale = 3, dropout = 0.0, resid_pdrop = 0.0, embd_pdrop = 0.0, attn_pdrop = 0.0, max_window_layers = 1,
      original_max_position_embeddings = 16,
    state_size = 4,
  } do
    if fields[key] then c[key] = value end
  end
  accel.manual_seed(7)
  return class(c)
end

local function batch(step)
  return accel.randint(4, V, { 4, 8 }, { generator = accel.Generator(step) })
end

local function alone(kind)
  local model, losses = model_of(kind), {}
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3, eps = 1e-4 })
  for step = 1, STEPS do
    local ids = batch(step)
    local loss = model(ids, { labels = ids })
    loss:backward()
    optimizer:step()
    optimizer:zero_grad()
    losses[step] = loss:item()
  end
  return losses
end

--- One family and layout against one rank; why it is refused, or nil.
local function one(kind, layout)
  local want = alone(kind)
  local out = ranks.run(2, { args = ("'%s' '%s'"):format(kind, layout), capture = true })
  local why = out:match "refused ([^\n]*)"
  if why then return why end
  local steps = 0
  for step, loss in out:gmatch "step (%d+) (%S+)\n" do
    steps = steps + 1
    local w, got = want[tonumber(step)], tonumber(loss)
    if not (math.abs(got - w) <= 1e-5 * math.abs(w)) then error(("step %s: %.9g, on one rank %.9g"):format(step, got, w), 0) end
  end
  if steps ~= STEPS then error(out, 0) end
end

if not ranks.launched then
  local tried, refused, wrong = 0, {}, {}
  for _, layout in ipairs(LAYOUTS) do
    for kind, name in accel.pairs(families.usual) do
      if name:find "ForCausalLM$" and (not arg[1] or arg[1] == kind) and (not arg[2] or arg[2] == layout) then
        local ran, why = pcall(one, kind, layout)
        if not ran then
          wrong[#wrong + 1] = ("%s %s: %s"):format(kind, layout, why)
        elseif why then
          refused[#refused + 1] = ("%s %s: %s"):format(kind, layout, why)
        else
          tried = tried + 1
        end
      end
    end
  end
  for _, line in ipairs(refused) do print("refused " .. line) end
  for _, line in ipairs(wrong) do print("FAIL " .. line) end
  print(("%d families and layouts run, %d refused, %d failed"):format(tried, #refused, #wrong))
  if #wrong > 0 then os.exit(1, true) end
  return
end

local kind, layout = arg[1], arg[2]
local model = model_of(kind)
local function say(step, loss)
  if ranks.rank == 0 then print(("step %d %.9g"):format(step, loss:item())) end
end

local ok, err = pcall(function()
  local Accelerator, acc = accel.Accelerator, nil
  if layout == "fsdp2" then
    acc = Accelerator { fsdp_plugin = accel.FullyShardedDataParallelPlugin { fsdp_version = 2, auto_wrap_policy = "transformer_based_wrap",
      transformer_cls_names_to_wrap = model._no_split_modules } }
  elseif layout == "zero3" then
    acc = Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 3, gradient_clipping = 1e9 } }
  else
    acc = Accelerator { parallelism_config = accel.ParallelismConfig { [layout .. "_size"] = 2 } }
  end
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3, eps = 1e-4 })
  model, optimizer = acc:prepare(model, optimizer)
  for step = 1, STEPS do
    local ids = batch(step)
    local loss
    if layout == "fsdp2" or layout == "zero3" then
      local mine = ids:narrow(1, ranks.rank * 2 + 1, 2)
      loss = model(mine, { labels = mine })
      acc:backward(loss)
      loss = acc:reduce(loss:detach(), "mean")
    elseif layout == "cp" then
      local shifted = accel.cat({ ids:narrow(2, 2, 7), accel.full({ 4, 1 }, -100, { dtype = "i64" }) }, 2)
      local _ <close> = acc:maybe_context_parallel { buffers = { ids, shifted }, buffer_seq_dims = { 2, 2 } }
      loss = model(ids, { shift_labels = shifted })
      acc:backward(loss)
      loss = acc:reduce(loss:detach(), "mean")
    else
      loss = model(ids, { labels = ids })
      acc:backward(loss)
    end
    optimizer:step()
    optimizer:zero_grad()
    say(step, loss)
  end
end)
if not ok then
  local text = tostring(err):match "^[^\n]*"
  if text:find "does not run on" or text:find "no plan" or text:find "cannot" or text:find "is not supported" then
    if ranks.rank == 0 then print("refused " .. text) end
  else
    error(err, 0)
  end
end
