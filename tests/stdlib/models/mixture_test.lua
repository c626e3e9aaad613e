-- Mixtures of experts: capacities keep the choices that their formula says and drop the others' part alone, losses of balance and z by
-- their formulas, every expert has a gradient, more experts than an op has results.
--   accel-run tests/stdlib/models/mixture_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local mixture = require "accel.models.mixture"

local function block_of(o)
  local c = { hidden_size = 6, intermediate_size = 5, num_local_experts = 4, num_experts_per_tok = 2, router_jitter_noise = 0,
    hidden_act = "silu" }
  for key, value in pairs(o) do c[key] = value end
  return mixture.SparseMoeBlock(c)
end

--- Choices that stay: lists by row of { expert, weight }, by plain loops.
local function kept(p, k, factor, policy)
  local choices, of, n_experts = {}, {}, #p[1]
  for row, list in ipairs(p) do
    local order, sum = {}, 0
    for e = 1, n_experts do order[e] = e end
    table.sort(order, function(a, b) return list[a] > list[b] end)
    for j = 1, k do sum = sum + list[order[j]] end
    for j = 1, k do choices[#choices + 1] = { row = row, expert = order[j], weight = list[order[j]] / sum, at = #choices } end
  end
  local capacity, out = math.ceil(factor * #choices / n_experts), {}
  for e = 1, n_experts do of[e] = {} end
  for _, c in ipairs(choices) do table.insert(of[c.expert], c) end
  local dropped = 0
  for e = 1, n_experts do
    table.sort(of[e], function(a, b)
      if policy == "probs" and a.weight ~= b.weight then return a.weight > b.weight end
      return a.at < b.at
    end)
    for i, c in ipairs(of[e]) do
      if i <= capacity then
        out[c.row] = out[c.row] or {}
        table.insert(out[c.row], c)
      else
        dropped = dropped + 1
      end
    end
  end
  return out, dropped
end

accel.manual_seed(2)
for _, policy in ipairs { "probs", "position" } do
  for _, factor in ipairs { 0.3, 0.75, 1.0, 8.0 } do
    local block = block_of { expert_capacity_factor = factor, expert_drop_policy = policy }
    local _ <close> = accel.no_grad()
    for _, p in ipairs(block:parameters()) do p:copy_(accel.randn_like(p)) end
    local x = accel.randn(3, 7, 6)
    local y, logits = block(x)
    local list, dropped = kept(logits:softmax(2):tolist(), 2, factor, policy)
    assert((dropped == 0) == (factor == 8.0), "the cases drop some, and none")
    local rows = x:reshape(21, 6)
    for row = 1, 21 do
      local want = accel.zeros(6)
      for _, c in ipairs(list[row] or {}) do
        want = want + block.experts[c.expert](rows:narrow(1, row, 1)):reshape(6) * c.weight
      end
      ranks.close(y:reshape(21, 6)[row], want, ("%s %g row %d"):format(policy, factor, row), 1e-4)
    end
    block:eval() -- drops none
    block.capacity_factor = nil
    local all = block(x)
    block.capacity_factor = factor
    assert(accel.equal(block(x), all))
  end
end

do -- losses, in f64 by loops; padding does not count
  local layers = { accel.randn(5, 4, { dtype = "f64" }), accel.randn(5, 4, { dtype = "f64" }) }
  local mask = accel.tensor { { 1, 1, 0, 1, 1 } }
  local used, p, z, n = { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, 0, 0
  for _, layer in ipairs(layers) do
    for row, list in ipairs(layer:tolist()) do
      if row ~= 3 then
        local sum, order = 0, { 1, 2, 3, 4 }
        for e = 1, 4 do sum = sum + math.exp(list[e]) end
        table.sort(order, function(a, b) return list[a] > list[b] end)
        for j = 1, 2 do used[order[j]] = used[order[j]] + 1 end
        for e = 1, 4 do p[e] = p[e] + math.exp(list[e]) / sum end
        z, n = z + math.log(sum) ^ 2, n + 1
      end
    end
  end
  local want = 0
  for e = 1, 4 do want = want + 4 * used[e] / n * p[e] / n end
  local balance, squares = mixture.router_losses(layers, 2, mask)
  ranks.close(balance:item(), want, "balance", 1e-12)
  ranks.close(squares:item(), z / n, "z", 1e-12)
  ranks.close(mixture.load_balancing_loss(layers, 2, mask):item(), want, "load_balancing_loss", 1e-12)
end

do -- the loss of labels has both, by their parts
  local c = { vocab_size = 9, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 2, num_attention_heads = 2, num_local_experts = 3,
    num_key_value_heads = 2 }
  local function loss(o)
    accel.manual_seed(1)
    local given = {}
    for _, t in ipairs { c, o } do
      for key, value in pairs(t) do given[key] = value end
    end
    local model, ids = accel.models.MixtralForCausalLM(given), accel.tensor { { 1, 2, 3, 4 } }
    local logits = select(2, model.model(ids, { output_router_logits = true }))
    local list = table.pack(model(ids, { labels = ids }))
    local balance, z = mixture.router_losses(logits, 2)
    return list[1]:item(), balance:item(), z:item(), list.n, model
  end
  local plain = loss {}
  local both, balance, z, n = loss { router_aux_loss_coef = 0.5, router_z_loss_coef = 0.25, output_router_logits = true }
  ranks.close(both, plain + 0.5 * balance + 0.25 * z, "both losses", 1e-6)
  local alone, _, _, results, model = loss { router_z_loss_coef = 0.25 }
  ranks.close(alone, plain + 0.25 * z, "z alone", 1e-6)
  assert(n == 2 and results == 1 and z > 0.1)
  model:eval()
  local ids = accel.tensor { { 1, 2, 3, 4 } }
  ranks.close(model(ids, { labels = ids }):item(), plain, "evaluation", 1e-6)
end

do -- experts without a token, and 70 of them
  local block = block_of { num_local_experts = 70, num_experts_per_tok = 1 }
  block(accel.randn(1, 3, 6)):sum():backward()
  for i, expert in ipairs(block.experts) do
    for name, p in pairs(expert:named_parameters()) do assert(p.grad, ("%d %s"):format(i, name)) end
  end
end
