--- OFT: the input is turned by a block-diagonal orthogonal matrix. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"
local rotations = require "accel.peft.kinds.rotations"

--- OFT (Qiu and others, "Controlling Text-to-Image Diffusion by Orthogonal Finetuning"; Qiu and others, "Orthogonal Finetuning Made
--- Scalable"): y = base(x R), R block-diagonal and orthogonal. In convolutions the patches of the input are turned and added up again, in
--- PEFT's order, which no merged weight can repeat.
--- example: accel.peft.OFTConfig {}.oft_block_size --> 32
---@class accel.peft.OFTConfig
---@field peft_type string "OFT"
local OFTConfig = configs.define("OFTConfig", { peft_type = "OFT", bases = { linear = true, conv2d = true }, lists = configs.target_lists,
  file_version = "0.18.0", -- in which PEFT's series became this one
  defaults = configs.targets { r = 0, oft_block_size = 32, module_dropout = 0, fan_in_fan_out = false, init_weights = true, coft = false,
    eps = 6e-5, block_share = false, use_cayley_neumann = true, num_cayley_neumann_terms = 5 } })

---@param opts? table
---  r integer = 0: number of blocks. Give it or oft_block_size, the other is 0
---  oft_block_size integer = 32: sides of the blocks
---  module_dropout number = 0: share of the blocks that a step in training leaves out
---  coft boolean = false: blocks stay near the identity
---  eps number = 6e-5: how near, with coft
---  block_share boolean = false: one block for all
---  use_cayley_neumann boolean = true: the first terms of a series in the place of the inverse
---  num_cayley_neumann_terms integer = 5: how many
---  init_weights boolean = true: R begins as the identity. false: at random
---  bias string = "none": which biases learn as well: "none", "all", "oft_only"
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
function OFTConfig:init(opts)
  if type(opts) == "table" and (opts.r or 0) ~= 0 and opts.oft_block_size == nil then
    local given = { oft_block_size = 0 }
    for key, value in next, opts do given[key] = value end
    opts = given
  end
  configs.Config.init(self, opts)
  if type(opts) == "table" and opts.peft_type and self.use_cayley_neumann then -- from a file
    local major, minor = tostring(opts.peft_version):match "^(%d+)%.(%d+)"
    if (tonumber(major) or 0) == 0 and (tonumber(minor) or 0) < 18 then
      warn("OFTConfig: the adapter was saved by PEFT before 0.18, whose series for use_cayley_neumann differs a little; train it again, or set "
        .. "use_cayley_neumann = false if it was trained so")
    end
  end
end

--- Raises for values that no adapter can have.
---@param name string
function OFTConfig:validate(name)
  configs.common(self, name)
  for _, key in ipairs { "r", "oft_block_size" } do check.count(name, key, self[key]) end
  if (self.r == 0) == (self.oft_block_size == 0) then
    raise("%s: one of r (%d) and oft_block_size (%d) must be 0, since their product is the input's width", name, self.r, self.oft_block_size)
  end
  check.number(name, "module_dropout", self.module_dropout, 0, 1)
  check.number(name, "eps", self.eps, 0)
  check.positive(name, "num_cayley_neumann_terms", self.num_cayley_neumann_terms)
end

--- The divisor of n that is nearest to a number, the smaller of two.
local function nearest_divisor(n, wanted)
  if wanted >= n then return n end
  local low, high = wanted, wanted
  while n % high ~= 0 do high = high + 1 end
  while low > 1 and n % low ~= 0 do low = low - 1 end
  return wanted - low <= high - wanted and low or high
end

---@param at accel.peft.Place
function OFTConfig:_parameters(at)
  local key = self.r ~= 0 and "r" or "oft_block_size"
  local given = self[key]
  local used = nearest_divisor(at.flat, given)
  if used ~= given then
    warn(("OFTConfig: %s = %d does not divide the %d inputs of '%s'; it is %d there"):format(key, given, at.flat, at.full, used))
  end
  at.block = key == "r" and at.flat // used or used
  local blocks = self.block_share and 1 or at.flat // at.block
  return { { "oft_R.weight", { blocks, at.block * (at.block - 1) // 2 }, init = not self.init_weights and initial.normal(0, 0.1) or nil } }
end

--- Blocks that are further from the identity than eps allows are moved back, in the parameter itself.
local function constrain(self, v)
  local _ <close> = accel.no_grad()
  local own = v:detach()
  local eps = self.eps / math.sqrt(own.shape[1])
  local norms = (own * own):sum(2, true):sqrt() * math.sqrt(2) -- of the skew-symmetric blocks
  own:copy_(accel.where(norms:le(eps), own, own / norms * eps))
end

--- Some blocks are the identity in this step.
local function leave_out(self, at, blocks)
  local n = blocks.shape[1]
  if not at.training or self.module_dropout == 0 or n == 1 then return blocks end
  local out = math.floor(self.module_dropout * n)
  local left = accel.randperm(n, { device = blocks.device }):lt(out):to(blocks.dtype):reshape(n, 1, 1)
  return blocks * (left * -1 + 1) + accel.eye(blocks.shape[2], { dtype = blocks.dtype, device = blocks.device }) * left
end

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function OFTConfig:_input(p, at, x)
  local v = p["oft_R.weight"]
  if self.coft then constrain(self, v) end
  local q = rotations.skew(v, at.block)
  local blocks = self.use_cayley_neumann and rotations.cayley_series(q, self.num_cayley_neumann_terms) or rotations.cayley(q)
  blocks = leave_out(self, at, blocks)
  if at.kind == "linear" then return rotations.turn(x, blocks) end
  local image = x.ndim == 3
  if image then x = x:unsqueeze(1) end
  local B, H, W, kh, kw = x.shape[1], x.shape[3], x.shape[4], at.kernel[1], at.kernel[2]
  local patches = rotations.turn(accel.unfold(x, at.kernel):transpose(2, 3), blocks)
  -- PEFT adds the turned patches up in this order of places and values, which adapters were trained with.
  patches = patches:reshape(B, H - kh + 1, W - kw + 1, at.inputs, kh, kw):permute(1, 4, 2, 3, 5, 6):reshape(B, at.flat, -1)
  local y = accel.fold(patches, { H, W }, at.kernel)
  return image and y:squeeze(1) or y
end

return { OFTConfig = OFTConfig }
