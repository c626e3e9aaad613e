--- Context and sequence parallelism: ranks have parts of every sequence. Inside a scope (accelerator:maybe_context_parallel) buffers are
--- this rank's parts, and attention goes over all: by keys and values that come by (context parallelism, ring.lua), or by heads
--- that are exchanged for positions and back (sequence parallelism, Jacobs et al. 2023).
---
--- The models' attention modules take part (those that their tp_plan names, and those with a field `attends`); others do where they call
--- accel.scaled_dot_product_attention by that name, as nn.MultiheadAttention and nn.functional do. Masks are causal or none.
local accel = require "accel"
local absent = require "accel.parallel.absent"
local Dropout = require "accel.nn.dropout".Dropout
local class = require "accel.util.class"
local collectives = require "accel.parallel.collectives"
local core = require "accel.parallel.core"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local ring = require "accel.parallel.ring"
local tensors = require "accel.util.tensors"

local M = {}

require "accel.nn.divided".sequences = M

local plain = accel.scaled_dot_product_attention

--- The current scope: { axis, kind = "cp"|"sp", gather, chunks, length }, nil outside scopes.
local active

--- The current scope, or nil.
function M.active() return active end

-- The op's arguments after query, key and value, in its order.
local NAMES <const> = { "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa", "generator", "alibi_slopes" }
local KNOWN <const> = {}
for _, name in ipairs(NAMES) do KNOWN[name] = options.none end

--- The options of a call of the op, given by position, in a table, or both.
local function named(...)
  local n, o = select("#", ...), {}
  local last = n > 0 and select(n, ...) or nil
  if type(last) == "table" and not tensors.is_tensor(last) then
    for key, value in next, options("scaled_dot_product_attention", last, KNOWN) do o[key] = value end
    n = n - 1
  end
  if n > #NAMES then raise("scaled_dot_product_attention: %d arguments, expected %d at the most", n + 3, #NAMES + 3) end
  for i = 1, n do
    local value = select(i, ...)
    if value ~= nil then o[NAMES[i]] = value end
  end
  return o
end

local function attend(q, k, v, o, inner)
  inner = inner or plain
  if not active or absent.is(q) then return inner(q, k, v, o) end
  local axis = active.axis
  if o and o.attn_mask ~= nil then
    raise("attention: inside a context-parallel scope only causal masks work; leave attention_mask out")
  end
  o = o or {}
  if active.kind == "sp" then
    for _, t in ipairs { q, k } do
      if t.shape[2] % axis.size ~= 0 then
        raise("attention: %d heads do not divide by sp_size %d", t.shape[2], axis.size)
      end
    end
    local function by_heads(t) return collectives.exchange(t, axis, 2, 3) end
    local given, heads = {}, q.shape[2] // axis.size
    for key, value in next, o do given[key] = value end
    q, k, v = by_heads(q), by_heads(k), by_heads(v)
    if (o.dropout_p or 0) > 0 then core.random_range(2, axis.rank * heads, axis.size * heads) end
    local y = inner(q, k, v, given)
    core.random_range()
    return collectives.exchange(y, axis, 3, 2)
  end
  for _, name in ipairs { "alibi_slopes", "generator" } do
    if o[name] ~= nil then raise("attention: %s is not supported in context parallelism; leave it out, or use sp_size", name) end
  end
  if (o.dropout_p or 0) > 0 then
    raise("attention: context parallelism does not support dropout of the weights; set attention dropout to 0, or use sp_size")
  end
  return ring(q, k, v, axis, { is_causal = o.is_causal, scale = o.scale, gather = active.gather, chunks = active.chunks })
end

--- Has the attention modules of a model go over all ranks inside scopes, and dropout draw for the whole sequence.
---@param model accel.nn.Module
---@param axis accel.parallel.Axis
---@param config accel.accelerator.ParallelismConfig
function M.attach(model, axis, config) -- luacheck: ignore axis config
  local find, done = require("accel.parallel.tensor_parallel").find, {}
  local function take(module)
    if done[module] then return end
    done[module] = true
    local inner = rawget(module, "attend")
    rawset(module, "attend", function(q, k, v, o) return attend(q, k, v, o, inner) end)
  end
  for text, style in accel.pairs(model.tp_plan or {}) do
    if style == "attention" then
      for _, f in ipairs(find(model, text)) do take(f.module) end
    end
  end
  for _, module in ipairs(model:modules()) do
    if module.attends then take(module) end
    if class.isinstance(module, Dropout) then
      local forward = module.forward
      rawset(module, "forward", function(self, x)
        if not active or x.ndim ~= 3 or x.shape[2] ~= active.length then return forward(self, x) end
        core.random_range(2, active.axis.rank * active.length, active.axis.size * active.length)
        local y = forward(self, x)
        core.random_range()
        return y
      end)
    end
  end
end

