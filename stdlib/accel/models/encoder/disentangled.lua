--- Disentangled attention (DeBERTa, He et al. 2021, section 3.1): scores are sums over content to content, content to position and position
--- to content. Positions are distances with separate embeddings, shared by all layers. Used by families/deberta_v2.lua.
local accel = require "accel"
local activation = require "accel.models.activation"
local add_norm = require "accel.nn.add_norm"
local context = require "accel.models.context"
local feed_forward = require "accel.models.feed_forward"
local nn = require "accel.nn"
local options = require "accel.util.options"
local paths = require "accel.models.decoder.paths"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"

local M = {}

---@class accel.models.DisentangledAttention : accel.nn.Module
local Attention = nn.Module:extend("DisentangledAttention")

function Attention:init(d)
  local W, r = d.width, d.relative
  self.heads, self.head_dim, self.attn_pdrop, self.relative = d.heads, W // d.heads, d.attention_dropout, r
  self.query_proj = nn.Linear(W, W)
  self.key_proj = nn.Linear(W, W)
  self.value_proj = nn.Linear(W, W)
  if r and not r.shared then
    if r.c2p then self.pos_key_proj = nn.Linear(W, W) end
    if r.p2c then self.pos_query_proj = nn.Linear(W, W) end
  end
end

--- x [B, T, hidden] -> [B, T, hidden]. ctx.positions are the embeddings of distances, ctx.at their indices [T, T] by query and key.
function Attention:forward(x, ctx)
  local B, T, D, r = x.shape[1], x.shape[2], self.head_dim, self.relative
  local function heads(y) return y:view(y.shape[1], y.shape[2], -1, D):transpose(2, 3) end
  local q, k, v = heads(self.query_proj(x)), heads(self.key_proj(x)), heads(self.value_proj(x))
  local parts = 1 + (r and r.c2p and 1 or 0) + (r and r.p2c and 1 or 0)
  local scale = 1 / math.sqrt(D * parts)
  local scores = accel.matmul(q, k:transpose(3, 4))
  if r then
    local table_ = ctx.positions:unsqueeze(1)
    local H = q.shape[2]
    if r.c2p then
      local keys = heads((self.pos_key_proj or self.key_proj)(table_))
      scores = scores + accel.matmul(q, keys:transpose(3, 4)):gather(4, ctx.at:expand(B, H, T, T))
    end
    if r.p2c then -- a key against the distance of each query from it
      local queries = heads((self.pos_query_proj or self.query_proj)(table_))
      local by_key = accel.matmul(k, queries:transpose(3, 4)):gather(4, ctx.at:transpose(3, 4):expand(B, H, T, T))
      scores = scores + by_key:transpose(3, 4)
    end
  end
  scores = scores * scale
  if ctx.mask then scores = scores:masked_fill(ctx.mask:eq(0), scores.dtype == "f16" and -6e4 or -1e30) end
  local weights = scores:softmax(4)
  if self.training and self.attn_pdrop > 0 then weights = accel.dropout(weights, self.attn_pdrop) end
  return accel.matmul(weights, v):transpose(2, 3):reshape(B, T, -1)
end

---@class accel.models.DisentangledLayer : accel.nn.Module
local Layer = nn.Module:extend("DisentangledLayer")
M.Layer = Layer

function Layer:init(d)
  local n, W = d.names, d.width
  self.names = n
  paths.put(self, "attention.self", Attention(d))
  paths.put(self, n.o, nn.Linear(W, W))
  paths.put(self, n.attention_norm, nn.LayerNorm(W, { eps = d.eps }))
  self.act, self.hidden_dropout = activation.find(d.act), nn.Dropout(d.dropout)
  paths.put(self, n.first, nn.Linear(W, d.ffn))
  paths.put(self, n.second, nn.Linear(d.ffn, W))
  paths.put(self, n.norm_2, nn.LayerNorm(W, { eps = d.eps }))
end

function Layer:forward(x, ctx)
  local n = self.names
  local y = paths.get(self, n.o)(self.attention.self(x, ctx))
  x = add_norm(paths.get(self, n.attention_norm), self.hidden_dropout(y), x)
  y = feed_forward(paths.get(self, n.first), self.act, paths.get(self, n.second), x)
  return (add_norm(paths.get(self, n.norm_2), self.hidden_dropout(y), x))
end

--- A convolution over the embeddings, added to the first layer's output.
---@class accel.models.DisentangledConv : accel.nn.Module
local Conv = nn.Module:extend("DisentangledConv")

