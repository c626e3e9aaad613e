--- C3A: the update consists of circulant blocks. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local init = require "accel.nn.initialization"
local raise = require "accel.util.raise"
local targets = require "accel.peft.targets"

--- C3A (Chen and others, "Parameter-Efficient Fine-Tuning via Circular Convolution"): W' = W + C / in, each block of C a circulant matrix
--- of block_size values.
--- example: accel.peft.C3AConfig {}.block_size --> 256
---@class accel.peft.C3AConfig
---@field peft_type string "C3A"
local C3AConfig = configs.define("C3AConfig", { peft_type = "C3A", lists = configs.target_lists, loose = { init_weights = true },
  defaults = configs.targets({ block_size = 256, block_size_pattern = {}, init_weights = "xavier_uniform" }, "exclude_modules") })

---@param opts? table
---  block_size integer = 256: sides of the blocks, which divide the widths of the layers
---  block_size_pattern table = {}: others by name
---  init_weights boolean|string = "xavier_uniform": or "kaiming_uniform", "gaussian". false: "xavier_uniform". true: zero
---  bias string = "none": which biases learn as well: "none", "all", "c3a_only"
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function C3AConfig:init(opts) configs.Config.init(self, opts) end

local STARTS <const> = { xavier_uniform = true, kaiming_uniform = true, gaussian = true }

--- Raises for values that no adapter can have.
---@param name string
function C3AConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "block_size", self.block_size)
  if type(self.init_weights) ~= "boolean" and not STARTS[self.init_weights] then
    raise("%s: init_weights must be true, false, 'xavier_uniform', 'kaiming_uniform' or 'gaussian', got %s", name, check.shown(self.init_weights))
  end
end

---@param at accel.peft.Place
function C3AConfig:_parameters(at)
  local n = targets.by_pattern(at.full, self.block_size_pattern, self.block_size)
  if at.inputs % n ~= 0 or at.outputs % n ~= 0 then
    raise("'%s': block_size = %d does not divide its widths %d and %d; choose another", at.full, n, at.inputs, at.outputs)
  end
  at.block = n
  local begin = self.init_weights
  return { { "c3a_kernel", { at.outputs // n, at.inputs // n, n }, init = function(t)
    if begin == true then return end
    if begin == "gaussian" then return init.normal_(t, 0, 1) end
    local bound = begin == "kaiming_uniform" and math.sqrt(1 / at.inputs) or math.sqrt(6 / (at.inputs + at.outputs))
    init.uniform_(t, -bound, bound)
  end } }
end

--- Entry (i, j) of a block is the value number j - i, counted around.
---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@return accel.Tensor
function C3AConfig:_delta(p, at) -- luacheck: no self
  local w, n = p.c3a_kernel, at.block
  local i = accel.arange(n, { device = w.device })
  local which = (i:unsqueeze(1) - i:unsqueeze(2)):remainder(n)
  local blocks = w:index_select(3, which:reshape(-1)):reshape(w.shape[1], w.shape[2], n, n)
  return blocks:permute(1, 3, 2, 4):reshape(at.outputs, at.inputs) / at.inputs
end

return { C3AConfig = C3AConfig }
