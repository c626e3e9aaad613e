--- The common part of the encoder's and the decoder's layers: arguments and the feed-forward network.
local accel = require "accel"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

local functions = { relu = accel.relu, gelu = accel.gelu }

---@param who string
---@return fun(...): table
function M.layer_arguments(who)
  local parse = arguments(who, { "d_model" }, { "nhead" }, { "dim_feedforward", 2048 }, { "dropout", 0.1 },
    { "activation", "relu", any = true }, { "layer_norm_eps", 1e-5 }, { "batch_first", false },
    { "norm_first", false }, { "bias", true }, { "device" }, { "dtype", "f32" })
  return function(...)
    local o = parse(...)
    for _, name in ipairs { "d_model", "nhead", "dim_feedforward" } do
      o[name] = check.positive(who, name, o[name])
    end
    check.number(who, "dropout", o.dropout, 0, 1)
    return o
  end
end

--- The activation that a name, a function or a module stands for.
function M.activation(who, given)
  if type(given) == "function" or Module.is_module(given) then return given end
  local fn = functions[given]
  if not fn then
    raise("%s: activation must be 'relu', 'gelu', a function or a module, got %s", who, check.shown(given))
  end
  return fn
end

--- The feed-forward branch: linear1, activation, dropout, linear2, then `last`.
function M.run(self, x, last)
  return last(self.linear2(self.dropout(self.activation(self.linear1(x)))))
end

return M
