--- MiSS (formerly Bone): one block for all blocks of a row of the weight. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"

--- MiSS (Kang and Yin, "MiSS: Revisiting the Trade-off in LoRA with an Efficient Shard-Sharing Structure"): y = base(x) + (sum of the
--- pieces of x of length r) D. With init_weights = "bat" blocks of the weight are changed by their product with D.
--- example: accel.peft.MissConfig {}.r --> 64
---@class accel.peft.MissConfig
---@field peft_type string "MISS"
local MissConfig = configs.define("MissConfig", { peft_type = "MISS", lists = configs.target_lists, loose = { init_weights = true },
  defaults = configs.targets { r = 64, miss_dropout = 0, mini_r = 1, init_weights = true } })

---@param opts? table
---  r integer = 64: length of the pieces
---  miss_dropout number = 0: of the adapter's input, in training. Without effect with "bat"
---  mini_r integer = 1: with "mini": columns of D, which repeat
---  init_weights boolean|string = true: D begins as zero. false: at random. "mini": D has mini_r columns. "bat": see above
---  bias string = "none": which biases learn as well: "none", "all", "miss_only"
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  exclude_modules string[]: layers that are left out
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function MissConfig:init(opts)
  configs.Config.init(self, opts)
  if self.init_weights == "bat" then self._update, self._weight = false, self._blocks_changed end
end

--- Raises for values that no adapter can have.
---@param name string
function MissConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "r", self.r)
  check.positive(name, "mini_r", self.mini_r)
  check.number(name, "miss_dropout", self.miss_dropout, 0, 1)
  local begin = self.init_weights
  if type(begin) ~= "boolean" and begin ~= "bat" and begin ~= "mini" then
    raise("%s: init_weights must be true, false, 'bat' or 'mini', got %s", name, check.shown(begin))
  end
end

function MissConfig:_dropout() return self.miss_dropout end

---@param at accel.peft.Place
function MissConfig:_parameters(at)
  local r, columns = self.r, at.outputs
  if r > at.inputs then raise("'%s': r = %d exceeds its %d inputs; choose a smaller r", at.full, r, at.inputs) end
  if self.init_weights == "bat" then
    if at.inputs % r ~= 0 or at.outputs % r ~= 0 then
      raise("'%s': r = %d does not divide its widths %d and %d, as \"bat\" needs; choose another r", at.full, r, at.inputs, at.outputs)
    end
    return { { "miss_block", { at.outputs // r, r, r } } }
  elseif self.init_weights == "mini" then
    if at.outputs % self.mini_r ~= 0 then
      raise("'%s': mini_r = %d does not divide its %d outputs; choose another", at.full, self.mini_r, at.outputs)
    end
    columns = self.mini_r
  end
  return { { "miss_block", { r, columns }, init = self.init_weights == false and initial.kaiming or nil } }
end

--- With "bat", W' = W + W D + D for each block [r, r] of W, with one D for a row of blocks.
---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@param w accel.Tensor
---@return accel.Tensor
function MissConfig:_blocks_changed(p, at, w)
  local r = self.r
  local blocks = w:reshape(at.outputs // r, r, at.inputs // r, r):permute(3, 1, 2, 4)
  local d = p.miss_block
  return w + (accel.matmul(blocks, d) + d):permute(2, 3, 1, 4):reshape(at.outputs, at.inputs)
end

--- The sum of the pieces, times D.
---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function MissConfig:_update(p, at, x)
  local r, d = self.r, p.miss_block
  local shape = x.shape
  local rest = shape[#shape] % r
  if rest > 0 then
    shape[#shape] = r - rest
    x = accel.cat({ x, accel.zeros(shape, { dtype = x.dtype, device = x.device }) }, x.ndim)
    shape = x.shape
  end
  shape[#shape + 1] = r
  shape[#shape - 1] = x.shape[x.ndim] // r
  local y = accel.matmul(x:reshape(shape):sum(-2), d)
  if self.init_weights ~= "mini" then return y end
  local copies, of = at.outputs // self.mini_r, y.shape
  local last = of[#of]
  of[#of], of[#of + 1] = copies, last
  y = y:unsqueeze(-2):expand(of)
  of[#of] = nil
  of[#of] = copies * last
  return y:reshape(of)
end

return { MissConfig = MissConfig }
