--- HiRA: the weight is multiplied by a low-rank matrix, entry by entry, and the product is added. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"
local targets = require "accel.peft.targets"

--- HiRA (Huang and others, "HiRA: Parameter-Efficient Hadamard High-Rank Adaptation for Large Language Models"): W' = W + W * (B A), by
--- entries.
--- example: accel.peft.HiraConfig {}.r --> 32
---@class accel.peft.HiraConfig
---@field peft_type string "HIRA"
local HiraConfig = configs.define("HiraConfig", { peft_type = "HIRA", lists = configs.target_lists, loose = { init_weights = true },
  defaults = configs.targets({ r = 32, hira_dropout = 0, fan_in_fan_out = false, init_weights = true, rank_pattern = {} }, "bias") })

---@param opts? table
---  r integer = 32: rank
---  hira_dropout number = 0: of the adapter's input, in training
---  init_weights boolean|string = true: B begins as zero. "gaussian": A normal too. false: both at random
---  rank_pattern table = {}: other ranks by name
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
function HiraConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function HiraConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "r", self.r)
  check.number(name, "hira_dropout", self.hira_dropout, 0, 1)
  if type(self.init_weights) ~= "boolean" and self.init_weights ~= "gaussian" then
    raise("%s: init_weights must be true, false or 'gaussian', got %s", name, check.shown(self.init_weights))
  end
end

function HiraConfig:_dropout() return self.hira_dropout end

---@param at accel.peft.Place
function HiraConfig:_parameters(at)
  local r, begin = targets.by_pattern(at.full, self.rank_pattern, self.r), self.init_weights
  local first = begin == true and initial.kaiming or initial.normal(0, begin == "gaussian" and 1 / r or 1)
  return { { "hira_A", { r, at.inputs }, init = first }, { "hira_B", { at.outputs, r }, init = not begin and initial.normal(0, 1) or nil } }
end

---@param p table<string, accel.Tensor>
---@param _ accel.peft.Place
---@param layer accel.peft.WeightLayer
---@return accel.Tensor
function HiraConfig:_delta(p, _, layer) -- luacheck: no self
  local product = accel.matmul(p.hira_B, p.hira_A)
  return layer:base_values():to(product.dtype) * product
end

return { HiraConfig = HiraConfig }
