--- nn.MultiheadAttention(embed_dim, num_heads, {...}): attention of several heads with its projections.
local accel = require "accel"
local Linear = require "accel.nn.linear"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local masks = require "accel.nn.attention_masks"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local linear = accel.linear

--- Attention of num_heads heads: softmax(q k^T / sqrt(d)) v on projections of query, key and value, projected
--- back. Inputs are (L, N, E), (S, N, kdim), (S, N, vdim), with batch_first = true (N, L, E) and so on (the
--- default is false, as in PyTorch), or without a batch (L, E). Returns the output, shaped as the query, and the
--- weights (N, L, S) averaged over heads, nil with need_weights = false, which is faster and uses no matrix of
--- all pairs. Masks are PyTorch's: true means *not* to be attended to, floats are added to the scores.
--- Options: dropout = 0, bias = true, add_bias_kv = false, add_zero_attn = false, kdim, vdim = embed_dim,
--- batch_first = false. Initial values: Xavier uniform projections (out_proj as Linear's), biases 0.
--- example: local y, w = accel.nn.MultiheadAttention(8, 2)(accel.ones(5, 3, 8)) return w.shape --> { 3, 5, 5 }
---@class accel.nn.MultiheadAttention : accel.nn.Module
---@field in_proj_weight accel.Tensor? (3 E, E): those of query, key and value
---@field in_proj_bias accel.Tensor?
---@field out_proj accel.nn.Linear
local MHA = Module:extend("accel.nn.MultiheadAttention")

local parse = arguments("MultiheadAttention", { "embed_dim" }, { "num_heads" }, { "dropout", 0.0 },
  { "bias", true }, { "add_bias_kv", false }, { "add_zero_attn", false }, { "kdim" }, { "vdim" },
  { "batch_first", false }, { "device" }, { "dtype", "f32" })

---@param embed_dim integer
---@param num_heads integer a divisor of embed_dim
---@param ... any options by position or in one table
function MHA:init(embed_dim, num_heads, ...)
  local who = "MultiheadAttention"
  local o = parse(embed_dim, num_heads, ...)
  local E = check.positive(who, "embed_dim", o.embed_dim)
  local H = check.positive(who, "num_heads", o.num_heads)
  if E % H ~= 0 then raise("%s: embed_dim (%d) must be a multiple of num_heads (%d)", who, E, H) end
  self.embed_dim, self.num_heads, self.head_dim = E, H, E // H
  self.kdim = o.kdim == nil and E or check.positive(who, "kdim", o.kdim)
  self.vdim = o.vdim == nil and E or check.positive(who, "vdim", o.vdim)
  self.dropout = check.number(who, "dropout", o.dropout, 0, 1)
  self.batch_first, self.add_zero_attn = o.batch_first, o.add_zero_attn
  local make = { dtype = o.dtype, device = o.device }
  local function parameter(...) return Parameter(accel.empty(...)) end
  if self.kdim == E and self.vdim == E then
    self.in_proj_weight = parameter(3 * E, E, make)
  else
    self.q_proj_weight = parameter(E, E, make)
    self.k_proj_weight = parameter(E, self.kdim, make)
    self.v_proj_weight = parameter(E, self.vdim, make)
  end
  self:register_parameter("in_proj_bias", o.bias and parameter(3 * E, make) or nil)
  self.out_proj = Linear(E, E, { bias = o.bias, dtype = o.dtype, device = o.device })
  self:register_parameter("bias_k", o.add_bias_kv and parameter(1, 1, E, make) or nil)
  self:register_parameter("bias_v", o.add_bias_kv and parameter(1, 1, E, make) or nil)
  self:reset_parameters()
end

--- Draws the initial values of the projections again.
function MHA:reset_parameters()
  local init = require "accel.nn.initialization"
  for _, name in ipairs { "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight" } do
    if self[name] then init.xavier_uniform_(self[name]) end
  end
  if self.in_proj_bias then
    init.zeros_(self.in_proj_bias)
    init.zeros_(self.out_proj.bias)
  end
  if self.bias_k then
    init.xavier_normal_(self.bias_k)
    init.xavier_normal_(self.bias_v)
  end
end

--- Projections of query, key and value: one product if they are one tensor.
local function project(self, query, key, value)
  local E, weight, bias = self.embed_dim, self.in_proj_weight, self.in_proj_bias
  if weight and rawequal(query, key) and rawequal(key, value) then
    return table.unpack(linear(query, weight, bias):chunk(3, -1))
  end
  local function part(x, i, n, own)
    return linear(x, own or weight:narrow(1, i * E + 1, n * E), bias and bias:narrow(1, i * E + 1, n * E))
  end
  local q = part(query, 0, 1, self.q_proj_weight)
  if weight and rawequal(key, value) then
    return q, table.unpack(part(key, 1, 2):chunk(2, -1))
  end
  return q, part(key, 1, 1, self.k_proj_weight), part(value, 2, 1, self.v_proj_weight)
end

--- More positions at the end of the keys and values (in the layout of the inputs), and masks for them.
local function extended(self, k, v, time)
  local shape = k.shape
  if self.bias_k then
    local batch = time == 1 and { 1, shape[2], self.embed_dim } or { shape[1], 1, self.embed_dim }
    k = accel.cat({ k, self.bias_k:expand(batch) }, time)
    v = accel.cat({ v, self.bias_v:expand(batch) }, time)
  end
  if self.add_zero_attn then
    local zero = k.shape
    zero[time] = 1
    local none = accel.zeros(zero, { dtype = k.dtype, device = k.device })
    k, v = accel.cat({ k, none }, time), accel.cat({ v, none }, time)
  end
  return k, v
end

local forward_arguments = arguments("MultiheadAttention", { "key_padding_mask" }, { "need_weights", true },
  { "attn_mask" }, { "average_attn_weights", true }, { "is_causal", false })

local function need_inputs(self, query, key, value)
  local who = "MultiheadAttention"
  for name, t in pairs { query = query, key = key, value = value } do
    if not tensors.is_tensor(t) then raise("%s: %s must be a tensor, got %s", who, name, check.shown(t)) end
  end
  if query.ndim ~= key.ndim or query.ndim ~= value.ndim or query.ndim < 2 or query.ndim > 3 then
    raise("%s: query, key and value must all have 3 dimensions, or 2 without a batch; got shapes %s, %s and %s",
      who, tensors.shape_string(query), tensors.shape_string(key), tensors.shape_string(value))
  end
  if query:size(-1) ~= self.embed_dim or key:size(-1) ~= self.kdim or value:size(-1) ~= self.vdim then
    raise("%s: widths must be %d, %d and %d; got query %s, key %s and value %s", who, self.embed_dim, self.kdim,
      self.vdim, tensors.shape_string(query), tensors.shape_string(key), tensors.shape_string(value))
  end
  local time = (query.ndim == 2 or not self.batch_first) and 1 or 2
  local batch = query.ndim == 3 and 3 - time
  if key:size(time) ~= value:size(time) or (batch and (key:size(batch) ~= query:size(batch)
      or value:size(batch) ~= query:size(batch))) then
    raise("%s: key and value must have the same number of positions, and query's batch; got query %s, key %s and value %s",
      who, tensors.shape_string(query), tensors.shape_string(key), tensors.shape_string(value))
  end
end

--- Options, by position or in one table: key_padding_mask (N, S), need_weights = true, attn_mask (L, S) or (N *
--- num_heads, L, S), average_attn_weights = true, is_causal = false. is_causal alone lets query i attend to keys 1 ..
--- i. Together with attn_mask it declares, as in PyTorch, that the mask is the causal one. key and value are optional:
--- query attends to itself.
---@param query accel.Tensor
---@param key? accel.Tensor
---@param value? accel.Tensor
---@param ... any
---@return accel.Tensor output
---@return accel.Tensor? weights
function MHA:forward(query, key, value, ...)
  local o
  if key == nil or (type(key) == "table" and value == nil) then
    o = forward_arguments(key)
    key, value = query, query
  else
    o = forward_arguments(...)
  end
  need_inputs(self, query, key, value)
  local batched = query.ndim == 3
  local time = (batched and not self.batch_first or not batched) and 1 or 2
  local q, k, v = project(self, query, key, value)
  if not batched then -- (L, E): as a batch of one, time first
    q, k, v = q:unsqueeze(2), k:unsqueeze(2), v:unsqueeze(2)
  end
  local given = k:size(time)
  if self.bias_k or self.add_zero_attn then k, v = extended(self, k, v, time) end
  local H, D = self.num_heads, self.head_dim
  local function heads(t) -- -> (N, H, positions, D)
    local s = t.shape
    t = t:view(s[1], s[2], H, D)
    if time == 2 then return t:transpose(2, 3) end
    return t:permute(2, 3, 1, 4)
  end
  q, k, v = heads(q), heads(k), heads(v)
  local N, L, S = q:size(1), q:size(3), k:size(3)
  local mask, causal = masks.combine("MultiheadAttention", {
    N = N, H = H, L = L, S = given, extra = S - given, dtype = q.dtype, device = q.device,
    attn_mask = o.attn_mask, key_padding_mask = o.key_padding_mask, is_causal = o.is_causal,
    batched = batched, weights = o.need_weights,
  })
  local p = self.training and self.dropout or 0.0
  local out, weights
  if o.need_weights then
    local scores = q:mul(1 / math.sqrt(D)):matmul(k:transpose(-2, -1))
    if mask then
      if mask.dtype == "bool" then scores = accel.where(mask, scores, -math.huge) else scores = scores + mask end
    end
    weights = accel.softmax(scores, -1)
    if p > 0 then weights = accel.dropout(weights, p, true) end
    out = weights:matmul(v)
    if o.average_attn_weights then weights = weights:mean(2) end
    if not batched then weights = weights:squeeze(1) end
  else
    out = accel.scaled_dot_product_attention(q, k, v, { attn_mask = mask, is_causal = causal, dropout_p = p })
  end
  if time == 2 then
    out = out:transpose(2, 3):reshape(N, L, H * D)
  else
    out = out:permute(3, 1, 2, 4):reshape(L, N, H * D)
  end
  out = self.out_proj(out)
  if not batched then out = out:squeeze(2) end
  return out, weights
end

function MHA:extra_repr()
  return ("embed_dim=%d, num_heads=%d%s"):format(self.embed_dim, self.num_heads,
    self.batch_first and ", batch_first=true" or "")
end

return MHA
