-- Keys of single families that act as in Transformers, warn, or are refused: windows of Qwen's mixtures, rotary bases, the default positions
-- of gpt_oss, losses without a part for routers, f32 streams of Mamba, dropout of answers. keys_effect_test.lua shows that each key acts.
--   accel-run tests/stdlib/models/family_keys_test.lua
local accel = require "accel"
local no_effect = require "accel.util.no_effect"
local M = accel.models

local told = ""
rawset(_G, "warn", function(...) told = told .. table.concat { ... } .. "\n" end)
local function warned(f, ...)
  told = ""
  no_effect.reset()
  local warnings = require "accel.models.config".warned
  for name in next, warnings do warnings[name] = nil end
  local out = f(...)
  return told, out
end

local small = { vocab_size = 11, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 4, num_attention_heads = 2, num_key_value_heads = 1,
  max_position_embeddings = 16 }
local function with(more)
  local out = {}
  for key, value in next, small do out[key] = value end
  for key, value in next, more do out[key] = value end
  return out
end
local ids = accel.tensor { { 1, 2, 3, 4, 5 } }
local function described(class, more) return M[class](with(more), { device = "meta" }).model.d end

-- ---- windows ----
local moe = { num_experts = 2, num_experts_per_tok = 1, moe_intermediate_size = 4, shared_expert_intermediate_size = 4, use_sliding_window = true,
  sliding_window = 3, max_window_layers = 3 }
local function windows(d)
  local out = {}
  for i, kind in ipairs(d.kinds) do out[i] = tostring(kind.window) end
  return table.concat(out, " ")
end
assert(windows(described("Qwen2MoeForCausalLM", moe)) == "3 nil 3 nil")
moe.max_window_layers = 1
assert(windows(described("Qwen2MoeForCausalLM", moe)) == "3 nil nil nil")
moe.sliding_window, moe.max_window_layers = nil, nil
assert(windows(described("Qwen2MoeForCausalLM", moe)) == "4096 nil 4096 nil")
moe.shared_expert_intermediate_size = nil
assert(windows(described("Qwen3MoeForCausalLM", moe)) == "4096 4096 4096 4096")
moe.use_sliding_window = false
assert(windows(described("Qwen3MoeForCausalLM", moe)) == "nil nil nil nil")

-- ---- rotary sets ----
local function bases(class, more)
  local sets = described(class, more).rotary.sets
  return sets.full_attention.rope_parameters.rope_theta, sets.sliding_attention.rope_parameters.rope_theta
end
local near = { sliding_attention = { rope_type = "default" }, full_attention = { rope_type = "default", rope_theta = 7.0 } }
local full, sliding = bases("Gemma3ForCausalLM", { rope_parameters = near, rope_local_base_freq = 33.0, rope_theta = 99.0, head_dim = 4 })
assert(full == 7 and sliding == 33)
full, sliding = bases("Gemma3ForCausalLM", { rope_local_base_freq = 33.0, rope_theta = 99.0, head_dim = 4 })
assert(full == 99 and sliding == 33)
local ok, why = pcall(M.ModernBertModel, { rope_parameters = { rope_type = "default", rope_theta = 7.0 } }, { device = "meta" })
assert(not ok and tostring(why):find("rope_parameters must have the keys full_attention and sliding_attention", 1, true), tostring(why))
local oss = { num_experts = 2, num_experts_per_tok = 1, head_dim = 8 }
local d = described("GptOssForCausalLM", oss)
local yarn = d.rotary.sets.all.rope_parameters
assert(d.moe.n == 2 and yarn.rope_type == "yarn" and yarn.factor == 32 and yarn.truncate == false)
oss.rope_parameters = { rope_type = "default", rope_theta = 5.0 }
assert(described("GptOssForCausalLM", oss).rotary.sets.all.rope_parameters.rope_type == "default")

-- ---- keys that warn ----
oss.experts_per_token = 2
assert(warned(described, "GptOssForCausalLM", oss):find "experts_per_token has no effect next to num_experts_per_tok = 1")
oss.experts_per_token = 1
assert(warned(described, "GptOssForCausalLM", oss) == "", told)
oss.hidden_act = "gelu"
assert(warned(described, "GptOssForCausalLM", oss):find "hidden_act = 'gelu' has no effect")
assert(warned(described, "Phi3ForCausalLM", { embd_pdrop = 0.1, pad_token_id = 0 }):find "embd_pdrop = 0.1 has no effect")
assert(warned(M.Llama, with { partial_rotary_factor = 0.5 }, { device = "meta" }):find "partial_rotary_factor has no effect")

-- ---- losses without a part for the balance of experts ----
for class, more in accel.pairs {
  Llama4ForCausalLM = { num_local_experts = 2, intermediate_size_mlp = 8, head_dim = 4, pad_token_id = 0 },
  DeepseekV3ForCausalLM = { n_routed_experts = 2, num_experts_per_tok = 1, n_group = 1, topk_group = 1, moe_intermediate_size = 4,
    first_k_dense_replace = 1, q_lora_rank = 4, kv_lora_rank = 4, qk_nope_head_dim = 4, qk_rope_head_dim = 4, v_head_dim = 4,
    num_key_value_heads = 2, pad_token_id = 0 },
} do
  accel.manual_seed(1)
  local model = M[class](with(more))
  local plain = model(ids, { labels = ids })
  local text, loss = warned(model, ids, { labels = ids, output_router_logits = true })
  assert(accel.equal(loss, plain) and text:find "output_router_logits has no effect on a loss", text)
  assert(#model:_loss_counts(ids, { labels = ids, output_router_logits = true }) == 1)
end

-- ---- Mamba's stream, and dropout in front of the scores of answers ----
local dtypes = {}
local mamba = { vocab_size = 11, hidden_size = 8, num_hidden_layers = 2, state_size = 2 }
for _, wide in ipairs { true, false } do
  mamba.residual_in_fp32 = wide
  local model = M.MambaForCausalLM(mamba):to "bf16"
  model.backbone.layers[1]:register_forward_hook(function(_, _, y) dtypes[#dtypes + 1] = y.dtype end)
  assert(model(ids).dtype == "bf16")
end
assert(table.concat(dtypes, " ") == "f32 bf16")
local qa = M.DistilBertForQuestionAnswering { vocab_size = 11, dim = 8, n_layers = 1, n_heads = 2, hidden_dim = 8, qa_dropout = 1.0 }
local first = qa(ids)
assert(accel.equal(first, qa.qa_outputs.bias[1]:expand(first.shape))) -- nothing is left of the states
assert(not accel.equal(qa:eval()(ids), first))
