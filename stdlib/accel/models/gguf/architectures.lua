--- Descriptions of llama.cpp's architectures for decoder.lua: what differs from Llama, and what llama.cpp computes by constants of its own
--- instead of metadata. Source: llama.cpp's converter (convert_hf_to_gguf.py) and its lists of tensors (gguf-py). Used by families.lua.
local raise = require "accel.util.raise"
local rope = require "accel.models.gguf.rope"

local GELU <const> = { gelu = true, gelu_new = true, gelu_pytorch_tanh = true } -- llama.cpp computes one GELU
local SANDWICH <const> = { before_mlp = "ffn_norm", after_attention = "post_attention_norm", after_mlp = "post_ffw_norm" }

local function need(condition, ...)
  if not condition then raise(...) end
end

--- Windows of this size where `near` holds for a layer (from 0), as far as they are shorter than the context.
local function windows(near)
  return function(c, d)
    local size, out = c.sliding_window, {}
    if size and size < c.max_position_embeddings then
      for i = 0, d.layers - 1 do out[i + 1] = near(i) and size or nil end
    end
    return out
  end
end

--- Words of layer_types for a rule of llama.cpp's.
local function layer_types(n, near)
  local out = {}
  for i = 0, n - 1 do out[i + 1] = near(i) and "sliding_attention" or "full_attention" end
  return out
end

local function even(i) return i % 2 == 0 end
local function five_of_six(i) return i % 6 ~= 5 end
local function three_of_four(i) return i % 4 ~= 3 end

--- The scale of scores that Gemma's files imply.
local function gemma_scale(c, big)
  local per_head = c.num_hidden_layers == big and c.hidden_size / c.num_attention_heads or c.head_dim
  need(math.abs(c.query_pre_attn_scalar - per_head) < 1e-6 * per_head, "gguf.save: llama.cpp scales these scores by 1 / sqrt(%g), this "
    .. "model by 1 / sqrt(%g) (query_pre_attn_scalar)", per_head, c.query_pre_attn_scalar)
end

local function tied(c, arch) need(c.tie_word_embeddings, "gguf.save: %s in GGUF has no head of its own, this model has one", arch) end

