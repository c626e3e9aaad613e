--- How many blocks each stage of a pipeline gets, by the products of its forward: a stage that takes longer than the others makes all of
--- them wait, in every micro-batch. Used by stages.lua.
local Embedding = require "accel.nn.embedding"
local class = require "accel.util.class"
local placements = require "accel.parallel.placements"

local M = {}

--- The minimum gain over equal counts before counts differ: less is within the cost of attention, norms and the optimizer.
local LEAST_GAIN <const> = 0.05

--- Equally many, one more in the middle ones, since the first and the last have the embedding and the head besides.
---@param n integer blocks
---@param stages integer
---@return integer[]
function M.even(n, stages)
  local counts, rest = {}, n % stages
  for s = 1, stages do counts[s] = n // stages end
  for i = 1, rest do
    local s = (stages - rest) // 2 + i
    counts[s] = counts[s] + 1
  end
  return counts
end

--- Values of a matrix. If tensor parallelism has sharded it, the whole's values, so that all ranks get the same counts.
local function values(p)
  local placed, n = placements.of[p], 1
  for d = 1, p.ndim do n = n * (placed and placed.dim == d and placed.whole or p.shape[d]) end
  return n
end

--- Multiplications of a row in a module's forward: the values of its matrices. Multiplications of a row in a module's forward: the values
--- of its matrices. An embedding is a lookup. A row uses k of a mixture's experts. nil if shapes do not determine it, as for convolutions,
--- whose work depends on the input size.
---@param module accel.nn.Module
---@return number?
function M.cost(module)
  local total, share = 0, {}
  for name, m in pairs(module:named_modules()) do
    if m.experts and math.type(m.n_experts) == "integer" and math.type(m.k) == "integer" then
      share[#share + 1] = { prefix = (name == "" and "" or name .. ".") .. "experts.", of = m.k / m.n_experts }
    end
    local part = 1
    for _, s in ipairs(share) do
      if name:sub(1, #s.prefix) == s.prefix then part = s.of end
    end
    if m.in_features and m.out_features then
      total = total + part * m.in_features * m.out_features
    elseif not class.isinstance(m, Embedding) then
      for _, p in ipairs(m:parameters(false)) do
        if p.ndim > 2 then return nil end
        if p.ndim == 2 then total = total + part * values(p) end
      end
    end
  end
  return total
end

--- The minimum cost of the most expensive stage for a number of stages of at least one block each.
local function least(costs, stages)
  local n, sum, best = #costs, { [0] = 0 }, {}
  for i = 1, n do
    sum[i] = sum[i - 1] + costs[i]
    best[i] = sum[i]
  end
  for s = 2, stages do
    local now = {}
    for i = s, n do
      local most = math.huge
      for j = i - 1, s - 1, -1 do
        local own = sum[i] - sum[j]
        most = math.min(most, math.max(best[j], own))
        if own >= most then break end
      end
      now[i] = most
    end
    best = now
  end
  return best[n], sum
end

--- Of the counts with which no stage costs more than `most`, those whose costs differ least: the least sum of squares.
local function nearest_to_equal(sum, n, stages, most)
  local best, from = {}, {}
  for i = 1, n do best[i] = sum[i] <= most and sum[i] ^ 2 or math.huge end
  for s = 2, stages do
    local now = {}
    from[s] = {}
    for i = s, n do
      now[i] = math.huge
      for j = i - 1, s - 1, -1 do
        local own = sum[i] - sum[j]
        if own > most then break end
        if best[j] + own ^ 2 < now[i] then now[i], from[s][i] = best[j] + own ^ 2, j end
      end
    end
    best = now
  end
  local counts, i = {}, n
  for s = stages, 2, -1 do
    local j = from[s][i]
    counts[s], i = i - j, j
  end
  counts[1] = i
  return counts
end

--- Counts of blocks by their costs, in order. The first and the last also have the modules before and after the blocks. Equal counts if
--- others gain little, or if a cost is unknown.
---@param costs (number|false)[] of the blocks
---@param stages integer
---@return integer[]
function M.by_cost(costs, stages)
  local n = #costs
  local even = M.even(n, stages)
  if stages == 1 or n <= stages then return even end
  for _, c in ipairs(costs) do
    if not c then return even end
  end
  local most, sum = least(costs, stages)
  local most_even, i = 0, 0
  for _, count in ipairs(even) do
    most_even, i = math.max(most_even, sum[i + count] - sum[i]), i + count
  end
  if most_even <= most * (1 + LEAST_GAIN) then return even end
  return nearest_to_equal(sum, n, stages, most * (1 + 1e-9))
end

return M
