--- FourierFT: the update is the inverse Fourier transform of a few entries at random places. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local spectrum = require "accel.peft.kinds.spectrum"

--- FourierFT (Gao and others, "Parameter-Efficient Fine-Tuning with Discrete Fourier Transform"): W' = W + scaling * Re(ifft2(S)), S zero
--- but for n_frequency entries, whose places follow from a seed.
--- example: accel.peft.FourierFTConfig {}.scaling --> 150.0
---@class accel.peft.FourierFTConfig
---@field peft_type string "FOURIERFT"
local FourierFTConfig = configs.define("FourierFTConfig", { peft_type = "FOURIERFT", lists = configs.target_lists,
  defaults = configs.targets { n_frequency = 1000, scaling = 150.0, random_loc_seed = 777, fan_in_fan_out = false, n_frequency_pattern = {},
    init_weights = false } })

---@param opts? table
---  n_frequency integer = 1000: entries of the spectrum
---  scaling number = 150.0: factor of the update
---  random_loc_seed integer = 777: seed of their places, which are PEFT's
---  n_frequency_pattern table = {}: other numbers of entries by name
---  init_weights boolean = false: the spectrum begins at random. true: as zero
---  bias string = "none": which biases learn as well: "none", "all", "fourierft_only"
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
function FourierFTConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function FourierFTConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "n_frequency", self.n_frequency)
  check.number(name, "scaling", self.scaling)
end

---@param at accel.peft.Place
function FourierFTConfig:_parameters(at)
  local n = spectrum.places(self, at, self.n_frequency)
  return { { "fourierft_spectrum", { n }, init = not self.init_weights and initial.normal(0, 1) or nil } }
end

--- The real part of the transform is a sum of products of cosines minus one of sines, of which there are as many as entries.
---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@return accel.Tensor
function FourierFTConfig:_delta(p, at)
  local s = p.fourierft_spectrum
  local function angles(list, n)
    local k = accel.tensor(list, { dtype = "i64", device = s.device }):unsqueeze(1)
    local turns = (accel.arange(n, { device = s.device }):unsqueeze(2) * k):remainder(n) -- exact, in whole parts of a turn
    return turns:to "f64" * (2 * math.pi / n)
  end
  local rows, columns = angles(at.rows, at.outputs), angles(at.columns, at.inputs)
  local function product(a, b) return accel.matmul(a:to(s.dtype) * s, b:to(s.dtype):t()) end
  local sum = product(rows:cos(), columns:cos()) - product(rows:sin(), columns:sin())
  return sum * (self.scaling / (at.inputs * at.outputs))
end

return { FourierFTConfig = FourierFTConfig }
