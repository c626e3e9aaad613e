--- Unmasked or padded self-attention with three projections named query, key and value, as in BERT and ViT.
local accel = require "accel"
local nn = require "accel.nn"

local attention = accel.scaled_dot_product_attention

---@class accel.models.SelfAttention : accel.nn.Module
local SelfAttention = nn.Module:extend("SelfAttention")

---@param c table hidden_size, num_attention_heads, attention_probs_dropout_prob, qkv_bias (true)
function SelfAttention:init(c)
  local opts = { bias = c.qkv_bias ~= false }
  self.heads, self.width, self.dropout = c.num_attention_heads, c.hidden_size, c.attention_probs_dropout_prob
  self.query = nn.Linear(c.hidden_size, c.hidden_size, opts)
  self.key = nn.Linear(c.hidden_size, c.hidden_size, opts)
  self.value = nn.Linear(c.hidden_size, c.hidden_size, opts)
end

--- x [B, T, hidden] -> [B, T, hidden]
---@param mask? accel.Tensor broadcasts to [B, heads, T, T]
function SelfAttention:forward(x, mask)
  local shape = x.shape
  local B, T, H, D = shape[1], shape[2], self.heads, self.width // self.heads
  local y = attention(self.query(x):view(B, T, H, D):transpose(2, 3), self.key(x):view(B, T, H, D):transpose(2, 3),
    self.value(x):view(B, T, H, D):transpose(2, 3),
    { attn_mask = mask, dropout_p = self.training and self.dropout or 0.0 })
  return y:transpose(2, 3):reshape(B, T, self.width)
end

return SelfAttention
