--- Optimizers and schedules by their names in a DeepSpeed configuration: DeepSpeed's names and defaults, implemented by
--- classes of accel.optim. Used by prepare.lua.
local listed = require("accel.util.options").listed
local nearest = require "accel.util.nearest"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"

local M = {}

--- Types of configurations and their classes in accel.optim.
local TYPES <const> = {
  adam = "Adam", adamw = "AdamW", lamb = "Lamb", lion = "Lion", adagrad = "Adagrad", sgd = "SGD", rmsprop = "RMSprop",
  adamax = "Adamax", nadam = "NAdam", radam = "RAdam", adadelta = "Adadelta", adafactor = "Adafactor", asgd = "ASGD", rprop = "Rprop",
}

local ABSENT <const> = {
  onebitadam = "AdamW; zero_quantized_gradients sends fewer bytes", zerooneadam = "AdamW; zero_quantized_gradients sends fewer bytes",
  onebitlamb = "Lamb; zero_quantized_gradients sends fewer bytes", muadam = "Adam, with separate rates in parameter groups",
  muadamw = "AdamW, with separate rates in parameter groups", musgd = "SGD, with separate rates in parameter groups",
  muon = "accel.optim.Muon, made in the script for the matrices and given to prepare",
}

--- Which implementation computes a rule: accel has one.
local WHICH <const> = { fused = true, foreach = true, capturable = true, legacy_fusion = true }

--- The options of an optimizer in a configuration, converted to accel's names. "optimizer.params".
local function options_of(word, given)
  local o, decoupled, plain = {}, word == "adamw", false
  for key, value in next, given or {} do
    if key == "max_grad_norm" then
      raise "DeepSpeed's configuration: optimizer.params.max_grad_norm is not an optimizer option; set gradient_clipping at the top level"
    elseif key == "bias_correction" then
      if not value then raise "DeepSpeed's configuration: optimizer.params.bias_correction = false is not in accel" end
    elseif key == "eps_inside_sqrt" then
      if value then raise "DeepSpeed's configuration: accel does not support optimizer.params.eps_inside_sqrt; it adds eps to the root" end
    elseif key == "torch_adam" then plain = value
    elseif key == "adam_w_mode" then decoupled = decoupled or value
    elseif WHICH[key] then
      if value then
        no_effect.once("DeepSpeed's configuration", "optimizer.params." .. key, "because each rule has one implementation; leave it out")
      end
    else o[key] = value end
  end
  if word == "adam" and (given == nil or given.adam_w_mode == nil) then decoupled = true end -- DeepSpeed's default
  local adam = word == "adam" or word == "adamw"
  if o.weight_decay == nil and (adam and not (plain and decoupled) or word == "lion") then o.weight_decay = 0 end
  return o, adam and (decoupled and "AdamW" or "Adam") or TYPES[word]
end

--- The optimizer of a configuration. "Adam" is AdamW unless adam_w_mode = false. The default weight decay of both is 0.
---@param config table {type = "AdamW", params = {...}}
---@param params accel.ParamList
---@return accel.optim.Optimizer
function M.optimizer(config, params)
  local kind = config.type
  if type(kind) ~= "string" then raise "DeepSpeed's configuration: optimizer.type must name an optimizer, such as \"AdamW\"" end
  local word = kind:lower():gsub("[_%-]", "")
  if ABSENT[word] then raise("DeepSpeed's configuration: accel does not support optimizer.type '%s'; use %s", kind, ABSENT[word]) end
  if not TYPES[word] then
    local near = nearest(word, TYPES)
    raise("DeepSpeed's configuration: optimizer.type '%s' is unknown%s", kind,
      near and ("; did you mean '%s'?"):format(TYPES[near]) or listed(TYPES))
  end
  local o, name = options_of(word, config.params)
  return require("accel.optim")[name](params, o)
end

local SCHEDULES <const> = { WarmupLR = true, WarmupDecayLR = true, WarmupCosineLR = true, OneCycle = true, LRRangeTest = true }

--- The schedule of a configuration.
---@param config table {type = "WarmupLR", params = {...}}
---@param optimizer accel.optim.Optimizer
---@return accel.optim.LRScheduler
function M.scheduler(config, optimizer)
  local kind = config.type
  if not SCHEDULES[kind] then
    local near = nearest(tostring(kind), SCHEDULES)
    raise("DeepSpeed's configuration: scheduler.type '%s' is unknown%s", tostring(kind),
      near and ("; did you mean '%s'?"):format(near) or listed(SCHEDULES))
  end
  local params = {}
  for key, value in next, config.params or {} do params[key] = value end
  return require("accel.deepspeed.lr_schedules")[kind](optimizer, params)
end

return M
