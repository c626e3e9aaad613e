--- Expert parallelism: ranks that read different data divide the experts of a mixture among them, and tokens travel to the ranks of
--- their experts and back (Lepikhin et al. 2021), by an all-to-all of as many rows as there are for each. Rank r of P has the experts
--- r n / P .. (r + 1) n / P - 1 whole and shapes of the others. All other parameters are on every rank.
---
--- A mixture is a module with a list `experts`, a method run_experts(x, weights, choices) and fields n_experts and k, as
--- accel.models.mixture has it. Gradients of experts are summed over all tokens of all ranks by the backward all-to-all, and averaged over
--- the ranks with the same experts (the axis "edp"). The loss is averaged over all data ranks, so they are divided by the number of ranks
--- that divide the experts among them. Sharding cuts experts over these ranks alone (units).
local absent = require "accel.parallel.absent"
local accel = require "accel"
local coalesce = require "accel.dist.coalesce"
local collectives = require "accel.parallel.collectives"
local core = require "accel.parallel.core"
local dist = require "accel.dist"
local mixture = require "accel.models.mixture"
local placements = require "accel.parallel.placements"
local raise = require "accel.util.raise"

local WHO <const> = "expert parallelism"

local M = {}

--- Sizes for a dry run: the last mixture's experts, the ranks that divide them, the rows for this rank's experts in a forward with a
--- balanced router, and the maximum rows. nil if no forward was simulated.
---@type {experts: integer, ranks: integer, rows: integer, most: integer}?
M.foretold = nil

