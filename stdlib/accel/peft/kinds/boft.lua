--- BOFT: the input is turned by products of block-diagonal orthogonal matrices and permutations, and outputs are scaled. Used by
--- weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"
local raise = require "accel.util.raise"
local rotations = require "accel.peft.kinds.rotations"

--- BOFT (Liu and others, "Parameter-Efficient Orthogonal Finetuning via Butterfly Factorization"): y = s * (x R W^T) + bias, R a product of
--- butterfly factors. PEFT writes files with one factor, whatever the configuration has, where its CUDA extension is missing. They load
--- with that factor.
--- example: accel.peft.BOFTConfig {}.boft_block_size --> 4
---@class accel.peft.BOFTConfig
---@field peft_type string "BOFT"
local BOFTConfig = configs.define("BOFTConfig", { peft_type = "BOFT", lists = configs.target_lists, output_before_bias = true,
  defaults = configs.targets { boft_block_size = 4, boft_block_num = 0, boft_n_butterfly_factor = 1, boft_dropout = 0, fan_in_fan_out = false,
    init_weights = true } })

---@param opts? table
---  boft_block_size integer = 4: sides of the blocks. Give it or boft_block_num, the other is 0
---  boft_block_num integer = 0: number of blocks
---  boft_n_butterfly_factor integer = 1: factors of the rotation
---  boft_dropout number = 0: share of the blocks that a step in training leaves out
---  init_weights boolean = true: R begins as the identity. false: at random
---  bias string = "none": which biases learn as well: "none", "all", "boft_only"
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
function BOFTConfig:init(opts)
  if type(opts) == "table" and (opts.boft_block_num or 0) ~= 0 and opts.boft_block_size == nil then
    local given = { boft_block_size = 0 }
    for key, value in next, opts do given[key] = value end
    opts = given
  end
  configs.Config.init(self, opts)
end

--- Raises for values that no adapter can have.
---@param name string
function BOFTConfig:validate(name)
  configs.common(self, name)
  for _, key in ipairs { "boft_block_size", "boft_block_num" } do check.count(name, key, self[key]) end
  if (self.boft_block_size == 0) == (self.boft_block_num == 0) then
    raise("%s: one of boft_block_size (%d) and boft_block_num (%d) must be 0, since their product is the input's width", name,
      self.boft_block_size, self.boft_block_num)
  end
  check.positive(name, "boft_n_butterfly_factor", self.boft_n_butterfly_factor)
  check.number(name, "boft_dropout", self.boft_dropout, 0, 1)
end

--- Takes the number of factors that a file has.
---@param state table<string, accel.Tensor>
function BOFTConfig:fit(state)
  for key, t in accel.pairs(state) do
    if key:find "%.boft_R$" then self._factors = t.shape[1] end
  end
end

--- The order of inputs that factor i, from 0, turns in blocks: pairs of half blocks that lie further apart with each factor.
local function order(n, blocks, half, factor)
  local list = {}
  local wide = n // (blocks // 2 ^ factor // 1)
  for first = 0, n - wide, wide do
    for odd = 0, 1 do
      for step = odd, wide // half - 1, 2 do
        for i = 0, half - 1 do list[#list + 1] = math.tointeger(first + step * half + i) end
      end
    end
  end
  return list
end

---@param at accel.peft.Place
function BOFTConfig:_parameters(at)
  local n, size, count = at.inputs, self.boft_block_size, self.boft_block_num
  local factors = self._factors or self.boft_n_butterfly_factor
  if size == 0 then size = n // count else count = n // size end
  if size * count ~= n then raise("'%s': %d inputs do not divide into blocks of %d; choose another block size", at.full, n, size) end
  local pieces = math.tointeger(2 ^ (factors - 1))
  if factors > 1 and (size % 2 ~= 0 or count % 2 ~= 0 or count % pieces ~= 0) then
    raise("'%s': %d blocks of %d do not suit boft_n_butterfly_factor = %d; both must be even, and the number a multiple of %d", at.full, count,
      size, factors, pieces)
  end
  at.orders = {}
  if factors > 1 then
    for i = 1, factors do at.orders[i] = order(n, count, size // 2, i - 1) end
  end
  local begin = not self.init_weights
  return { { "boft_R", { factors, count, size, size }, init = begin and initial.normal(0, 0.1) or nil },
    { "boft_s", { at.outputs, 1 }, init = begin and initial.normal(1, 0.1) or initial.constant(1) } }
end

local function leave_out(self, at, blocks)
  local n = blocks.shape[1]
  if not at.training or self.boft_dropout == 0 or n == 1 then return blocks end
  local left = accel.randperm(n, { device = blocks.device }):lt(math.floor(self.boft_dropout * n)):to(blocks.dtype):reshape(n, 1, 1)
  return blocks * (left * -1 + 1) + accel.eye(blocks.shape[2], { dtype = blocks.dtype, device = blocks.device }) * left
end

---@param p table<string, accel.Tensor>
---@param at accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function BOFTConfig:_input(p, at, x)
  local all = p.boft_R
  for factor = all.shape[1], 1, -1 do
    local data = all:select(1, factor)
    local blocks = leave_out(self, at, rotations.cayley((data - data:transpose(2, 3)) * 0.5))
    local list = at.orders[factor]
    if list then
      local to = accel.tensor(list, { dtype = "i64", device = x.device })
      local back = to:argsort()
      x = rotations.turn(x:index_select(x.ndim, back), blocks):index_select(x.ndim, to)
    else
      x = rotations.turn(x, blocks)
    end
  end
  return x
end

---@param p table<string, accel.Tensor>
---@param _ accel.peft.Place
---@param y accel.Tensor
---@return accel.Tensor
function BOFTConfig:_output(p, _, y) return y * p.boft_s:reshape(-1) end

return { BOFTConfig = BOFTConfig }
