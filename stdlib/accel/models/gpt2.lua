--- models.GPT2(config): GPT-2 with its language-model head, in Hugging Face's names and layout (Conv1D
--- weights are [in, out], the head is tied to the token embedding), so that weights go both ways.
---
---   local model = models.GPT2 { vocab_size = 65, n_positions = 64, n_embd = 128, n_layer = 4, n_head = 4 }
---   local logits = model(ids)                       -- [B, T] ids -> [B, T, vocab]
---   local model = models.GPT2.from_pretrained(dir)
local accel = require "accel"
local Conv1D = require "accel.models.conv1d"
local KVCache = require "accel.models.kv_cache"
local nn = require "accel.nn"
local init = require "accel.nn.initialization"
local ordered = require "accel.util.ordered"
local pretrained = require "accel.models.pretrained"
local raise = require "accel.util.raise"

local attention = accel.scaled_dot_product_attention

local activations = {
  gelu_new = function(x) return accel.gelu(x, { approximate = "tanh" }) end,
  gelu = function(x) return accel.gelu(x) end,
  relu = accel.relu, silu = accel.silu, swish = accel.silu, tanh = accel.tanh,
}
activations.gelu_pytorch_tanh = activations.gelu_new

local defaults = {
  model_type = "gpt2", vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12,
  activation_function = "gelu_new", resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1,
  layer_norm_epsilon = 1e-5,
  initializer_range = 0.02, tie_word_embeddings = true, scale_attn_weights = true,
}

---@class accel.models.GPT2Attention : accel.nn.Module
local Attention = nn.Module:extend("GPT2Attention")

function Attention:init(c)
  self.n_head, self.head_dim, self.width = c.n_head, c.n_embd // c.n_head, c.n_embd
  self.attn_pdrop = c.attn_pdrop
  self.scale = not c.scale_attn_weights and 1.0 or nil
  self.c_attn = Conv1D(c.n_embd, 3 * c.n_embd, c.initializer_range)
  self.c_proj = Conv1D(c.n_embd, c.n_embd, c.initializer_range / math.sqrt(2 * c.n_layer))
  self.resid_dropout = nn.Dropout(c.resid_pdrop)
end

function Attention:forward(x, cache, layer, mask)
  local shape = x.shape
  local B, T = shape[1], shape[2]
  local qkv = self.c_attn(x):split(self.width, 3)
  local q = qkv[1]:view(B, T, self.n_head, self.head_dim):transpose(2, 3)
  local k = qkv[2]:view(B, T, self.n_head, self.head_dim):transpose(2, 3)
  local v = qkv[3]:view(B, T, self.n_head, self.head_dim):transpose(2, 3)
  if cache then k, v = cache:append(layer, k, v) end
  local y = attention(q, k, v, {
    is_causal = mask == nil and T > 1, attn_mask = mask, scale = self.scale,
    dropout_p = self.training and self.attn_pdrop or 0.0,
  })
  y = y:transpose(2, 3):reshape(B, T, self.width)
  return self.resid_dropout(self.c_proj(y))
end

---@class accel.models.GPT2MLP : accel.nn.Module
local MLP = nn.Module:extend("GPT2MLP")

function MLP:init(c)
  local inner = c.n_inner or 4 * c.n_embd
  self.c_fc = Conv1D(c.n_embd, inner, c.initializer_range)
  self.c_proj = Conv1D(inner, c.n_embd, c.initializer_range / math.sqrt(2 * c.n_layer))
  self.act = activations[c.activation_function]
  self.dropout = nn.Dropout(c.resid_pdrop)
end

function MLP:forward(x) return self.dropout(self.c_proj(self.act(self.c_fc(x)))) end

---@class accel.models.GPT2Block : accel.nn.Module
local Block = nn.Module:extend("GPT2Block")

function Block:init(c)
  self.ln_1 = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
  self.attn = Attention(c)
  self.ln_2 = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
  self.mlp = MLP(c)
end

function Block:forward(x, cache, layer, mask)
  x = x + self.attn(self.ln_1(x), cache, layer, mask)
  return x + self.mlp(self.ln_2(x))
end

---@class accel.models.GPT2Model : accel.nn.Module
local Transformer = nn.Module:extend("GPT2Model")