--- The mixtures of a model, by name.
---@param model accel.nn.Module
---@return {name: string, module: accel.nn.Module}[]
function M.mixtures(model)
  local list = {}
  for name, module in pairs(model:named_modules()) do
    if type(module.run_experts) == "function" and module.experts and math.type(module.n_experts) == "integer" then
      list[#list + 1] = { name = name, module = module }
    end
  end
  return list
end

--- Tokens of all ranks of an axis count together in the losses and the capacities of a model's routers.
---@param model accel.nn.Module
---@param axis accel.parallel.Axis ranks over which gradients are averaged
---@param whole boolean ranks have whole sequences
function M.count_together(model, axis, whole)
  for _, m in ipairs(M.mixtures(model)) do
    if m.module.capacity_factor and m.module.drop_policy == "position" and not whole then
      raise("%s: expert_drop_policy 'position' needs whole sequences on every rank; use 'probs' with cp_size and sp_size", WHO)
    end
    m.module.ranks = axis
  end
end

--- Until the returned function is called, routers count the tokens of their own rank only: for ranks that run different numbers of
--- forwards.
---@param model accel.nn.Module
---@return fun()
function M.count_apart(model)
  local list, axes = M.mixtures(model), {}
  for i, m in ipairs(list) do axes[i], m.module.ranks = m.module.ranks or false, nil end
  return function()
    for i, m in ipairs(list) do m.module.ranks = axes[i] or nil end
  end
end

--- Rows [source rank][expert] as they come, in the order [expert][source rank]: places, and rows of each expert.
---@param counts integer[] by source rank, then expert
---@param ranks integer
---@param n integer experts here
local function by_expert(counts, ranks, n, device)
  local first, at, list, rows = {}, 0, {}, {}
  for i, count in ipairs(counts) do first[i], at = at, at + count end
  for e = 1, n do
    rows[e] = 0
    for r = 0, ranks - 1 do
      local i = r * n + e
      if counts[i] > 0 then list[#list + 1] = accel.arange(first[i], first[i] + counts[i], { device = device }) end
      rows[e] = rows[e] + counts[i]
    end
  end
  return #list > 0 and accel.cat(list, 1) or accel.zeros(0, { dtype = "i64", device = device }), rows
end

--- Sums of runs of n numbers.
local function sums(list, n)
  local out = {}
  for i, x in ipairs(list) do
    local r = (i - 1) // n + 1
    out[r] = (out[r] or 0) + x
  end
  return out
end

--- The number of rows of each expert here that come from each rank, as exchanged by the ranks. Without values, as a balanced router has
--- it.
local function counts_of_all(counts, axis, n, device)
  local received = accel.empty(axis.size * n, { dtype = "i64", device = device })
  dist.all_to_all_single(received, accel.tensor(counts, { dtype = "i64", device = device }), { group = axis.group })
  if not device:find "^meta" then return received:tolist() end
  received = {}
  for r = 0, axis.size - 1 do table.move(counts, axis.rank * n + 1, (axis.rank + 1) * n, r * n + 1, received) end
  return received
end

local function foretell(block, choices, axis, n, received)
  local rows, most = 0, choices:numel() * axis.size
  for _, count in ipairs(received) do rows = rows + count end
  local capacity = block:capacity(choices:numel() * (block.ranks and block.ranks.size or 1))
  if capacity then most = math.min(most, n * capacity) end
  M.foretold = { experts = block.n_experts, ranks = axis.size, rows = rows, most = most }
end

--- run_experts of a mixture whose experts are divided among the ranks of an axis.
local function run_divided(block, x, weights, choices, axis, own, plain)
  if absent.is(x) then return plain(block, x, weights, choices) end
  local n, order, counts = #own, mixture.sorted(choices, block.n_experts, block:most(choices))
  local received = counts_of_all(counts, axis, n, x.device)
  if x.device:find "^meta" then foretell(block, choices, axis, n, received) end
  local to, from, token = sums(counts, n), sums(received, n), order // block.k
  local places, rows = by_expert(received, axis.size, n, x.device)
  local y = collectives.send_rows(x:index_select(1, token), axis, to, from)
  y = mixture.run_each(own, y:index_select(1, places), rows)
  y = collectives.send_rows(y:index_select(1, places:argsort()), axis, from, to)
  y = y * weights:reshape(-1):index_select(1, order):unsqueeze(2)
  return accel.zeros_like(x):index_add(1, token, y:to(x.dtype))
end

--- Leaves shapes of the experts of others.
local function drop(p)
  p.grad = nil
  core.replace(p, accel.unscoped(accel.empty, p.shape, { dtype = p.dtype, device = absent.device }))
  if p.requires_grad then p:requires_grad_(false) end
end

--- Divides the experts of a model among the ranks of an axis. All ranks have the same parameters before.
---@param model accel.nn.Module
---@param axis accel.parallel.Axis "ep"
---@return accel.Tensor[] params all parameters of experts, including other ranks'
function M.divide(model, axis)
  local found, params = M.mixtures(model), {}
  if #found == 0 then
    raise("%s: %s has no mixture of experts for ep_size to divide; leave ep_size out", WHO,
      getmetatable(model).__name or "the model")
  end
  local _ <close> = accel.no_grad()
  for _, m in ipairs(found) do
    local block, own, total = m.module, {}, m.module.n_experts
    if total % axis.size ~= 0 then
      raise("%s: the %d experts of '%s' do not divide by ep_size %d", WHO, total, m.name, axis.size)
    end
    local n = total // axis.size
    for i = 1, total do
      local expert = block.experts[i]
      local here = (i - 1) // n == axis.rank
      if here then own[#own + 1] = expert end
      for _, p in ipairs(expert:parameters()) do
        if placements.experts[p] == nil then
          placements.experts[p], params[#params + 1] = axis, p
          if not here then
            drop(p)
          elseif p.requires_grad and not absent.is(p) then
            p:register_hook(function(grad) return grad / axis.size end)
          end
        end
      end
    end
    local plain = block.run_experts
    rawset(block, "run_experts", function(self, x, weights, choices) return run_divided(self, x, weights, choices, axis, own, plain) end)
  end
  return params
end

--- The experts that are here as units of sharding, one for each mixture: all of its experts are gathered before its forward, since ranks
--- may have tokens for different ones of them.
---@param model accel.nn.Module whose experts are divided
---@return table[] units as of accel.shard.policy
function M.units(model)
  local units = {}
  for _, m in ipairs(M.mixtures(model)) do
    local unit = { module = m.module, name = m.name, names = {}, params = {}, shared = {}, users = {}, elsewhere = {} }
    for name, p in pairs(m.module:named_parameters()) do
      if placements.experts[p] and not absent.is(p) and not p.quant_state then
        unit.names[#unit.names + 1], unit.params[#unit.params + 1] = name, p
      end
    end
    if #unit.params > 0 then units[#units + 1] = unit end
  end
  return units
end

--- Averages the gradients of the experts that are here, and are not cut, over the ranks that have the same ones. A collective over these.
---@param params accel.Tensor[] as divide gave them
---@param axis accel.parallel.Axis "edp"
function M.reduce(params, axis)
  if axis.size == 1 then return end
  local _ <close> = accel.no_grad()
  local grads, owners = {}, package.loaded["accel.shard.owners"]
  for _, p in ipairs(params) do
    if p.requires_grad and not absent.is(p) and not (owners and owners.of[p]) then
      if not p.grad then p.grad = accel.zeros_like(p:detach()) end
      grads[#grads + 1] = p.grad
    end
  end
  coalesce.mean(grads, axis.group)
end

return M
