--- AdaLoRA: LoRA with a factor for each of its ranks, of which the least important are cut in training. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"

local defaults = { target_r = 8, init_r = 12, tinit = 0, tfinal = 0, deltaT = 1, beta1 = 0.85, beta2 = 0.85, orth_reg_weight = 0.5,
  total_step = configs.none }
for key, value in next, configs.LoraConfig.defaults do defaults[key] = value end
defaults.rank_pattern = configs.none

--- AdaLoRA (Zhang and others, "AdaLoRA: Adaptive Budget Allocation for Parameter-Efficient Fine-Tuning"): y = base(x) + B (E * (A x)) *
--- lora_alpha / init_r. Call model.base_model:update_and_allocate(step) after each backward and before zero_grad: it cuts ranks from step
--- tinit on, until target_r of each layer are left on average, tfinal steps before total_step. The loss of a model called with labels has
--- orth_reg_weight times the distance of A and B from orthogonal matrices added in training.
--- example: accel.peft.AdaLoraConfig { total_step = 100 }.init_r --> 12
---@class accel.peft.AdaLoraConfig
---@field peft_type string "ADALORA"
local AdaLoraConfig = configs.define("AdaLoraConfig", { peft_type = "ADALORA", lists = configs.target_lists, loose = { init_lora_weights = true },
  defaults = defaults })

---@param opts? table
---  target_r integer = 8: ranks that are left in a layer on average
---  init_r integer = 12: ranks of each layer at first
---  tinit integer = 0: steps before ranks are cut
---  tfinal integer = 0: steps after the last cut
---  deltaT integer = 1: steps from cut to cut
---  beta1 number = 0.85: decay of the mean of the importance
---  beta2 number = 0.85: decay of the mean of its uncertainty
---  orth_reg_weight number = 0.5: weight of the distance of A and B from orthogonal matrices in the loss
---  total_step integer: steps of the training
---  rank_pattern table: ranks that are left, by parameter, as files have it
---  lora_alpha number = 8: the update counts lora_alpha / init_r
---  lora_dropout number = 0: of the adapter's input, in training
---  init_lora_weights boolean = true: E begins as zero. false: at random
---  bias string = "none": which biases learn as well: "none", "all", "adalora_only"
---  fan_in_fan_out boolean = false: set for Conv1D layers
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  exclude_modules string[]: layers that are left out
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
---  r integer = 8: without effect. Set init_r
---  use_rslora boolean = false: without effect. Set lora_alpha
---  alpha_pattern table = {}: without effect. Set lora_alpha
---  use_dora boolean = false: true raises
---  lora_bias boolean = false: true raises
---  trainable_token_indices integer[]|table<string, integer[]>: any value raises
---  target_parameters string[]: any value raises
---  layer_replication integer[][]: any value raises
function AdaLoraConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function AdaLoraConfig:validate(name)
  configs.common(self, name)
  for _, key in ipairs { "target_r", "init_r", "deltaT" } do check.positive(name, key, self[key]) end
  for _, key in ipairs { "tinit", "tfinal" } do check.count(name, key, self[key]) end
  if math.type(self.total_step) ~= "integer" or self.total_step < 1 then
    raise("%s: total_step must be the number of training steps, got %s", name, check.shown(self.total_step))
  end
  if self.tinit >= self.total_step - self.tfinal then
    raise("%s: tinit = %d and tfinal = %d leave no step of total_step = %d for cutting ranks", name, self.tinit, self.tfinal, self.total_step)
  end
  check.number(name, "lora_alpha", self.lora_alpha, 0)
  check.number(name, "lora_dropout", self.lora_dropout, 0, 1)
  check.number(name, "orth_reg_weight", self.orth_reg_weight, 0)
  for _, key in ipairs { "beta1", "beta2" } do check.number(name, key, self[key], 0, 1) end
  for _, key in ipairs { "use_dora", "lora_bias" } do
    if self[key] then raise("%s: %s is not for AdaLoRA; leave it out", name, key) end
  end
  for _, key in ipairs { "trainable_token_indices", "target_parameters", "layer_replication" } do
    if self[key] ~= nil then raise("%s: %s is not supported with AdaLoRA; leave it out", name, key) end
  end
  if type(self.init_lora_weights) ~= "boolean" then
    raise("%s: init_lora_weights must be true or false, got %s", name, check.shown(self.init_lora_weights))
  end
  if self.r ~= 8 then no_effect.once(name, "r", "in AdaLoRA; set init_r") end
  if self.use_rslora then no_effect.once(name, "use_rslora", "in AdaLoRA; set lora_alpha") end
  if next(self.alpha_pattern) then no_effect.once(name, "alpha_pattern", "in AdaLoRA; set lora_alpha") end
end

function AdaLoraConfig:_dropout() return self.lora_dropout end

--- The name of a layer's ranks in rank_pattern.
local function key_of(at) return at.full .. ".lora_E" end

---@param at accel.peft.Place
function AdaLoraConfig:_parameters(at)
  local r, kept = self.init_r, self.rank_pattern and self.rank_pattern[key_of(at)]
  if kept then
    r = 0
    for _, on in ipairs(kept) do r = r + (on and 1 or 0) end
  end
  at.rank = r
  local small = initial.normal(0, self.init_lora_weights and 0.02 or 1)
  return { { "lora_A", { r, at.inputs }, init = small },
    { "lora_E", { r, 1 }, init = not self.init_lora_weights and initial.normal(0, 1) or nil },
    { "lora_B", { at.outputs, r }, init = small } }
end

