--- peft.WeightLayer: any layer whose weight is changed by an adapter, or whose input or output is. The type's class in kinds/ describes
--- how. Merging, switching and deleting follow from the description. LoRA and IA3 have layers of their own (lora.lua, ia3.lua).
---
--- A class has `bases`, the kinds of layers that it goes to, and `_parameters(config, at)`: a list of { name, shape, init?, frozen?, dtype?
--- }, names being PEFT's, with a dot for a parameter of a module. `p` is the table of their values by these names, `at` the place of the
--- layer. Then it has one or more of these functions, of which x and y are rows, or images in convolutions:
---   _delta(p, at, layer)   what is added to the weight, in its shape
---   _update(p, at, x)      what is added to the output. Default: that of _delta. _delta follows from it in linear layers
---   _weight(p, at, w)      the weight instead of w
---   _input(p, at, x)       the layer's input instead of x. Linear in x
---   _output(p, at, y)      the layer's output instead of y. Linear in y. output_before_bias: the bias is added after it
---   _shared(config, bases) parameters that the model has once, { name, shape, init?, frozen? }, in `p` as well
---   _dropout(config)       the rate of dropout of the input that _delta and _update see
---   _skips(config, at)     whether this step leaves out what _delta and _update add
local accel = require "accel"
local check = require "accel.util.check"
local AdapterLayer = require "accel.peft.layer"
local Dropout = require("accel.nn.dropout").Dropout
local Module = require "accel.nn.module"
local ModuleDict = require "accel.nn.module_dict"
local Parameter = require "accel.nn.parameter"
local ParameterDict = require "accel.nn.parameter_dict"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- Where a layer is and what it looks like.
---@class accel.peft.Place
---@field full string its name in the model
---@field kind string "linear", "conv1d", "conv2d" or "conv3d"
---@field inputs integer
---@field outputs integer
---@field flat integer values of the weight for each output
---@field shape integer[] of the weight, [out, in] or [out, in / groups, kernel ...]
---@field kernel integer[]? of convolutions
---@field config table of the adapter
---@field training boolean whether the layer is in training now

--- Made by get_peft_model in the place of its base.
--- example: local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), accel.peft.LoHaConfig { target_modules = { "0" } })
---   return m.base_model.model[1].hada_w1_a.default.shape --> { 3, 8 }
---@class accel.peft.WeightLayer : accel.peft.AdapterLayer
---@field places table<string, accel.peft.Place> by adapter
local WeightLayer = AdapterLayer:extend("accel.peft.WeightLayer")

--- A parameter with a dot in its name has a module of its own, as in PEFT.
---@class accel.peft.Holder : accel.nn.Module
local Holder = Module:extend("accel.peft.Holder")

---@param base accel.nn.Module
function WeightLayer:init(base)
  self:take(base)
  self.places, self.shared = {}, {}
  self.adapter_dropout = ModuleDict()
end

--- The place of an adapter in this layer.
---@param config table
---@param full string the layer's name in the model
---@return accel.peft.Place
function WeightLayer:place(config, full)
  local base = self.base_layer
  local at = { full = full, kind = AdapterLayer.base_kind(base), inputs = self.in_features, outputs = self.out_features, config = config,
    flat = self.in_features, shape = { self.out_features, self.in_features }, training = false }
  if at.kind ~= "linear" then
    at.kernel, at.groups, at.shape = base.kernel_size, base.groups, base.weight.shape
    at.flat = at.inputs // base.groups
    for _, n in ipairs(at.kernel) do at.flat = at.flat * n end
  end
  return at
end

--- Makes one parameter.
local function made(spec, kind)
  local dtype = spec.dtype or kind.dtype
  local t = accel.zeros(spec.shape, { dtype = dtype, device = kind.device })
  if spec.init and kind.device ~= "meta" then
    local new = spec.init(t)
    if new then t:copy_(new) end
  end
  return Parameter(t, not spec.frozen)
end
WeightLayer._made = made