function Transformer:init(c)
  self.wte = nn.Embedding(c.vocab_size, c.n_embd)
  self.wpe = nn.Embedding(c.n_positions, c.n_embd)
  init.normal_(self.wte.weight, 0, c.initializer_range)
  init.normal_(self.wpe.weight, 0, c.initializer_range)
  self.drop = nn.Dropout(c.embd_pdrop)
  self.h = nn.ModuleList()
  for _ = 1, c.n_layer do self.h:append(Block(c)) end
  self.ln_f = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
  self.n_positions = c.n_positions
end

function Transformer:forward(ids, cache)
  local T = ids.shape[2]
  local past = cache and cache.past or 0
  if past + T > self.n_positions then
    raise("GPT2: %d tokens exceed the context of %d positions", past + T, self.n_positions)
  end
  local positions = accel.arange(past, past + T, { device = ids.device })
  local mask = cache and cache:mask(T, ids.device)
  local x = self.drop(self.wte(ids) + self.wpe(positions))
  for i, block in ipairs(self.h) do x = block(x, cache, i, mask) end
  if cache then cache:advance(T) end
  return self.ln_f(x)
end

---@class accel.models.GPT2 : accel.nn.Module
---@field config table
local GPT2 = nn.Module:extend("GPT2LMHeadModel")

---@param config? table Hugging Face's config.json keys
function GPT2:init(config)
  local c = pretrained.config(config, defaults)
  if c.n_embd % c.n_head ~= 0 then
    raise("GPT2: n_embd %d is not a multiple of n_head %d", c.n_embd, c.n_head)
  end
  if not activations[c.activation_function] then
    raise("GPT2: unknown activation_function '%s'", tostring(c.activation_function))
  end
  self.config = c
  self.transformer = Transformer(c)
  self.lm_head = nn.Linear(c.n_embd, c.vocab_size, { bias = false })
  if c.tie_word_embeddings then
    self.lm_head.weight = self.transformer.wte.weight
  else
    init.normal_(self.lm_head.weight, 0, c.initializer_range)
  end
end

--- Logits [B, T, vocab] of ids [B, T]. With a cache the ids continue what it holds.
---@param ids accel.Tensor
---@param cache? accel.models.KVCache
function GPT2:forward(ids, cache) return self.lm_head(self.transformer(ids, cache)) end

function GPT2:context_length() return self.config.n_positions end

---@param batch integer
---@param length? integer default: the context length
function GPT2:new_cache(batch, length)
  local c = self.config
  local weight = self.transformer.wte.weight
  return KVCache(c.n_layer, { batch, c.n_head, length or c.n_positions, c.n_embd // c.n_head },
    { dtype = weight.dtype, device = weight.device })
end

---@param ids integer[]|accel.Tensor
---@param opts? table see accel.models.generate
function GPT2:generate(ids, opts) return require "accel.models.generate"(self, ids, opts) end

--- Takes Hugging Face's files as they come: with or without the "transformer." prefix, with the causal-mask
--- buffers that old ones hold, and without the tied head.
function GPT2:load_state_dict(state, strict)
  local given = ordered()
  for name, t in ordered.iterate(state) do
    if not name:find("%.attn%.bias$") and not name:find("%.attn%.masked_bias$") then
      if not name:find("^transformer%.") and not name:find("^lm_head%.") then
        name = "transformer." .. name
      end
      given[name] = t
    end
  end
  if self.config.tie_word_embeddings then given["lm_head.weight"] = given["transformer.wte.weight"] end
  return nn.Module.load_state_dict(self, given, strict)
end

--- The model of a folder written by save_pretrained; nil, message, code when a file is missing or malformed.
---@param dir string
function GPT2.from_pretrained(dir)
  local config, state, code = pretrained.load(dir)
  if not config then return nil, state, code end
  local model = GPT2(config)
  model:load_state_dict(state)
  return model:eval()
end

--- Writes config.json and model.safetensors into an existing folder.
---@param dir string
function GPT2:save_pretrained(dir)
  local state = ordered()
  for name, t in pairs(self:state_dict()) do
    if not (self.config.tie_word_embeddings and name == "lm_head.weight") then state[name] = t end
  end
  return pretrained.save(dir, self.config, state)
end

return GPT2
