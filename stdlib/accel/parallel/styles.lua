--- Converts a module for tensor parallelism, by its word in a plan. Sharded outputs are the heads of an attention or the hidden
--- features of a feed-forward layer. Between such layers all ranks have the same activations, or, with sequence_parallel, each
--- its part of dim 2, the sequence.
---
---   colwise             Linear, Conv1D: outputs are shared out. `pieces` = 3: of three matrices in one, each by itself.
---                       Dropout: of features that are shared out
---   rowwise             Linear, Conv1D: inputs are shared out, outputs summed over the ranks, and the bias added once
---   colwise_rep         colwise, and every rank gets all outputs: a head. Its loss needs no gathered logits (cross_entropy)
---   embedding_rowwise   Embedding: rows are sharded. The vocabulary need not divide
---   embedding_colwise   Embedding: columns are shared out, as of biases by head
---   attention           the module with sharded heads: its dropout masks cover all heads
---   sequence_parallel   norms, dropout and embeddings on parts of the sequence. Nothing without sequence_parallel
---   sequence_gather     every rank gets the whole sequence of its output
---   sequence_whole      the module takes and gives parts of the sequence, and sees the whole inside
---
--- input = "replicated": the input is the whole sequence even with sequence_parallel. output = "sharded" (colwise_rep): every rank
--- keeps its own outputs.
local accel = require "accel"
local Conv1D = require "accel.models.conv1d"
local LayerNorm = require "accel.nn.layer_norm"
local Linear = require "accel.nn.linear"
local RMSNorm = require "accel.nn.rms_norm"
local Dropout = require "accel.nn.dropout".Dropout
local Embedding = require "accel.nn.embedding"
local chunks = require "accel.parallel.chunks"
local class = require "accel.util.class"
local collectives = require "accel.parallel.collectives"
local core = require "accel.parallel.core"
local cross_entropy = require "accel.parallel.cross_entropy"
local overlap = require "accel.parallel.overlap"
local partial = require "accel.parallel.partial"
local placements = require "accel.parallel.placements"
local raise = require "accel.util.raise"

local linear, addmm, embedding, dropout = accel.linear, accel.addmm, accel.embedding, accel.dropout

local M = { known = {} }

-- Connections between layers ----------------------------------------------------------------------

--- Shared by the parallel layers of one model.
---@class accel.parallel.Region
---@field axis accel.parallel.Axis
---@field sequence boolean
---@field overlapped boolean sums of gradients overlap with products (overlap.lua)
---@field chunked boolean forward's gathers and sums are split and overlap with its products (chunks.lua)
local Region = class("accel.parallel.Region")
M.Region = Region

function Region:init(axis, sequence, overlapped, chunked)
  self.axis, self.sequence, self.overlapped, self.chunked, self.entered = axis, sequence, overlapped, chunked, {}
  self.style_of = setmetatable({}, { __mode = "k" }) -- of modules that are cut
  self.looked_up = setmetatable({}, { __mode = "k" })
end

local function check_length(self, x)
  if x.ndim < 3 or x.shape[2] % self.axis.size ~= 0 then
    raise("sequence_parallel: shape (%s) has no sequence in dim 2 that divides by tp_size %d", table.concat(x.shape, ", "),
      self.axis.size)
  end
  return x
end

--- x before layers that share outputs out, for columns(): once for all that take the same x, whose gradients are then summed over the ranks
--- together.
function Region:enter(x, replicated)
  local y = self.entered[x]
  if y then return y end
  local dim = self.sequence and not replicated and 2 or nil
  if self.chunked and dim then y = chunks.enter(x, self.axis, self.overlapped) end
  if y then self.entered[x] = y
  elseif self.overlapped and overlap.applies(x, self.axis) then y = overlap.enter(x, self.axis, dim)
  elseif dim then y = collectives.gather(x, self.axis, dim)
  else y = collectives.copy(x, self.axis) end
  self.entered[x] = y
  return y
end

--- The sum over ranks after a layer with sharded inputs.
function Region:leave(y, replicated)
  self.entered = {}
  if self.sequence and not replicated then return collectives.scatter(check_length(self, y), self.axis, 2) end
  return collectives.reduce(y, self.axis)
end

--- The same after product(x), of rows.
function Region:leave_product(x, product, replicated)
  local y = self.chunked and chunks.leave(x, product, self.axis, self.sequence and not replicated)
  if not y then return self:leave(product(x), replicated) end
  self.entered = {}
  return y
