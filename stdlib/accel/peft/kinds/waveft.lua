--- WaveFT: the update is the inverse wavelet transform of a few entries at random places. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"
local spectrum = require "accel.peft.kinds.spectrum"

--- WaveFT (Bilican and others, "Exploring Sparsity for Parameter Efficient Fine Tuning Using Wavelets"): W' = W + scaling * idwt(S), S zero
--- but for n_frequency entries, whose places follow from a seed. Of the wavelets accel has "db1", Haar's.
--- example: accel.peft.WaveFTConfig {}.wavelet_family --> "db1"
---@class accel.peft.WaveFTConfig
---@field peft_type string "WAVEFT"
local WaveFTConfig = configs.define("WaveFTConfig", { peft_type = "WAVEFT", lists = configs.target_lists,
  defaults = configs.targets { n_frequency = 2592, scaling = 25.0, wavelet_family = "db1", use_idwt = true, random_loc_seed = 777,
    fan_in_fan_out = false, n_frequency_pattern = {}, proportional_parameters = false, init_weights = true } })

---@param opts? table
---  n_frequency integer = 2592: entries of the spectrum
---  scaling number = 25.0: factor of the update
---  wavelet_family string = "db1": the wavelet. Others raise
---  use_idwt boolean = true: false: the entries are the update's own
---  random_loc_seed integer = 777: seed of their places, which are PEFT's
---  n_frequency_pattern table = {}: other numbers of entries by name
---  proportional_parameters boolean = false: layers have shares of all entries by their sizes
---  init_weights boolean = true: the spectrum begins as zero. false: at random
---  bias string = "none": which biases learn as well: "none", "all", "waveft_only"
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
function WaveFTConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function WaveFTConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "n_frequency", self.n_frequency)
  check.number(name, "scaling", self.scaling)
  if self.use_idwt and self.wavelet_family ~= "db1" and self.wavelet_family ~= "haar" then
    raise("%s: wavelet_family %s is not supported; accel has 'db1' (Haar's)", name, check.shown(self.wavelet_family))
  end
end

--- Nothing of its own is shared, but the sizes of all layers count in proportional_parameters.
---@param places accel.peft.Place[]
function WaveFTConfig:_shared(places)
  self._sizes = 0
  for _, at in ipairs(places) do self._sizes = self._sizes + at.inputs * at.outputs end
  self._layers = #places
  return {}
end

--- Rounds halves to even numbers, as Python does.
local function rounded(x)
  local low = math.floor(x)
  local rest = x - low
  if rest > 0.5 or rest == 0.5 and low % 2 == 1 then return low + 1 end
  return low
end

---@param at accel.peft.Place
function WaveFTConfig:_parameters(at)
  local n = self.n_frequency
  if self.proportional_parameters then
    n = math.max(1, rounded(at.inputs * at.outputs / self._sizes * (n * self._layers)))
  end
  n = spectrum.places(self, at, n)
  return { { "waveft_spectrum", { n }, init = not self.init_weights and initial.normal(0, 0.01) or nil } }
end

--- A matrix of these sides, zero but for the spectrum.
local function dense(s, at, rows, columns)
  local place = {}
  for i, row in ipairs(at.rows) do place[i] = row * columns + at.columns[i] end
  local index = accel.tensor(place, { dtype = "i64", device = s.device })
  return accel.zeros({ rows * columns }, { dtype = s.dtype, device = s.device }):index_copy(1, index, s):reshape(rows, columns)
end

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@return accel.Tensor
function WaveFTConfig:_delta(p, at)
  local s = p.waveft_spectrum
  if not self.use_idwt then return dense(s, at, at.outputs, at.inputs) * self.scaling end
  local rows, columns = at.outputs + at.outputs % 2, at.inputs + at.inputs % 2
  local half, wide = rows // 2, columns // 2
  local all = dense(s, at, rows, columns):reshape(2, half, 2, wide)
  local mean, across = all:select(3, 1):select(1, 1), all:select(3, 2):select(1, 1)
  local down, both = all:select(3, 1):select(1, 2), all:select(3, 2):select(1, 2)
  -- Each value becomes a square of four: signs by the row for `across`, by the column for `down`.
  local top = accel.stack({ mean + across + down + both, mean + across - down - both }, 3)
  local bottom = accel.stack({ mean - across + down - both, mean - across - down + both }, 3)
  local y = accel.stack({ top, bottom }, 2):reshape(rows, columns) * (self.scaling / 2)
  return y:narrow(1, (rows - at.outputs) // 2 + 1, at.outputs):narrow(2, (columns - at.inputs) // 2 + 1, at.inputs)
end

return { WaveFTConfig = WaveFTConfig }
