--- DeLoRA: a low-rank update of bounded size. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local targets = require "accel.peft.targets"

--- DeLoRA (Bini and others, "Decoupling Angles and Strength in Low-rank Adaptation"): y = base(x) + B D A (n * x), where n are the norms of
--- the weight's columns and D scales each of the r products to the length lambda / r.
--- example: accel.peft.DeloraConfig {}.delora_lambda --> 15
---@class accel.peft.DeloraConfig
---@field peft_type string "DELORA"
local DeloraConfig = configs.define("DeloraConfig", { peft_type = "DELORA", lists = configs.target_lists,
  defaults = configs.targets { r = 8, delora_lambda = 15, module_dropout = 0, init_weights = true, rank_pattern = {}, lambda_pattern = {} } })

---@param opts? table
---  r integer = 8: rank
---  delora_lambda number = 15: first value of the strength, which learns
---  module_dropout number = 0: of the adapter's input, in training
---  init_weights boolean = true: B begins as zero. false: at random
---  rank_pattern table = {}: other ranks by name
---  lambda_pattern table = {}: other first strengths by name
---  bias string = "none": which biases learn as well: "none", "all", "delora_only"
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  exclude_modules string[]: layers that are left out
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function DeloraConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function DeloraConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "r", self.r)
  check.number(name, "delora_lambda", self.delora_lambda)
  check.number(name, "module_dropout", self.module_dropout, 0, 1)
end

function DeloraConfig:_dropout() return self.module_dropout end

---@param at accel.peft.Place
---@param layer accel.peft.WeightLayer
function DeloraConfig:_parameters(at, layer)
  local r = targets.by_pattern(at.full, self.rank_pattern, self.r)
  local strength = targets.by_pattern(at.full, self.lambda_pattern, self.delora_lambda)
  return { { "delora_A", { r, at.inputs }, init = initial.kaiming },
    { "delora_B", { at.outputs, r }, init = not self.init_weights and initial.kaiming or nil },
    { "delora_lambda", { 1 }, init = initial.constant(strength) },
    { "delora_w_norm", { at.inputs }, frozen = true, init = function()
      local w = layer:base_values()
      return (w * w):sum(1):sqrt()
    end } }
end

---@param p table<string, accel.Tensor>
---@param _ accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function DeloraConfig:_update(p, _, x) -- luacheck: no self
  local a, b = p.delora_A, p.delora_B
  local norms = (a * a):sum(2):sqrt():clamp(1e-4) * (b * b):sum(1):sqrt():clamp(1e-4)
  local scale = p.delora_lambda / a.shape[1] / norms
  return accel.linear(accel.linear(x * p.delora_w_norm, a) * scale, b)
end

return { DeloraConfig = DeloraConfig }
