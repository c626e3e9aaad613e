--- RandLoRA: a sum of products of random matrices that all layers share, scaled by the layer. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"
local torch_random = require "accel.peft.kinds.torch_random"

--- RandLoRA (Albert and others, "RandLoRA: Full-rank parameter-efficient fine-tuning of large models"): the update is the sum over n random
--- bases of B_n diag(lambda_n) A diag(gamma_n), A and B fixed.
--- example: accel.peft.RandLoraConfig {}.randlora_alpha --> 640
---@class accel.peft.RandLoraConfig
---@field peft_type string "RANDLORA"
local RandLoraConfig = configs.define("RandLoraConfig", { peft_type = "RANDLORA", lists = configs.target_lists,
  file_beside = { "randlora_A", "randlora_B" },
  defaults = configs.targets({ r = 32, projection_prng_key = 0, save_projection = true, sparse = false, very_sparse = false,
    randlora_dropout = 0, fan_in_fan_out = false, randlora_alpha = 640, init_weights = true }, "exclude_modules") })

---@param opts? table
---  r integer = 32: rank of each base
---  randlora_alpha number = 640: the update counts randlora_alpha / r
---  projection_prng_key integer = 0: seed of A and B
---  save_projection boolean = true: files hold A and B. false raises: PEFT draws them in a dtype that depends on the machine
---  sparse boolean = false: entries of A and B are -1, 0 and 1, of which two thirds are 0, before they are scaled
---  very_sparse boolean = false: fewer entries are not 0
---  randlora_dropout number = 0: of the adapter's input, in training
---  init_weights boolean = true: the update begins as zero. false: at random
---  bias string = "none": which biases learn as well: "none", "all", "randlora_only"
---  fan_in_fan_out boolean = false: set for Conv1D layers
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function RandLoraConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function RandLoraConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "r", self.r)
  check.number(name, "randlora_alpha", self.randlora_alpha)
  check.number(name, "randlora_dropout", self.randlora_dropout, 0, 1)
  if not self.save_projection then
    raise("%s: save_projection = false leaves a seed in the file, from which PEFT draws in bf16 or f16, whichever the machine has; set it to true "
      .. "and save the adapter again", name)
  end
end

function RandLoraConfig:_dropout() return self.randlora_dropout end

local function sides(at) return math.min(at.inputs, at.outputs), math.max(at.inputs, at.outputs) end

--- The number of bases for a smaller side.
local function bases(n, r) return (n + r - 1) // r end

---@param at accel.peft.Place
function RandLoraConfig:_parameters(at)
  local small, large = sides(at)
  local n = bases(small, self.r)
  return { { "randlora_lambda", { self.r, n }, init = not self.init_weights and initial.normal(0, 1) or nil },
    { "randlora_gamma", { n, small }, init = initial.constant(1 / (self.init_weights and math.max(n, small) or large)) } }
end

--- A and B for the largest sides of all layers, scaled to a standard deviation of 1.
---@param places accel.peft.Place[]
function RandLoraConfig:_shared(places)
  local inputs, outputs, generator = 0, 0, nil
  for _, at in ipairs(places) do inputs, outputs = math.max(inputs, at.inputs), math.max(outputs, at.outputs) end
  local small, large = math.min(inputs, outputs), math.max(inputs, outputs)
  local function draw(fan)
    return function(t)
      generator = generator or torch_random.generator(self.projection_prng_key)
      local values
      if self.sparse or self.very_sparse then
        local part = 1 / (2 * (self.very_sparse and math.sqrt(small) or 3))
        local x = torch_random.uniform(generator, t.shape, 0, 1)
        values = x:gt(1 - part):to "f32" - x:lt(part):to "f32"
      else
        values = torch_random.uniform(generator, t.shape, -1 / math.sqrt(fan), 1 / math.sqrt(fan))
      end
      return values / values:std()
    end
  end
  return { { "randlora_A", { self.r, 1, small }, init = draw(small), frozen = true },
    { "randlora_B", { large, bases(small, self.r), self.r }, init = draw(self.r), frozen = true } }
end

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function RandLoraConfig:_update(p, at, x)
  local small, large = sides(at)
  local n = bases(small, self.r)
  local b = p.randlora_B:narrow(1, 1, large):narrow(2, 1, n):reshape(large, -1)
  local a = p.randlora_A:narrow(3, 1, small) * p.randlora_lambda:unsqueeze(3) * p.randlora_gamma
  a = a:reshape(-1, small)
  if small == at.inputs then x = accel.linear(accel.linear(x, a), b)
  else x = accel.matmul(accel.matmul(x, b), a) end
  return x * (self.randlora_alpha / self.r)
end

return { RandLoraConfig = RandLoraConfig }
