--- Attention and rotary positions in ONNX's nodes, for ops.lua's table.
local accel = require "accel"
local raise = require "accel.util.raise"

local M = {}

--- softmax(scale q k^T + mask) v. Groups of query heads that share keys are one more dim.
function M.flash_attention(g, c)
  local q, k, a = c.args.query, c.args.key, c.args
  local dtype, heads, kv_heads, tq, tk = q.dtype, q.shape[2], k.shape[2], q.shape[3], k.shape[3]
  if (a.dropout_p or 0) > 0 then raise "onnx.export: attention with dropout; call model:eval() first" end
  local query, key, value, batch = c.x "query", c.x "key", c.x "value", c.extents(1)[1]
  local function view(x, ...) return g:node("Reshape", { x, g:ints { ... } }) end
  local grouped, D = heads ~= kv_heads, q.shape[4]
  if grouped then
    query = view(query, batch, kv_heads, heads // kv_heads, tq, D)
    key, value = g:node("Unsqueeze", { key, g:ints { 2 } }), g:node("Unsqueeze", { value, g:ints { 2 } })
  end
  local turned = g:node("Transpose", { key }, { perm = grouped and { 0, 1, 2, 4, 3 } or { 0, 1, 3, 2 } })
  local scores = g:node("Mul", { g:node("MatMul", { query, turned }), g:number(a.scale, dtype) })
  if grouped then scores = view(scores, batch, heads, tq, tk) end
  local least = g:number(dtype == "f16" and -65504.0 or -3.0e38, dtype) -- not infinity: a row without a key stays finite
  if a.alibi_slopes then -- minus slope times distance
    local there = accel.arange(tk):unsqueeze(1) - (accel.arange(tq) + (a.is_causal and 0 or tk - tq)):unsqueeze(2)
    local slopes = g:node("Reshape", { c.like("alibi_slopes", dtype), g:ints { heads, 1, 1 } })
    scores = g:node("Sub", { scores, g:node("Mul", { slopes, g:constant(there:abs():to(dtype)) }) })
  end
  if a.is_causal then
    if tq ~= tk then raise("onnx.export: causal attention of %d queries to %d keys has no mapping; export without a cache", tq, tk) end
    scores = g:node("Where", { g:constant(accel.ones({ tq, tk }, { dtype = "bool" }):tril()), scores, least })
  end
  if a.attn_mask then
    if a.attn_mask.dtype == "bool" then scores = g:node("Where", { c.x "attn_mask", scores, least })
    else scores = g:node("Add", { scores, c.like("attn_mask", dtype) }) end
  end
  local weights = g:node("Softmax", { scores }, { axis = -1 })
  if grouped then weights = view(weights, batch, kv_heads, heads // kv_heads, tq, tk) end
  local out = g:node("MatMul", { weights, value })
  return grouped and view(out, batch, heads, tq, value and c.args.value.shape[4]) or out, false
end

--- Pairs turned by cosines and sines, which rope itself gives for the vectors 1, 0.
function M.rope(g, c)
  local x, opts = c.args.x, {}
  for key, value in next, c.args do
    if key ~= "x" then opts[key] = value end
  end
  for _, key in ipairs { "positions", "inv_freq" } do
    if c.varies(key) then raise("onnx.export: rope with %s that depend on the inputs has no mapping; leave them out", key) end
  end
  local n, T = x.shape[#x.shape], x.shape[#x.shape - 1]
  local half, B = n // 2, opts.positions and opts.positions.ndim == 2 and opts.positions.shape[1] or nil
  local dims = B and { B, T, half, 2 } or { T, half, 2 }
  local unit = accel.zeros(dims, { dtype = x.dtype })
  unit:select(-1, 1):fill_(1)
  if not opts.interleaved then unit = unit:transpose(-1, -2) end
  local turned = accel.rope(unit:reshape(B and { B, T, n } or { T, n }), opts)
  local parts = opts.interleaved and turned:reshape(dims) or turned:reshape(B and { B, T, 2, half } or { T, 2, half }):transpose(-1, -2)
  local cosines, sines = parts:select(-1, 1):contiguous(), parts:select(-1, 2):contiguous()
  if B and #x.shape == 4 then cosines, sines = cosines:unsqueeze(2), sines:unsqueeze(2) end
  local cos, sin, first, second = g:constant(cosines), g:constant(sines), nil, nil
  local name, dim = c.x "x", -1
  if opts.interleaved then
    local shape = c.extents(1)
    shape[#shape], shape[#shape + 1] = half, 2
    local pairs_ = g:node("Reshape", { name, g:ints(shape) })
    first, second = g:node("Gather", { pairs_, g:number(0, "i64") }, { axis = -1 }), g:node("Gather", { pairs_, g:number(1, "i64") }, { axis = -1 })
  else
    first, second = g:node("Split", { name, g:ints { half, half } }, { axis = dim }, 2)
  end
  local function product(a, b) return g:node("Mul", { a, b }) end
  local y1 = g:node("Sub", { product(first, cos), product(second, sin) })
  local y2 = g:node("Add", { product(second, cos), product(first, sin) })
  if not opts.interleaved then return g:node("Concat", { y1, y2 }, { axis = dim }) end
  local last = g:ints { -1 }
  local both = g:node("Concat", { g:node("Unsqueeze", { y1, last }), g:node("Unsqueeze", { y2, last }) }, { axis = -1 })
  return g:node("Reshape", { both, g:ints(c.extents(1)) })
end

return M