end

--- Whether an embedding used a head's weight in this forward. The embedding sets it, the head reads it.
function Region:look_up(weight) self.looked_up[weight] = true end

function Region:is_tied(weight)
  local was = self.looked_up[weight]
  self.looked_up[weight] = nil
  return was
end

--- A parameter that works on parts of the sequence: its gradient is the sum of the parts'.
Region.whole_gradient = partial.whole_gradient

-- Styles -----------------------------------------------------------------------------------------

local function is(module, cls) return class.isinstance(module, cls) end

local function refuse(style, name, module, wants)
  raise("parallelize_module: '%s' is a %s, but %s is for %s", name, getmetatable(module).__name or "module", style, wants)
end

local function check_divides(name, n, pieces, axis, what)
  if n % (pieces * axis.size) ~= 0 then
    raise("parallelize_module: '%s' has %d %s, which do not divide by %stp_size %d", name, n, what,
      pieces > 1 and ("%d pieces and "):format(pieces) or "", axis.size)
  end
end

--- Shards the outputs of a linear layer. Returns the layer's own forward.
local function cut_outputs(region, style, name, module, o, uneven)
  local conv, pieces = is(module, Conv1D), o.pieces or 1
  if not conv and not is(module, Linear) then refuse(style, name, module, "Linear and Conv1D") end
  local dim = conv and 2 or 1
  if not uneven and not placements.of[module.weight] then
    check_divides(name, module.weight.shape[dim], pieces, region.axis, "outputs")
  end
  placements.cut(module.weight, region.axis, dim, pieces)
  if module.bias then placements.cut(module.bias, region.axis, 1, pieces) end
  return module.forward
end

--- Dropout masks are the whole tensor's, of which dim is divided equally.
local function drop_part(axis, x, dim, run)
  local n = x.shape[dim]
  core.random_range(dim, axis.rank * n, axis.size * n)
  local y = run()
  core.random_range()
  return y
end

local function dropout_of(axis, module, dim_of)
  rawset(module, "forward", function(self, x)
    if not self.training or self.p == 0 then return x end
    return drop_part(axis, x, dim_of(x), function() return dropout(x, self.p, true) end)
  end)
end

--- forward(module, x) of an x that has entered. early: gradients of weights are not put off.
local function columns(x, forward, module, early)
  local function run(part)
    if early then return forward(module, part) end
    return overlap.columns(part, forward, module)
  end
  return chunks.is(x) and chunks.columns(x, run) or run(x)
end

function M.known.colwise(region, name, module, o)
  if is(module, Dropout) then return dropout_of(region.axis, module, function(x) return x.ndim end) end
  local forward, replicated = cut_outputs(region, "colwise", name, module, o), o.input == "replicated"
  rawset(module, "forward", function(self, x) return columns(region:enter(x, replicated), forward, self) end)
end

--- x weight, by the operation that marks which of the two is a weight: zero_bubble defers its gradient.
local function times(x, weight) return addmm(accel.empty({ 1 }, { dtype = x.dtype, device = x.device }), x, weight, { beta = 0 }) end

function M.known.rowwise(region, name, module, o)
  local conv, axis = is(module, Conv1D), region.axis
  if not conv and not is(module, Linear) then refuse("rowwise", name, module, "Linear and Conv1D") end
  local dim, replicated = conv and 1 or 2, o.input == "replicated"
  if not placements.of[module.weight] then check_divides(name, module.weight.shape[dim], 1, axis, "inputs") end
  placements.cut(module.weight, axis, dim)
  local sequence = region.sequence and not replicated
  if sequence then partial.register(region, module, { bias = true }) end
  rawset(module, "forward", function(self, x)
    local y = region:leave_product(x, function(rows) return conv and times(rows, self.weight) or linear(rows, self.weight) end, replicated)
    local bias = self.bias
    if not bias then return y end
    return y + (sequence and region:whole_gradient(bias) or bias)
  end)
end