function Conv:init(d)
  local k = d.conv.kernel
  self.conv = nn.Conv1d(d.width, d.width, k, { padding = (k - 1) // 2, groups = d.conv.groups })
  self.LayerNorm = nn.LayerNorm(d.width, { eps = d.eps })
  self.dropout = nn.Dropout(d.dropout)
  self.act = activation.find(d.conv.act)
end

function Conv:forward(embedded, x, mask)
  local y = self.conv(embedded:transpose(2, 3)):transpose(2, 3)
  if mask then y = y:masked_fill(mask:eq(0):unsqueeze(3), 0) end
  y = self.LayerNorm(x + self.act(self.dropout(y)))
  return mask and y * mask:to(y.dtype):unsqueeze(3) or y
end

--- Makes the modules of a base model.
function M.build(self, d, LayerClass)
  local n, W = d.names, d.width
  local width = d.embed_width or W
  paths.put(self, n.word, nn.Embedding(d.vocab, width, { padding_idx = d.padding_idx }))
  if d.positions then paths.put(self, n.position, nn.Embedding(d.positions.n, width)) end
  if d.types > 0 then paths.put(self, n.type, nn.Embedding(d.types, width)) end
  if width ~= W then paths.put(self, n.project, nn.Linear(width, W, { bias = false })) end
  paths.put(self, n.norm, nn.LayerNorm(W, { eps = d.eps }))
  local list = nn.ModuleList()
  for _ = 1, d.layers do list:append(LayerClass(d)) end
  paths.put(self, n.layers, list)
  if d.relative then
    self.encoder.rel_embeddings = nn.Embedding(2 * d.relative.span, W)
    if d.relative.norm then self.encoder.LayerNorm = nn.LayerNorm(W, { eps = d.eps }) end
  end
  if d.conv then self.encoder.conv = Conv(d) end
  self.embedding_dropout, self.d = nn.Dropout(d.dropout), d
end

--- The bucket of a distance: near ones each have one, far ones are logarithmic.
local function bucket_of(distance, r)
  local mid = r.buckets // 2
  local far = math.abs(distance)
  if r.buckets <= 0 or far <= mid then return distance end
  local log = math.ceil(math.log(far / mid) / math.log((r.most - 1) / mid) * (mid - 1)) + mid
  return distance > 0 and log or -log
end

--- Indices of distances by query and key, [1, 1, T, T].
local function indices(T, r, device)
  local by = {}
  for distance = -(T - 1), T - 1 do
    by[distance + T] = math.max(0, math.min(2 * r.span - 1, bucket_of(distance, r) + r.span))
  end
  local list = accel.tensor(by, { dtype = "i64", device = device })
  local at = accel.arange(T, { device = device }):unsqueeze(2) - accel.arange(T, { device = device }):unsqueeze(1) + (T - 1)
  return list:index_select(1, at:reshape(-1)):reshape(1, 1, T, T)
end

local OPTIONS <const> = { attention_mask = options.none, token_type_ids = options.none, position_ids = options.none }

--- ids [B, T] -> hidden states [B, T, width].
function M.run(self, ids, opts)
  local d, who = self.d, self.config.model_type
  local n, o = d.names, options(who, opts, OPTIONS)
  context.check_ids(who, ids)
  local B, T, dev = ids.shape[1], ids.shape[2], ids.device
  local x = paths.get(self, n.word)(ids)
  if d.positions then
    if T > d.positions.n then raise("%s: %d tokens exceed the %d positions", who, T, d.positions.n) end
    x = x + paths.get(self, n.position)(o.position_ids or accel.arange(T, { device = dev }))
  end
  if d.types > 0 then x = x + paths.get(self, n.type)(o.token_type_ids or accel.zeros(1, T, { dtype = "i64", device = dev })) end
  local project = paths.find(self, n.project)
  if project then x = project(x) end
  x = paths.get(self, n.norm)(x)
  local mask = o.attention_mask
  if mask then x = x * mask:ne(0):to(x.dtype):unsqueeze(3) end
  x = self.embedding_dropout(x)
  local ctx = { mask = context.padding(who, mask, B, T) }
  if d.relative then
    local table_ = self.encoder.rel_embeddings.weight
    ctx.positions = self.encoder.LayerNorm and self.encoder.LayerNorm(table_) or table_
    ctx.at = indices(T, d.relative, dev)
  end
  local embedded = x
  for i, layer in ipairs(paths.get(self, n.layers)) do
    x = run_layer(self, layer, nil, x, ctx)
    if i == 1 and d.conv then x = self.encoder.conv(embedded, x, mask and mask:ne(0)) end
  end
  return x
end

return M