--- Adds an adapter, which changes nothing yet unless its configuration begins at random.
---@param name string
---@param config table
---@param full string the layer's name in the model
---@param shared table<string, accel.nn.ParameterDict> the model's parameters for this type
function WeightLayer:add(name, config, full, shared)
  local at, kind = self:place(config, full), self:kind()
  local _ <close> = accel.no_grad()
  for _, spec in ipairs(config:_parameters(at, self)) do
    local dict, field = spec[1]:match "^([^.]+)%.(.+)$"
    local p = made({ shape = spec[2], init = spec.init, frozen = spec.frozen, dtype = spec.dtype }, kind)
    if field then
      local holder = Holder()
      holder[field] = p
      self[dict] = self[dict] or ModuleDict()
      self[dict]:set(name, holder)
    else
      self[spec[1]] = self[spec[1]] or ParameterDict()
      self[spec[1]]:set(name, p)
    end
    at[#at + 1] = spec[1]
    at.frozen = at.frozen or {}
    at.frozen[spec[1]] = spec.frozen
  end
  local rate = config._dropout and config:_dropout() or 0
  if rate > 0 then
    local drop = Dropout(rate)
    drop.training = self.training
    self.adapter_dropout:set(name, drop)
  end
  self.places[name] = at
  for key, dict in next, shared or {} do self.shared[key] = dict end
  self.names[#self.names + 1] = name
  self.active = self.active or name
end

--- The parameters of an adapter by the names of the description, without those that the model has once.
---@param name string
---@return table<string, accel.Tensor>
function WeightLayer:own_values(name)
  local p = {}
  for _, key in ipairs(self.places[name]) do
    local dict, field = key:match "^([^.]+)%.(.+)$"
    p[key] = field and self[dict][name][field] or self[key][name]
  end
  return p
end

--- All parameters of an adapter by the names of the description.
---@param name string
---@return table<string, accel.Tensor>
function WeightLayer:values(name)
  local p = self:own_values(name)
  for key, dict in next, self.shared do p[key] = dict[name] end
  return p
end

--- The parameters of an adapter that learn.
---@param name string
---@return accel.Tensor[]
function WeightLayer:weights_of(name)
  local at, out = self.places[name], {}
  if not at then return out end
  local p = self:own_values(name)
  for _, key in ipairs(at) do
    if not (at.frozen and at.frozen[key]) then out[#out + 1] = p[key] end
  end
  return out
end

--- The names of an adapter's parameters below this layer, each with its name in files.
---@param name string
---@return table[]
function WeightLayer:saved(name)
  local out = {}
  for _, key in ipairs(self.places[name] or {}) do
    local dict, field = key:match "^([^.]+)(.*)$"
    out[#out + 1] = { dict .. "." .. name .. field, key }
  end
  for _, key in ipairs(self.places[name] and self.places[name].config.file_beside or {}) do out[#out + 1] = { false, key, self.shared[key][name] } end
  return out
end

--- Deletes an adapter, if this layer has it.
---@param name string
function WeightLayer:delete(name)
  if not self:forget(name) then return end
  for _, key in ipairs(self.places[name]) do self[key:match "^[^.]+"][name] = nil end
  self.adapter_dropout[name] = nil
  self.places[name] = nil
end

--- A weight [out, in], or of a convolution, and a bias as the adapter changes them.
local function changed(self, name, w, b)
  local at, p = self.places[name], self:values(name)
  local config = at.config
  at.training = false
  for key, t in next, p do p[key] = t:is_floating_point() and t:detach():to(w.dtype) or t end
  local function columns(fn) -- of a function of rows: the matrix of the products with it from the right
    return fn(p, at, accel.eye(at.inputs, { dtype = w.dtype, device = w.device }))
  end
  local function call(method) return function(...) return config[method](config, ...) end end
  if config._weight then w = config:_weight(p, at, w) end
  if config._input then
    if at.kind ~= "linear" then
      raise("'%s': %s turns the patches of a convolution's input, which overlap, so that no weight gives the same; leave it unmerged", at.full,
        config.peft_type)
    end
    w = w:matmul(columns(call "_input"):t())
  end
  if config._delta then w = w + config:_delta(p, at, self):to(w.dtype):reshape(w.shape)
  elseif config._update then w = w + columns(call "_update"):t() end
  if config._output then
    w = config:_output(p, at, w:t()):t()
    if b and not config.output_before_bias then b = config:_output(p, at, b:unsqueeze(1)):squeeze(1) end
  end
  return w, b
end

--- What an adapter adds to the weight, [out, in] or the shape of a convolution's.
---@param name? string default the active one
---@return accel.Tensor
function WeightLayer:get_delta_weight(name, ...)
  check.surplus("WeightLayer:get_delta_weight", ...)
  name = self:known(name or self.active)
  local _ <close> = accel.no_grad()
  local w = self:base_values()
  w = w:to(AdapterLayer.wide(w))
  return (changed(self, name, w)) - w
end

--- Merges the adapter into the base's weight.
---@param name? string default the active one
function WeightLayer:merge(name, ...)
  check.surplus("WeightLayer:merge", ...)
  name = self:known(name or self.active)
  self:merge_with(name, function(w, b) return changed(self, name, w, b) end)
end

--- The base's computation with another weight, [out, in] or a convolution's, without its bias.
---@param x accel.Tensor
---@param w accel.Tensor
---@return accel.Tensor
function WeightLayer:with_weight(x, w)
  local base = self.base_layer
  if self.places[self.active].kind == "linear" then return accel.linear(x, w) end
  local kind = class.of(base)
  return kind.forward(setmetatable({ weight = w }, { __index = function(_, key) if key ~= "bias" then return base[key] end end }), x)
end

--- Adds a bias to the last dimension of y, or to the channels of images.
local function biased(y, bias, at, sign)
  if not bias then return y end
  if at.kind ~= "linear" then
    local shape = {}
    for i = 1, y.ndim do shape[i] = i == y.ndim - #at.kernel and at.outputs or 1 end
    bias = bias:reshape(shape)
  end
  if sign < 0 then return y - bias end
  return y + bias
end

function WeightLayer:forward(x)
  local name = self.active
  if self.disabled or self.merged or not self:has(name) then return self.base_layer(x) end
  local at, p, bias = self.places[name], self:values(name), self.base_layer.bias
  local config, drop = at.config, self.adapter_dropout[name]
  at.training = self.training
  local dtype = at[1] and p[at[1]].dtype
  local function cast(t) return t.dtype ~= dtype and not accel.is_autocast_enabled() and t:to(dtype) or t end
  local y
  if config._weight then
    local w = self:base_values()
    y = self:with_weight(cast(x), config:_weight(p, at, w:to(dtype)))
    if bias then y = y + (bias.dtype ~= y.dtype and bias:to(y.dtype) or bias) end
    if y.dtype ~= x.dtype then y = y:to(x.dtype) end
  elseif config._input then
    local turned = config:_input(p, at, cast(x))
    y = self.base_layer(turned.dtype ~= x.dtype and turned:to(x.dtype) or turned)
  else
    y = self.base_layer(x)
  end
  if (config._update or config._delta) and not (config._skips and config:_skips(at)) then
    local h, more = cast(x), nil
    if drop then h = drop(h) end
    if config._update then more = config:_update(p, at, h)
    else more = self:with_weight(h, config:_delta(p, at, self):reshape(at.shape)) end
    y = y + (more.dtype ~= y.dtype and more:to(y.dtype) or more)
  end
  if config._output then
    local kept = y.dtype
    if config.output_before_bias then y = biased(y, bias, at, -1) end
    y = config:_output(p, at, cast(y))
    if y.dtype ~= kept then y = y:to(kept) end
    if config.output_before_bias then y = biased(y, bias, at, 1) end
  end
  return y
end

return WeightLayer
