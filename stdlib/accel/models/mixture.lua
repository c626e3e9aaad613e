--- A mixture of experts: every token goes to the k experts that its router prefers, and gets the sum of their
--- outputs, weighted. Used by models/mixtral.lua.
local accel = require "accel"
local activation = require "accel.models.activation"
local nn = require "accel.nn"

--- One expert: w2(act(w1(x)) * w3(x)).
---@class accel.models.Expert : accel.nn.Module
local Expert = nn.Module:extend("MixtralExpert")

function Expert:init(c)
  self.w1 = nn.Linear(c.hidden_size, c.intermediate_size, { bias = false })
  self.w2 = nn.Linear(c.intermediate_size, c.hidden_size, { bias = false })
  self.w3 = nn.Linear(c.hidden_size, c.intermediate_size, { bias = false })
  self.gate = activation.gate(c.hidden_act)
end

function Expert:forward(x) return self.w2(self.gate(self.w1(x), self.w3(x))) end

---@class accel.models.SparseMoeBlock : accel.nn.Module
---@field experts accel.nn.ModuleList
---@field ranks accel.parallel.Axis? ranks whose tokens count together in training. accel.parallel.experts sets it
local SparseMoeBlock = nn.Module:extend("MixtralSparseMoeBlock")

---@param c table hidden_size, intermediate_size, num_local_experts, num_experts_per_tok, router_jitter_noise,
--- expert_capacity_factor, expert_drop_policy
function SparseMoeBlock:init(c)
  self.n_experts, self.k, self.jitter = c.num_local_experts, c.num_experts_per_tok, c.router_jitter_noise
  self.capacity_factor, self.drop_policy = c.expert_capacity_factor, c.expert_drop_policy
  self.gate = nn.Linear(c.hidden_size, self.n_experts, { bias = false })
  self.experts = nn.ModuleList()
  for _ = 1, self.n_experts do self.experts:append(Expert(c)) end
end

