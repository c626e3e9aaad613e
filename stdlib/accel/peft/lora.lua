--- peft.LoraLinear: a linear layer with low-rank updates.
local accel = require "accel"
local check = require "accel.util.check"
local AdapterLayer = require "accel.peft.layer"
local Dora = require "accel.peft.dora"
local Conv1D = require "accel.models.conv1d"
local Dropout = require("accel.nn.dropout").Dropout
local Linear = require "accel.nn.linear"
local ModuleDict = require "accel.nn.module_dict"
local class = require "accel.util.class"
local divided = require "accel.nn.divided"
local init = require "accel.nn.initialization"
local raise = require "accel.util.raise"
local targets = require "accel.peft.targets"

--- y = base(x) + B A dropout(x) * scaling. With use_dora, rows of the sum of both weights have trained magnitudes
--- (dora.lua). Made by get_peft_model in the place of its base.
--- example: local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), accel.peft.LoraConfig { target_modules = { "0" } })
---   return m.base_model.model[1].lora_A.default.weight.shape --> { 8, 4 }
---@class accel.peft.LoraLinear : accel.peft.AdapterLayer
---@field lora_A accel.nn.ModuleDict
---@field lora_B accel.nn.ModuleDict
---@field lora_magnitude_vector accel.nn.ModuleDict of adapters with use_dora
---@field scaling table<string, number>
local LoraLinear = AdapterLayer:extend("accel.peft.LoraLinear")

---@param base accel.nn.Module
function LoraLinear:init(base)
  self:take(base)
  self.lora_dropout = ModuleDict()
  self.lora_A = ModuleDict()
  self.lora_B = ModuleDict()
  self.lora_magnitude_vector = ModuleDict()
  self.scaling = {}
end

--- B and A, [out, r] and [r, in], that begin as a part of a weight, f32.
local parts = {}

