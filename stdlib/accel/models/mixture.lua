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
local SparseMoeBlock = nn.Module:extend("MixtralSparseMoeBlock")

---@param c table hidden_size, intermediate_size, num_local_experts, num_experts_per_tok, router_jitter_noise
function SparseMoeBlock:init(c)
  self.n_experts, self.k, self.jitter = c.num_local_experts, c.num_experts_per_tok, c.router_jitter_noise
  self.gate = nn.Linear(c.hidden_size, self.n_experts, { bias = false })
  self.experts = nn.ModuleList()
  for _ = 1, self.n_experts do self.experts:append(Expert(c)) end
end

--- How many of the sorted choices each expert got. Shapes depend on it, so that it is read back; on meta
--- every expert gets an equal share.
local function loads(chosen, n_experts)
  if chosen.device ~= "meta" then return accel.bincount(chosen, { minlength = n_experts }):tolist() end
  local n, out = chosen:numel(), {}
  for e = 1, n_experts do out[e] = n * e // n_experts - n * (e - 1) // n_experts end
  return out
end

--- x [N, hidden], weights and choices [N, k] -> [N, hidden]. Tokens are brought into the order of their
--- experts, so that each expert sees one dense piece, and summed back.
function SparseMoeBlock:run_experts(x, weights, choices)
  local flat = choices:reshape(-1)
  local order = flat:argsort { stable = true }
  local token = order // self.k
  local sorted, parts, at = x:index_select(1, token), {}, 1
  for e, n in ipairs(loads(flat, self.n_experts)) do
    if n > 0 then
      parts[#parts + 1] = self.experts[e](sorted:narrow(1, at, n))
      at = at + n
    end
  end
  if #parts == 0 then return accel.zeros_like(x) end
  local y = accel.cat(parts, 1) * weights:reshape(-1):index_select(1, order):unsqueeze(2)
  return accel.zeros_like(x):index_add(1, token, y:to(x.dtype))
end

--- x [B, T, hidden] -> [B, T, hidden], and the router's logits [B T, experts].
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
  local y = self:run_experts(rows, weights:to(rows.dtype), choices)
  return y:reshape(shape), logits
end

local M = { SparseMoeBlock = SparseMoeBlock }

--- The loss that keeps experts equally busy (Fedus et al. 2022, eq. 4 to 6), over all layers:
--- experts * sum over experts of (share of choices) * (mean router probability). At least k; k when balanced.
---@param logits accel.Tensor[] router logits by layer, each [N, experts]
---@param k integer experts per token
---@param attention_mask? accel.Tensor [B, T]: padding does not count
---@return accel.Tensor
function M.load_balancing_loss(logits, k, attention_mask)
  local counts, probabilities, rows = nil, nil, 0
  local weight = attention_mask and attention_mask:reshape(-1):to("f32"):unsqueeze(2)
  for _, layer in ipairs(logits) do
    local p = (layer.dtype == "f64" and layer or layer:to("f32")):softmax(2)
    local _, choices = p:topk(k, 2)
    local ones = accel.ones(choices.shape, { dtype = p.dtype, device = p.device })
    local used = accel.zeros_like(p:detach()):scatter_add(2, choices, ones)
    if weight then
      local w = weight:to(p.dtype)
      p, used, rows = p * w, used * w, rows + w:sum()
    else
      rows = rows + p.shape[1]
    end
    counts = counts and counts + used:sum(1) or used:sum(1)
    probabilities = probabilities and probabilities + p:sum(1) or p:sum(1)
  end
  local n_experts = logits[1].shape[2]
  return (counts / rows * (probabilities / rows)):sum() * n_experts
end

return M
