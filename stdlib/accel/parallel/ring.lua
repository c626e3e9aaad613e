--- Attention over a sequence whose parts are on several ranks (Liu et al. 2023): queries stay, while keys and values are passed on.
--- The results of all parts are combined by the log of their sums of exponentials. No rank has scores of more than a part.
---
---   ring_attention(q, k, v, axis, { is_causal, scale, gather, chunks })
---
--- q, k, v: [B, heads, positions of this rank, width]. A rank has `chunks` equal pieces of the sequence: 1, the rank-th of all, or 2,
--- number rank from the front and number rank from the back, which gives causal attention the same work on every rank. gather: all
--- keys and values are fetched at once (all-gather), and their gradients use a reduce-scatter. Otherwise they are passed around the
--- ring.
local accel = require "accel"
local dist = require "accel.dist"

local forward_op, backward_op = accel.op "flash_attention", accel.op "flash_attention_backward"

--- Numbers of the chunks that rank r has.
local function numbers(r, P, chunks) return chunks == 1 and { r } or { r, 2 * P - 1 - r } end

local function chunk(t, i, chunks)
  local n = t.shape[3] // chunks
  return chunks == 1 and t or t:narrow(3, (i - 1) * n + 1, n):contiguous()
end

--- Calls fn(i, j, causal) for pairs of an own chunk of queries and a chunk of keys that see each other.
local function each_pair(o, P, me, source, fn)
  local own, other = numbers(me, P, o.chunks), numbers(source, P, o.chunks)
  for i, a in ipairs(own) do
    for j, b in ipairs(other) do
      if not o.is_causal or b <= a then fn(i, j, o.is_causal and a == b) end
    end
  end
end

--- Sends tensors to the next rank of the axis and returns the previous rank's.
local function pass_on(list, axis)
  local works, got = {}, {}
  local to, from = axis.ranks[(axis.rank + 1) % axis.size + 1], axis.ranks[(axis.rank - 1) % axis.size + 1]
  for i, t in ipairs(list) do
    got[i] = accel.empty(t.shape, { dtype = t.dtype, device = t.device })
    works[#works + 1] = dist.isend(t, to, { tag = 64000 + i })
    works[#works + 1] = dist.irecv(got[i], from, { tag = 64000 + i })
  end
  for _, work in ipairs(works) do work:wait() end
  return got
end

local function all_of(t, axis)
  local all = accel.empty({ axis.size, table.unpack(t.shape, 1, 4) }, { dtype = t.dtype, device = t.device })
  dist.all_gather_into_tensor(all, t, { group = axis.group })
  return all
end

--- Calls fn(source, k, v) for the keys and values of every rank, the own ones first.
local function each_source(k, v, axis, gather, fn)
  local all_k, all_v = gather and all_of(k, axis), gather and all_of(v, axis)
  for step = 0, axis.size - 1 do
    local source = (axis.rank - step) % axis.size
    if gather then k, v = all_k[source + 1], all_v[source + 1]
    elseif step > 0 then k, v = table.unpack(pass_on({ k, v }, axis)) end
    fn(source, k, v)
  end
end

local Ring = accel.Function {
  name = "ring_attention",
  forward = function(ctx, q, k, v, axis, o)
    q, k, v = q:contiguous(), k:contiguous(), v:contiguous()
    local outs, lses = {}, {}
    each_source(k, v, axis, o.gather, function(source, ks, vs)
      each_pair(o, axis.size, axis.rank, source, function(i, j, causal)
        local out, lse = forward_op(chunk(q, i, o.chunks), chunk(ks, j, o.chunks), chunk(vs, j, o.chunks), nil, 0.0, causal, o.scale)
        out = out:to(lse.dtype)
        if not outs[i] then
          outs[i], lses[i] = out, lse
          return
        end
        local most = accel.maximum(lses[i], lse)
        local a, b = (lses[i] - most):exp(), (lse - most):exp()
        local both = a + b
        outs[i] = outs[i] * (a / both):unsqueeze(4) + out * (b / both):unsqueeze(4)
        lses[i] = most + both:log()
      end)
    end)
    local out, lse = accel.cat(outs, 3):to(q.dtype), accel.cat(lses, 3)
    ctx:save_for_backward(q, k, v, out, lse)
    ctx.axis, ctx.o = axis, o
    return out
  end,
  backward = function(ctx, dout)
    local q, k, v, out, lse = ctx:saved_tensors()
    local axis, o, wide = ctx.axis, ctx.o, lse.dtype
    local function zeros(t) return accel.zeros(t.shape, { dtype = wide, device = t.device }) end
    local function part(t, i)
      local n = t.shape[3] // o.chunks
      return t:narrow(3, (i - 1) * n + 1, n)
    end
    local dq = zeros(q)
    dout = dout:contiguous()
    local function add(source, ks, vs, dk, dv)
      each_pair(o, axis.size, axis.rank, source, function(i, j, causal)
        local n = lse.shape[3] // o.chunks
        local a, b, c = backward_op(chunk(dout, i, o.chunks), chunk(q, i, o.chunks), chunk(ks, j, o.chunks), chunk(vs, j, o.chunks),
          chunk(out, i, o.chunks), lse:narrow(3, (i - 1) * n + 1, n):contiguous(), nil, 0.0, causal, o.scale)
        part(dq, i):add_(a)
        part(dk, j):add_(b)
        part(dv, j):add_(c)
      end)
    end
    local dk, dv
    if o.gather then
      local sent = accel.zeros({ axis.size, 2, table.unpack(k.shape, 1, 4) }, { dtype = wide, device = k.device })
      each_source(k, v, axis, true, function(source, ks, vs)
        add(source, ks, vs, sent[source + 1][1], sent[source + 1][2])
      end)
      local own = accel.empty({ 2, table.unpack(k.shape, 1, 4) }, { dtype = wide, device = k.device })
      dist.reduce_scatter_tensor(own, sent, { group = axis.group })
      dk, dv = own[1], own[2]
    else
      local ks, vs = k, v
      dk, dv = zeros(k), zeros(v)
      for step = 0, axis.size - 1 do -- gradients travel with their keys and are home after the last step
        add((axis.rank - step) % axis.size, ks, vs, dk, dv)
        ks, vs, dk, dv = table.unpack(pass_on({ ks, vs, dk, dv }, axis))
      end
    end
    return dq:to(q.dtype), dk:to(k.dtype), dv:to(v.dtype)
  end,
}

---@param q accel.Tensor [B, heads, T, width]
---@param k accel.Tensor [B, kv heads, T, width]
---@param v accel.Tensor
---@param axis accel.parallel.Axis
---@param o {is_causal: boolean?, scale: number?, gather: boolean?, chunks: integer?}
---@return accel.Tensor
return function(q, k, v, axis, o)
  return Ring(q, k, v, axis, { is_causal = o.is_causal or false, scale = o.scale or 1 / math.sqrt(q.shape[4]),
    gather = o.gather or false, chunks = o.chunks or 1 })
end
