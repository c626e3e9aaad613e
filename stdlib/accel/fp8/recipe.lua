--- From a recipe of kwargs_handlers to how layers are scaled and which of them take part.
local check = require "accel.util.check"
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
  end
  if recipe.fp8_format == "E5M2" then
    raise "TERecipeKwargs: fp8_format = 'E5M2' cannot train, because 2 bits of fraction are too few in forward; use HYBRID or E4M3"
  end
  if recipe.use_mxfp8_block_scaling then
    local override, products, idle = recipe.override_linear_precision, {}, {}
    for i, part in ipairs { "fprop", "dgrad", "wgrad" } do products[part] = not override[i] and "mx" or nil end
    for _, field in ipairs { "margin", "interval" } do idle[#idle + 1] = recipe:to_kwargs()[field] and field or nil end
    local scaling = require("accel.fp8.granular").GranularScaling { products = products,
      gradient = recipe.fp8_format == "HYBRID" and "e5m2" or "e4m3", use_autocast_during_eval = recipe.use_autocast_during_eval }
    scaling.idle = idle
    return scaling
  end
  return require "accel.fp8.delayed" {
    fp8_format = recipe.fp8_format, margin = recipe.margin, interval = recipe.interval, amax_history_len = recipe.amax_history_len,
    amax_compute_algo = recipe.amax_compute_algo, override_linear_precision = recipe.override_linear_precision,
    use_autocast_during_eval = recipe.use_autocast_during_eval, reduce = true,
  }
end

-- torchao's recipes by name, with scales of rows: the kind of each product.
local ROWWISE <const> = {
  rowwise = { fprop = "rowwise", dgrad = "rowwise", wgrad = "rowwise" },
  rowwise_with_gw_hp = { fprop = "rowwise", dgrad = "row_by_tensor" },
}

--- The fields of torchao's Float8LinearConfig that accel uses. recipe_name: values for its from_recipe_name.
local function ao(recipe)
  local given = recipe.config or {}
  if type(given) == "string" then given = { recipe_name = given } end
  local config = options("AORecipeKwargs.config", given, {
    recipe_name = "tensorwise", pad_inner_dim = recipe.pad_inner_dim, enable_fsdp_float8_all_gather = recipe.enable_fsdp_float8_all_gather,
    round_scales_to_power_of_2 = false, emulate = false,
  })
  check.word("AORecipeKwargs.config", "recipe_name", config.recipe_name, { "tensorwise", "rowwise", "rowwise_with_gw_hp" })
  local rows, scaling = ROWWISE[config.recipe_name], nil
  if not rows then scaling = require "accel.fp8.current" { pow2 = config.round_scales_to_power_of_2 }
  elseif given.round_scales_to_power_of_2 == false then
    raise("AORecipeKwargs.config: scales of '%s' are powers of two, as torchao's recipe sets them; leave round_scales_to_power_of_2 out",
      config.recipe_name)
  else scaling = require("accel.fp8.granular").GranularScaling { products = rows, always = true } end
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
