--- HRA: the input passes through Householder reflections. Used by weight_layer.lua.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local initial = require "accel.peft.kinds.initial"

--- HRA (Yuan and others, "Bridging The Gap between Low-rank and Orthogonal Adaptation via Householder Reflection Adaptation"):
--- W' = W H1 H2 ... Hr, reflections by the columns of U.
--- example: accel.peft.HRAConfig { r = 4 }.apply_GS --> false
---@class accel.peft.HRAConfig
---@field peft_type string "HRA"
local HRAConfig = configs.define("HRAConfig", { peft_type = "HRA", lists = configs.target_lists,
  defaults = configs.targets { r = 8, apply_GS = false, init_weights = true } })

---@param opts? table
---  r integer = 8: number of reflections
---  apply_GS boolean = false: the columns are made orthogonal to each other (Gram-Schmidt)
---  init_weights boolean = true: pairs of equal reflections, which begin as the identity. false: at random
---  bias string = "none": which biases learn as well: "none", "all", "hra_only"
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  exclude_modules string[]: layers that are left out
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function HRAConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function HRAConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "r", self.r)
end

---@param at accel.peft.Place
function HRAConfig:_parameters(at)
  local pairwise = self.init_weights
  if pairwise and self.r % 2 == 1 then
    warn(("HRAConfig: r = %d is odd, so that the reflections of '%s' do not begin as the identity; choose an even r"):format(self.r, at.full))
    pairwise = false
  end
  return { { "hra_u", { at.inputs, self.r }, init = function(t)
    if not pairwise then return initial.kaiming(t) end
    local half = accel.zeros({ t.shape[1], t.shape[2] // 2 }, { dtype = t.dtype, device = t.device })
    initial.kaiming(half)
    return half:repeat_interleave(2, 2)
  end } }
end

local function column(u, i) return u:narrow(2, i, 1) end

--- Columns orthogonal to each other and of length 1.
local function orthogonal(u)
  local list = {}
  for i = 1, u.shape[2] do
    local v = column(u, i)
    for j = 1, i - 1 do v = v - list[j] * accel.matmul(list[j]:t(), v) end
    list[i] = v / (v * v):sum():sqrt()
  end
  return accel.cat(list, 2)
end

---@param p table<string, accel.Tensor>
---@param _ accel.peft.Place
---@param x accel.Tensor
---@return accel.Tensor
function HRAConfig:_input(p, _, x)
  local u = p.hra_u
  if self.apply_GS then
    local v = orthogonal(u)
    return x - accel.matmul(accel.matmul(x, v), v:t()) * 2
  end
  u = u / (u * u):sum(1, true):sqrt()
  for i = u.shape[2], 1, -1 do
    local v = column(u, i)
    x = x - accel.matmul(accel.matmul(x, v), v:t()) * 2
  end
  return x
end

return { HRAConfig = HRAConfig }
