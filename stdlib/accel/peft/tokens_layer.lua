--- peft.TokensLayer: an embedding, or a head with the same weight, of which some rows learn.
local accel = require "accel"
local check = require "accel.util.check"
local AdapterLayer = require "accel.peft.layer"
local Parameter = require "accel.nn.parameter"
local ParameterDict = require "accel.nn.parameter_dict"
local raise = require "accel.util.raise"

--- Rows of the base's weight are replaced by those of trainable_tokens_delta. Made by get_peft_model in the place of its base, and for tied
--- layers with the same parameter.
--- example: local c = accel.peft.TrainableTokensConfig { token_indices = { 1, 4 }, target_modules = { "0" } }
---   local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Embedding(5, 3)), c)
---   return m.base_model.model[1].trainable_tokens_delta.default.shape --> { 2, 3 }
---@class accel.peft.TokensLayer : accel.peft.AdapterLayer
---@field trainable_tokens_delta accel.nn.ParameterDict
---@field token_indices table<string, integer[]>
local TokensLayer = AdapterLayer:extend("accel.peft.TokensLayer")

---@param base accel.nn.Module
function TokensLayer:init(base)
  self:take(base)
  self.kind_of_base = AdapterLayer.base_kind(base)
  self.trainable_tokens_delta = ParameterDict()
  self.token_indices, self.prefix, self.follows = {}, {}, {}
end

--- Adds an adapter, whose rows begin as the base's.
---@param name string
---@param indices integer[]
---@param opts {init_weights: boolean, prefix: string, of: accel.peft.TokensLayer?} prefix: of the name in files. of: the layer that it is tied to
function TokensLayer:add(name, indices, opts)
  if opts.of then
    self.trainable_tokens_delta:set(name, opts.of.trainable_tokens_delta[name])
  else
    local kind, rows = self:kind(), self.kind_of_base == "embedding" and self.in_features or self.out_features
    local width = self.kind_of_base == "embedding" and self.out_features or self.in_features
    for _, i in ipairs(indices) do
      if math.type(i) ~= "integer" or i < 0 or i >= rows then
        raise("get_peft_model: token index %s is not from 0 to %d", check.shown(i), rows - 1)
      end
    end
    local _ <close> = accel.no_grad()
    local values = accel.randn({ #indices, width }, kind)
    if opts.init_weights and kind.device ~= "meta" then
      local w = self:base_values()
      if self.kind_of_base == "embedding" then w = w:t() end
      values:copy_(w:index_select(1, accel.tensor(indices, { dtype = "i64", device = kind.device })))
    end
    self.trainable_tokens_delta:set(name, Parameter(values))
  end
  self.token_indices[name], self.prefix[name], self.follows[name] = { table.unpack(indices) }, opts.prefix, opts.of ~= nil
  self.names[#self.names + 1] = name
  self.active = self.active or name
end

--- The adapter's parameters.
---@param name string
---@return accel.Tensor[]
function TokensLayer:weights_of(name) return { self.trainable_tokens_delta[name] } end

--- Names below this layer and names in files.
---@param name string
---@return table[]
function TokensLayer:saved(name)
  if not self:has(name) or self.follows[name] and self.prefix[name] ~= "" then return {} end
  return { { "trainable_tokens_delta." .. name, self.prefix[name] .. "trainable_tokens_delta" } }
end

--- Deletes an adapter, if this layer has it.
---@param name string
function TokensLayer:delete(name)
  if not self:forget(name) then return end
  for _, dict in ipairs { self.trainable_tokens_delta, self.token_indices, self.prefix, self.follows } do dict[name] = nil end
end

local function index_of(self, name, device) return accel.tensor(self.token_indices[name], { dtype = "i64", device = device }) end

--- Puts the rows into the base's weight.
---@param name? string default the active one
function TokensLayer:merge(name, ...)
  check.surplus("TokensLayer:merge", ...)
  name = self:known(name or self.active)
  local rows, embedding = self.trainable_tokens_delta[name]:detach(), self.kind_of_base == "embedding"
  self:merge_with(name, function(w, b)
    local values = rows:to(w.dtype)
    return w:index_copy(embedding and 2 or 1, index_of(self, name, w.device), embedding and values:t() or values), b
  end)
end

function TokensLayer:forward(x)
  local y, name = self.base_layer(x), self.active
  if self.disabled or self.merged or not self:has(name) then return y end
  local rows = self.trainable_tokens_delta[name]
  local index = index_of(self, name, y.device)
  if self.kind_of_base == "embedding" then
    local n = index:numel() -- the row of each id, n where it has none
    local at = accel.full({ self.in_features }, n, { dtype = "i64", device = y.device }):index_copy(1, index, accel.arange(n, { device = y.device }))
    local which = at:index_select(1, x:reshape(-1)):reshape(x.shape)
    local own = accel.embedding(which:remainder(n), rows)
    return accel.where(which:lt(n):unsqueeze(-1), own:to(y.dtype), y)
  end
  local own = accel.linear(x.dtype ~= rows.dtype and not accel.is_autocast_enabled() and x:to(rows.dtype) or x, rows)
  if self.base_layer.bias then own = own + self.base_layer.bias:index_select(1, index) end
  return y:index_copy(y.ndim, index, own:to(y.dtype))
end

return TokensLayer
