--- Mixtures of experts in decoders: a router chooses k experts for each token, and the weighted outputs are summed. Experts are separate
--- modules, or two matrices for all of them. decoder/layer.lua uses it for descriptions with `moe`.
local accel = require "accel"
local MLP = require "accel.models.decoder.mlp"
local Parameter = require "accel.nn.parameter"
local activation = require "accel.models.activation"
local mixture = require "accel.models.mixture"
local nn = require "accel.nn"
local raise = require "accel.util.raise"

--- The router with a correction that counts in the choice and not in the weights (DeepSeek-V3, section 2.1.2).
---@class accel.models.CorrectedRouter : accel.nn.Module
local CorrectedRouter = nn.Module:extend("CorrectedRouter")

function CorrectedRouter:init(width, n)
  self.weight = Parameter(accel.zeros(n, width))
  self:register_buffer("e_score_correction_bias", accel.zeros(n))
end

function CorrectedRouter:forward(x) return accel.linear(x, self.weight) end

--- Scores of experts outside of the best groups, by the sum of the two best in a group, become -inf.
local function within_groups(scores, m)
  if (m.groups or 1) <= 1 then return scores end
  local N, E = scores.shape[1], scores.shape[2]
  local by_group = scores:view(N, m.groups, E // m.groups)
  local best = by_group:topk(math.min(2, E // m.groups), 3):sum(3)
  local _, chosen = best:topk(m.top_groups, 2)
  local keep = accel.zeros_like(best):scatter(2, chosen, accel.ones(chosen.shape, { dtype = best.dtype, device = best.device }))
  return by_group:masked_fill(keep:eq(0):unsqueeze(3), -math.huge):reshape(N, E)
end

--- Routers: logits [N, experts] -> weights and choices [N, k].
local routers = {
  softmax = function(logits, m) -- probabilities over all experts
    local weights, choices = logits:softmax(2):topk(m.k, 2)
    if m.normalise then weights = weights / weights:sum(2, true) end
    return weights, choices
  end,
  chosen = function(logits, m) -- probabilities over the chosen experts
    local best, choices = logits:topk(m.k, 2)
    return best:softmax(2), choices
  end,
  sigmoid = function(logits, m, router)
    local scores = logits:sigmoid()
    local _, choices = within_groups(scores:detach() + router.e_score_correction_bias:to(scores.dtype), m):topk(m.k, 2)
    local weights = scores:gather(2, choices)
    if m.normalise then weights = weights / (weights:sum(2, true) + 1e-20) end
    return weights * m.scale, choices
  end,
  sigmoid_input = function(logits, m) -- an expert's input is scaled, not its output
    local best, choices = logits:topk(m.k, 2)
    return best:sigmoid(), choices
  end,
}

--- All experts of a layer in two matrices: gate and up [E, hidden, 2 width], down [E, width, hidden].
---@class accel.models.FusedExperts : accel.nn.Module
local FusedExperts = nn.Module:extend("FusedExperts")

function FusedExperts:init(d)
  local m, E, W = d.moe, d.moe.n, d.moe.width
  self.clamp, self.gate_act = m.clamp, not m.clamp and activation.gate(d.mlp.act) or nil
  self.gate_up_proj = Parameter(accel.zeros(E, d.width, 2 * W))
  if m.bias then self.gate_up_proj_bias = Parameter(accel.zeros(E, 2 * W)) end
  self.down_proj = Parameter(accel.zeros(E, W, d.width))
  if m.bias then self.down_proj_bias = Parameter(accel.zeros(E, d.width)) end
end

--- The output of expert e (from 1) for rows x [n, hidden].
function FusedExperts:run(e, x)
  local y = accel.matmul(x, self.gate_up_proj[e])
  if self.gate_up_proj_bias then y = y + self.gate_up_proj_bias[e] end
  if self.clamp then -- gate and up alternate: (up + 1) * gate * sigmoid(alpha * gate), both limited
    local pairs_ = y:view(y.shape[1], y.shape[2] // 2, 2) -- not -1, which is unknown for an expert without rows
    local gate, up = pairs_:select(3, 1):clamp(nil, self.clamp.limit), pairs_:select(3, 2):clamp(-self.clamp.limit, self.clamp.limit)
    y = (up + 1) * gate * (gate * self.clamp.alpha):sigmoid()
  else
    local gate, up = table.unpack(y:chunk(2, 2))
    y = self.gate_act(gate, up)
  end
  y = accel.matmul(y, self.down_proj[e])
  return self.down_proj_bias and y + self.down_proj_bias[e] or y
end

---@class accel.models.DecoderMoE : accel.models.SparseMoeBlock
local MoE = mixture.SparseMoeBlock:extend("DecoderMoE")

---@param d accel.models.Decoder
function MoE:init(d)
  local m, n = d.moe, d.names
  self.m, self.names, self.n_experts, self.k = m, n, m.n, m.k
  self.route = routers[m.router] or raise("decoder: no router '%s'", tostring(m.router))
  if m.router == "sigmoid" then
    self[n.router] = CorrectedRouter(d.width, m.n)
  else
    self[n.router] = nn.Linear(d.width, m.n, { bias = m.router_bias or false })
  end
  if m.fused then
    self.experts = FusedExperts(d)
  else
    self.experts = nn.ModuleList()
    for _ = 1, m.n do self.experts:append(MLP(d, m.width)) end
  end
  if m.shared then
    self[n.shared] = MLP(d, m.shared)
    if m.shared_gate then self.shared_expert_gate = nn.Linear(d.width, 1, { bias = false }) end
  end
end

--- x [N, hidden], weights and choices [N, k] -> [N, hidden].
function MoE:run_experts(x, weights, choices)
  local order, counts = mixture.sorted(choices, self.n_experts, self:most(choices))
  local token = order // self.k
  local rows, by_row = x:index_select(1, token), weights:reshape(-1):index_select(1, order):unsqueeze(2)
  if self.m.router == "sigmoid_input" then rows = rows * by_row end
  local experts = self.experts
  if self.m.fused then
    experts = {}
    for e = 1, self.n_experts do experts[e] = function(piece) return self.experts:run(e, piece) end end
  end
  local y = mixture.run_each(experts, rows, counts)
  if self.m.router ~= "sigmoid_input" then y = y * by_row end
  return accel.zeros_like(x):index_add(1, token, y:to(x.dtype))
end

--- x [B, T, hidden] -> [B, T, hidden], and the router's logits [B T, experts].
function MoE:forward(x)
  local shape, n = x.shape, self.names
  local rows = x:reshape(-1, shape[#shape])
  local router = self[n.router]
  local logits = router(rows)
  local wide = (logits.dtype == "f64" or logits.dtype == "f32") and logits or logits:to("f32")
  local weights, choices = self.route(wide, self.m, router)
  local y = self:run_experts(rows, weights:to(rows.dtype), choices)
  if self.m.shared then
    local shared = self[n.shared](rows)
    if self.m.shared_gate then shared = shared * self.shared_expert_gate(rows):sigmoid() end
    y = y + shared
  end
  return y:reshape(shape), logits
end

return MoE