--- How many of the sorted choices each expert got. Shapes depend on it, so it is read back. On meta every expert gets
--- an equal share, at most `most`.
local function loads(chosen, n_experts, most)
  if not chosen.device:find "^meta" then
    local counts = accel.bincount(chosen, { minlength = n_experts }):tolist()
    counts[n_experts + 1] = nil -- dropped ones
    return counts
  end
  local n, out = chosen:numel(), {}
  for e = 1, n_experts do out[e] = math.min(n * e // n_experts - n * (e - 1) // n_experts, most or n) end
  return out
end

local MOST_PIECES <const> = 64 -- results that one op has

--- x cut into pieces of so many rows.
local function cut(x, counts)
  if #counts > 1 and #counts <= MOST_PIECES then return x:split(counts, 1) end
  local pieces, at = {}, 1
  for i, n in ipairs(counts) do pieces[i], at = x:narrow(1, at, n), at + n end
  return pieces
end

--- x [N, hidden], whose rows lie in the order of their experts, counts[i] of them for experts[i] -> [N, hidden]. While gradients are
--- recorded every expert runs, even on no rows, so that its gradient is zero and never missing, for any batch.
---@param experts accel.nn.Module[]
---@param x accel.Tensor
---@param counts integer[]
---@return accel.Tensor
local function run_each(experts, x, counts)
  local parts, pieces, learns = {}, cut(x, counts), accel.is_grad_enabled()
  for i, expert in ipairs(experts) do
    if counts[i] > 0 or learns then parts[#parts + 1] = expert(pieces[i]) end
  end
  return #parts > 0 and accel.cat(parts, 1) or x
end

--- The positions of kept choices, in the order of their experts, and the number of them for each expert.
---@param choices accel.Tensor [N, k]. Dropped ones are n_experts
---@param n_experts integer
---@param most integer? rows of an expert on meta (block:most)
---@return accel.Tensor order [kept], places in the flat choices
---@return integer[] counts by expert
local function sorted(choices, n_experts, most)
  local flat = choices:reshape(-1)
  local counts, kept = loads(flat, n_experts, most), 0
  for _, n in ipairs(counts) do kept = kept + n end
  local order = flat:argsort { stable = true }
  return kept < flat:numel() and order:narrow(1, 1, kept) or order, counts
end

--- The capacity of an expert for all ranks' tokens in training. nil if none is dropped.
---@param n integer choices of all ranks
---@return integer?
function SparseMoeBlock:capacity(n)
  return self.training and self.capacity_factor and math.ceil(self.capacity_factor * n / self.n_experts) or nil
end

--- Rows for an expert from this rank's choices with a balanced router, for shapes without values. nil without a capacity.
---@param choices accel.Tensor [N, k]
---@return integer?
function SparseMoeBlock:most(choices)
  local ranks = self.ranks and self.ranks.size or 1
  local capacity = self:capacity(choices:numel() * ranks)
  return capacity and capacity // ranks
end

--- x [N, hidden], weights and choices [N, k] -> [N, hidden]. Tokens are brought into the order of their
--- experts, so that each expert sees one dense piece, and summed back.
---@param x accel.Tensor
---@param weights accel.Tensor
---@param choices accel.Tensor i64. n_experts for a dropped choice
function SparseMoeBlock:run_experts(x, weights, choices)
  local order, counts = sorted(choices, self.n_experts, self:most(choices))
  local token = order // self.k
  local y = run_each(self.experts, x:index_select(1, token), counts)
  y = y * weights:reshape(-1):index_select(1, order):unsqueeze(2)
  return accel.zeros_like(x):index_add(1, token, y:to(x.dtype))
end

--- Choices with n_experts in the place of those beyond the capacity of their expert, which is
--- ceil(capacity_factor * tokens * k / experts), over the tokens of all ranks in training: the least probable ones ("probs"), or the
--- last ones ("position").
local function within_capacity(self, weights, choices)
  local _ <close> = accel.no_grad()
  local n, k, ranks, first = choices.shape[1], self.k, self.ranks, 0
  weights = weights:detach()
  if ranks and ranks.size > 1 then
    weights, choices, first = ranks:all_parts(weights, 1), ranks:all_parts(choices, 1), ranks.rank * n
  end
  local flat, order = choices:reshape(-1), nil
  local capacity = self:capacity(flat:numel())
  if self.drop_policy == "position" then
    order = flat:argsort { stable = true }
  else
    local by_weight = weights:reshape(-1):argsort { descending = true, stable = true }
    order = by_weight:index_select(1, flat:index_select(1, by_weight):argsort { stable = true })
  end
  local counts = accel.bincount(flat, { minlength = self.n_experts })
  local expert = flat:index_select(1, order)
  local place = accel.arange(flat:numel(), { device = flat.device }) - (counts:cumsum(1) - counts):index_select(1, expert)
  flat = flat:index_copy(1, order, expert:masked_fill(place:ge(capacity), self.n_experts))
  return flat:narrow(1, first * k + 1, n * k):reshape(n, k)
end

--- x [B, T, hidden] -> [B, T, hidden], and the router's logits [B T, experts]. In training a capacity_factor drops choices: their
--- weight is lost, the others of the token stay as they are.
function SparseMoeBlock:forward(x)
  local shape = x.shape
  if self.training and self.jitter > 0 then
    x = x * accel.empty_like(x):uniform_(1 - self.jitter, 1 + self.jitter)
  end
  local rows = x:reshape(-1, shape[#shape])
  local logits = self.gate(rows)
  local wide = (logits.dtype == "f64" or logits.dtype == "f32") and logits or logits:to("f32")
  local weights, choices = wide:softmax(2):topk(self.k, 2)
  weights = weights / weights:sum(2, true)
  if self.training and self.capacity_factor then choices = within_capacity(self, weights, choices) end
  local y = self:run_experts(rows, weights:to(rows.dtype), choices)
  return y:reshape(shape), logits
end

local M = { SparseMoeBlock = SparseMoeBlock, run_each = run_each, sorted = sorted }

--- Sums over tokens, over all ranks' if there are several: choices by expert, probabilities by expert, the squares of the
--- logarithm of the sum of exp(logits), and tokens.
local function sums_of(logits, k, attention_mask, ranks)
  local weight, list = attention_mask and attention_mask:reshape(-1):to("f32"):unsqueeze(2), {}
  for i, layer in ipairs(logits) do
    local wide = layer.dtype == "f64" and layer or layer:to("f32")
    local p = wide:softmax(2)
    local _, choices = p:topk(k, 2)
    local ones = accel.ones(choices.shape, { dtype = p.dtype, device = p.device })
    local row = accel.cat({ accel.zeros_like(p:detach()):scatter_add(2, choices, ones), p, wide:logsumexp(2, true):square(),
      ones:narrow(2, 1, 1) }, 2)
    list[i] = (weight and row * weight:to(p.dtype) or row):sum(1)
  end
  local sums = #list == 1 and list[1] or accel.stack(list, 1):sum(1)
  return ranks and ranks.size > 1 and ranks:total(sums) or sums
end

--- The loss that keeps experts equally busy (Fedus et al. 2022, eq. 4 to 6), over all layers: experts * sum over
--- experts of (share of choices) * (mean router probability). At least k. k when balanced. And the router's z-loss
--- (Zoph et al. 2022, eq. 5): the mean over tokens and layers of log(sum(exp(logits)))^2.
---@param logits accel.Tensor[] router logits by layer, each [N, experts]
---@param k integer experts per token
---@param attention_mask? accel.Tensor [B, T]: padding does not count
---@param ranks? accel.parallel.Axis whose tokens count together. Gradients must then be averaged over them
---@return accel.Tensor balance
---@return accel.Tensor z
function M.router_losses(logits, k, attention_mask, ranks)
  local n, sums = logits[1].shape[2], sums_of(logits, k, attention_mask, ranks)
  local rows = sums:narrow(1, 2 * n + 2, 1):clamp(1) -- of padding alone both are 0
  local used, probabilities = sums:narrow(1, 1, n) / rows, sums:narrow(1, n + 1, n) / rows
  return (used * probabilities):sum() * n, (sums:narrow(1, 2 * n + 1, 1) / rows):sum()
end

--- How many tokens the losses of routers are over.
---@param ids accel.Tensor [B, T]
---@param attention_mask? accel.Tensor
---@return accel.Tensor
function M.tokens(ids, attention_mask)
  if attention_mask then return attention_mask:to("f64"):sum() end
  return accel.full({}, ids:numel(), { dtype = "f64", device = ids.device })
end

--- The first of router_losses.
---@param logits accel.Tensor[]
---@param k integer
---@param attention_mask? accel.Tensor
---@return accel.Tensor
function M.load_balancing_loss(logits, k, attention_mask) return (M.router_losses(logits, k, attention_mask)) end

return M
