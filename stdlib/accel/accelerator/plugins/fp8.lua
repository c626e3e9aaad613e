--- Recipes of fp8 training: TERecipeKwargs, AORecipeKwargs, MSAMPRecipeKwargs, FP8RecipeKwargs.
local base = require "accel.accelerator.plugins.base"
local check = require "accel.util.check"
local environment = require "accel.accelerator.environment"
local handlers = require "accel.accelerator.handlers"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local none <const> = options.none
local ENV <const> = "ACCELERATE_FP8_"

local function word(...)
  local words = { ... }
  return function(who, name, value)
    for _, each in ipairs(words) do
      if type(value) == "string" and value:lower() == each:lower() then return each end
    end
    return check.word(who, name, value, words)
  end
end

--- A recipe is a handler of Accelerator's kwargs_handlers whose fields may come from the environment.
local function recipe(name, fields, checks)
  local cls = base.extend(name, fields, checks, handlers.KwargsHandler)
  cls.init = base.Plugin.init
  return cls
end

--- Delayed scaling as in TransformerEngine: format and margin of scales, the history they come from, and the products computed
--- without fp8 (forward, input gradient, weight gradient). Missing values come from the environment (ACCELERATE_FP8_...).
--- example: accel.accelerator.TERecipeKwargs { amax_history_len = 16 }:to_kwargs() --> { amax_history_len = 16 }
---@class accel.accelerator.TERecipeKwargs : accel.accelerator.KwargsHandler
local TE = recipe("TERecipeKwargs", {
  { "use_autocast_during_eval", false, ENV .. "USE_AUTOCAST_DURING_EVAL", "bool" }, { "margin", 0, ENV .. "MARGIN", "int" },
  { "interval", 1, ENV .. "INTERVAL", "int" }, { "fp8_format", "HYBRID", ENV .. "FORMAT", "upper" },
  { "amax_history_len", 1024, ENV .. "AMAX_HISTORY_LEN", "int" },
  { "amax_compute_algo", "most_recent", ENV .. "AMAX_COMPUTE_ALGO", "text" },
  { "override_linear_precision", { false, false, false } }, { "use_mxfp8_block_scaling", false, ENV .. "USE_MXFP8_BLOCK_SCALING", "bool" },
}, {
  fp8_format = word("HYBRID", "E4M3", "E5M2"), amax_compute_algo = word("max", "most_recent"),
  margin = check.count, interval = check.positive, amax_history_len = check.positive,
})
M.TERecipeKwargs = TE

local PARTS <const> = { "FPROP", "DGRAD", "WGRAD" }

---@param given? table fields by name
function TE:init(given, ...)
  local values = {}
  for key, value in next, type(given) == "table" and given or {} do values[key] = value end
  if values.override_linear_precision == nil then
    values.override_linear_precision = {}
    for i, part in ipairs(PARTS) do
      values.override_linear_precision[i] = base.read("TERecipeKwargs", ENV .. "OVERRIDE_" .. part, "bool", false)
    end
  end
  base.Plugin.init(self, type(given) ~= "table" and given or values, ...)
  if #self.override_linear_precision ~= 3 then
    raise "TERecipeKwargs: override_linear_precision must be three booleans: forward, input gradient, weight gradient"
  end
end

--- Dynamic scaling as torchao has it: which layers take part (module_filter_func), whether inner dimensions are padded to 16, and
--- whether shards are gathered in fp8.
--- example: accel.accelerator.AORecipeKwargs { pad_inner_dim = false }:to_kwargs() --> { pad_inner_dim = false }
---@class accel.accelerator.AORecipeKwargs : accel.accelerator.KwargsHandler
M.AORecipeKwargs = recipe("AORecipeKwargs", {
  { "config", none }, { "module_filter_func", none }, { "pad_inner_dim", true, ENV .. "PAD_INNER_DIM", "bool" },
  { "enable_fsdp_float8_all_gather", true, ENV .. "ENABLE_FSDP_FLOAT8_ALL_GATHER", "bool" },
}, { module_filter_func = check.callable })

--- MS-AMP's levels: "O1", "O2".
--- example: accel.accelerator.MSAMPRecipeKwargs({}).opt_level --> "O2"
---@class accel.accelerator.MSAMPRecipeKwargs : accel.accelerator.KwargsHandler
M.MSAMPRecipeKwargs = recipe("MSAMPRecipeKwargs", { { "opt_level", "O2", ENV .. "OPT_LEVEL", "upper" } },
  { opt_level = word("O1", "O2") })

--- The recipe of a backend by its name: "AO", "TE" or "MSAMP", or the one of ACCELERATE_FP8_BACKEND. The recipe's fields go into
--- the same table.
--- example: accel.accelerator.FP8RecipeKwargs { backend = "te", margin = 2 }.margin --> 2
---@param given? table
M.FP8RecipeKwargs = function(given, ...)
  check.surplus("FP8RecipeKwargs", ...)
  local fields = {}
  for key, value in next, given or {} do fields[key] = value end
  local backend = fields.backend or environment.get(ENV .. "BACKEND") or "TE"
  fields.backend = nil
  local cls = ({ AO = M.AORecipeKwargs, TE = TE, MSAMP = M.MSAMPRecipeKwargs })[tostring(backend):upper()]
  if not cls then raise("FP8RecipeKwargs: backend must be AO, TE or MSAMP, got %s", check.shown(backend)) end
  return cls(fields)
end

return M
