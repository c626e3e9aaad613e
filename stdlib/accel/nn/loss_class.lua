--- The class of a loss with options, for loss.lua and margin_loss.lua. Weights are buffers, so that they move and are saved with the model.
local check = require "accel.util.check"
local Module = require "accel.nn.module"
local options = require "accel.util.options"
local tensors = require "accel.util.tensors"
local raise = require "accel.util.raise"

local reductions = { "mean", "sum", "none" }
local numbers = { label_smoothing = true, beta = true, delta = true, margin = true, p = true, eps = true }

--- A class whose options have these defaults. options.none declares a tensor. op gets the inputs, then all options.
return function(name, defaults, words)
  local Loss = Module:extend("accel.nn." .. name)
  defaults.reduction = "mean"
  words = words or reductions
  ---@param opts? table
  function Loss:init(opts)
    local o = options(name, opts, defaults)
    check.word(name, "reduction", o.reduction, words)
    self.options = {}
    for key, value in next, o do
      if numbers[key] then check.number(name, key, value) end
      if defaults[key] ~= options.none then self.options[key] = value end
    end
    for key, default in next, defaults do
      if default == options.none then
        if o[key] ~= nil and not tensors.is_tensor(o[key]) then raise("%s: %s must be a tensor, got %s", name, key, type(o[key])) end
        self:register_buffer(key, o[key])
        self.tensors = self.tensors or {}
        self.tensors[#self.tensors + 1] = key
      end
    end
  end

  --- The options of a call.
  function Loss:arguments()
    if not self.tensors then return self.options end
    local o = {}
    for key, value in next, self.options do o[key] = value end
    for _, key in ipairs(self.tensors) do o[key] = self[key] end
    return o
  end

  function Loss:extra_repr()
    local reduction = self.options.reduction
    return reduction ~= "mean" and ("reduction='%s'"):format(reduction) or ""
  end
  return Loss
end
