--- target_parameters of LoRA: updates of the stacked weights of experts, gate_up_proj and down_proj, whose factors are stacked as well.
--- accel's experts are separate modules, or functions of one module that holds the stacks (models/decoder/experts.lua). Used by inject.lua.
local accel = require "accel"
local AdapterLayer = require "accel.peft.layer"
local LoraLinear = require "accel.peft.lora"
local Linear = require "accel.nn.linear"
local Module = require "accel.nn.module"
local ModuleDict = require "accel.nn.module_dict"
local class = require "accel.util.class"
local init = require "accel.nn.initialization"
local names = require "accel.peft.names"
local raise = require "accel.util.raise"
local targets = require "accel.peft.targets"

local M = {}

--- The factors of one stack: A [experts * r, in], B [out, r * experts], as files have them.
---@class accel.peft.StackedLora : accel.nn.Module
local Stack = Module:extend("accel.peft.StackedLora")

function Stack:init(n)
  self.experts, self.scaling = n, {}
  self.lora_A = ModuleDict()
  self.lora_B = ModuleDict()
end

--- The factors of expert e, from 1: [r, in] and [out, r].
function Stack:of(name, e)
  local a, b = self.lora_A[name].weight, self.lora_B[name].weight
  local r = a.shape[1] // self.experts
  return a:narrow(1, (e - 1) * r + 1, r), b:reshape(b.shape[1], r, self.experts):select(3, e)
end

--- The rows of an expert's layer that are a part of a stack's rows.
---@class accel.peft.ExpertLinear : accel.peft.AdapterLayer
local ExpertLinear = AdapterLayer:extend("accel.peft.ExpertLinear")

--- stack is in a table, since it belongs to the module above.
function ExpertLinear:init(base, stack, e, first)
  self:take(base)
  self.at = { stack, e, first }
end

