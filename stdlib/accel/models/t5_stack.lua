--- The stacks of T5: attention without scaling whose scores get a learnt bias by distance, RMS norms before
--- each part, no biases in linear layers. Used by models/t5.lua.
local activation = require "accel.models.activation"
local context = require "accel.models.context"
local nn = require "accel.nn"
local raise = require "accel.util.raise"
local relative = require "accel.models.relative_positions"
local run_layer = require "accel.models.run_layer"

local NO_BIAS = { bias = false }

--- Attention to the layer's own input, or to `memory` [B, S, d_model].
---@class accel.models.T5Attention : accel.nn.Module
local Attention = nn.Module:extend("T5Attention")

function Attention:init(c, opts)
  local inner = c.num_heads * c.d_kv
  self.heads, self.d_kv, self.dropout, self.both = c.num_heads, c.d_kv, c.dropout_rate, not opts.is_decoder
  self.buckets, self.max_distance = c.relative_attention_num_buckets, c.relative_attention_max_distance
  self.q = nn.Linear(c.d_model, inner, NO_BIAS)
  self.k = nn.Linear(c.d_model, inner, NO_BIAS)
  self.v = nn.Linear(c.d_model, inner, NO_BIAS)
  self.o = nn.Linear(inner, c.d_model, NO_BIAS)
  if opts.has_bias then self.relative_attention_bias = nn.Embedding(self.buckets, self.heads) end
end

--- The addition to the scores of queries at past, past + 1, ...: [1, heads, T, keys].
function Attention:bias(past, T, keys, device)
  return relative.bias(self.relative_attention_bias, past, T, keys, device,
    { both = self.both, buckets = self.buckets, distance = self.max_distance })
end

local function heads_of(t, width)
  local shape = t.shape
  return t:view(shape[1], shape[2], -1, width):transpose(2, 3)
end

---@param x accel.Tensor [B, T, d_model]
---@param mask? accel.Tensor bool, or float to be added
---@param cache? accel.models.KVCache
---@param layer integer
---@param memory? accel.Tensor
function Attention:forward(x, mask, cache, layer, memory)
  local D = self.d_kv
  local k, v
  local kept = memory and cache and cache.cross[layer]
  if kept then
    k, v = kept[1], kept[2]
  else
    local from = memory or x
    k, v = heads_of(self.k(from), D), heads_of(self.v(from), D)
    if memory and cache then cache.cross[layer] = { k, v } end
  end
  local y = context.attend(self, not memory and cache or nil, layer, heads_of(self.q(x), D), k, v, {
    attn_mask = mask, scale = 1.0, dropout_p = self.training and self.dropout or 0.0,
  })
  y = y:transpose(2, 3)
  return self.o(y:reshape(y.shape[1], y.shape[2], -1))
end

--- Norm, attention, dropout, and the residual.
---@class accel.models.T5LayerAttention : accel.nn.Module
local LayerAttention = nn.Module:extend("T5LayerAttention")

function LayerAttention:init(c, name, opts)
  self.name = name
  self[name] = Attention(c, opts)
  self.layer_norm = nn.RMSNorm(c.d_model, { eps = c.layer_norm_epsilon })
  self.dropout = nn.Dropout(c.dropout_rate)
end

function LayerAttention:forward(x, mask, cache, layer, memory)
  return x + self.dropout(self[self.name](self.layer_norm(x), mask, cache, layer, memory))
end

--- wo(act(wi(x))), or gated: wo(act(wi_0(x)) * wi_1(x)).
---@class accel.models.T5Dense : accel.nn.Module
local Dense = nn.Module:extend("T5Dense")

function Dense:init(c)
  if c.is_gated_act then
    self.wi_0 = nn.Linear(c.d_model, c.d_ff, NO_BIAS)
    self.wi_1 = nn.Linear(c.d_model, c.d_ff, NO_BIAS)
    self.gate = activation.gate(c.dense_act_fn)
  else
    self.wi = nn.Linear(c.d_model, c.d_ff, NO_BIAS)
    self.act = activation.find(c.dense_act_fn)
  end
  self.wo = nn.Linear(c.d_ff, c.d_model, NO_BIAS)
  self.dropout = nn.Dropout(c.dropout_rate)
