--- GPT-2 in GGUF's words. Used by families.lua.
local accel = require "accel"
local names = require "accel.models.gguf.names"
local raise = require "accel.util.raise"

local gpt2 = { name = "gpt2" }

function gpt2.class() return accel.models.GPT2 end

function gpt2.names(model)
  local c = model.config
  local function turned(name) return { name = name, write = names.transposed, read = names.transposed } end
  return names.of({
    ["transformer.wte.weight"] = "token_embd.weight", ["transformer.wpe.weight"] = { name = "position_embd.weight", keep = true },
    ["transformer.ln_f.weight"] = "output_norm.weight", ["transformer.ln_f.bias"] = "output_norm.bias", ["lm_head.weight"] = "output.weight",
  }, c.n_layer, "transformer.h.%d.", {
    ["ln_1.weight"] = "attn_norm.weight", ["ln_1.bias"] = "attn_norm.bias", ["ln_2.weight"] = "ffn_norm.weight", ["ln_2.bias"] = "ffn_norm.bias",
    ["attn.c_attn.weight"] = turned "attn_qkv.weight", ["attn.c_attn.bias"] = "attn_qkv.bias",
    ["attn.c_proj.weight"] = turned "attn_output.weight", ["attn.c_proj.bias"] = "attn_output.bias",
    ["mlp.c_fc.weight"] = turned "ffn_up.weight", ["mlp.c_fc.bias"] = "ffn_up.bias",
    ["mlp.c_proj.weight"] = turned "ffn_down.weight", ["mlp.c_proj.bias"] = "ffn_down.bias",
  })
end

function gpt2.write(head, c)
  if c.activation_function ~= "gelu_new" then raise("gguf.save: gpt2 in GGUF has gelu_new, this model %s", c.activation_function) end
  if not c.scale_attn_weights or c.scale_attn_by_inverse_layer_idx then raise "gguf.save: gpt2 in GGUF scales its scores in the usual way" end
  head:u32("gpt2.block_count", c.n_layer)
  head:u32("gpt2.context_length", c.n_positions)
  head:u32("gpt2.embedding_length", c.n_embd)
  head:u32("gpt2.feed_forward_length", c.n_inner or 4 * c.n_embd)
  head:u32("gpt2.attention.head_count", c.n_head)
  head:f32("gpt2.attention.layer_norm_epsilon", c.layer_norm_epsilon)
  head:u32("gpt2.vocab_size", c.vocab_size)
end

function gpt2.extra() return {} end

function gpt2.read(meta, given)
  local function key(name) return meta["gpt2." .. name] end
  return {
    vocab_size = given["token_embd.weight"] and given["token_embd.weight"].shape[1], n_positions = key "context_length",
    n_embd = key "embedding_length", n_layer = key "block_count", n_head = key "attention.head_count",
    n_inner = key "feed_forward_length", layer_norm_epsilon = key "attention.layer_norm_epsilon",
    tie_word_embeddings = given["output.weight"] == nil,
    bos_token_id = meta["tokenizer.ggml.bos_token_id"], eos_token_id = meta["tokenizer.ggml.eos_token_id"],
    pad_token_id = meta["tokenizer.ggml.padding_token_id"],
  }
end

return gpt2
