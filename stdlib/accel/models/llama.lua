--- models.Llama(config): Llama in Hugging Face's names: RMSNorm, rotary positions (half rotation),
--- grouped-query attention, SwiGLU.
---
---   local model = models.Llama { vocab_size = 65, hidden_size = 64, intermediate_size = 128,
---                                num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2 }
---   local logits = model(ids)                       -- [B, T] ids -> [B, T, vocab]
local accel = require "accel"
local KVCache = require "accel.models.kv_cache"
local nn = require "accel.nn"
local init = require "accel.nn.initialization"
local ordered = require "accel.util.ordered"
local pretrained = require "accel.models.pretrained"
local raise = require "accel.util.raise"

local attention = accel.scaled_dot_product_attention

local defaults = {
  model_type = "llama", vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008,
  num_hidden_layers = 32,
  num_attention_heads = 32, hidden_act = "silu", max_position_embeddings = 2048, initializer_range = 0.02,
  rms_norm_eps = 1e-6, tie_word_embeddings = false, attention_bias = false, mlp_bias = false,
  attention_dropout = 0.0,
}

--- Linear layer with GPT-style initialisation.
local function linear(c, n_in, n_out, bias)
  local layer = nn.Linear(n_in, n_out, { bias = bias })
  init.normal_(layer.weight, 0, c.initializer_range)
  if bias then init.zeros_(layer.bias) end
  return layer
end

---@class accel.models.LlamaAttention : accel.nn.Module
local Attention = nn.Module:extend("LlamaAttention")

function Attention:init(c)
  self.heads, self.kv_heads, self.head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
  self.dropout, self.theta = c.attention_dropout, c.rope_theta
  self.q_proj = linear(c, c.hidden_size, self.heads * self.head_dim, c.attention_bias)
  self.k_proj = linear(c, c.hidden_size, self.kv_heads * self.head_dim, c.attention_bias)
  self.v_proj = linear(c, c.hidden_size, self.kv_heads * self.head_dim, c.attention_bias)
  self.o_proj = linear(c, self.heads * self.head_dim, c.hidden_size, c.attention_bias)
end

function Attention:forward(x, cache, layer, mask)
  local shape = x.shape
  local B, T, D = shape[1], shape[2], self.head_dim
  local turn = { theta = self.theta, offset = cache and cache.past or 0 }
  local q = accel.rope(self.q_proj(x):view(B, T, self.heads, D):transpose(2, 3), turn)
  local k = accel.rope(self.k_proj(x):view(B, T, self.kv_heads, D):transpose(2, 3), turn)
  local v = self.v_proj(x):view(B, T, self.kv_heads, D):transpose(2, 3)
  if cache then k, v = cache:append(layer, k, v) end
  local y = attention(q, k, v, {
    is_causal = mask == nil and T > 1, attn_mask = mask, enable_gqa = self.heads ~= self.kv_heads,
    dropout_p = self.training and self.dropout or 0.0,
  })
  return self.o_proj(y:transpose(2, 3):reshape(B, T, self.heads * D))
end

---@class accel.models.LlamaMLP : accel.nn.Module
local MLP = nn.Module:extend("LlamaMLP")

function MLP:init(c)
  self.gate_proj = linear(c, c.hidden_size, c.intermediate_size, c.mlp_bias)
  self.up_proj = linear(c, c.hidden_size, c.intermediate_size, c.mlp_bias)
  self.down_proj = linear(c, c.intermediate_size, c.hidden_size, c.mlp_bias)
end

function MLP:forward(x) return self.down_proj(self.gate_proj(x):silu() * self.up_proj(x)) end

---@class accel.models.LlamaDecoderLayer : accel.nn.Module
local Layer = nn.Module:extend("LlamaDecoderLayer")

function Layer:init(c)
  self.self_attn = Attention(c)
  self.mlp = MLP(c)
  self.input_layernorm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
  self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
end