end

function Dense:forward(x)
  x = self.gate and self.gate(self.wi_0(x), self.wi_1(x)) or self.act(self.wi(x))
  return self.wo(self.dropout(x))
end

---@class accel.models.T5LayerFF : accel.nn.Module
local LayerFF = nn.Module:extend("T5LayerFF")

function LayerFF:init(c)
  self.DenseReluDense = Dense(c)
  self.layer_norm = nn.RMSNorm(c.d_model, { eps = c.layer_norm_epsilon })
  self.dropout = nn.Dropout(c.dropout_rate)
end

function LayerFF:forward(x) return x + self.dropout(self.DenseReluDense(self.layer_norm(x))) end

---@class accel.models.T5Block : accel.nn.Module
local Block = nn.Module:extend("T5Block")

function Block:init(c, opts)
  self.layer = nn.ModuleList { LayerAttention(c, "SelfAttention", opts) }
  if opts.is_decoder then self.layer:append(LayerAttention(c, "EncDecAttention", { is_decoder = true })) end
  self.layer:append(LayerFF(c))
end

-- f16 ends at 65504: larger values would be infinite in the next layer.
local function within_f16(x) return x.dtype == "f16" and x:clamp(-64504, 64504) or x end

--- at: {past, T, keys, visible}. mask: of the previous block. The first one has the bias to compute it, and returns it.
function Block:forward(x, index, at, mask, cache, memory, memory_mask)
  if not mask then
    mask = self.layer[1].SelfAttention:bias(at.past, at.T, at.keys, x.device)
    if at.visible then mask = mask:masked_fill(at.visible:eq(0), -math.huge) end
  end
  x = within_f16(self.layer[1](x, mask, cache, index))
  if memory then x = within_f16(self.layer[2](x, memory_mask, cache, index, memory)) end
  return within_f16(self.layer[#self.layer](x)), mask
end

--- Encoder or decoder. Token embeddings come from outside, since both and the head share them.
---@class accel.models.T5Stack : accel.nn.Module
local Stack = nn.Module:extend("T5Stack")
Stack.gradient_checkpointing = false

---@param c table a checked configuration
---@param layers integer
---@param is_decoder boolean
function Stack:init(c, layers, is_decoder)
  self.is_decoder = is_decoder
  self.block = nn.ModuleList()
  for i = 1, layers do self.block:append(Block(c, { is_decoder = is_decoder, has_bias = i == 1 })) end
  self.final_layer_norm = nn.RMSNorm(c.d_model, { eps = c.layer_norm_epsilon })
  self.dropout = nn.Dropout(c.dropout_rate)
end

--- x [B, T, d_model] -> [B, T, d_model]. The decoder looks at its own past and at memory [B, S, d_model].
---@param x accel.Tensor embedded tokens
---@param o table length (of the whole sequence, if x is a part of it), attention_mask, cache, memory and memory_mask, all optional
---@return accel.Tensor
function Stack:forward(x, o)
  local shape, cache = x.shape, o.cache
  local B, T, past = shape[1], o.length or shape[2], cache and cache.past or 0
  local keys = past + T
  if self.is_decoder and not o.memory then raise "t5: the decoder needs the encoder's output" end
  local visible = self.is_decoder and T > 1 and context.causal(T, past, nil, x.device) or nil
  visible = context.join(visible, context.padding("t5", o.attention_mask, B, keys))
  local at, mask = { past = past, T = T, keys = keys, visible = visible }, nil
  local memory_mask = o.memory and context.padding("t5", o.memory_mask, B, o.memory.shape[2])
  x = self.dropout(x)
  for i, block in ipairs(self.block) do
    x, mask = run_layer(self, block, cache, x, i, at, mask, cache, o.memory, memory_mask)
  end
  if cache then cache:advance(T) end
  return self.dropout(self.final_layer_norm(x))
end

return { Stack = Stack, bucket_of = relative.bucket_of }