--- OLoRA: with Q R = W, B the first r columns of Q and A the first r rows of R (Buyukakyuz, "OLoRA: Orthonormal Low-Rank Adaptation of
--- Large Language Models").
function parts.olora(w, r)
  local q, upper = w:qr()
  return q:narrow(2, 1, r), upper:narrow(1, 1, r)
end

--- PiSSA: with U S V = W, B = U sqrt(S / scaling) and A = sqrt(S / scaling) V of the r largest singular values (Meng and others, "PiSSA:
--- Principal Singular Values and Singular Vectors Adaptation of Large Language Models").
function parts.pissa(w, r, scaling)
  local u, s, v = w:svd()
  local root = (s:narrow(1, 1, r) / scaling):sqrt()
  return u:narrow(2, 1, r) * root, v:narrow(1, 1, r) * root:unsqueeze(2)
end

--- Begins A and B with a part of the base's weight, and takes B A * scaling off the weight. Loading repeats it, as in PEFT, since files
--- hold A and B alone.
local function begin_with(self, which, a, b, scaling)
  local base = self.base_layer
  if base.weight.quant_state then
    raise("init_lora_weights = '%s' changes the model's weights, which are quantised; quantise the result", which)
  end
  if divided.placements and divided.placements.of[base.weight] then
    raise("init_lora_weights = '%s' changes the model's weights, of which this rank has a part; add the adapter before prepare", which)
  end
  local _ <close> = accel.no_grad()
  local r, w = a.weight.shape[1], self:base_values():to "f32"
  if r > math.min(w.shape[1], w.shape[2]) then raise("init_lora_weights = '%s': r = %d is more than a side of the weight", which, r) end
  local left, right = parts[which](w, r, scaling)
  a.weight:detach():copy_(right)
  b.weight:detach():copy_(left)
  w = w - left:matmul(right) * scaling
  base.weight:detach():copy_(class.of(base) == Conv1D and w:t() or w)
end

--- A and B whose product is zero while both learn: rows of an orthogonal matrix that take turns, times random numbers.
local function orthogonal(a, b)
  local r, kind = a.weight.shape[1], { device = a.weight.device }
  local q = accel.randn(r, r, kind):qr():reshape(r // 2, 2, r)
  local _ <close> = accel.no_grad()
  a.weight:detach():copy_(q:select(2, 1):t():matmul(accel.randn(r // 2, a.in_features, kind)) * 0.1)
  b.weight:detach():copy_(accel.randn(b.out_features, r // 2, kind):matmul(q:select(2, 2)) * 0.1)
end

--- The rank of an adapter in the layer of that name and what its update counts.
---@param config accel.peft.LoraConfig
---@param full string
---@return integer r
---@return number scaling
function LoraLinear.sizes(config, full)
  local r = targets.by_pattern(full, config.rank_pattern, config.r)
  return r, targets.by_pattern(full, config.alpha_pattern, config.lora_alpha) / (config.use_rslora and math.sqrt(r) or r)
end

--- A and B of a new adapter.
---@param r integer
---@param config accel.peft.LoraConfig
---@param kind table dtype and device
function LoraLinear:factors(r, config, kind)
  return Linear(self.in_features, r, { bias = false, dtype = kind.dtype, device = kind.device }),
    Linear(r, self.out_features, { bias = config.lora_bias, dtype = kind.dtype, device = kind.device })
end

--- The shape of DoRA's magnitudes in files.
function LoraLinear:magnitude_shape() return { self.out_features } end

--- Adds an adapter: A as Linear begins, B zero, so that nothing changes yet.
---@param name string
---@param config accel.peft.LoraConfig
---@param full string the layer's name in the model
function LoraLinear:add(name, config, full)
  local r, scaling = LoraLinear.sizes(config, full)
  local kind = self:kind()
  local a, b = self:factors(r, config, kind)
  if kind.device ~= "meta" then
    if config.init_lora_weights == "gaussian" then init.normal_(a.weight, 0, 1 / r) end
    if config.init_lora_weights then
      init.zeros_(b.weight)
      if b.bias then init.zeros_(b.bias) end
    end
    if config.init_lora_weights == "orthogonal" then orthogonal(a, b)
    elseif parts[config.init_lora_weights] then begin_with(self, config.init_lora_weights, a, b, scaling) end
  end
  self.lora_A:set(name, a)
  self.lora_B:set(name, b)
  if config.lora_dropout > 0 then
    local drop = Dropout(config.lora_dropout)
    drop.training = self.training -- models that were read from files are not being trained
    self.lora_dropout:set(name, drop)
  end
  self.scaling[name] = scaling
  if config.use_dora then -- rows begin with the norms that they have
    local magnitudes = accel.empty(self:magnitude_shape(), kind)
    if kind.device ~= "meta" then magnitudes:copy_(Dora.norms(self:base_values(), self:delta(name)):reshape(magnitudes.shape)) end
    self.lora_magnitude_vector:set(name, Dora(magnitudes))
  end
  self.names[#self.names + 1] = name
  self.active = self.active or name
end

--- The adapter's parameters.
---@param name string
---@return accel.Tensor[]
function LoraLinear:weights_of(name)
  local out = {}
  for _, dict in ipairs { self.lora_A, self.lora_B, self.lora_magnitude_vector } do
    for _, p in ipairs(dict[name] and dict[name]:parameters() or {}) do out[#out + 1] = p end
  end
  return out
end

--- Deletes an adapter, if this layer has it.
---@param name string
function LoraLinear:delete(name)
  if not self:forget(name) then return end
  for _, dict in ipairs { self.lora_A, self.lora_B, self.lora_dropout, self.lora_magnitude_vector } do dict[name] = nil end
  self.scaling[name] = nil
end

--- The adapter's addition to the weight, [out, in].
---@param name? string default the active one
---@return accel.Tensor
function LoraLinear:get_delta_weight(name, ...)
  check.surplus("LoraLinear:get_delta_weight", ...)
  return self:delta(self:known(name or self.active))
end

--- B A * scaling, [out, in].
---@param name string name of the adapter
function LoraLinear:delta(name)
  local a, b = self.lora_A[name].weight:detach(), self.lora_B[name].weight:detach()
  local dtype = AdapterLayer.wide(b)
  return b:to(dtype):matmul(a:to(dtype)) * self.scaling[name]
end

--- Adds the adapter to the base's weight.
---@param name? string default the active one
function LoraLinear:merge(name, ...)
  check.surplus("LoraLinear:merge", ...)
  name = self:known(name or self.active)
  local delta, bias = self:get_delta_weight(name), self.lora_B[name].bias
  local dora = self.lora_magnitude_vector[name]
  self:merge_with(name, function(w, b)
    if dora then return (w + delta) * dora:factors(w, delta):detach():to "f32":unsqueeze(2), b end
    if bias and b then b = b + self:own_rows(bias:detach()):to(b.dtype) * self.scaling[name] end
    return w + self:own_rows(delta), b
  end)
end

function LoraLinear:forward(x)
  local y = self.base_layer(x)
  local name = self.active
  if self.disabled or self.merged or not self:has(name) then return y end
  local a, drop = self.lora_A[name], self.lora_dropout[name]
  local h = x.dtype ~= a.weight.dtype and not accel.is_autocast_enabled() and x:to(a.weight.dtype) or x
  local dropped = drop and drop.training
  if drop then h = drop(h) end
  local update = self.lora_B[name](a(h)) * self.scaling[name]
  local dora = self.lora_magnitude_vector[name]
  if dora then -- y + (m / norm - 1) W x + m / norm * update, x as the adapter's dropout leaves it
    local values = self:base_values()
    local factors, product = dora:factors(values, self:delta(name)), nil
    if dropped then product = accel.linear(h, values:to(h.dtype))
    elseif self.base_layer.bias then product = y - self.base_layer.bias
    else product = y end
    update = (factors - 1) * product + factors * update
  end
  return y + (update.dtype ~= y.dtype and update:to(y.dtype) or update)
end

return LoraLinear
