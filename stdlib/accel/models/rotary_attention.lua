--- Causal self-attention with rotary positions and grouped key-value heads, as in Llama and Mixtral.
local accel = require "accel"
local config = require "accel.models.config"
local context = require "accel.models.context"
local nn = require "accel.nn"

local rope = accel.rope

---@class accel.models.RotaryAttention : accel.nn.Module
local RotaryAttention = nn.Module:extend("RotaryAttention")

--- Reads hidden_size, num_attention_heads, num_key_value_heads, head_dim, attention_bias, attention_dropout.
---@param c table a checked configuration
function RotaryAttention:init(c)
  local heads, kv_heads, D = c.num_attention_heads, c.num_key_value_heads, c.head_dim
  local opts = { bias = config.get(c, "attention_bias") or false }
  self.heads, self.kv_heads, self.head_dim, self.dropout = heads, kv_heads, D, c.attention_dropout or 0.0
  self.q_proj = nn.Linear(c.hidden_size, heads * D, opts)
  self.k_proj = nn.Linear(c.hidden_size, kv_heads * D, opts)
  self.v_proj = nn.Linear(c.hidden_size, kv_heads * D, opts)
  self.o_proj = nn.Linear(heads * D, c.hidden_size, opts)
end

--- x [B, T, hidden] -> [B, T, hidden]. ctx.turn are the options of accel.rope, ctx.scale is the scale of the scores.
---@param ctx accel.models.Context
---@param layer integer
function RotaryAttention:forward(x, ctx, layer)
  local q, D = self.q_proj(x), self.head_dim
  local shape = q.shape -- of this rank's heads, of the whole sequence, if these are divided over ranks
  local B, T = shape[1], shape[2]
  q = rope(q:view(B, T, -1, D):transpose(2, 3), ctx.turn)
  local k = rope(self.k_proj(x):view(B, T, -1, D):transpose(2, 3), ctx.turn)
  local v = self.v_proj(x):view(B, T, -1, D):transpose(2, 3)
  local y = context.attend(self, ctx.cache, layer, q, k, v, {
    is_causal = ctx.is_causal, attn_mask = ctx.mask, scale = ctx.scale, enable_gqa = self.heads ~= self.kv_heads,
    dropout_p = self.training and self.dropout or 0.0,
  })
  return self.o_proj(y:transpose(2, 3):reshape(B, T, -1))
end

return RotaryAttention
