--- VB-LoRA: low-rank factors whose pieces are mixed from a bank of vectors that all layers share. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"

--- VB-LoRA (Li and others, "VB-LoRA: Extreme Parameter Efficient Fine-Tuning with Vector Banks"): y = base(x) + B A x, where each piece of
--- A and B is a mixture of the topk vectors of largest logits.
--- example: accel.peft.VBLoRAConfig {}.topk --> 2
---@class accel.peft.VBLoRAConfig
---@field peft_type string "VBLORA"
local VBLoRAConfig = configs.define("VBLoRAConfig", { peft_type = "VBLORA", lists = configs.target_lists,
  defaults = configs.targets { r = 4, num_vectors = 256, vector_length = 256, topk = 2, save_only_topk_weights = false, vblora_dropout = 0,
    fan_in_fan_out = false, init_vector_bank_bound = 0.02, init_logits_std = 0.1 } })

---@param opts? table
---  r integer = 4: rank
---  num_vectors integer = 256: vectors of the bank
---  vector_length integer = 256: their length, which divides the widths of all layers
---  topk integer = 2: vectors of each mixture
---  save_only_topk_weights boolean = false: true raises: such files cannot be trained on
---  vblora_dropout number = 0: of the adapter's input, in training
---  init_vector_bank_bound number = 0.02: the bank begins uniform in +- this
---  init_logits_std number = 0.1: standard deviation of the first logits
---  bias string = "none": which biases learn as well: "none", "all", "vblora_only"
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
function VBLoRAConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function VBLoRAConfig:validate(name)
  configs.common(self, name)
  for _, key in ipairs { "r", "num_vectors", "vector_length", "topk" } do check.positive(name, key, self[key]) end
  if self.topk > self.num_vectors then raise("%s: topk = %d exceeds num_vectors = %d", name, self.topk, self.num_vectors) end
  check.number(name, "vblora_dropout", self.vblora_dropout, 0, 1)
  check.number(name, "init_vector_bank_bound", self.init_vector_bank_bound, 0)
  check.number(name, "init_logits_std", self.init_logits_std, 0)
  if self.save_only_topk_weights then
    raise("%s: save_only_topk_weights = true leaves out the logits that training needs, and accel does not read such files; set it to false", name)
  end
end

function VBLoRAConfig:_dropout() return self.vblora_dropout end

---@param at accel.peft.Place
function VBLoRAConfig:_parameters(at)
  local n = self.vector_length
  if at.inputs % n ~= 0 or at.outputs % n ~= 0 then
    raise("'%s': vector_length = %d does not divide its widths %d and %d; choose another length", at.full, n, at.inputs, at.outputs)
  end
  local begin = initial.normal(0, self.init_logits_std)
  return { { "vblora_logits_A", { self.r, at.inputs // n, self.num_vectors }, init = begin },
    { "vblora_logits_B", { at.outputs // n, self.r, self.num_vectors }, init = begin } }
end

function VBLoRAConfig:_shared()
  local bound = self.init_vector_bank_bound
  return { { "vblora_vector_bank", { self.num_vectors, self.vector_length }, init = function(t) t:uniform_(-bound, bound) end } }
end

--- logits [m, n, vectors] -> mixtures [m, n, length].
local function mixed(logits, bank, topk)
  local best, which = logits:topk(topk, 3)
  local vectors = bank:index_select(1, which:reshape(-1)):reshape(logits.shape[1], logits.shape[2], topk, -1)
  return (best:softmax(3):unsqueeze(4) * vectors):sum(3)
end

---@param p table<string, accel.Tensor>
---@param _ accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function VBLoRAConfig:_update(p, _, x)
  local bank, r = p.vblora_vector_bank, self.r
  local a = mixed(p.vblora_logits_A, bank, self.topk):reshape(r, -1)
  local b = mixed(p.vblora_logits_B, bank, self.topk):transpose(2, 3):reshape(-1, r)
  return accel.linear(accel.linear(x, a), b)
end

return { VBLoRAConfig = VBLoRAConfig }
