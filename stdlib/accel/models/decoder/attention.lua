--- Causal self-attention of a decoder, as its description asks for: separate or fused projections, grouped heads, norms of queries and keys,
--- rotary positions on all or the first part of a head, soft caps and sinks. decoder/latent.lua is the other kind of attention.
local accel = require "accel"
local Parameter = require "accel.nn.parameter"
local context = require "accel.models.context"
local norms = require "accel.models.decoder.norms"
local nn = require "accel.nn"
local scores = require "accel.models.decoder.scores"

local rope = accel.rope

---@class accel.models.DecoderAttention : accel.nn.Module
---@field names table<string, string> weight names of the family
local Attention = nn.Module:extend("DecoderAttention")
Attention.attends = true -- context parallelism may put its own attention in the field `attend`

--- Norms of queries or keys. nil if the description has none.
local function head_norm(a, heads, norm)
  local kind = a.qk_norm
  if kind == "head" then return norms.make(a.qk_norm_of or norm, a.head_dim)
  elseif kind == "whole" then return norms.make(a.qk_norm_of or norm, heads * a.head_dim)
  elseif kind == "each" then return norms.HeadNorm(heads, a.head_dim, norm.eps)
  elseif kind == "list" then return norms.HeadNorms(heads, a.head_dim, norm.eps) end
end

---@param d accel.models.Decoder
---@param kind accel.models.DecoderLayerKind
function Attention:init(d, kind)
  local a, n = d.attention, d.names
  self.names, self.kind, self.heads, self.kv_heads, self.head_dim = n, kind, a.heads, a.kv_heads, a.head_dim
  self.dropout, self.scale, self.softcap, self.clip = a.dropout or 0.0, a.scale or 1 / math.sqrt(a.head_dim), a.softcap, a.clip
  if a.scale_by_layer then self.scale = self.scale / kind.layer end
  self.fused, self.qk_norm, self.norm_after_rope = a.fused, a.qk_norm, a.norm_after_rope
  local D, kv = a.head_dim, a.kv_heads * a.head_dim
  if a.fused then
    self[n.qkv] = nn.Linear(d.width, a.heads * D + 2 * kv, { bias = a.bias })
  else
    self[n.q] = nn.Linear(d.width, a.heads * D, { bias = a.bias })
    self[n.k] = nn.Linear(d.width, kv, { bias = a.bias })
    self[n.v] = nn.Linear(d.width, kv, { bias = a.bias })
  end
  self[n.o] = nn.Linear(a.heads * D, d.width, { bias = a.o_bias })
  if a.qk_norm == "l2" then
    if kind.rope then self.l2 = norms.L2Norm(D, d.norm.eps) end
  elseif a.qk_norm then
    self[n.q_norm] = head_norm(a, a.heads, d.norm)
    self[n.k_norm] = head_norm(a, a.kv_heads, d.norm)
  end
  if a.sinks then self.sinks = Parameter(accel.zeros(a.heads)) end
  if a.o_dropout then self.resid_dropout = nn.Dropout(a.o_dropout) end
end

--- The fused matrix holds all queries, all keys, all values ("rows"), or for each head its query, key and value ("heads"), or for each
--- group its queries, one key and one value ("groups").
local function split(y, fused, heads, kv_heads, D)
  local B, T = y.shape[1], y.shape[2]
  if fused == "rows" then
    local q, k, v = table.unpack(y:split({ heads * D, kv_heads * D, kv_heads * D }, 3))
    return q:reshape(B, T, -1, D), k:reshape(B, T, -1, D), v:reshape(B, T, -1, D)
  end
  local each = fused == "heads" and 1 or heads // kv_heads
  y = y:view(B, T, -1, each + 2, D)
  return y:narrow(4, 1, each):reshape(B, T, -1, D), y:select(4, each + 1), y:select(4, each + 2)
end

--- Queries, keys and values [B, T, heads, head_dim].
function Attention:project(x)
  local n, D = self.names, self.head_dim
  if self.fused then
    local y = self[n.qkv](x)
    if self.clip then y = y:clamp(-self.clip, self.clip) end
    return split(y, self.fused, self.heads, self.kv_heads, D)
  end
  local q, k, v = self[n.q](x), self[n.k](x), self[n.v](x)
  if self.clip then q, k, v = q:clamp(-self.clip, self.clip), k:clamp(-self.clip, self.clip), v:clamp(-self.clip, self.clip) end
  if self.qk_norm == "whole" then q, k = self[n.q_norm](q), self[n.k_norm](k) end
  local B, T = q.shape[1], q.shape[2] -- this rank's heads, and the whole sequence, if heads are divided over ranks
  return q:view(B, T, -1, D), k:view(B, T, -1, D), v:view(B, T, -1, D)
end

--- x [B, heads, T, head_dim], whose first turn.dim columns turn.
local function turned(x, turn)
  if turn.dim == x.shape[4] then return rope(x, turn.options) end
  local part, rest = rope(x:narrow(4, 1, turn.dim), turn.options), x:narrow(4, turn.dim + 1, x.shape[4] - turn.dim)
  if turn.scale ~= 1 then part = part * turn.scale end
  return accel.cat({ part, rest }, 4)
end

--- x [B, T, hidden] -> [B, T, hidden].
---@param ctx accel.models.DecoderContext
---@param layer integer
function Attention:forward(x, ctx, layer)
  local n, kind = self.names, self.kind
  local q, k, v = self:project(x)
  if self.qk_norm and self.qk_norm ~= "whole" and self.qk_norm ~= "l2" then q, k = self[n.q_norm](q), self[n.k_norm](k) end
  q, k, v = q:transpose(2, 3), k:transpose(2, 3), v:transpose(2, 3)
  local scale, turn = self.scale, kind.rope and ctx:turn(kind.rope)
  if turn then
    q, k = turned(q, turn), turned(k, turn)
    if turn.dim == self.head_dim and turn.scale ~= 1 then scale = scale * turn.scale ^ 2 end
    if self.l2 then q, k = self.l2(q), self.l2(k) end
  elseif kind.temperature then
    q = q * ctx:temperature(kind.temperature):to(q.dtype)
  end
  local view = ctx:view(kind)
  local o = {
    is_causal = view.is_causal, attn_mask = view.mask, scale = scale, enable_gqa = self.heads ~= self.kv_heads,
    dropout_p = self.training and self.dropout or 0.0, alibi_slopes = view.slopes,
  }
  local y
  if self.softcap or self.sinks then
    o.softcap, o.sinks = self.softcap, self.sinks
    y = scores.attend(self, ctx.cache, layer, q, k, v, o)
  else
    y = context.attend(self, ctx.cache, layer, q, k, v, o)
  end
  y = self[n.o](y:transpose(2, 3):reshape(x.shape[1], y.shape[3], -1))
  return self.resid_dropout and self.resid_dropout(y) or y
end

return Attention
