--- Encoder-decoders like BART, built from a description: two stacks of layers with the norm before or after each part, and learnt or
--- sinusoidal positions. Used by seq2seq/family.lua.
local accel = require "accel"
local activation = require "accel.models.activation"
local context = require "accel.models.context"
local nn = require "accel.nn"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"

local M = {}

local EPS <const> = 1e-5

---@class accel.models.Seq2SeqStack
---@field layers integer
---@field heads integer
---@field ffn integer
---@field positions integer longest text

---@class accel.models.Seq2Seq
---@field width integer
---@field vocab integer
---@field encoder accel.models.Seq2SeqStack
---@field decoder accel.models.Seq2SeqStack
---@field act string
---@field dropout number
---@field attention_dropout number
---@field activation_dropout number
---@field norm_first boolean norms before each part
---@field embed_norm? boolean
---@field last_norm? boolean
---@field k_bias? boolean false: keys have no bias (Whisper)
---@field scale_embedding? boolean times the square root of the width
---@field positions {kind: string, offset: integer?} kind: "learnt", "fixed" (a table of sines and cosines that files hold and nothing trains),
---  "halves" (sines, then cosines), "padding" (sines and cosines by places counted over tokens that are not padding)
---@field pad? integer
---@field features? {bins: integer} the encoder reads features through two convolutions
---@field logits_bias? boolean

---@class accel.models.Seq2SeqAttention : accel.nn.Module
local Attention = nn.Module:extend("Seq2SeqAttention")

function Attention:init(d, heads)
  local W = d.width
  self.heads, self.head_dim, self.attn_pdrop = heads, W // heads, d.attention_dropout
  self.k_proj = nn.Linear(W, W, { bias = d.k_bias ~= false })
  self.v_proj = nn.Linear(W, W)
  self.q_proj = nn.Linear(W, W)
  self.out_proj = nn.Linear(W, W)
end

local function heads_of(x, D) return x:view(x.shape[1], x.shape[2], -1, D):transpose(2, 3) end

--- Attention to the layer's own input, or to `memory` [B, S, width], whose keys and values a cache keeps.
function Attention:forward(x, ctx, layer, memory)
  local D = self.head_dim
  local q, k, v = heads_of(self.q_proj(x), D), nil, nil
  local kept = memory and ctx.cache and ctx.cache.cross[layer]
  if kept then
    k, v = kept[1], kept[2]
  else
    local from = memory or x
    k, v = heads_of(self.k_proj(from), D), heads_of(self.v_proj(from), D)
    if memory and ctx.cache then ctx.cache.cross[layer] = { k, v } end
  end
  local y = context.attend(self, not memory and ctx.cache or nil, layer, q, k, v, {
    attn_mask = memory and ctx.memory_mask or not memory and ctx.mask or nil, is_causal = not memory and ctx.is_causal or false,
    dropout_p = self.training and self.attn_pdrop or 0.0,
  })
  return self.out_proj(y:transpose(2, 3):reshape(x.shape[1], x.shape[2], -1))
end

---@class accel.models.Seq2SeqLayer : accel.nn.Module
local Layer = nn.Module:extend("Seq2SeqLayer")
M.Layer = Layer

---@param d accel.models.Seq2Seq
---@param side accel.models.Seq2SeqStack
---@param cross boolean of a decoder
function Layer:init(d, side, cross)
  local W = d.width
  self.norm_first, self.act = d.norm_first, activation.find(d.act)
  self.self_attn = Attention(d, side.heads)
  self.self_attn_layer_norm = nn.LayerNorm(W, { eps = EPS })
  if cross then
    self.encoder_attn = Attention(d, side.heads)
    self.encoder_attn_layer_norm = nn.LayerNorm(W, { eps = EPS })
  end
  self.fc1 = nn.Linear(W, side.ffn)
  self.fc2 = nn.Linear(side.ffn, W)
  self.final_layer_norm = nn.LayerNorm(W, { eps = EPS })
  self.dropout = nn.Dropout(d.dropout)
  self.activation_dropout = nn.Dropout(d.activation_dropout)
end

--- x + part(norm(x)), or norm(x + part(x)).
local function add(self, norm, x, part)
  if self.norm_first then return x + self.dropout(part(norm(x))) end
  return norm(x + self.dropout(part(x)))
end

function Layer:forward(x, ctx, layer, memory)
  x = add(self, self.self_attn_layer_norm, x, function(y) return self.self_attn(y, ctx, layer) end)
  if memory then x = add(self, self.encoder_attn_layer_norm, x, function(y) return self.encoder_attn(y, ctx, layer, memory) end) end
  return add(self, self.final_layer_norm, x, function(y) return self.fc2(self.activation_dropout(self.act(self.fc1(y)))) end)
end

--- Sines in the first half and cosines in the second, of places `at` [T] or [B, T] as floats: [.., T, width].
local function sinusoids(at, width, step)
  local half, by = width // 2, {}
  for i = 0, half - 1 do by[i + 1] = step(i, half, width) end
  local angle = at:unsqueeze(-1) * accel.tensor(by, { dtype = "f64", device = at.device })
  return accel.cat({ angle:sin(), angle:cos() }, -1)
end

local STEPS <const> = {
  halves = function(i, _, width) return 10000 ^ (-2 * i / width) end,
  padding = function(i, half) return math.exp(-i * math.log(10000) / math.max(half - 1, 1)) end,
}

