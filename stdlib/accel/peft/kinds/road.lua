--- RoAd: pairs of outputs are turned and scaled. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"

--- RoAd (Liao and others, "3-in-1: 2D Rotary Adaptation for Efficient Finetuning, Efficient Batching and Composability"): each pair of
--- outputs, half a group apart, is turned by an angle and scaled.
--- example: accel.peft.RoadConfig {}.variant --> "road_1"
---@class accel.peft.RoadConfig
---@field peft_type string "ROAD"
local RoadConfig = configs.define("RoadConfig", { peft_type = "ROAD", lists = configs.target_lists,
  defaults = configs.targets({ variant = "road_1", group_size = 64, init_weights = true },
    "exclude_modules layers_to_transform layers_pattern bias") })

---@param opts? table
---  variant string = "road_1": one angle and scale for a pair. "road_2": for each output. "road_4": two for each output
---  group_size integer = 64: outputs in a group, even. It divides the number of outputs
---  init_weights boolean = true: nothing is turned at first. false: at random
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function RoadConfig:init(opts) configs.Config.init(self, opts) end

--- Values for each output, times two.
local SIZES <const> = { road_1 = 1, road_2 = 2, road_4 = 4 }

--- Raises for values that no adapter can have.
---@param name string
function RoadConfig:validate(name)
  configs.common(self, name)
  if not SIZES[self.variant] then raise("%s: variant must be 'road_1', 'road_2' or 'road_4', got %s", name, check.shown(self.variant)) end
  check.positive(name, "group_size", self.group_size)
  if self.group_size % 2 ~= 0 then raise("%s: group_size must be even, got %d", name, self.group_size) end
end

---@param at accel.peft.Place
function RoadConfig:_parameters(at)
  if at.outputs % self.group_size ~= 0 then
    raise("'%s': group_size = %d does not divide its %d outputs; choose another", at.full, self.group_size, at.outputs)
  end
  local n = at.outputs * SIZES[self.variant] // 2
  local random = not self.init_weights
  return { { "road_theta", { n }, init = random and initial.normal(0, 0.5) or nil },
    { "road_alpha", { n }, init = random and initial.normal(1, 0.5) or initial.constant(1) } }
end

--- Factors of an output and of its partner, by output.
local function factors(self, p)
  local theta, alpha, g = p.road_theta, p.road_alpha, self.group_size
  if self.variant == "road_4" then
    theta, alpha = theta:reshape(-1, 2, g), alpha:reshape(-1, 2, g)
    return (alpha:select(2, 1) * theta:select(2, 1):cos()):reshape(-1), (alpha:select(2, 2) * theta:select(2, 2):sin()):reshape(-1)
  elseif self.variant == "road_1" then
    theta, alpha = theta:reshape(-1, g // 2):repeat_interleave(2, 1), alpha:reshape(-1, g // 2):repeat_interleave(2, 1)
    theta, alpha = theta:reshape(-1), alpha:reshape(-1)
  end
  return alpha * theta:cos(), alpha * theta:sin()
end

---@param p table<string, accel.Tensor>
---@param _ accel.peft.Place
---@param y accel.Tensor
---@return accel.Tensor
function RoadConfig:_output(p, _, y)
  local own, partner = factors(self, p)
  local pairs_ = y:reshape(-1, 2, self.group_size // 2)
  local turned = accel.stack({ -pairs_:select(2, 2), pairs_:select(2, 1) }, 2):reshape(y.shape)
  return y * own + turned * partner
end

return { RoadConfig = RoadConfig }
