--- LoHa: a product, entry by entry, of two matrices of low rank. Used by weight_layer.lua.
local accel = require "accel"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local lycoris = require "accel.peft.kinds.lycoris"

--- LoHa (Hyeon-Woo and others, "FedPara: Low-Rank Hadamard Product for Communication-Efficient Federated Learning"):
--- W' = W + (A1 B1) * (A2 B2) * alpha / r, the middle product by entries.
--- example: accel.peft.LoHaConfig { r = 4 }.alpha --> 8
---@class accel.peft.LoHaConfig
---@field peft_type string "LOHA"
local LoHaConfig = configs.define("LoHaConfig", { peft_type = "LOHA", bases = lycoris.bases, lists = configs.target_lists,
  defaults = lycoris.fields {} })

---@param opts? table
---  r integer = 8: rank
---  alpha number = 8: the update counts alpha / r
---  rank_dropout number = 0: share of the update's rows that a step in training leaves out
---  module_dropout number = 0: share of the steps in training that leave the update out
---  use_effective_conv2d boolean = false: of convolutions, factors that know the kernel's shape
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
---  init_weights boolean = true: the update begins as zero. false: at random
function LoHaConfig:init(opts) configs.Config.init(self, opts) end

LoHaConfig.validate, LoHaConfig._skips = lycoris.validate, lycoris.skips

---@param at accel.peft.Place
function LoHaConfig:_parameters(at)
  local r = lycoris.rank(self, at)
  local whole = self.use_effective_conv2d and lycoris.has_kernel(at)
  local last = self.init_weights and initial.constant(0) or initial.kaiming
  local out = {}
  for i = 1, 2 do
    local a, b = ("hada_w%d_a"):format(i), ("hada_w%d_b"):format(i)
    out[#out + 1] = { a, whole and { r, at.outputs } or { at.outputs, r }, init = initial.kaiming }
    out[#out + 1] = { b, { r, whole and at.shape[2] or at.flat }, init = i == 2 and last or initial.kaiming }
    if whole then out[#out + 1] = { "hada_t" .. i, { r, r, at.kernel[1], at.kernel[2] or 1 }, init = initial.kaiming } end
  end
  return out
end

local function half(p, i)
  local a, b, t = p["hada_w" .. i .. "_a"], p["hada_w" .. i .. "_b"], p["hada_t" .. i]
  return t and lycoris.with_kernel(t, a, b) or accel.matmul(a, b)
end

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@return accel.Tensor
function LoHaConfig:_delta(p, at)
  local delta = half(p, 1) * half(p, 2) * lycoris.scaling(self, at)
  return lycoris.drop_rows(self, at, delta:reshape(at.outputs, -1), true):reshape(at.shape)
end

return { LoHaConfig = LoHaConfig }
