--- TorchDynamoPlugin: compilation of prepared models, by accel.compile.
local base = require "accel.accelerator.plugins.base"
local check = require "accel.util.check"
local options = require "accel.util.options"
local schema = require "accel.config.schema"

local M = {}

local ENV <const> = "ACCELERATE_DYNAMO_"

local function backend(who, name, value)
  return check.word(who, name, tostring(value):upper(), schema.by_key.dynamo_backend.allowed)
end

--- backend in upper or lower case, mode "default", "reduce-overhead" or "max-autotune". Missing values come from the environment
--- (ACCELERATE_DYNAMO_...), which a launch with dynamo_config sets.
--- example: accel.accelerator.TorchDynamoPlugin { backend = "inductor" }.backend --> "INDUCTOR"
---@class accel.accelerator.TorchDynamoPlugin : accel.accelerator.Plugin
M.TorchDynamoPlugin = base.extend("TorchDynamoPlugin", {
  { "backend", "NO", ENV .. "BACKEND", "upper" }, { "mode", "default", ENV .. "MODE", "text" },
  { "fullgraph", false, ENV .. "USE_FULLGRAPH", "bool" }, { "dynamic", options.none, ENV .. "USE_DYNAMIC", "bool" },
  { "options", options.none }, { "disable", false },
  { "use_regional_compilation", false, ENV .. "USE_REGIONAL_COMPILATION", "bool" },
}, {
  backend = backend,
  mode = function(who, name, value) return check.word(who, name, value, { "default", "reduce-overhead", "max-autotune" }) end,
})

return M