--- Whether no rank of a layer is left.
function AdaLoraConfig:_skips(at) return at.rank == 0 end -- luacheck: no self

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function AdaLoraConfig:_update(p, at, x)
  if at.rank == 0 then return accel.zeros({ x.shape[1], at.outputs }, { dtype = x.dtype, device = x.device }) end
  local scaling = (self.lora_alpha > 0 and self.lora_alpha or self.init_r) / (self.init_r + 1e-5)
  return accel.linear(accel.linear(x, p.lora_A * p.lora_E), p.lora_B) * scaling
end

--- The state without the ranks that are cut.
---@param state table<string, accel.Tensor>
function AdaLoraConfig:trim(state)
  for key, kept in accel.pairs(self.rank_pattern or {}) do
    local full, ranks = "base_model.model." .. key:gsub("%.lora_E$", ""), {}
    for i, on in ipairs(kept) do
      if on then ranks[#ranks + 1] = i - 1 end
    end
    for _, field in ipairs { "lora_E", "lora_A", "lora_B" } do
      local name, dim = full .. "." .. field, field == "lora_B" and 2 or 1
      local t = state[name]
      if t and t.shape[dim] ~= #ranks then
        state[name] = #ranks > 0 and t:index_select(dim, accel.tensor(ranks, { dtype = "i64", device = t.device })) or t:narrow(dim, 1, 0)
      end
    end
  end
end

--- The mean distance of the layers' A and B from orthogonal matrices, to be added to the loss.
---@param layers accel.peft.WeightLayer[]
---@param name string the adapter
---@return accel.Tensor?
function AdaLoraConfig:penalty(layers, name)
  local sum, n = nil, 0
  for _, layer in ipairs(layers) do
    local p = layer:own_values(name)
    for _, t in ipairs { p.lora_A, p.lora_B and p.lora_B:t() } do
      if t.shape[1] > 0 then
        local d = accel.matmul(t, t:t()) - accel.eye(t.shape[1], { dtype = t.dtype, device = t.device })
        d = (d * d):sum():sqrt()
        sum = sum and sum + d or d
      end
      n = n + 1
    end
  end
  return sum and sum * (self.orth_reg_weight / n)
end

-- Cutting ranks ----------------------------------------------------------------------------------

--- Ranks that all layers may have together in a step, and whether ranks are cut in it.
local function budget_of(self, step, first, last)
  if step <= self.tinit then return first, false end
  if step > self.total_step - self.tfinal then return last, true end
  local rest = 1 - (step - self.tinit) / (self.total_step - self.tfinal - self.tinit)
  return math.floor((first - last) * rest ^ 3 + last), step % self.deltaT == 0
end

--- Means of each value's importance, |p * gradient|, and of how much it varies.
local function observe(self, seen, t)
  if not t.grad then raise "update_and_allocate: the adapter has no gradients; call it after backward and before zero_grad" end
  local now = (t:detach() * t.grad):abs()
  local s = seen[t]
  if not s then
    s = { mean = accel.zeros_like(now), change = accel.zeros_like(now) }
    seen[t] = s
  end
  s.mean = s.mean * self.beta1 + now * (1 - self.beta1)
  s.change = s.change * self.beta2 + (now - s.mean):abs() * (1 - self.beta2)
end

--- Sets the least important ranks to zero and notes the others in rank_pattern.
local function cut(self, seen, layers, name, excess)
  local scores, all = {}, {}
  for i, layer in ipairs(layers) do
    local p = layer:own_values(name)
    local function score(t) return seen[t].mean * seen[t].change end
    scores[i] = score(p.lora_E):reshape(-1) + score(p.lora_A):mean(2) + score(p.lora_B):mean(1)
    for _, x in ipairs(scores[i]:tolist()) do all[#all + 1] = x end
  end
  table.sort(all)
  local least, pattern = all[excess] or -math.huge, {}
  for i, layer in ipairs(layers) do
    local keep, on = scores[i]:gt(least), {}
    layer:own_values(name).lora_E:detach():mul_(keep:to(scores[i].dtype):unsqueeze(2))
    for j, value in ipairs(keep:tolist()) do on[j] = value == true or value == 1 end
    pattern[key_of(layer.places[name])] = on
  end
  self.rank_pattern = pattern
end

--- One step of AdaLoRA's schedule: see above. Used by model.lua.
---@param layers accel.peft.WeightLayer[]
---@param name string the adapter
---@param step integer counted from 0
function AdaLoraConfig:allocate(layers, name, step)
  local _ <close> = accel.no_grad()
  local first, last_cut = 0, self.total_step - self.tfinal
  for _, layer in ipairs(layers) do
    if layer.places[name].rank ~= self.init_r then
      raise "update_and_allocate: the adapter's file has no cut ranks any more; train it without update_and_allocate"
    end
    first = first + self.init_r
  end
  self._seen = self._seen or setmetatable({}, { __mode = "k" })
  if step > last_cut then
    for _, layer in ipairs(layers) do
      local on, e = self.rank_pattern and self.rank_pattern[key_of(layer.places[name])], layer:own_values(name).lora_E
      if on then
        local keep = {}
        for i, value in ipairs(on) do keep[i] = value and 1 or 0 end
        e:detach():mul_(accel.tensor(keep, { dtype = e.dtype, device = e.device }):unsqueeze(2))
      end
    end
    return
  end
  if step < last_cut then
    for _, layer in ipairs(layers) do
      for _, t in ipairs(layer:weights_of(name)) do observe(self, self._seen, t) end
    end
  end
  local budget, due = budget_of(self, step, first, self.target_r * #layers)
  if due or step == last_cut then cut(self, self._seen, layers, name, first - budget) end
  if step == last_cut then self._seen = nil end
end

return { AdaLoraConfig = AdaLoraConfig }
