--- Encoders like BERT, built from a description: word, position and segment embeddings, then layers of attention to both sides with the norm
--- after each part. Names of weights are paths, as the family's files have them. Used by encoder/family.lua.
local accel = require "accel"
local activation = require "accel.models.activation"
local add_norm = require "accel.nn.add_norm"
local context = require "accel.models.context"
local feed_forward = require "accel.models.feed_forward"
local nn = require "accel.nn"
local options = require "accel.util.options"
local paths = require "accel.models.decoder.paths"
local raise = require "accel.util.raise"
local relative = require "accel.models.relative_positions"
local run_layer = require "accel.models.run_layer"

local M = {}

---@class accel.models.Encoder
---@field layers integer
---@field width integer
---@field vocab integer
---@field heads integer
---@field ffn integer width of the feed-forward layer
---@field act string
---@field eps number of the norms
---@field dropout number
---@field attention_dropout number
---@field positions {n: integer, from_padding: integer?} from_padding: places count from the padding id + 1, over tokens that are not padding
---@field types? integer segments
---@field embed_width? integer of the embeddings, if a projection connects them to the layers
---@field relative? {buckets: integer, distance: integer} one table of biases by distance for all layers (T5's buckets)
---@field groups? {n: integer, inner: integer} layers that share weights (ALBERT)
---@field causal? boolean
---@field pooler? {act: string} dense and activation over the first token
---@field names table<string, string> word, position, type, norm, project, layers, q, k, v, o, attention_norm, first, second, norm_2, pooler,
---  bias

---@class accel.models.EncoderLayer : accel.nn.Module
local Layer = nn.Module:extend("EncoderLayer")
M.Layer = Layer

---@param d accel.models.Encoder
function Layer:init(d)
  local n, W = d.names, d.width
  self.names, self.heads, self.head_dim, self.attn_pdrop = n, d.heads, W // d.heads, d.attention_dropout
  for _, role in ipairs { "q", "k", "v", "o" } do paths.put(self, n[role], nn.Linear(W, W)) end
  paths.put(self, n.attention_norm, nn.LayerNorm(W, { eps = d.eps }))
  self.act = activation.find(d.act)
  paths.put(self, n.first, nn.Linear(W, d.ffn))
  paths.put(self, n.second, nn.Linear(d.ffn, W))
  paths.put(self, n.norm_2, nn.LayerNorm(W, { eps = d.eps }))
  self.hidden_dropout = nn.Dropout(d.dropout)
end

--- x [B, T, width] -> [B, T, width].
---@param ctx {mask: accel.Tensor?, is_causal: boolean?, cache: accel.models.KVCache?}
---@param layer integer
function Layer:forward(x, ctx, layer)
  local n, D, B, T = self.names, self.head_dim, x.shape[1], x.shape[2]
  local function heads(role) return paths.get(self, n[role])(x):view(B, T, -1, D):transpose(2, 3) end
  local y = context.attend(self, ctx.cache, layer, heads "q", heads "k", heads "v", {
    attn_mask = ctx.mask, is_causal = ctx.is_causal, dropout_p = self.training and self.attn_pdrop or 0.0 })
  y = paths.get(self, n.o)(y:transpose(2, 3):reshape(B, T, -1))
  x = add_norm(paths.get(self, n.attention_norm), self.hidden_dropout(y), x)
  y = feed_forward(paths.get(self, n.first), self.act, paths.get(self, n.second), x)
  return (add_norm(paths.get(self, n.norm_2), self.hidden_dropout(y), x))
end

--- Makes the modules of a base model.
---@param self accel.models.PreTrainedModel
---@param d accel.models.Encoder
---@param LayerClass table
---@param pooler? boolean
function M.build(self, d, LayerClass, pooler)
  local n, width = d.names, d.embed_width or d.width
  paths.put(self, n.word, nn.Embedding(d.vocab, width, { padding_idx = d.padding_idx }))
  if d.positions then paths.put(self, n.position, nn.Embedding(d.positions.n, width)) end
  if d.types and d.types > 0 then paths.put(self, n.type, nn.Embedding(d.types, width)) end
  paths.put(self, n.norm, nn.LayerNorm(width, { eps = d.eps }))
  self.embedding_dropout = nn.Dropout(d.dropout)
  if width ~= d.width then paths.put(self, n.project, nn.Linear(width, d.width)) end
  local list = nn.ModuleList()
  if d.groups then
    for _ = 1, d.groups.n do
      local group, inner = nn.Module(), nn.ModuleList()
      for _ = 1, d.groups.inner do inner:append(LayerClass(d)) end
      group[n.inner] = inner
      list:append(group)
    end
  else
    for _ = 1, d.layers do list:append(LayerClass(d)) end
  end
  paths.put(self, n.layers, list)
  if d.relative then paths.put(self, n.bias, nn.Embedding(d.relative.buckets, d.heads)) end
  if d.pooler and pooler ~= false then paths.put(self, n.pooler, nn.Linear(d.width, d.width)) end
  self.d = d
end

--- The layers in the order in which they run.
local function each_layer(self, d)
  local list, out = paths.get(self, d.names.layers), {}
  if not d.groups then return list end
  for i = 0, d.layers - 1 do
    for _, layer in ipairs(list[i * d.groups.n // d.layers + 1][d.names.inner]) do out[#out + 1] = layer end
  end
  return out
end

--- The embedding of ids: [B, T, width of the embeddings].
local function embed(self, d, ids, o, past)
  local n, T = d.names, ids.shape[2]
  local x = o.inputs_embeds or paths.get(self, n.word)(ids)
  if d.types and d.types > 0 then
    x = x + paths.get(self, n.type)(o.token_type_ids or accel.zeros(1, T, { dtype = "i64", device = ids.device }))
  end
  if d.positions then
    local at, pad = o.position_ids, d.positions.from_padding
    if not at and pad then
      local one = ids:ne(pad):to "i64"
      at = one:cumsum(2) * one + pad
    end
    local room = d.positions.n - (pad and pad + 1 or 0)
    if not o.position_ids and past + T > room then raise("%s: %d tokens exceed the %d positions", self.config.model_type, past + T, room) end
    at = at or context.positions(T, ids.device) or accel.arange(past, past + T, { device = ids.device })
    x = x + paths.get(self, n.position)(at)
  end
  return self.embedding_dropout(paths.get(self, n.norm)(x))
end

M.OPTIONS = { attention_mask = options.none, token_type_ids = options.none, position_ids = options.none, cache = options.none }

--- ids [B, T] -> hidden states [B, T, width] and the pooled first token, [B, width] (nil without a pooler).
---@param self accel.models.PreTrainedModel
---@param ids accel.Tensor
---@param opts? table
---@return accel.Tensor, accel.Tensor?
function M.run(self, ids, opts)
  local d, who = self.d, self.config.model_type
  local n, o = d.names, options(who, opts, M.OPTIONS)
  context.check_ids(who, ids)
  if o.cache and not d.causal then raise("%s: only a decoder (is_decoder = true) has a cache", who) end
  local B, T, past = ids.shape[1], ids.shape[2], o.cache and o.cache.past or 0
  local x = embed(self, d, ids, o, past)
  if d.embed_width and d.embed_width ~= d.width then x = paths.get(self, n.project)(x) end
  local ctx
  if d.causal then
    ctx = context.decoder(who, ids, { cache = o.cache, attention_mask = o.attention_mask, position_ids = o.position_ids })
  else
    ctx = { mask = context.padding(who, o.attention_mask, B, T) }
  end
  if d.relative then
    local bias = relative.bias(paths.get(self, n.bias), 0, T, T, ids.device,
      { both = true, buckets = d.relative.buckets, distance = d.relative.distance })
    ctx.mask = ctx.mask and context.join(ctx.mask, bias) or bias
  end
  for i, layer in ipairs(each_layer(self, d)) do x = run_layer(self, layer, ctx.cache, x, ctx, i) end
  if ctx.cache then ctx.cache:advance(T) end
  local pooler = d.pooler and n.pooler
  local dense = pooler and paths.find(self, pooler)
  return x, dense and activation.find(d.pooler.act)(dense(x:select(2, 1)))
end

return M
