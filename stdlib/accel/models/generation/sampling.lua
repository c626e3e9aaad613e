--- Which ids may be drawn, and the draw: temperature, top_k, top_p, min_p, typical_p, epsilon_cutoff and eta_cutoff in
--- Transformers' order. After top_k only k candidates of each row are looked at. Used by models/generate.lua and the searches.
local accel = require "accel"
local raise = require "accel.util.raise"

local M = {}

local NOT <const> = -math.huge

--- Candidates of every row: scores [N, n], and the ids [N, n] they belong to (nil: 0 .. n-1).
---@class accel.models.Candidates
---@field scores accel.Tensor
---@field ids? accel.Tensor
---@field sorted boolean by score, the greatest first

local function sort(c)
  if c.sorted then return end
  local scores, index = c.scores:sort { dim = 2, descending = true, stable = true }
  c.ids = c.ids and c.ids:gather(2, index) or index
  c.scores, c.sorted = scores, true
end

--- Removes the candidates in `remove` (bool [N, n]), except the `least` first of each row.
local function take_out(c, remove, least)
  local n = c.scores.shape[2]
  local first = accel.arange(n, { device = c.scores.device }):lt(least):unsqueeze(1)
  c.scores = c.scores:masked_fill(remove * first:logical_not(), NOT)
end

--- Removes the candidates in `remove`, except those that score as high as the `least`-th.
local function take_low(c, remove, least)
  local top = c.scores:topk(math.min(least, c.scores.shape[2]))
  local bar = top:amin(2, true)
  c.scores = c.scores:masked_fill(remove * c.scores:lt(bar), NOT)
end

local steps = {}

function steps.temperature(c, value) c.scores = c.scores / value end

function steps.top_k(c, k, least)
  k = math.min(math.max(k, least), c.scores.shape[2])
  if k == c.scores.shape[2] then return end
  local scores, index = c.scores:topk(k)
  c.ids = c.ids and c.ids:gather(2, index) or index
  c.scores, c.sorted = scores, true
end

--- The likeliest whose probabilities add up to p: a candidate stays if those before it have less.
function steps.top_p(c, p, least)
  sort(c)
  local probs = c.scores:softmax(2)
  take_out(c, (probs:cumsum(2) - probs):ge(p), least)
end

function steps.min_p(c, p, least)
  local probs = c.scores:softmax(2)
  take_low(c, probs:lt(probs:amax(2, true) * p), least)
end

--- Those whose information is nearest to the entropy, up to the mass (Meister et al. 2022).
function steps.typical_p(c, mass, least)
  local log_probs = c.scores:log_softmax(2)
  local probs = log_probs:exp()
  local entropy = -accel.where(probs:gt(0), log_probs * probs, 0.0):sum(2, true)
  local distance, index = (log_probs + entropy):abs():sort { dim = 2, stable = true }
  c.scores, c.sorted = c.scores:gather(2, index), false
  c.ids = c.ids and c.ids:gather(2, index) or index
  local n = c.scores.shape[2]
  local last = c.scores:softmax(2):cumsum(2):lt(mass):to("i64"):sum(2, true):minimum(n - 1)
  take_out(c, distance:gt(distance:gather(2, last)), least)
end

function steps.epsilon_cutoff(c, epsilon, least) take_low(c, c.scores:softmax(2):lt(epsilon), least) end

function steps.eta_cutoff(c, epsilon, least)
  local log_probs = c.scores:log_softmax(2)
  local probs = log_probs:exp()
  local entropy = -accel.where(probs:gt(0), log_probs * probs, 0.0):sum(2, true)
  take_low(c, probs:lt((entropy:neg():exp() * math.sqrt(epsilon)):minimum(epsilon)), least)
end

--- name, the value that asks for nothing
local order = {
  { "temperature", 1.0 }, { "top_k", 0 }, { "top_p", 1.0 }, { "min_p", 0.0 }, { "typical_p", 1.0 }, { "epsilon_cutoff", 0.0 },
  { "eta_cutoff", 0.0 },
}

--- The candidates for sampling from scores [N, V]. least: candidates that are never removed (1).
---@param scores accel.Tensor
---@param o table temperature, top_k, top_p, ...
---@param least? integer
---@return accel.models.Candidates
function M.candidates(scores, o, least)
  local c = { scores = scores, sorted = false }
  for _, step in ipairs(order) do
    local value = o[step[1]]
    if value ~= nil and value ~= step[2] then steps[step[1]](c, value, least or 1) end
  end
  return c
end

--- Candidates as scores of every id: [N, V], minus infinity for excluded ones.
---@param c accel.models.Candidates
---@param V integer
---@return accel.Tensor
function M.scatter(c, V)
  if not c.ids then return c.scores end
  local N = c.scores.shape[1]
  local all = accel.full({ N, V }, NOT, { dtype = c.scores.dtype, device = c.scores.device })
  return all:scatter(2, c.ids, c.scores)
end

--- Raises if scores give no probabilities.
function M.check(scores)
  local top = scores:amax(2):tolist()
  for b, v in ipairs(top) do
    if v == NOT then raise "generate: every logit is minus infinity" end
    if v ~= v or v == math.huge then
      for i, x in ipairs(scores:select(1, b):tolist()) do
        if x ~= x or x == math.huge then raise("generate: the logit of id %d is not finite", i - 1) end
      end
    end
  end
end

--- An id for each row, drawn with the candidates' probabilities: the first whose share of the running sum exceeds a uniform
--- number. One number is drawn a row.
---@param c accel.models.Candidates
---@param random accel.util.Random
---@return integer[]
function M.draw(c, random)
  local N, n = c.scores.shape[1], c.scores.shape[2]
  local sums = c.scores:to("f64"):softmax(2):cumsum(2)
  local at = {}
  for b = 1, N do at[b] = { random:uniform() } end
  local limit = sums:narrow(2, n, 1) * accel.tensor(at, { dtype = "f64", device = sums.device })
  local index = sums:le(limit):to("i64"):sum(2, true):minimum(n - 1)
  if c.ids then index = c.ids:gather(2, index) end
  return index:reshape(-1):tolist()
end

--- k different candidates of each row, drawn one after the other by their probabilities (as sorting by score plus Gumbel
--- noise does): scores and positions [N, k], the greatest score first.
---@param scores accel.Tensor [N, n]
---@param k integer
---@param random accel.util.Random
---@return accel.Tensor, accel.Tensor
function M.draw_several(scores, k, random)
  local uniform = accel.rand(scores.shape, {
    dtype = "f64", generator = accel.Generator(random:bits() >> 1), device = scores.device,
  })
  local noise = -((-(uniform:maximum(1e-300):log())):maximum(1e-300):log())
  local _, index = (scores:to("f64") + noise):topk(k)
  local values, rank = scores:gather(2, index):sort { dim = 2, descending = true, stable = true }
  return values, index:gather(2, rank)
end

return M