--- Initial values of a fixed table of positions, in place. Whisper's wavelengths end at 10000, Pegasus' come close to it.
---@param t accel.Tensor [positions, width]
---@param step "halves"|"padding"
function M.fill_positions(t, step)
  local at = accel.arange(t.shape[1], { device = t.device }):to "f64"
  t:detach():copy_(sinusoids(at, t.shape[2], STEPS[step]))
end

--- One side: its layers, positions and norms.
---@class accel.models.Seq2SeqSide : accel.nn.Module
local Side = nn.Module:extend("Seq2SeqSide")
Side.gradient_checkpointing = false
M.Side = Side

function Side:init(d, side, LayerClass, cross)
  local W, p = d.width, d.positions
  self.d, self.side, self.limit = d, side, side.positions
  if not cross and d.features then
    self.conv1 = nn.Conv1d(d.features.bins, W, 3, { padding = 1 })
    self.conv2 = nn.Conv1d(W, W, 3, { stride = 2, padding = 1 })
  elseif d.own_embedding then
    self.embed_tokens = nn.Embedding(d.vocab, W, { padding_idx = d.pad })
  end
  local kind = d.features and (cross and "learnt" or "fixed") or p.kind
  self.kind = kind
  if kind == "learnt" or kind == "fixed" then
    self.embed_positions = nn.Embedding(side.positions + (p.offset or 0), W)
    if kind == "fixed" then
      self.embed_positions.weight.requires_grad = false
      self.embed_positions.fixed_step = d.features and "padding" or "halves"
    end
  end
  self.layers = nn.ModuleList()
  for _ = 1, side.layers do self.layers:append(LayerClass(d, side, cross)) end
  if d.embed_norm then self.layernorm_embedding = nn.LayerNorm(W, { eps = EPS }) end
  if d.last_norm then self.layer_norm = nn.LayerNorm(W, { eps = EPS }) end
  self.dropout = nn.Dropout(d.dropout)
end

--- The addition for the positions of ids [B, T] after `past` others.
function Side:places(ids, past, dtype)
  local d, T = self.d, ids.shape[2]
  if past + T > self.limit then raise("%d tokens exceed the %d positions", past + T, self.limit) end
  if self.embed_positions then
    return self.embed_positions(accel.arange(past, past + T, { device = ids.device }) + (d.positions.offset or 0))
  elseif self.kind == "halves" then
    return sinusoids(accel.arange(past, past + T, { device = ids.device }):to "f64", d.width, STEPS.halves):to(dtype)
  end
  local one = ids:ne(d.pad):to "i64"
  local at = (one:cumsum(2) + past) * one + d.pad
  local table_ = sinusoids(at:to "f64", d.width, STEPS.padding)
  return (table_ * one:to("f64"):unsqueeze(3)):to(dtype) -- padding has none
end

--- Layers over embedded x [B, T, width].
function Side:run(x, ctx, memory)
  if self.layernorm_embedding then x = self.layernorm_embedding(x) end
  x = self.dropout(x)
  for i, layer in ipairs(self.layers) do x = run_layer(self, layer, ctx.cache, x, ctx, i, memory) end
  if ctx.cache then ctx.cache:advance(x.shape[2]) end
  return self.layer_norm and self.layer_norm(x) or x
end

--- Features [B, bins, frames] through the convolutions, with positions: [B, frames / 2, width].
function Side:listen(features)
  local want = 2 * self.limit
  if features.shape[3] ~= want then raise("features have %d frames, the encoder reads %d: pad or cut them", features.shape[3], want) end
  local x = accel.gelu(self.conv2(accel.gelu(self.conv1(features)))):transpose(2, 3)
  return x + self.embed_positions.weight
end

--- The encoder's output [B, S, width] for ids [B, S] or features.
---@param self accel.models.PreTrainedModel a base model with shared, encoder and decoder
---@param ids accel.Tensor
---@param attention_mask? accel.Tensor
---@return accel.Tensor
function M.encode(self, ids, attention_mask)
  local d, who, encoder = self.d, self.config.model_type, self.encoder
  if d.features then return encoder:run(encoder:listen(ids), {}) end
  context.check_ids(who, ids)
  local x = self.shared(ids)
  if d.scale_embedding then x = x * math.sqrt(d.width) end
  return encoder:run(x + encoder:places(ids, 0, x.dtype), { mask = context.padding(who, attention_mask, ids.shape[1], ids.shape[2]) })
end

--- The decoder's output [B, T, width].
---@param self accel.models.PreTrainedModel
---@param ids accel.Tensor decoder_input_ids [B, T]
---@param memory accel.Tensor
---@param o {attention_mask: accel.Tensor?, decoder_attention_mask: accel.Tensor?, cache: accel.models.KVCache?}
---@return accel.Tensor
function M.decode(self, ids, memory, o)
  local d, who, decoder = self.d, self.config.model_type, self.decoder
  context.check_ids(who, ids, "decoder_input_ids")
  local ctx = context.decoder(who, ids, { cache = o.cache, attention_mask = o.decoder_attention_mask })
  if not d.features then ctx.memory_mask = context.padding(who, o.attention_mask, memory.shape[1], memory.shape[2]) end
  local x = (self.shared or decoder.embed_tokens)(ids)
  if d.scale_embedding then x = x * math.sqrt(d.width) end
  return decoder:run(x + decoder:places(ids, ctx.past, x.dtype), ctx, memory)
end

return M
