--- SHiRA: a few entries of the weight learn. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"
local torch_random = require "accel.peft.kinds.torch_random"

--- SHiRA (Bhardwaj and others, "Sparse High Rank Adapters"): r (in + out) entries of the weight at random places have additions that learn.
--- example: accel.peft.ShiraConfig {}.mask_type --> "random"
---@class accel.peft.ShiraConfig
---@field peft_type string "SHIRA"
local ShiraConfig = configs.define("ShiraConfig", { peft_type = "SHIRA", lists = configs.target_lists,
  defaults = configs.targets({ r = 32, mask_type = "random", random_seed = configs.none, fan_in_fan_out = false, init_weights = true },
    "exclude_modules layers_to_transform layers_pattern bias") })

---@param opts? table
---  r integer = 32: r (in + out) entries learn, as many as of LoRA's rank r
---  mask_type string = "random": how the entries are chosen. Others raise, since PEFT takes a function for them
---  random_seed integer: seed of their places, which are PEFT's then. nil: drawn by accel's generator
---  init_weights boolean = true: additions begin as zero. false: at random
---  fan_in_fan_out boolean = false: set for Conv1D layers
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function ShiraConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function ShiraConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "r", self.r)
  if self.random_seed ~= nil then check.count(name, "random_seed", self.random_seed) end
  if self.mask_type ~= "random" then raise("%s: mask_type %s is not supported; choose 'random'", name, check.shown(self.mask_type)) end
end

--- Rows and columns of the entries, in the order of the weight.
local function places(self, at, n)
  local size, list = at.inputs * at.outputs, nil
  if self.random_seed then
    list = torch_random.permutation(torch_random.generator(self.random_seed), size, n)
  else
    list = accel.randperm(size):narrow(1, 1, n):tolist()
  end
  table.sort(list)
  local rows, columns = {}, {}
  for i, place in ipairs(list) do rows[i], columns[i] = place // at.inputs, place % at.inputs end
  return accel.tensor({ rows, columns }, { dtype = "i32" })
end

---@param at accel.peft.Place
function ShiraConfig:_parameters(at)
  local n = self.r * (at.inputs + at.outputs)
  if n > at.inputs * at.outputs then
    raise("'%s': r = %d would be %d entries, more than the %d of its weight; choose a smaller r", at.full, self.r, n, at.inputs * at.outputs)
  end
  return { { "shira_weight", { n }, init = not self.init_weights and initial.normal(0, 1) or nil },
    { "shira_indices", { 2, n }, dtype = "i32", frozen = true, init = function() return places(self, at, n) end } }
end

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@return accel.Tensor
function ShiraConfig:_delta(p, at) -- luacheck: no self
  local s, index = p.shira_weight, p.shira_indices:to "i64"
  local flat = index:select(1, 1) * at.inputs + index:select(1, 2)
  return accel.zeros({ at.inputs * at.outputs }, { dtype = s.dtype, device = s.device }):index_add(1, flat, s):reshape(at.outputs, at.inputs)
end

return { ShiraConfig = ShiraConfig }