--- Positions of this rank's tokens in their sequence, [T]. nil outside a scope, or if T is not the scope's length.
---@param T integer
---@param device string
---@return accel.Tensor?
function M.positions(T, device)
  if not active or T ~= active.length then return nil end
  local P, r, c = active.axis.size, active.axis.rank, active.length // active.chunks
  local first = accel.arange(r * c, (r + 1) * c, { device = device })
  if active.chunks == 1 then return first end
  return accel.cat({ first, accel.arange((2 * P - 1 - r) * c, (2 * P - r) * c, { device = device }) }, 1)
end

--- The length of the whole sequences, of which this rank has parts of T; T itself outside of scopes.
---@param T integer
---@return integer
function M.whole(T) return active and T == active.length and T * active.axis.size or T end

--- This rank's part of a dim: one piece of the sequence, or the rank-th from either end.
local function part_of(t, dim, axis, chunks)
  local n = t.shape[dim]
  if n % (axis.size * chunks) ~= 0 then
    raise("maybe_context_parallel: a sequence of %d does not divide by %d", n, axis.size * chunks)
  end
  local c = n // (axis.size * chunks)
  local first = t:narrow(dim, axis.rank * c + 1, c)
  if chunks == 1 then return first:clone() end
  return accel.cat({ first, t:narrow(dim, (2 * axis.size - 1 - axis.rank) * c + 1, c) }, dim)
end

--- The sum of a number over the ranks of the scope under way, a new tensor.
---@param t accel.Tensor
---@return accel.Tensor
function M.total(t)
  if active.axis.size == 1 or absent.is(t) then return t end
  t = t:detach():to "f64"
  dist.all_reduce(t, { group = active.axis.group })
  return t
end

local Mean = accel.Function {
  name = "mean_over_parts",
  forward = function(ctx, loss, count)
    local n = count:to "f64"
    local both = M.total(accel.stack({ loss:to "f64" * n, n }, 1))
    local all = both:select(1, 2):clone()
    ctx.share = n * active.axis.size / all:clamp(1)
    ctx:mark_non_differentiable(all)
    return (both:select(1, 1) / all:clamp(1)):to(loss.dtype), all
  end,
  backward = function(ctx, dy) return (dy * ctx.share):to(dy.dtype) end,
}

--- The mean over all parts of sequences of a mean over this rank's, and its count: the same on every rank. Gradients, averaged over the
--- ranks, are this mean's.
---@param loss accel.Tensor
---@param count accel.Tensor labels that the part has
---@return accel.Tensor loss
---@return accel.Tensor count
function M.mean(loss, count)
  if active.axis.size == 1 or absent.is(loss) then return loss, count end
  return Mean(loss, count)
end

--- A scope in which buffers are this rank's parts, in place, and attention goes over all ranks. At its end the buffers are whole
--- again, but for those listed in no_restore_buffers.
---@param axis accel.parallel.Axis
---@param kind "cp"|"sp"
---@param gather boolean keys and values come at once
---@param o {buffers: accel.Tensor[], buffer_seq_dims: integer[], no_restore_buffers: accel.Tensor[]?}
---@param fn? function
---@param ... any
function M.scope(axis, kind, gather, o, fn, ...)
  if active then raise "maybe_context_parallel: a scope is under way already" end
  local buffers, dims, whole, keep = o.buffers or {}, o.buffer_seq_dims or {}, {}, {}
  if #buffers ~= #dims then
    raise("maybe_context_parallel: %d buffers, but %d buffer_seq_dims", #buffers, #dims)
  end
  for _, t in ipairs(o.no_restore_buffers or {}) do keep[t] = true end
  local chunks = kind == "cp" and 2 or 1
  for i, t in ipairs(buffers) do
    if t.shape[dims[i]] % (axis.size * chunks) ~= 0 then chunks = 1 end
  end
  local length
  do -- fn below records gradients
    local _ <close> = accel.no_grad()
    for i, t in ipairs(buffers) do
      whole[i] = t:detach()
      local part = accel.unscoped(part_of, whole[i], dims[i], axis, chunks)
      if length and part.shape[dims[i]] ~= length then
        raise("maybe_context_parallel: buffer %d has a sequence of %d, the first one of %d", i, part.shape[dims[i]] * axis.size,
          length * axis.size)
      end
      length = part.shape[dims[i]]
      core.replace(t, part)
    end
  end
  active = { axis = axis, kind = kind, gather = gather, chunks = chunks, length = length }
  local method = accel.Tensor and accel.Tensor.scaled_dot_product_attention
  local function by_name(q, k, v, ...) return attend(q, k, v, named(...)) end
  rawset(accel, "scaled_dot_product_attention", by_name)
  if method then accel.Tensor.scaled_dot_product_attention = by_name end
  return guard(function()
    active = nil
    rawset(accel, "scaled_dot_product_attention", plain)
    if method then accel.Tensor.scaled_dot_product_attention = method end
    for i, t in ipairs(buffers) do
      if not keep[t] then core.replace(t, whole[i]) end
    end
  end, fn, ...)
end

return M
