--- GraLoRA: low-rank updates of the blocks of a weight. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"

--- GraLoRA (Jung and others, "GraLoRA: Granular Low-Rank Adaptation for Parameter-Efficient Fine-Tuning"): each of the k x k blocks of the
--- weight has an update of rank r / k. With hybrid_r there is LoRA's update of that rank as well.
--- example: accel.peft.GraloraConfig {}.gralora_k --> 2
---@class accel.peft.GraloraConfig
---@field peft_type string "GRALORA"
local GraloraConfig = configs.define("GraloraConfig", { peft_type = "GRALORA", lists = configs.target_lists,
  defaults = configs.targets({ r = 32, hybrid_r = 0, alpha = 64, gralora_dropout = 0, gralora_k = 2, fan_in_fan_out = false,
    init_weights = true }, "exclude_modules") })

---@param opts? table
---  r integer = 32: rank, a multiple of gralora_k
---  hybrid_r integer = 0: rank of an additional update of the whole weight
---  alpha number = 64: the update counts alpha / (r + hybrid_r)
---  gralora_dropout number = 0: of the adapter's input, in training
---  gralora_k integer = 2: blocks along each side, which they divide
---  init_weights boolean = true: the update begins as zero. false: at random
---  bias string = "none": which biases learn as well: "none", "all", "gralora_only"
---  fan_in_fan_out boolean = false: set for Conv1D layers
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function GraloraConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function GraloraConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "r", self.r)
  check.count(name, "hybrid_r", self.hybrid_r)
  check.positive(name, "gralora_k", self.gralora_k)
  check.number(name, "alpha", self.alpha)
  check.number(name, "gralora_dropout", self.gralora_dropout, 0, 1)
  if self.r % self.gralora_k ~= 0 then raise("%s: r = %d must be a multiple of gralora_k = %d", name, self.r, self.gralora_k) end
end

function GraloraConfig:_dropout() return self.gralora_dropout end

---@param at accel.peft.Place
function GraloraConfig:_parameters(at)
  local k, r = self.gralora_k, self.r
  if at.inputs % k ~= 0 or at.outputs % k ~= 0 then
    raise("'%s': gralora_k = %d does not divide its widths %d and %d; choose another", at.full, k, at.inputs, at.outputs)
  end
  local function turned(fill) -- each block begins as the transpose of a layer
    return function(t)
      local other = accel.empty({ t.shape[1], t.shape[3], t.shape[2] }, { dtype = t.dtype, device = t.device })
      for i = 1, t.shape[1] do fill(other:select(1, i)) end
      return other:transpose(2, 3)
    end
  end
  local last = not self.init_weights
  local out = { { "gralora_A", { k, at.inputs // k, r }, init = turned(initial.kaiming) },
    { "gralora_B", { k, r, at.outputs // k }, init = last and turned(initial.kaiming) or nil } }
  if self.hybrid_r > 0 then
    out[3] = { "gralora_A_general.weight", { self.hybrid_r, at.inputs }, init = initial.kaiming }
    out[4] = { "gralora_B_general.weight", { at.outputs, self.hybrid_r }, init = last and initial.kaiming or nil }
  end
  return out
end

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function GraloraConfig:_update(p, at, x)
  local k, shape = self.gralora_k, x.shape
  local rows = x:reshape(-1, k, at.inputs // k):transpose(1, 2) -- [k, n, in / k]
  local h = accel.matmul(rows, p.gralora_A) -- [k, n, r]
  local n = h.shape[2]
  h = h:reshape(k, n, k, self.r // k):permute(3, 2, 1, 4):reshape(k, n, self.r) -- part j of each piece goes to block j of the outputs
  shape[#shape] = at.outputs
  local y = accel.matmul(h, p.gralora_B):transpose(1, 2):reshape(shape)
  local a = p["gralora_A_general.weight"]
  if a then y = y + accel.linear(accel.linear(x, a), p["gralora_B_general.weight"]) end
  return y * (self.alpha / (self.r + self.hybrid_r))
end

return { GraloraConfig = GraloraConfig }
