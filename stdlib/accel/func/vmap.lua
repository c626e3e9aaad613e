--- func.vmap: a function of one sample, for a batch.
local accel = require "accel.core"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local tree = require "accel.func.tree"

local parse = arguments("vmap", { "in_dims", 1, list = true }, { "out_dims", 1, list = true }, { "randomness", "error" }, { "chunk_size" })

--- The dim of each tensor of an argument, in the order of its leaves: false where it is not mapped.
local function dims_of(arg, dims, into)
  if tensors.is_tensor(arg) then
    if dims == nil or dims == false then into[#into + 1] = false
    else
      into[#into + 1] = check.integer("vmap", "in_dims", dims, -arg.ndim, arg.ndim)
      if dims == 0 then raise "vmap: in_dims counts dims from 1, got 0; use false for an argument that is not mapped" end
    end
  elseif tree.is_node(arg) then
    local one = type(dims) ~= "table"
    tree.map(function(leaf, d)
      if one then d = dims end
      dims_of(leaf, d, into)
      return leaf
    end, arg, not one and dims or nil)
  elseif dims and type(dims) ~= "table" and dims ~= 1 then
    raise("vmap: in_dims gives dim %s for an argument that is no tensor, %s", check.shown(dims), check.shown(arg))
  end
  return into
end

local function size_of(args, dims)
  local size, from
  for i = 1, args.n do
    for k, leaf in ipairs(tree.leaves(args[i])) do
      local d = dims[i][k]
      if d then
        local n = leaf:size(d)
        if size and n ~= size then
          raise("vmap: the mapped dims must have one size, got %d in argument %d and %d in argument %d", size, from, n, i)
        end
        size, from = n, i
      end
    end
  end
  if not size then raise "vmap: at least one tensor must be mapped; give in_dims a dim for it" end
  return size
end

local function same_state(a, b)
  for key, value in next, a do
    if b[key] ~= value and type(value) ~= "table" then return false end
  end
  return true
end

--- A function that calls fn once for each position of the mapped dims and stacks the results. Results, gradients and time are those of a loop
--- over the batch, so any function works, with conditions and item(). For speed, write fn for batches.
--- - in_dims: the mapped dim of each argument: one number for all, or a list with false for an argument that stays whole. For an argument that
---   is a table, a table of the same form
--- - out_dims: the dim of the batch in each result
--- - randomness: "error" refuses random numbers in fn, "different" draws them for each sample, "same" once for all
--- - chunk_size: no effect, because one sample is computed at a time
--- example: accel.func.vmap(accel.dot)(accel.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } }, accel.ones(2, 2)) --> { 3, 7 }
--- example: accel.func.vmap(accel.mul, { in_dims = { 1, false } })(accel.tensor { 1.0, 2.0 }, 10) --> { 10, 20 }
---@param fn function
---@param ... any in_dims = 1, out_dims = 1, randomness = "error", chunk_size, or a table of them
---@return function
return function(fn, ...)
  local o = parse(...)
  check.callable("vmap", "fn", fn)
  check.word("vmap", "randomness", o.randomness, { "error", "different", "same" })
  if o.chunk_size ~= nil then
    check.positive("vmap", "chunk_size", o.chunk_size)
    require("accel.util.no_effect").once("vmap", "chunk_size", "because one sample is computed at a time")
  end
  return function(...)
    local args, dims = table.pack(...), {}
    for i = 1, args.n do
      local d = o.in_dims
      if type(d) == "table" then
        d = d[i]
        if d == nil then raise("vmap: in_dims has %d entries for %d arguments; use false for one that is not mapped", #o.in_dims, args.n) end
      end
      dims[i] = dims_of(args[i], d, {})
    end
    local size = size_of(args, dims)
    if size == 0 then raise "vmap: the mapped dims are empty, so that fn's results have no known shape" end
    local before = accel.get_rng_state()
    local samples = {}
    for s = 1, size do
      local sample = { n = args.n }
      for i = 1, args.n do
        local k = 0
        sample[i] = tree.map(function(leaf)
          k = k + 1
          return dims[i][k] and leaf:select(dims[i][k], s) or leaf
        end, args[i])
      end
      if o.randomness == "same" and s > 1 then accel.set_rng_state(before) end
      samples[s] = table.pack(fn(table.unpack(sample, 1, sample.n)))
      if o.randomness == "error" and not same_state(before, accel.get_rng_state()) then
        raise 'vmap: the function draws random numbers; set randomness = "different" or "same"'
      end
    end
    local first, out = samples[1], {}
    for r = 1, first.n do
      local lists = {}
      for s = 1, size do
        local leaves = tree.leaves(samples[s][r])
        for k, leaf in ipairs(leaves) do
          lists[k] = lists[k] or {}
          lists[k][s] = leaf
        end
      end
      if #lists == 0 then raise("vmap: result %d of the function has no tensor: %s", r, check.shown(first[r])) end
      local to = o.out_dims
      if type(to) == "table" then to = to[r] or 1 end
      for k, list in ipairs(lists) do
        if #list ~= size then raise "vmap: the function must return the same tensors for each sample" end
        lists[k] = accel.stack(list, check.integer("vmap", "out_dims", to, -list[1].ndim - 1, list[1].ndim + 1))
      end
      out[r] = tree.fill(first[r], lists)
    end
    return table.unpack(out, 1, first.n)
  end
end
