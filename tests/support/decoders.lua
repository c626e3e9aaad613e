--- Small random models of every registered decoder family, for tests that take each of them: its names, and a model with the keys that its
--- class declares.
local accel = require "accel"
local families = require "accel.models.families"

local M = { vocabulary = 33 }

--- model_type -> name of the class, of all decoders with a language-model head.
M.classes = { gpt2 = "GPT2LMHeadModel", llama = "LlamaForCausalLM", mixtral = "MixtralForCausalLM" }
for kind, name in next, families.usual do
  if name:find "ForCausalLM$" then M.classes[kind] = name end
end

--- A small configuration with the keys that the family declares.
---@param kind string model_type
---@param more? table keys in addition, as far as the family declares them
---@return accel.models.PreTrainedModel
function M.model_of(kind, more)
  local class = accel.models[M.classes[kind]]
  local c, fields = {}, class.schema.fields
  for _, set in ipairs { {
    vocab_size = M.vocabulary, hidden_size = 32, n_embd = 32, num_hidden_layers = 2, n_layer = 2, num_layers = 2,
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
  }, more or {} } do
    for key, value in next, set do
      if fields[key] then c[key] = value end
    end
  end
  accel.manual_seed(7)
  return class(c)
end

return M