function ExpertLinear:add(name)
  self.names[#self.names + 1] = name
  self.active = self.active or name
end

function ExpertLinear:weights_of() return {} end -- luacheck: no self
function ExpertLinear:saved() return {} end -- luacheck: no self
function ExpertLinear:delete(name) self:forget(name) end

local function factors(self, name)
  local stack, e, first = table.unpack(self.at)
  local a, b = stack:of(name, e)
  return a, b:narrow(1, first, self.out_features), stack.scaling[name]
end

function ExpertLinear:merge(name)
  local a, b, scaling = factors(self, self:known(name or self.active))
  self:merge_with(name, function(w, bias) return w + b:detach():to(w.dtype):matmul(a:detach():to(w.dtype)) * scaling, bias end)
end

function ExpertLinear:forward(x)
  local y, name = self.base_layer(x), self.active
  if self.disabled or self.merged or not self:has(name) then return y end
  local a, b, scaling = factors(self, name)
  local h = x.dtype ~= a.dtype and not accel.is_autocast_enabled() and x:to(a.dtype) or x
  local update = accel.linear(accel.linear(h, a), b) * scaling
  return y + (update.dtype ~= y.dtype and update:to(y.dtype) or update)
end

--- The module that holds the stacks of a mixture and stands for them among the model's layers with adapters.
---@class accel.peft.ExpertStacks : accel.peft.AdapterLayer
local Stacks = AdapterLayer:extend("accel.peft.ExpertStacks")

function Stacks:init()
  self.names, self.disabled, self.base_layer = {}, false, Module()
end

Stacks.own_module = true -- it replaces no module of the model

function Stacks:weights_of(name)
  local out = {}
  for _, key in ipairs { "gate_up_proj", "down_proj" } do
    local stack = self[key]
    if stack and stack.lora_A[name] then out[#out + 1], out[#out + 2] = stack.lora_A[name].weight, stack.lora_B[name].weight end
  end
  return out
end

--- In files the first stack is below base_layer if there are two. up: the names are those of the module with the experts.
function Stacks:saved(name)
  local out, under = {}, ""
  for _, key in ipairs { "down_proj", "gate_up_proj" } do
    local stack = self[key]
    if stack and stack.lora_A[name] then
      for _, factor in ipairs { "lora_A", "lora_B" } do
        out[#out + 1] = { ("%s.%s.%s.weight"):format(key, factor, name), ("%s%s.weight"):format(under, factor) }
      end
      under = "base_layer."
    end
  end
  out.up = "experts"
  return out
end

function Stacks:delete(name)
  self:forget(name)
  for _, key in ipairs { "gate_up_proj", "down_proj" } do
    local stack = self[key]
    if stack then stack.lora_A[name], stack.lora_B[name], stack.scaling[name] = nil, nil, nil end
  end
end

function Stacks:merge() end -- the experts' layers do
function Stacks:unmerge() end

--- The layers of an expert by the parameter that Transformers stacks them in.
local LAYERS <const> = { gate_up_proj = { { "w1", "w3" }, { "gate_proj", "up_proj" } }, down_proj = { { "w2" }, { "down_proj" } } }

local function fields_of(expert, key)
  for _, list in ipairs(LAYERS[key]) do
    if expert[list[1]] then return list end
  end
end

--- Adds the factors of one stack to the experts of a block.
local function add_stack(block, stacks, key, name, config, full)
  local experts = block.experts
  local fields = experts[1] and fields_of(experts[1], key)
  if not fields then
    raise("get_peft_model: target_parameters: the experts of '%s' are one parameter of their own form, which accel's adapters do not support; "
      .. "leave '%s' out", full, key)
  end
  local bases, rows = {}, 0
  for i, field in ipairs(fields) do
    local layer = experts[1][field]
    bases[i] = class.isinstance(layer, AdapterLayer) and layer.base_layer or layer
    rows = rows + bases[i].out_features
  end
  local r, scaling = LoraLinear.sizes(config, full .. "." .. key)
  local stack = stacks[key]
  if not stack then
    stack = Stack(#experts)
    stacks[key] = stack
  end
  local w = bases[1].weight
  local kind = { bias = false, dtype = w.quant_state and "f32" or w.dtype, device = w.device }
  local a, b = Linear(bases[1].in_features, r * #experts, kind), Linear(r * #experts, rows, kind)
  if config.init_lora_weights and kind.device ~= "meta" then
    if config.init_lora_weights == "gaussian" then init.normal_(a.weight, 0, 1 / r) end
    init.zeros_(b.weight)
  end
  stack.lora_A:set(name, a)
  stack.lora_B:set(name, b)
  stack.scaling[name] = scaling
  for e, expert in ipairs(experts) do
    local first = 1
    for _, field in ipairs(fields) do
      local layer = expert[field]
      if not class.isinstance(layer, ExpertLinear) then
        if class.isinstance(layer, AdapterLayer) then raise("get_peft_model: '%s' has an adapter already; leave it out of target_modules", field) end
        local training = layer.training
        layer = ExpertLinear(layer, stack, e, first)
        layer.training = training
        expert[field] = layer
      end
      layer:add(name)
      first = first + layer.out_features
    end
  end
end

--- Adds the adapter to the parameters that config.target_parameters names.
---@param model accel.nn.Module
---@param name string the adapter
---@param config accel.peft.LoraConfig
function M.add(model, name, config)
  if config.lora_dropout > 0 or config.use_dora or config.lora_bias then
    raise "get_peft_model: target_parameters go without lora_dropout, use_dora and lora_bias; leave these out"
  end
  if type(config.init_lora_weights) == "string" and config.init_lora_weights ~= "gaussian" then
    raise("get_peft_model: target_parameters begin with init_lora_weights true, false or 'gaussian', not '%s'", config.init_lora_weights)
  end
  local found = {}
  targets.visit(model, function(at)
    local block = at.module
    local experts = rawget(block, "experts")
    if not Module.is_module(experts) then return end
    local full = at.name .. ".experts"
    local today = names.today(model, full) or full
    for _, key in ipairs { "gate_up_proj", "down_proj" } do
      for _, wanted in ipairs(config.target_parameters) do
        if targets.matches(full .. "." .. key, { wanted }) or targets.matches(today .. "." .. key, { wanted }) then
          if not targets.matches(full .. "." .. key, { wanted }) then config._today = true end
          local stacks = rawget(block, "expert_adapters")
          if not stacks then
            stacks = Stacks()
            block.expert_adapters = stacks
          end
          if not stacks:has(name) then
            stacks.names[#stacks.names + 1] = name
            stacks.active = stacks.active or name
          end
          add_stack(block, stacks, key, name, config, today)
          found[wanted] = true
        end
      end
    end
  end)
  for _, wanted in ipairs(config.target_parameters) do
    if not found[wanted] then
      raise("get_peft_model: target_parameters: no experts of the model have a parameter called '%s'; accel's have gate_up_proj and down_proj",
        wanted)
    end
  end
end

return M
