--- PeftModel:add_weighted_adapter: a new adapter from a weighted combination of LoRA or IA3 adapters. Used by model.lua.
---
--- With W_i = scaling_i B_i A_i and weights w_i (the sum of W_i w_i is what "cat" and "svd" give):
---   cat    A = [w_i scaling_i A_i] stacked by rows, B = [B_i] side by side. Exact, with the sum of the ranks
---   svd    the r largest singular values of the sum: A = V, B = U S
---   linear A = sum of a_i A_i, B = sum of b_i B_i with b_i = sqrt(|w_i scaling_i|), a_i = b_i times the sign. Products of different
---          adapters come in, as in PEFT
---   ties, magnitude_prune (of A and B as in linear), ties_svd, magnitude_prune_svd (of W_i): only the `density` of the values with the
---          largest magnitudes counts. ties: of these, the mean of those that have the sign of their sum (Yadav and others, "TIES-Merging:
---          Resolving Interference When Merging Models")
local accel = require "accel"
local AdapterLayer = require "accel.peft.layer"
local check = require "accel.util.check"
local class = require "accel.util.class"
local configs = require "accel.peft.config"
local listed = require "accel.util.listed"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local WHO <const> = "add_weighted_adapter"
local TYPES <const> = { "svd", "linear", "cat", "ties", "ties_svd", "magnitude_prune", "magnitude_prune_svd" }
local DARE <const> = { dare_linear = "magnitude_prune", dare_ties = "ties", dare_linear_svd = "magnitude_prune_svd", dare_ties_svd = "ties_svd" }

--- The values of a tensor with the largest magnitudes. Others are 0.
local function pruned(t, density)
  local keep = math.floor(density * t:numel())
  if keep == t:numel() then return t end
  local flat = t:reshape(-1)
  local _, places = flat:abs():topk(keep)
  return accel.zeros_like(flat):scatter(1, places, flat:gather(1, places)):reshape(t.shape)
end

--- The sum of tensors by their weights, by the rule of a combination.
local function combined(kind, tensors, weights, o)
  local list = {}
  for i, t in ipairs(tensors) do list[i] = kind == "sum" and t or pruned(t, o.density) end
  local all = accel.stack(list)
  local shape = { #list }
  for i = 2, all.ndim do shape[i] = 1 end
  local weighted = all * accel.tensor(weights, { dtype = all.dtype, device = all.device }):reshape(shape)
  if kind ~= "ties" then return weighted:sum(1) end
  local lean = (o.majority_sign_method == "total" and all or all:sign()):sum(1)
  local agree = all:sign():eq(accel.where(lean:ge(0), accel.ones_like(lean), -accel.ones_like(lean))):to(all.dtype)
  return (weighted * agree):sum(1) / agree:sum(1):clamp(1)
end

--- The tensors of an adapter in a layer, [r, ...] and [..., r]: parameters, and whether the layer is an embedding.
local function factors(layer, name)
  local embedding = class.isinstance(layer, require "accel.peft.lora_embedding")
  if embedding then return layer.lora_embedding_A[name], layer.lora_embedding_B[name], true end
  return layer.lora_A[name].weight, layer.lora_B[name].weight, false
end

--- Fills A and B of the new adapter in one layer.
local function fill(layer, name, parts, o)
  local a, b, embedding = factors(layer, name)
  local r = embedding and a.shape[1] or layer.lora_A[name].weight.shape[1]
  a:detach():zero_()
  b:detach():zero_()
  local rule, low = o.combination_type:match "^(.-)_?svd$", nil
  if rule then
    local deltas, weights = {}, {}
    for i, part in ipairs(parts) do deltas[i], weights[i] = layer:delta(part.name), part.weight end
    local u, s, v = combined(rule == "" and "sum" or rule, deltas, weights, o):svd()
    low = math.min(r, s.shape[1])
    u, v = u:narrow(2, 1, low) * s:narrow(1, 1, low), v:narrow(1, 1, low)
    a:detach():narrow(1, 1, low):copy_(v:reshape({ low, table.unpack(a.shape, 2) }))
    b:detach():narrow(2, 1, low):copy_(u:reshape({ b.shape[1], low, table.unpack(b.shape, 3) }))
    return
  end
  local as, bs, wa, wb = {}, {}, {}, {}
  for i, part in ipairs(parts) do
    local pa, pb = factors(layer, part.name)
    local factor = part.weight * layer.scaling[part.name]
    as[i], bs[i], wb[i] = pa:detach(), pb:detach(), math.sqrt(math.abs(factor))
    wa[i] = factor < 0 and -wb[i] or wb[i]
    if o.combination_type == "cat" then as[i] = as[i] * factor end
  end
  if o.combination_type == "cat" then
    local all = accel.cat(as, 1)
    a:detach():narrow(1, 1, all.shape[1]):copy_(all)
    b:detach():narrow(2, 1, all.shape[1]):copy_(accel.cat(bs, 2))
    return
  end
  local kind = o.combination_type == "linear" and "sum" or o.combination_type
  a:detach():copy_(combined(kind, as, wa, o))
  b:detach():copy_(combined(kind, bs, wb, o))
end

--- Refuses fields of an adapter that a combination cannot keep.
local function refuse(name, config)
  for _, key in ipairs { "modules_to_save", "trainable_token_indices", "target_parameters", "layer_replication", "use_dora", "lora_bias" } do
    local value = configs.get(config, key)
    if value and not (type(value) == "table" and next(value) == nil) then
      raise("%s: adapter '%s' has %s, which a weighted combination cannot hold; leave this adapter out, or merge it alone", WHO, name, key)
    end
  end
end

--- The names of the layers that have one of the adapters, and the rank of the new adapter.
local function reach(model, parts, o)
  local targets, ranks, most, same = {}, {}, 0, nil
  for full, layer in pairs(model:named_modules()) do
    if class.isinstance(layer, AdapterLayer) then
      local sum, any = 0, false
      for _, part in ipairs(parts) do
        if layer:has(part.name) then
          any = true
          if layer.scaling then
            local r = (factors(layer, part.name)).shape[1]
            sum, same = sum + r, same or r
            ranks[r] = part.name
          end
        end
      end
      if any then targets[#targets + 1], most = full, math.max(most, sum) end
    end
  end
  if #targets == 0 then raise("%s: no layer has one of these adapters", WHO) end
  if o.combination_type == "cat" then return targets, most end
  local largest = 1
  for r in accel.pairs(ranks) do largest = math.max(largest, r) end
  if o.combination_type:find "svd$" then return targets, o.svd_rank or largest end
  for r, name in accel.pairs(ranks) do
    if r ~= same then
      raise('%s: "%s" needs adapters of one rank, got r = %d and r = %d (%s); use combination_type = "cat" or "svd"', WHO, o.combination_type,
        same, r, name)
    end
  end
  return targets, largest
end

--- The configuration of the new adapter: that of the first one, with the rank and layers of all.
local function config_of(first, targets, r)
  local fields = {}
  for key in next, first.defaults do
    local value = first[key]
    if value ~= nil then fields[key] = value end
  end
  fields.target_modules, fields.exclude_modules, fields.layers_to_transform, fields.layers_pattern = targets, nil, nil, nil
  if first.peft_type == "LORA" then
    fields.r, fields.lora_alpha, fields.use_rslora, fields.rank_pattern, fields.alpha_pattern = r, r, false, nil, nil
    fields.init_lora_weights, fields.lora_dropout, fields.target_parameters, fields.layer_replication = true, 0, nil, nil
  end
  return class.of(first)(fields)
end

---@param self accel.peft.PeftModel
local function add(self, adapters, weights, adapter_name, opts)
  local o = options(WHO, opts, { combination_type = "svd", svd_rank = options.none, density = options.none,
    majority_sign_method = "total" })
  if type(adapters) ~= "table" or #adapters == 0 then raise("%s: adapters must be a list of names, got %s", WHO, check.shown(adapters)) end
  if type(weights) ~= "table" or #weights ~= #adapters then
    raise("%s: weights must be a list of %d numbers, one an adapter, got %s", WHO, #adapters,
      type(weights) == "table" and #weights .. " of them" or check.shown(weights))
  end
  if DARE[o.combination_type] then
    raise('%s: "%s" drops values at random, so that each call gives another adapter; use "%s", which keeps the largest', WHO, o.combination_type,
      DARE[o.combination_type])
  end
  local known = false
  for _, kind in ipairs(TYPES) do known = known or kind == o.combination_type end
  if not known then raise("%s: combination_type %s is not one of %s", WHO, check.shown(o.combination_type), listed(TYPES)) end
  local svd, thin = o.combination_type:find "svd$", o.combination_type:find "ties" or o.combination_type:find "magnitude"
  local parts, first = {}, nil
  for i, name in ipairs(adapters) do
    local config = self.peft_config[name]
    if not config then raise("%s: there is no adapter %s", WHO, check.shown(name)) end
    first = first or config
    check.number(WHO, ("weights[%d]"):format(i), weights[i])
    parts[i] = { name = name, weight = weights[i] }
    refuse(name, config)
  end
  local lora = first.peft_type == "LORA"
  if not lora and first.peft_type ~= "IA3" then
    raise("%s: adapters of type %s have no weighted combination; LORA and IA3 have one", WHO, first.peft_type)
  end
  if not lora and (opts and opts.combination_type ~= nil and o.combination_type ~= "linear") then
    raise('%s: vectors of IA3 are summed by their weights; leave combination_type out, or set "linear"', WHO)
  end
  if not lora then o.combination_type, svd, thin = "linear", nil, nil end
  if o.svd_rank ~= nil then
    if not svd then raise('%s: svd_rank has no effect with combination_type = "%s"; leave it out', WHO, o.combination_type) end
    check.positive(WHO, "svd_rank", o.svd_rank)
  end
  if (o.density == nil) ~= not thin then
    raise('%s: combination_type = "%s" %s', WHO, o.combination_type,
      thin and "needs density, the share of the values that count, such as 0.5" or "takes no density; leave it out")
  end
  if o.density ~= nil then check.number(WHO, "density", o.density, 0, 1) end
  if o.majority_sign_method ~= "total" and o.majority_sign_method ~= "frequency" then
    raise('%s: majority_sign_method must be "total" or "frequency", got %s', WHO, check.shown(o.majority_sign_method))
  elseif opts and opts.majority_sign_method ~= nil and not o.combination_type:find "ties" then
    raise('%s: majority_sign_method has no effect with combination_type = "%s"; leave it out', WHO, o.combination_type)
  end
  local model = self:get_base_model()
  local targets, r = reach(model, parts, o)
  self:add_adapter(adapter_name, config_of(first, targets, r))
  local _ <close> = accel.no_grad()
  for _, layer in pairs(model:named_modules()) do
    if class.isinstance(layer, AdapterLayer) and layer:has(adapter_name) then
      local own = {}
      for _, part in ipairs(parts) do
        if layer:has(part.name) then own[#own + 1] = part end
      end
      if lora then
        fill(layer, adapter_name, own, o)
      else
        local sum = layer.ia3_l[adapter_name]:detach():zero_()
        for _, part in ipairs(own) do sum:add_(layer.ia3_l[part.name]:detach() * part.weight) end
      end
    end
  end
end

return add