function Layer:forward(x, cache, layer, mask)
  x = x + self.self_attn(self.input_layernorm(x), cache, layer, mask)
  return x + self.mlp(self.post_attention_layernorm(x))
end

---@class accel.models.LlamaModel : accel.nn.Module
local Model = nn.Module:extend("LlamaModel")

function Model:init(c)
  self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
  init.normal_(self.embed_tokens.weight, 0, c.initializer_range)
  self.layers = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layers:append(Layer(c)) end
  self.norm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
end

function Model:forward(ids, cache)
  local T = ids.shape[2]
  local mask = cache and cache:mask(T, ids.device)
  local x = self.embed_tokens(ids)
  for i, layer in ipairs(self.layers) do x = layer(x, cache, i, mask) end
  if cache then cache:advance(T) end
  return self.norm(x)
end

---@class accel.models.Llama : accel.nn.Module
---@field config table
local Llama = nn.Module:extend("LlamaForCausalLM")

---@param config? table Hugging Face's config.json keys
function Llama:init(config)
  local c = pretrained.config(config, defaults)
  c.num_key_value_heads = c.num_key_value_heads or c.num_attention_heads
  c.head_dim = c.head_dim or c.hidden_size // c.num_attention_heads
  local rope = c.rope_parameters or c.rope_scaling or {}
  local kind = rope.rope_type or rope.type or "default"
  if kind ~= "default" then raise("Llama: rope_type '%s' is not supported", tostring(kind)) end
  c.rope_theta = c.rope_theta or rope.rope_theta or 10000.0
  if c.num_attention_heads % c.num_key_value_heads ~= 0 then
    raise("Llama: %d attention heads are no multiple of %d key-value heads", c.num_attention_heads,
      c.num_key_value_heads)
  end
  if c.hidden_act ~= "silu" then raise("Llama: hidden_act '%s' is not supported", tostring(c.hidden_act)) end
  self.config = c
  self.model = Model(c)
  self.lm_head = linear(c, c.hidden_size, c.vocab_size, false)
  if c.tie_word_embeddings then self.lm_head.weight = self.model.embed_tokens.weight end
end

--- Logits [B, T, vocab] of ids [B, T]. With a cache the ids continue what it holds.
---@param ids accel.Tensor
---@param cache? accel.models.KVCache
function Llama:forward(ids, cache) return self.lm_head(self.model(ids, cache)) end

function Llama:context_length() return self.config.max_position_embeddings end

---@param batch integer
---@param length? integer default: the context length
function Llama:new_cache(batch, length)
  local c = self.config
  local weight = self.model.embed_tokens.weight
  return KVCache(c.num_hidden_layers, { batch, c.num_key_value_heads, length or self:context_length(),
    c.head_dim },
    { dtype = weight.dtype, device = weight.device })
end

---@param ids integer[]|accel.Tensor
---@param opts? table see accel.models.generate
function Llama:generate(ids, opts) return require "accel.models.generate"(self, ids, opts) end

function Llama:load_state_dict(state, strict)
  local given = ordered()
  for name, t in ordered.iterate(state) do given[name] = t end
  if self.config.tie_word_embeddings then given["lm_head.weight"] = given["model.embed_tokens.weight"] end
  return nn.Module.load_state_dict(self, given, strict)
end

--- The model of a folder written by save_pretrained; nil, message, code when a file is missing or malformed.
---@param dir string
function Llama.from_pretrained(dir)
  local config, state, code = pretrained.load(dir)
  if not config then return nil, state, code end
  local model = Llama(config)
  model:load_state_dict(state)
  return model:eval()
end

--- Writes config.json and model.safetensors into an existing folder.
---@param dir string
function Llama:save_pretrained(dir)
  local state = ordered()
  for name, t in pairs(self:state_dict()) do
    if not (self.config.tie_word_embeddings and name == "lm_head.weight") then state[name] = t end
  end
  return pretrained.save(dir, self.config, state)
end

return Llama
