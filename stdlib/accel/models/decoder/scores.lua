--- Attention whose scores are more than a scaled product: soft caps (Gemma 2) and sinks (gpt-oss). It holds the matrix of all pairs in
--- memory. Called by decoder/attention.lua in place of context.attend.
local accel = require "accel"
local context = require "accel.models.context"
local tensors = require "accel.util.tensors"

local LOW <const> = { f64 = -1e300, f32 = -1e38, bf16 = -1e38, f16 = -6e4 }

--- The visible keys of each query, [T, S]. The keys end with the queries' own positions.
local function causal(T, S, device)
  local at = accel.arange(S - T, S, { device = device }):unsqueeze(2)
  return accel.arange(S, { device = device }):unsqueeze(1):le(at)
end

--- q [B, heads, T, D], k and v [B, kv_heads, S, D] -> [B, heads, T, D]. Scores are capped by softcap * tanh(scores / softcap). A sink is one
--- more score per head that takes its share of the softmax and has no value. A query that sees no key gives zeros.
---@param q accel.Tensor
---@param k accel.Tensor
---@param v accel.Tensor
---@param o {scale: number, attn_mask: accel.Tensor?, is_causal: boolean?, softcap: number?, sinks: accel.Tensor?, dropout_p: number?}
---@return accel.Tensor
local function attention(q, k, v, o)
  local groups = q.shape[2] // k.shape[2]
  if groups > 1 then k, v = k:repeat_interleave(groups, 2), v:repeat_interleave(groups, 2) end
  local T, S = q.shape[3], k.shape[3]
  local scores = accel.matmul(q, k:transpose(3, 4)) * o.scale
  if o.softcap then scores = (scores / o.softcap):tanh() * o.softcap end
  local mask = o.attn_mask
  if o.is_causal then mask = causal(T, S, q.device) end
  local hidden
  if mask and mask.dtype ~= "bool" then
    scores = scores + mask
  elseif mask then
    hidden = mask:eq(0)
    scores = scores:masked_fill(hidden, LOW[scores.dtype])
  end
  local wide = tensors.is_floating(scores.dtype) and (scores.dtype == "f16" or scores.dtype == "bf16") and scores:to "f32" or scores
  if o.sinks then
    local shape = wide.shape
    local sink = o.sinks:to(wide.dtype):reshape(1, -1, 1, 1):expand(shape[1], shape[2], T, 1)
    wide = accel.cat({ wide, sink }, 4)
  end
  local weights = wide:softmax(4)
  if o.sinks then weights = weights:narrow(4, 1, S) end
  weights = weights:to(q.dtype)
  if hidden then weights = weights:masked_fill(hidden, 0) end
  if (o.dropout_p or 0) > 0 then weights = accel.dropout(weights, o.dropout_p) end
  return accel.matmul(weights, v)
end

local M = { attention = attention }

--- As context.attend, with softcap and sinks among the options.
function M.attend(module, cache, layer, q, k, v, o)
  if cache then
    k, v = cache:append(layer, k, v)
    if k.dtype ~= q.dtype then k, v = k:to(q.dtype), v:to(q.dtype) end
  elseif module.attend then -- of heads that are shared out this rank has some, which need no more than a plain head does
    context.check_whole("attention with a soft cap or with sinks", q.shape[3])
  end
  return attention(q, k, v, o)
end

return M