return {
  { name = "llama", class = "LlamaForCausalLM", turned = true },
  { name = "llama", class = "MistralForCausalLM", turned = true, only_written = true },
  { name = "qwen2", class = "Qwen2ForCausalLM" },
  { name = "qwen3", class = "Qwen3ForCausalLM" },
  { name = "qwen3moe", class = "Qwen3MoeForCausalLM", moe = { normalise = true },
    declared = "expert_used_count expert_feed_forward_length" },
  { name = "qwen2moe", class = "Qwen2MoeForCausalLM", own_head = true, moe = { normalise = false },
    declared = "expert_used_count expert_feed_forward_length expert_shared_feed_forward_length",
    read = function(_, c) c.qkv_bias = c.attention_bias end },
  { name = "olmo", class = "OlmoForCausalLM", turned = true, eps = "none", declared = "attention.clamp_kqv",
    write = function(put, c) if c.clip_qkv then put.f32("attention.clamp_kqv", c.clip_qkv) end end,
    read = function(key, c)
      local clip, eps = key "attention.clamp_kqv", key "attention.layer_norm_epsilon"
      if clip ~= nil and type(clip) ~= "number" then return "olmo.attention.clamp_kqv must be a number" end
      if eps and math.abs(eps - 1e-5) > 1e-9 then return ("olmo.attention.layer_norm_epsilon = %g is not 1e-5"):format(eps) end
      c.clip_qkv = clip and clip > 0 and clip or nil
    end },
  { name = "gemma", class = "GemmaForCausalLM", offset = true, acts = GELU, write = function(_, c) tied(c, "gemma") end },
  {
    name = "gemma2", class = "Gemma2ForCausalLM", offset = true, acts = GELU, norms = SANDWICH, window = windows(even),
    declared = "attn_logit_softcapping final_logit_softcapping attention.sliding_window",
    write = function(put, c)
      tied(c, "gemma2")
      gemma_scale(c, 46)
      need(c.attn_logit_softcapping and c.final_logit_softcapping, "gguf.save: gemma2 in GGUF has soft caps, this model lacks one")
      put.f32("attn_logit_softcapping", c.attn_logit_softcapping)
      put.f32("final_logit_softcapping", c.final_logit_softcapping)
      put.u32("attention.sliding_window", c.sliding_window or c.max_position_embeddings)
    end,
    read = function(key, c)
      c.attn_logit_softcapping, c.final_logit_softcapping = key "attn_logit_softcapping" or 50.0, key "final_logit_softcapping" or 30.0
      c.sliding_window, c.layer_types = key "attention.sliding_window" or 4096, layer_types(c.num_hidden_layers, even)
      c.query_pre_attn_scalar = c.num_hidden_layers == 46 and c.hidden_size / c.num_attention_heads or c.head_dim
    end,
  },
  {
    name = "gemma3", class = "Gemma3ForCausalLM", offset = true, acts = GELU, norms = SANDWICH, window = windows(five_of_six),
    no_rope = true,
    declared = "attention.sliding_window final_logit_softcapping rope.freq_base_swa attention.sliding_window_pattern",
    rotary = function(head, _, d)
      local near = d.rotary.sets.sliding_attention
      rope.write(head, "gemma3", d.rotary.sets.full_attention)
      local base = near.rope_parameters.rope_theta or near.theta
      need((near.rope_parameters.rope_type or "default") == "default", "gguf.save: llama.cpp scales no positions in layers with a window")
      head:f32("gemma3.rope.freq_base_swa", base)
    end,
    write = function(put, c)
      gemma_scale(c, 62)
      need(not c.attn_logit_softcapping, "gguf.save: gemma3 in GGUF has no soft cap of scores, this model has one")
      if c.final_logit_softcapping then put.f32("final_logit_softcapping", c.final_logit_softcapping) end
      put.u32("attention.sliding_window", c.sliding_window or c.max_position_embeddings)
    end,
    read = function(key, c)
      local full, problem = rope.read(key, { head_dim = c.head_dim, max_position_embeddings = c.max_position_embeddings })
      if not full then return problem end
      if not key "rope.freq_base" then full.rope_theta = 1e6 end
      if (key "attention.sliding_window_pattern" or 6) ~= 6 then return "gemma3.attention.sliding_window_pattern is not 6" end
      c.rope_parameters = { full_attention = full,
        sliding_attention = { rope_type = "default", rope_theta = key "rope.freq_base_swa" or 10000.0 } }
      c.final_logit_softcapping, c.sliding_window = key "final_logit_softcapping", key "attention.sliding_window" or 1024
      c.layer_types = layer_types(c.num_hidden_layers, five_of_six)
      c.query_pre_attn_scalar = c.num_hidden_layers == 62 and c.hidden_size / c.num_attention_heads or c.head_dim
    end,
  },
  { name = "phi2", class = "PhiForCausalLM", own_head = true, eps = "layer_norm_eps", part = "partial_rotary_factor", acts = GELU,
    write = function(_, c) need(not c.qk_layernorm, "gguf.save: phi2 in GGUF has no norms of queries and keys") end },
  {
    name = "phi3", class = "Phi3ForCausalLM", part = "partial_rotary_factor", window = windows(function() return true end),
    declared = "attention.sliding_window rope.scaling.original_context_length",
    write = function(put, c)
      if not c.sliding_window then return end
      put.u32("attention.sliding_window", c.sliding_window)
      if c.sliding_window < c.max_position_embeddings then
        warn(("gguf.save: llama.cpp computes phi3 without its window of %d: longer texts get other logits there"):format(c.sliding_window))
      end
    end,
    read = function(key, c)
      local size = key "attention.sliding_window"
      c.sliding_window = size and size > 0 and size or nil
    end,
  },
  { name = "olmo2", class = "Olmo2ForCausalLM", own_head = true },
  {
    name = "gptneox", class = "GPTNeoXForCausalLM", own_head = true, eps = "layer_norm_eps", part = "rotary_pct", acts = GELU,
    declared = "use_parallel_residual",
    write = function(put, c) put.bool("use_parallel_residual", c.use_parallel_residual) end,
    read = function(key, c, given)
      c.use_parallel_residual, c.attention_bias = key "use_parallel_residual" ~= false, given["blk.0.attn_qkv.bias"] ~= nil
    end,
  },
  {
    name = "stablelm", class = "StableLmForCausalLM", own_head = true, eps = "layer_norm_eps", part = "partial_rotary_factor",
    declared = "use_parallel_residual",
    write = function(put, c)
      need(not c.qk_layernorm, "gguf.save: norms of each query and key head of stablelm are not written")
      put.bool("use_parallel_residual", c.use_parallel_residual)
    end,
    read = function(_, c, given)
      c.use_qkv_bias, c.use_parallel_residual = c.attention_bias, given["blk.0.ffn_norm.weight"] == nil
    end,
  },
  {
    name = "granite", class = "GraniteForCausalLM", turned = true,
    declared = "attention.scale embedding_scale residual_scale logit_scale",
    write = function(put, c)
      put.f32("attention.scale", c.attention_multiplier)
      put.f32("embedding_scale", c.embedding_multiplier)
      put.f32("residual_scale", c.residual_multiplier)
      put.f32("logit_scale", c.logits_scaling)
    end,
    read = function(key, c)
      local function scale(name, usual)
        local value = key(name)
        return value and value ~= 0 and value or usual
      end
      c.attention_multiplier = scale("attention.scale", c.head_dim ^ -0.5)
      c.embedding_multiplier, c.residual_multiplier = scale("embedding_scale", 1.0), scale("residual_scale", 1.0)
      c.logits_scaling = scale("logit_scale", 1.0)
    end,
  },
  {
    name = "smollm3", class = "SmolLM3ForCausalLM", turned = true,
    write = function(_, _, d)
      for i, kind in ipairs(d.kinds) do
        need((kind.rope ~= nil) == (i % 4 ~= 0), "gguf.save: llama.cpp leaves rotary positions out in every fourth layer of smollm3, this "
          .. "model has others (no_rope_layers)")
      end
    end,
    read = function(_, c) c.no_rope_layer_interval = 4 end,
  },
  {
    name = "command-r", class = "CohereForCausalLM", eps = "layer_norm_eps", declared = "logit_scale",
    write = function(put, c)
      tied(c, "command-r")
      need(c.use_qk_norm == (c.num_hidden_layers >= 64),
        "gguf.save: llama.cpp has norms of queries and keys of command-r from 64 layers on")
      put.f32("logit_scale", c.logit_scale)
    end,
    read = function(key, c, given)
      c.logit_scale, c.use_qk_norm = key "logit_scale", given["blk.0.attn_q_norm.weight"] ~= nil
    end,
  },
  {
    name = "cohere2", class = "Cohere2ForCausalLM", eps = "layer_norm_eps", declared = "logit_scale attention.sliding_window",
    window = windows(three_of_four),
    write = function(put, c, d)
      tied(c, "cohere2")
      for i, kind in ipairs(d.kinds) do
        need((kind.rope ~= nil) == three_of_four(i - 1), "gguf.save: llama.cpp turns three of four layers of cohere2, this model others")
      end
      put.f32("logit_scale", c.logit_scale)
      put.u32("attention.sliding_window", c.sliding_window or c.max_position_embeddings)
    end,
    read = function(key, c)
      c.logit_scale, c.sliding_window = key "logit_scale", key "attention.sliding_window"
      c.layer_types = layer_types(c.num_hidden_layers, three_of_four)
    end,
  },
  { name = "starcoder2", class = "Starcoder2ForCausalLM", eps = "norm_epsilon", acts = GELU,
    write = function(_, c) need(c.use_bias, "gguf.save: starcoder2 in GGUF has biases, this model has none") end,
    read = function(_, c) c.use_bias, c.sliding_window = c.attention_bias, nil end },
  { name = "nemotron", class = "NemotronForCausalLM", own_head = true, eps = "norm_eps", part = "partial_rotary_factor", offset = true,
    acts = { relu2 = true } },
  { name = "glm4", class = "Glm4ForCausalLM", part = "partial_rotary_factor" },
}
