--- peft.AdaptionLayer: an attention layer whose queries also see a learned prompt, through a gate that begins closed.
local accel = require "accel"
local AdapterLayer = require "accel.peft.layer"
local Parameter = require "accel.nn.parameter"
local ParameterDict = require "accel.nn.parameter_dict"
local raise = require "accel.util.raise"

--- y = attention(x) + O(gate * softmax(q k^T / sqrt(d)) v), k and v of the prompt by the layer's own projections, q with its rotary
--- positions. Made by get_peft_model in the place of its base.
---@class accel.peft.AdaptionLayer : accel.peft.AdapterLayer
---@field adaption_prompt accel.nn.ParameterDict [1, adapter_len, hidden]
---@field adaption_gate accel.nn.ParameterDict [1]
local AdaptionLayer = AdapterLayer:extend("accel.peft.AdaptionLayer")

---@param base accel.nn.Module
function AdaptionLayer:init(base)
  self:take(base)
  self.adaption_prompt = ParameterDict()
  self.adaption_gate = ParameterDict()
end

--- The projections of an attention layer: q, k, v and o, or one of all three and o. nil for other modules.
---@param module accel.nn.Module
---@return table?
function AdaptionLayer.projections(module)
  if not module.heads or not module.head_dim then return nil end
  local n = module.names or { q = "q_proj", k = "k_proj", v = "v_proj", o = "o_proj" }
  if n.q and module[n.q] and module[n.k] and module[n.v] and module[n.o] then
    return { q = module[n.q], k = module[n.k], v = module[n.v], o = module[n.o] }
  elseif module.c_attn and module.c_proj then
    return { all = module.c_attn, o = module.c_proj }
  end
end

--- Adds an adapter, whose gate is closed.
---@param name string
---@param config accel.peft.AdaptionPromptConfig
function AdaptionLayer:add(name, config)
  local f = AdaptionLayer.projections(self.base_layer)
  local w = (f.q or f.all).weight
  local kind = { dtype = w.quant_state and "f32" or w.dtype, device = w.device }
  self.adaption_prompt:set(name, Parameter(accel.randn({ 1, config.adapter_len, (f.q or f.all).in_features or f.all.weight.shape[1] }, kind)))
  self.adaption_gate:set(name, Parameter(accel.zeros({ 1 }, kind)))
  self.names[#self.names + 1] = name
  self.active = self.active or name
end

--- The adapter's parameters.
---@param name string
---@return accel.Tensor[]
function AdaptionLayer:weights_of(name) return { self.adaption_prompt[name], self.adaption_gate[name] } end

--- Names below this layer and names in files.
---@param name string
---@return table[]
function AdaptionLayer:saved(name)
  if not self:has(name) then return {} end
  return { { "adaption_gate." .. name, "adaption_gate" }, { "adaption_prompt." .. name, "adaption_prompt" } }
end

--- Deletes an adapter, if this layer has it.
---@param name string
function AdaptionLayer:delete(name)
  if self:forget(name) then self.adaption_prompt[name], self.adaption_gate[name] = nil, nil end
end

function AdaptionLayer:merge() -- luacheck: no self
  raise "merge_adapter: ADAPTION_PROMPT adds to attention what no weight can repeat; leave it unmerged"
end

--- Queries of x, and keys and values of the prompt, [B, heads, T, head_dim].
local function parts(base, f, x, prompt, ctx)
  local D, B = base.head_dim, x.shape[1]
  local function split(t) return t:reshape(t.shape[1], t.shape[2], -1, D):transpose(2, 3) end
  if f.all then
    local q = split(f.all(x):chunk(3, 3)[1])
    local kv = f.all(prompt):chunk(3, 3)
    return q, split(kv[2]), split(kv[3])
  end
  local q = split(f.q(x))
  if base.kind then -- of decoder/attention.lua
    local turn = base.kind.rope and ctx:turn(base.kind.rope)
    if turn and turn.dim == D then q = accel.rope(q, turn.options)
    elseif turn then raise "ADAPTION_PROMPT supports rotary positions of whole heads only" end
  elseif ctx.turn then
    q = accel.rope(q, ctx.turn)
  end
  local k, v = split(f.k(prompt)), split(f.v(prompt))
  local copies = q.shape[2] // k.shape[2]
  if copies > 1 then k, v = k:repeat_interleave(copies, 2), v:repeat_interleave(copies, 2) end
  return q, k, v, B
end

function AdaptionLayer:forward(x, ctx, layer)
  local base, name = self.base_layer, self.active
  local y = base(x, ctx, layer)
  if self.disabled or not self:has(name) then return y end
  local f, prompt, gate = AdaptionLayer.projections(base), self.adaption_prompt[name], self.adaption_gate[name]
  local q, k, v = parts(base, f, x, prompt:to(x.dtype), ctx)
  local scores = accel.matmul(q, k:transpose(3, 4):to(q.dtype)) * (1 / math.sqrt(base.head_dim))
  local wide = scores.dtype == "f64" and "f64" or "f32"
  local weights = gate * scores:to(wide):softmax(4):to(q.dtype)
  local added = accel.matmul(weights, v:to(q.dtype)):transpose(2, 3):reshape(x.shape[1], x.shape[2], -1)
  return y + f.o(added):to(y.dtype)
end

return AdaptionLayer
