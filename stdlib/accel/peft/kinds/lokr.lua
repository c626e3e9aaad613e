--- LoKr: a Kronecker product of two matrices. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local lycoris = require "accel.peft.kinds.lycoris"
local raise = require "accel.util.raise"

--- LoKr (Yeh and others, "Navigating Text-To-Image Customization: From LyCORIS Fine-Tuning to Model Evaluation"): the update is the
--- Kronecker product of two factors. Large factors are products of low rank themselves.
--- example: accel.peft.LoKrConfig { r = 4 }.decompose_factor --> -1
---@class accel.peft.LoKrConfig
---@field peft_type string "LOKR"
local LoKrConfig = configs.define("LoKrConfig", { peft_type = "LOKR", bases = lycoris.bases, lists = configs.target_lists,
  loose = { init_weights = true },
  defaults = lycoris.fields { decompose_both = false, decompose_factor = -1, rank_dropout_scale = false } })

---@param opts? table
---  r integer = 8: rank of factors that are products themselves
---  alpha number = 8: the update counts alpha / r
---  rank_dropout number = 0: share of the update's rows that a step in training leaves out
---  rank_dropout_scale boolean = false: the other rows are larger then
---  module_dropout number = 0: share of the steps in training that leave the update out
---  use_effective_conv2d boolean = false: of convolutions, factors that know the kernel's shape
---  decompose_both boolean = false: the first factor may be a product of low rank as well
---  decompose_factor integer = -1: sides of the first factor. -1: near the square roots of the weight's sides
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  exclude_modules string[]: layers that are left out
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  rank_pattern table = {}: other ranks by name
---  alpha_pattern table = {}: other alpha by name
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
---  init_weights boolean|string = true: the first factor begins as zero. "lycoris": the second. false: none
function LoKrConfig:init(opts) configs.Config.init(self, opts) end

LoKrConfig._skips = lycoris.skips

--- Raises for values that no adapter can have.
---@param name string
function LoKrConfig:validate(name)
  lycoris.validate(self, name)
  local begin, factor = self.init_weights, self.decompose_factor
  if type(begin) ~= "boolean" and begin ~= "lycoris" then
    raise("%s: init_weights must be true, false or 'lycoris', got %s", name, check.shown(begin))
  end
  if factor ~= -1 and (math.type(factor) ~= "integer" or factor < 1) then
    raise("%s: decompose_factor must be -1 or positive, got %s", name, check.shown(factor))
  end
end

--- Two factors of n: `factor` and the rest if it divides n, otherwise the pair nearest to the square root whose first does not exceed it.
local function factors(n, factor)
  if factor > 0 and n % factor == 0 then return factor, n // factor end
  local small = 1
  for m = 2, math.floor(math.sqrt(n)) do
    if n % m == 0 and (factor == -1 or m <= factor) then small = m end
  end
  return small, n // small
end

---@param at accel.peft.Place
function LoKrConfig:_parameters(at)
  local r, inputs = lycoris.rank(self, at), at.kernel and at.shape[2] or at.inputs
  local in1, in2 = factors(inputs, self.decompose_factor)
  local out1, out2 = factors(at.outputs, self.decompose_factor)
  local begin = self.init_weights
  local zero1, zero2 = begin == true, begin == "lycoris"
  local function start(zero) return zero and initial.constant(0) or initial.kaiming end
  local out, kernel, spread = {}, at.kernel or {}, at.flat // inputs
  if self.decompose_both and r < math.max(out1, in1) / 2 then
    out[#out + 1] = { "lokr_w1_a", { out1, r }, init = start(zero1) }
    out[#out + 1] = { "lokr_w1_b", { r, in1 }, init = initial.kaiming }
  else
    out[#out + 1] = { "lokr_w1", { out1, in1 }, init = start(zero1) }
  end
  if r >= math.max(out2, in2) / 2 then
    out[#out + 1] = { "lokr_w2", { out2, in2, table.unpack(kernel) }, init = start(zero2) }
  elseif self.use_effective_conv2d and lycoris.has_kernel(at) then
    out[#out + 1] = { "lokr_t2", { r, r, kernel[1], kernel[2] or 1 }, init = initial.kaiming }
    out[#out + 1] = { "lokr_w2_a", { r, out2 }, init = initial.kaiming }
    out[#out + 1] = { "lokr_w2_b", { r, in2 }, init = start(zero2) }
  else
    out[#out + 1] = { "lokr_w2_a", { out2, r }, init = initial.kaiming }
    out[#out + 1] = { "lokr_w2_b", { r, in2 * spread }, init = start(zero2) }
  end
  at.sides = { out1, in1, out2, in2 }
  return out
end

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@return accel.Tensor
function LoKrConfig:_delta(p, at)
  local out1, in1, out2, in2 = table.unpack(at.sides)
  local w1 = p.lokr_w1 or accel.matmul(p.lokr_w1_a, p.lokr_w1_b)
  local w2 = p.lokr_w2 or p.lokr_t2 and lycoris.with_kernel(p.lokr_t2, p.lokr_w2_a, p.lokr_w2_b) or accel.matmul(p.lokr_w2_a, p.lokr_w2_b)
  w1, w2 = w1:reshape(out1, 1, in1, 1), w2:reshape(1, out2, 1, -1)
  assert(w2.shape[4] % in2 == 0)
  local delta = (w1 * w2):reshape(at.outputs, -1) * lycoris.scaling(self, at)
  return lycoris.drop_rows(self, at, delta, self.rank_dropout_scale):reshape(at.shape)
end

return { LoKrConfig = LoKrConfig }
