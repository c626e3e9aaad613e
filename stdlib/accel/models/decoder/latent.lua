--- Multi-head latent attention (DeepSeek-V2, section 2.1): keys and values come from one narrow latent, the rotary part of a key is shared
--- by all heads. The cache holds the expanded keys and values. Used for descriptions with `latent`.
local accel = require "accel"
local context = require "accel.models.context"
local nn = require "accel.nn"

local rope = accel.rope

local EPS <const> = 1e-6 -- of the norms of the latents, independent of the configuration, as in Transformers

---@class accel.models.LatentAttention : accel.nn.Module
local Latent = nn.Module:extend("LatentAttention")
Latent.attends = true

---@param d accel.models.Decoder
---@param kind accel.models.DecoderLayerKind
function Latent:init(d, kind)
  local a = d.attention
  local l, heads = a.latent, a.heads
  self.names, self.kind, self.heads, self.scale, self.dropout = d.names, kind, heads, a.scale, a.dropout or 0.0
  self.plain_dim, self.rope_dim, self.v_dim, self.rank = l.plain_dim, l.rope_dim, l.v_dim, l.kv_rank
  local width, bias = l.plain_dim + l.rope_dim, { bias = a.bias }
  if l.q_rank then
    self.q_a_proj = nn.Linear(d.width, l.q_rank, bias)
    self.q_a_layernorm = nn.RMSNorm(l.q_rank, { eps = EPS })
    self.q_b_proj = nn.Linear(l.q_rank, heads * width, { bias = false })
  else
    self.q_proj = nn.Linear(d.width, heads * width, { bias = false })
  end
  self.kv_a_proj_with_mqa = nn.Linear(d.width, l.kv_rank + l.rope_dim, bias)
  self.kv_a_layernorm = nn.RMSNorm(l.kv_rank, { eps = EPS })
  self.kv_b_proj = nn.Linear(l.kv_rank, heads * (l.plain_dim + l.v_dim), { bias = false })
  self.o_proj = nn.Linear(heads * l.v_dim, d.width, bias)
end

--- x [B, T, hidden] -> [B, T, hidden].
---@param ctx accel.models.DecoderContext
---@param layer integer
function Latent:forward(x, ctx, layer)
  local P, R, V = self.plain_dim, self.rope_dim, self.v_dim
  local q = self.q_a_proj and self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) or self.q_proj(x)
  local B, T = x.shape[1], x.shape[2]
  q = q:view(B, T, -1, P + R):transpose(2, 3)
  local latent, shared = table.unpack(self.kv_a_proj_with_mqa(x):split({ self.rank, R }, 3))
  local kv = self.kv_b_proj(self.kv_a_layernorm(latent)):view(B, T, -1, P + V):transpose(2, 3)
  local heads = kv.shape[2]
  local turn = ctx:turn(self.kind.rope)
  local q_turned, k_turned = rope(q:narrow(4, P + 1, R), turn.options), rope(shared:unsqueeze(2), turn.options)
  if turn.scale ~= 1 then q_turned, k_turned = q_turned * turn.scale, k_turned * turn.scale end
  q = accel.cat({ q:narrow(4, 1, P), q_turned }, 4)
  local k = accel.cat({ kv:narrow(4, 1, P), k_turned:expand(B, heads, T, R) }, 4)
  local v = kv:narrow(4, P + 1, V)
  if V < P + R then v = accel.cat({ v, accel.zeros({ B, heads, T, P + R - V }, { dtype = v.dtype, device = v.device }) }, 4) end
  local view = ctx:view(self.kind)
  local y = context.attend(self, ctx.cache, layer, q, k, v, {
    is_causal = view.is_causal, attn_mask = view.mask, scale = self.scale, dropout_p = self.training and self.dropout or 0.0,
  })
  if V < P + R then y = y:narrow(4, 1, V) end
  return self.o_proj(y:transpose(2, 3):reshape(B, T, -1))
end

return Latent
