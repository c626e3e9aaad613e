--- Unmasked or padded self-attention with three projections named query, key and value, as in BERT and ViT.
local config = require "accel.models.config"
local context = require "accel.models.context"
local nn = require "accel.nn"

---@class accel.models.SelfAttention : accel.nn.Module
local SelfAttention = nn.Module:extend("SelfAttention")

---@param c table hidden_size, num_attention_heads, attention_probs_dropout_prob, qkv_bias (true)
function SelfAttention:init(c)
  local opts = { bias = config.get(c, "qkv_bias") ~= false }
  self.heads, self.width, self.dropout = c.num_attention_heads, c.hidden_size, c.attention_probs_dropout_prob
  self.query = nn.Linear(c.hidden_size, c.hidden_size, opts)
  self.key = nn.Linear(c.hidden_size, c.hidden_size, opts)
  self.value = nn.Linear(c.hidden_size, c.hidden_size, opts)
end

--- x [B, T, hidden] -> [B, T, hidden]
---@param mask? accel.Tensor broadcasts to [B, heads, T, T]
---@param ctx? accel.models.Context of a decoder
---@param layer? integer
function SelfAttention:forward(x, mask, ctx, layer)
  local q, D = self.query(x), self.width // self.heads
  local shape = q.shape -- of this rank's heads, of the whole sequence, if these are divided over ranks
  local B, T = shape[1], shape[2]
  local y = context.attend(self, ctx and ctx.cache, layer or 0, q:view(B, T, -1, D):transpose(2, 3), self.key(x):view(B, T, -1, D):transpose(2, 3),
    self.value(x):view(B, T, -1, D):transpose(2, 3),
    { attn_mask = mask, is_causal = ctx and ctx.is_causal, dropout_p = self.training and self.dropout or 0.0 })
  return y:transpose(2, 3):reshape(B, T, -1)
end

return SelfAttention
