--- Converts masks of attention layers, in PyTorch's meaning for them (true: masked, floats are added to the scores), to
--- the mask of scaled_dot_product_attention (true: attended).
local accel = require "accel"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function need(who, name, mask, ...)
  if not tensors.is_tensor(mask) then raise("%s: %s must be a tensor, got %s", who, name, type(mask)) end
  if mask.dtype ~= "bool" and not tensors.is_floating(mask.dtype) then
    raise("%s: %s must be bool or float, got %s", who, name, mask.dtype)
  end
  local got, texts = mask.shape, {}
  for _, want in ipairs { ... } do
    local same = #got == #want
    for i = 1, #want do same = same and got[i] == want[i] end
    if same then return end
    texts[#texts + 1] = ("(%s)"):format(table.concat(want, ", "))
  end
  raise("%s: %s must have shape %s, got %s", who, name, table.concat(texts, " or "), tensors.shape_string(mask))
end

--- n more columns that any query may attend to.
local function widened(mask, n)
  if n == 0 then return mask end
  local shape = mask.shape
  shape[#shape] = n
  return accel.cat({ mask, accel.zeros(shape, { dtype = mask.dtype, device = mask.device }) }, -1)
end

--- Keys that a bool mask leaves out get -infinity.
local function as_float(mask, dtype)
  if mask.dtype ~= "bool" then return mask:to(dtype) end
  return accel.zeros(mask.shape, { dtype = dtype, device = mask.device }):masked_fill(mask, -math.huge)
end

--- true if query i of n may attend to key j of m: j <= i.
---@return accel.Tensor
function M.causal(n, m, device)
  local row = accel.arange(n, { device = device }):unsqueeze(2)
  return accel.arange(m, { device = device }):unsqueeze(1):le(row)
end

--- One mask for scores (N, H, L, S + extra), or nil, and whether the attention itself must be causal. o: N, H, L, S,
--- extra (positions after S, open to all), attn_mask, key_padding_mask, is_causal, batched, weights (whether the scores
--- are computed explicitly, which needs a causal mask as a tensor), dtype, device.
---@param who string
---@param o table
---@return accel.Tensor? mask
---@return boolean causal
function M.combine(who, o)
  local N, H, L, S = o.N, o.H, o.L, o.S
  local attn, pad = o.attn_mask, o.key_padding_mask
  if attn then need(who, "attn_mask", attn, { L, S }, { N * H, L, S }) end
  if pad then
    if o.batched then need(who, "key_padding_mask", pad, { N, S }) else need(who, "key_padding_mask", pad, { S }) end
  end
  if o.is_causal and not pad and not o.weights and o.extra == 0 then return nil, true end
  local causal
  if o.is_causal and not attn then causal = M.causal(L, S, o.device):logical_not() end
  local parts = {}
  if attn then
    attn = widened(attn, o.extra)
    parts[1] = attn.ndim == 3 and attn:reshape(N, H, L, S + o.extra) or attn
  elseif causal then
    parts[1] = widened(causal, o.extra)
  end
  if pad then parts[#parts + 1] = widened(pad, o.extra):reshape(N, 1, 1, S + o.extra) end
  if #parts == 0 then return nil, false end
  local all_bool = true
  for _, mask in ipairs(parts) do all_bool = all_bool and mask.dtype == "bool" end
  if all_bool then
    local out = parts[1]
    if parts[2] then out = out:logical_or(parts[2]) end
    return out:logical_not(), false
  end
  local sum = as_float(parts[1], o.dtype)
  if parts[2] then sum = sum + as_float(parts[2], o.dtype) end
  return sum, false
end

return M
