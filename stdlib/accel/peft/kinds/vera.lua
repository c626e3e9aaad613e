--- VeRA: two random matrices that all layers share, scaled by vectors of each layer. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local torch_random = require "accel.peft.kinds.torch_random"

--- VeRA (Kopiczko and others, "VeRA: Vector-based Random Matrix Adaptation"): y = base(x) + b * (B (d * (A x))), A and B fixed.
--- example: accel.peft.VeraConfig {}.r --> 256
---@class accel.peft.VeraConfig
---@field peft_type string "VERA"
local VeraConfig = configs.define("VeraConfig", { peft_type = "VERA", lists = configs.target_lists,
  defaults = configs.targets({ r = 256, projection_prng_key = 0, save_projection = true, vera_dropout = 0, d_initial = 0.1,
    fan_in_fan_out = false, init_weights = true }, "exclude_modules") })

---@param opts? table
---  r integer = 256: rank
---  projection_prng_key integer = 0: seed of A and B, which are the same as PEFT's
---  save_projection boolean = true: files hold A and B. false: they hold the seed alone
---  vera_dropout number = 0: of the adapter's input, in training
---  d_initial number = 0.1: first value of d
---  init_weights boolean = true: b begins as zero. false: at random
---  bias string = "none": which biases learn as well: "none", "all", "vera_only"
---  fan_in_fan_out boolean = false: set for Conv1D layers
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function VeraConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function VeraConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "r", self.r)
  check.number(name, "vera_dropout", self.vera_dropout, 0, 1)
  check.number(name, "d_initial", self.d_initial)
end

function VeraConfig:_dropout() return self.vera_dropout end

---@param at accel.peft.Place
function VeraConfig:_parameters(at)
  return { { "vera_lambda_b", { at.outputs }, init = initial.constant(self.init_weights and 0 or 1) },
    { "vera_lambda_d", { self.r }, init = self.init_weights and initial.constant(self.d_initial) or initial.normal(0, 1) } }
end

--- A and B for the largest sides of all layers.
---@param places accel.peft.Place[]
function VeraConfig:_shared(places)
  local inputs, outputs = 0, 0
  for _, at in ipairs(places) do inputs, outputs = math.max(inputs, at.inputs), math.max(outputs, at.outputs) end
  local generator
  local function draw(t)
    generator = generator or torch_random.generator(self.projection_prng_key)
    local bound = math.sqrt(3) * (math.sqrt(2) / math.sqrt(t.shape[2]))
    return torch_random.uniform(generator, t.shape, -bound, bound)
  end
  return { { "vera_A", { self.r, inputs }, init = draw, frozen = true, unsaved = not self.save_projection },
    { "vera_B", { outputs, self.r }, init = draw, frozen = true, unsaved = not self.save_projection } }
end

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function VeraConfig:_update(p, at, x)
  local a, b = p.vera_A:narrow(2, 1, at.inputs), p.vera_B:narrow(1, 1, at.outputs)
  return accel.linear(accel.linear(x, a) * p.vera_lambda_d, b) * p.vera_lambda_b
end

return { VeraConfig = VeraConfig }
