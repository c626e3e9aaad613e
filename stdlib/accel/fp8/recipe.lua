--- From a recipe of kwargs_handlers to how layers are scaled and which of them take part.
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local function short(recipe) return class.of(recipe).__name:match "[^.]*$" end

--- "TE", "AO" or "MSAMP".
---@param recipe accel.accelerator.KwargsHandler
---@return string
function M.backend(recipe) return (short(recipe):match "^(%u+)Recipe") end

local function te(recipe)
  if recipe.use_mxfp8_block_scaling then
    for _, field in ipairs { "amax_compute_algo", "amax_history_len" } do
      if recipe:to_kwargs()[field] then raise("TERecipeKwargs: %s is not supported for MXFP8 block scaling", field) end
    end
    raise "TERecipeKwargs: MXFP8 block scaling is not available: there is one scale a tensor here"
  end
  if recipe.fp8_format == "E5M2" then
    raise "TERecipeKwargs: fp8_format = 'E5M2' does not train: 2 bits of fraction are too few forward; use HYBRID or E4M3"
  end
  return require "accel.fp8.delayed" {
    fp8_format = recipe.fp8_format, margin = recipe.margin, interval = recipe.interval, amax_history_len = recipe.amax_history_len,
    amax_compute_algo = recipe.amax_compute_algo, override_linear_precision = recipe.override_linear_precision,
    use_autocast_during_eval = recipe.use_autocast_during_eval, reduce = true,
  }
end

--- The fields of torchao's Float8LinearConfig that mean something here.
local function ao(recipe)
  local config = options("AORecipeKwargs.config", recipe.config or {}, {
    pad_inner_dim = recipe.pad_inner_dim, enable_fsdp_float8_all_gather = recipe.enable_fsdp_float8_all_gather,
    round_scales_to_power_of_2 = false, emulate = false,
  })
  local scaling = require "accel.fp8.current" { pow2 = config.round_scales_to_power_of_2 }
  scaling.pad_inner_dim = config.pad_inner_dim
  return scaling
end

--- The scaling that a recipe asks for.
---@param recipe accel.accelerator.KwargsHandler TERecipeKwargs, AORecipeKwargs or MSAMPRecipeKwargs
---@return accel.fp8.Scaling
function M.scaling(recipe)
  local backend = M.backend(recipe)
  if backend == "TE" then return te(recipe) end
  if backend == "AO" then return ao(recipe) end
  return require "accel.fp8.current" { pow2 = true }
end

return M
