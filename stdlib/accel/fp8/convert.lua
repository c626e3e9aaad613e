--- Selects the layers of a model for fp8, and changes their forward to multiply in fp8 while it is enabled. Modules, parameters
--- and names stay the same, so that optimizers, checkpoints and hooks are not affected.
local Module = require "accel.nn.module"
local check = require "accel.util.check"
local class = require "accel.util.class"
local ordered = require "accel.util.ordered"
local product = require "accel.fp8.product"
local raise = require "accel.util.raise"
local recipes = require "accel.fp8.recipe"

local M = {}

---@class accel.fp8.Scaling
---@field layer fun(self, name: string, transposed: boolean): accel.fp8.Layer
---@field active fun(self, layer: accel.fp8.Layer, x: accel.Tensor): boolean
---@field enter fun(self, training: boolean, device: string) before a forward of the model
---@field leave fun(self) after it
---@field batch (fun(self, training: boolean, device: string): any)? around all micro-batches of a pipeline, until its result is closed
---@field state_dict fun(self): table? the state for a checkpoint
---@field converted integer layers that take part
---@field first_module accel.nn.Module? the first of them, which gives the model's device

-- Module -> { layer =, scaling =, own = the forward that was its own field }.
local records = setmetatable({}, { __mode = "k" })

local FLOATS <const> = { f32 = true, f16 = true, bf16 = true }

--- "linear", "transposed" (GPT-2's Conv1D, whose weight is [in, out]) or nil.
local function kind_of(module)
  local cls = class.of(module)
  if cls == require "accel.nn.linear" then return "linear" end
  local conv = package.loaded["accel.models.conv1d"]
  return conv and cls == conv and "transposed" or nil
end

local function divisible(module, n) return module.in_features % n == 0 and module.out_features % n == 0 end

--- The names of the first and the last linear layer, in the order of the model. nil without one.
--- example: local nn = accel.nn return accel.fp8.find_first_last_linear_layers(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)))
---   --> "0", "2"
---@param model accel.nn.Module
---@return string? first
---@return string? last
function M.find_first_last_linear_layers(model)
  local first, last
  for name, module in ordered.iterate(model:named_modules()) do
    if kind_of(module) then first, last = first or name, name end
  end
  return first, last
end

--- Whether a module may take part: not a linear layer with a dim that is not a multiple of 16, and not one of the
--- excluded names.
--- example: local f = accel.fp8.filter_linear_layers return f(accel.nn.Linear(16, 17), "a", {}), f(accel.nn.Linear(16, 32), "b", {}) --> false, true
---@param module accel.nn.Module
---@param name string
---@param layers_to_filter string[]
---@return boolean
function M.filter_linear_layers(module, name, layers_to_filter)
  if kind_of(module) and not divisible(module, 16) then return false end
  for _, other in ipairs(layers_to_filter) do
    if other == name then return false end
  end
  return true
end

--- The layers that a recipe selects.
local function filter_of(model, recipe)
  if recipes.backend(recipe) ~= "AO" then return function(module) return divisible(module, 16) end end
  if recipe.module_filter_func then return recipe.module_filter_func end
  local first, last = M.find_first_last_linear_layers(model)
  return function(module, name) return M.filter_linear_layers(module, name, { first, last }) end
end

local function check_layer(scaling, module, name)
  if scaling.pad_inner_dim == false and not divisible(module, 16) then
    raise("fp8: layer '%s' (%d -> %d) needs dims that are multiples of 16: set pad_inner_dim = true, or leave it out by module_filter_func",
      name, module.in_features, module.out_features)
  end
end

--- The forward of a layer that takes part. A deep copy of the module, of which nothing is recorded, computes as before.
local function forward_of(own)
  return function(self, x)
    local record = records[self]
    if record and FLOATS[x.dtype] and FLOATS[self.weight.dtype] and record.scaling:active(record.layer, x) then
      local linear = record.layer.linear
      if linear then return linear(record.layer, x, self) end
      return product.linear(x, self, record.layer)
    end
    return own(self, x)
  end
end

--- Makes the linear layers of a model multiply in fp8: those whose dims are multiples of 16. With AORecipeKwargs, the layers among them
--- that are neither first nor last, or that module_filter_func(module, name) selects. Returns the scaling, whose field converted counts
--- them. Returns the scaling, whose field converted counts them. Another call replaces the previous scaling.
--- example: local m = accel.nn.Sequential(accel.nn.Linear(16, 32), accel.nn.Linear(32, 3))
---   return accel.fp8.convert_model(m, accel.accelerator.TERecipeKwargs {}).converted, accel.fp8.has_fp8_layers(m) --> 1, true
---@param model accel.nn.Module
---@param recipe? accel.accelerator.KwargsHandler TERecipeKwargs, AORecipeKwargs or MSAMPRecipeKwargs, default TERecipeKwargs {}
---@return accel.fp8.Scaling
function M.convert_model(model, recipe, ...)
  check.surplus("convert_model", ...)
  if not Module.is_module(model) then raise("convert_model: %s", Module.not_a_module(model)) end
  recipe = recipe or require("accel.fp8")._recipes.TERecipeKwargs {}
  local scaling, takes, seen = recipes.scaling(recipe), filter_of(model, recipe), {}
  scaling.converted = 0
  for name, module in ordered.iterate(model:named_modules()) do
    local kind = kind_of(module)
    if kind and not seen[module] and takes(module, name) then
      seen[module] = true
      check_layer(scaling, module, name)
      local before = records[module]
      local own = before and before.own or rawget(module, "forward")
      records[module] = { layer = scaling:layer(name, kind == "transposed"), scaling = scaling, own = own }
      rawset(module, "forward", forward_of(own or class.of(module).forward))
      scaling.converted, scaling.first_module = scaling.converted + 1, scaling.first_module or module
    end
  end
  return scaling
end

--- Whether a model has layers that multiply in fp8.
--- example: accel.fp8.has_fp8_layers(accel.nn.Linear(16, 16)) --> false
---@param model accel.nn.Module
---@return boolean
function M.has_fp8_layers(model)
  for _, module in ipairs(model:modules()) do
    if records[module] then return true end
  end
  return false
end

return M