function M.known.colwise_rep(region, name, module, o)
  local axis = region.axis
  local forward, p = cut_outputs(region, "colwise_rep", name, module, o, true), nil
  p = placements.of[module.weight]
  local first, count = placements.range(p, axis.rank)
  local replicated = o.input == "replicated"
  local function own(self, x)
    local entered = region:enter(x, replicated)
    -- a gradient that an embedding adds to comes once, as sharding and DDP count on
    local y = columns(entered, forward, self, region:is_tied(self.weight))
    region.entered = {}
    return y
  end
  rawset(module, "forward", function(self, x)
    local y = own(self, x)
    if o.output == "sharded" then return y end
    if count < p.step then y = accel.pad(y, { 0, p.step - count }) end
    y = collectives.join(y, axis, y.ndim)
    return p.step * axis.size == p.whole and y or y:narrow(y.ndim, 1, p.whole)
  end)
  rawset(module, "cross_entropy", function(self, x, target)
    return cross_entropy(own(self, x), target, axis, { first = first })
  end)
end

function M.known.embedding_rowwise(region, name, module)
  local axis, weight = region.axis, module.weight
  if not is(module, Embedding) then refuse("embedding_rowwise", name, module, "Embedding") end
  if module.max_norm then raise("parallelize_module: '%s' has max_norm, which needs whole rows on every rank", name) end
  placements.cut(weight, axis, 1)
  local first, count = placements.range(placements.of[weight], axis.rank)
  if count == 0 then
    raise("parallelize_module: '%s' has %d rows, which leave none for rank %d of tp_size %d", name,
      placements.of[weight].whole, axis.rank, axis.size)
  end
  local pad = module.padding_idx and module.padding_idx - first
  if pad and (pad < 0 or pad >= count) then pad = nil end
  rawset(module, "forward", function(self, ids)
    if accel.is_grad_enabled() then region:look_up(weight) end
    local own = ids - first
    local outside = own:lt(0):logical_or(own:ge(count))
    local y = embedding(own:masked_fill(outside, 0), self.weight, pad):masked_fill(outside:unsqueeze(-1), 0)
    return region:leave(y)
  end)
end

function M.known.embedding_colwise(region, name, module)
  if not is(module, Embedding) then refuse("embedding_colwise", name, module, "Embedding") end
  check_divides(name, module.weight.shape[2], 1, region.axis, "columns")
  placements.cut(module.weight, region.axis, 2)
end

function M.known.attention(region, _, module)
  local axis, inner = region.axis, rawget(module, "attend") or accel.scaled_dot_product_attention
  rawset(module, "attend", function(q, k, v, o)
    if (o.dropout_p or 0) == 0 then return inner(q, k, v, o) end
    return drop_part(axis, q, 2, function() return inner(q, k, v, o) end)
  end)
end

--- The fields of a module with other parameters, for its class's forward.
local function with(module, fields) return setmetatable(fields, { __index = module }) end

function M.known.sequence_parallel(region, name, module)
  if not region.sequence then return end
  local axis, forward = region.axis, module.forward
  if is(module, Dropout) then return dropout_of(axis, module, function() return 2 end) end
  if is(module, LayerNorm) or is(module, RMSNorm) then
    partial.register(region, module, { weight = true, bias = true })
    rawset(module, "forward", function(self, x, residual)
      local parts = with(self, { weight = region:whole_gradient(self.weight), bias = region:whole_gradient(self.bias) })
      return forward(parts, x, residual)
    end)
  elseif is(module, Embedding) then
    rawset(module, "forward", function(self, ids)
      local y = forward(self, ids)
      if y.shape[y.ndim - 1] % axis.size ~= 0 then
        raise("sequence_parallel: %d positions of '%s' do not divide by tp_size %d", y.shape[y.ndim - 1], name, axis.size)
      end
      return collectives.split(y, axis, y.ndim - 1)
    end)
  else
    refuse("sequence_parallel", name, module, "LayerNorm, RMSNorm, Dropout and Embedding")
  end
end

local function after(module, fn)
  local forward = module.forward
  local function first(y, ...) return fn(y), ... end
  rawset(module, "forward", function(...) return first(forward(...)) end)
end

function M.known.sequence_gather(region, _, module)
  if region.sequence then after(module, function(y) return collectives.join(y, region.axis, 2) end) end
end

function M.known.sequence_whole(region, _, module)
  if not region.sequence then return end
  after(module, function(y) return collectives.split(y, region.axis, 2) end)
  local forward = module.forward
  rawset(module, "forward", function(self, x, ...) return forward(self, collectives.join(x, region.axis, 2), ...) end)
end

--- Applies a style to one module.
---@param region accel.parallel.Region
---@param style string
---@param name string
---@param module accel.nn.Module
---@param o table
function M.apply(region, style, name, module, o)
  M.known[style](region, name, module, o)
  region.style_of[module] = style
end

return M
