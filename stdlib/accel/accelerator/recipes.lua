--- fp8 of an Accelerator: which recipe holds, models converted by it, states that its checkpoints keep. accel.fp8 has the computation.
local class = require "accel.util.class"
local environment = require "accel.accelerator.environment"
local raise = require "accel.util.raise"

local M = {}

local HANDLERS <const> = { "ao_recipe_handler", "te_recipe_handler", "msamp_recipe_handler" }
local BACKENDS <const> = { "AO", "TE", "MSAMP" }
local VARIABLE <const> = "ACCELERATE_FP8_BACKEND"

-- Model -> its accel.fp8.Scaling.
local scalings = setmetatable({}, { __mode = "k" })

local function by_backend(backend, settings)
  return require("accel.accelerator")[backend .. "RecipeKwargs"](settings or {})
end

--- The recipe of a process that names none: the environment's, else torchao's, which needs no history.
local function default()
  local word = environment.get(VARIABLE)
  local backend = word and word:upper() or "NO"
  if backend == "NO" then return "AO", "default" end
  for _, known in ipairs(BACKENDS) do
    if backend == known then return known, VARIABLE end
  end
  raise("%s must be AO, TE, MSAMP or NO, got '%s'", VARIABLE, word)
end

local function refuse_together(values, recipe)
  local sharded = values.fsdp_plugin and "fsdp_plugin" or values.deepspeed_plugin and "deepspeed_plugin"
  if values.fp8_backend == "MSAMP" and values.fsdp_plugin then
    raise "Accelerator: MS-AMP's recipe cannot be combined with fsdp_plugin; use TERecipeKwargs or AORecipeKwargs"
  elseif values.fp8_backend == "MSAMP" and recipe.opt_level ~= "O1" and sharded then
    raise("Accelerator: MS-AMP's level %s keeps whole optimizer states in fp8, but %s shards them; use opt_level = 'O1'", recipe.opt_level,
      sharded)
  elseif values.fp8_backend == "AO" and values.fsdp_plugin and values.fsdp_plugin.cpu_ram_efficient_loading then
    raise "Accelerator: torchao's recipe cannot be combined with cpu_ram_efficient_loading; set cpu_ram_efficient_loading = false"
  end
end

--- Finds the recipe among the given handlers, or makes the one of the environment. values.fp8_backend names its backend, nil without fp8.
---@param values table
---@param origins table
---@param enabled boolean whether mixed_precision is fp8
---@return string? idle a recipe that has no effect
function M.take(values, origins, enabled)
  local found
  for _, field in ipairs(HANDLERS) do
    if values[field] then
      if found then raise("Accelerator: kwargs_handlers has two fp8 recipes, %s and %s; give one", found, field) end
      found = field
    end
  end
  local plugin, sharded = values.deepspeed_plugin, values.fsdp_plugin or values.deepspeed_plugin
  if plugin and plugin.enable_msamp and not found then
    found, enabled = "msamp_recipe_handler", true
    values[found], origins[found] = by_backend("MSAMP", { opt_level = plugin.msamp_opt_level }), "deepspeed_plugin"
  end
  if found and not enabled then
    if sharded then return ("%s in kwargs_handlers has no effect without mixed_precision = \"fp8\""):format(found) end
    raise "Accelerator: an fp8 recipe in kwargs_handlers needs mixed_precision = \"fp8\""
  elseif not enabled then
    return
  end
  local origin = "kwargs_handlers"
  if not found then
    local backend
    backend, origin = default()
    found = backend:lower() .. "_recipe_handler"
    values[found], origins[found] = by_backend(backend), origin
  end
  values.fp8_backend, origins.fp8_backend = found:match("^%a+"):upper(), origin
  refuse_together(values, values[found])
end

--- The active recipe, or nil without fp8.
---@param accelerator accel.Accelerator
---@return accel.accelerator.KwargsHandler?
function M.recipe(accelerator)
  local backend = accelerator.fp8_backend
  return backend and accelerator[backend:lower() .. "_recipe_handler"]
end

--- Converts a model and keeps its parameters, names and modules. nil without fp8. Warns once if no layer takes part, and of options without
--- effect.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module
---@return accel.fp8.Scaling?
function M.convert(accelerator, model)
  local recipe = M.recipe(accelerator)
  if not recipe then return nil end
  local scaling = require("accel.fp8").convert_model(model, recipe)
  scaling.apart = function() return accelerator._prepared:active_join() ~= nil end
  scalings[model] = scaling
  if scaling.converted == 0 then
    accelerator:_warn(("mixed_precision = \"fp8\": no linear layer of %s qualifies: dims must be multiples of 16%s; it is computed "
      .. "in bf16"):format(class.of(model).__name, accelerator.fp8_backend == "AO" and ", and AORecipeKwargs leaves out the first and the last"
        or ""))
  end
  if scaling.idle and #scaling.idle > 0 then
    accelerator:_warn(("TERecipeKwargs: %s has no effect with use_mxfp8_block_scaling: a block's scale follows from its values alone"):format(
      table.concat(scaling.idle, " and ")))
  end
  if accelerator.fp8_backend == "AO" and accelerator.fsdp_plugin and recipe.enable_fsdp_float8_all_gather then
    accelerator:_warn "AORecipeKwargs: enable_fsdp_float8_all_gather has no effect here: shards are gathered in the dtype of the sharding policy"
  end
  return scaling
end

--- A pipeline of a converted model: its micro-batches are one forward of the scaling, and its checkpoints have that one's states.
---@param model accel.nn.Module
---@param pipeline accel.nn.parallel.PipelineParallel
---@param device string
function M.adopt(model, pipeline, device)
  local scaling = scalings[model]
  scalings[pipeline] = scaling
  if scaling and scaling.batch then
    rawset(pipeline, "_around", function(self) return scaling:batch(self.training, device) end)
  end
end

--- Gives an optimizer the states that the recipe asks for.
---@param accelerator accel.Accelerator
---@param optimizer accel.optim.Optimizer
function M.convert_optimizer(accelerator, optimizer)
  local recipe = M.recipe(accelerator)
  if recipe and accelerator.fp8_backend == "MSAMP" and recipe.opt_level == "O2" then require("accel.fp8").compress_states(optimizer) end
end

--- The scalings of the prepared models that have states, in their order: false for others.
---@param accelerator accel.Accelerator
---@return (accel.fp8.Scaling|false)[] list
---@return boolean any
function M.stateful(accelerator)
  local list, any = {}, false
  for i, model in ipairs(accelerator._prepared.models) do
    local scaling = scalings[accelerator:unwrap_model(model)] or scalings[model]
    list[i] = scaling and scaling.load_state_dict and scaling or false
    any = any or list[i] ~= false
  end
  return list, any
end

return M
