--- Activation functions by the names that config.json uses (hidden_act and the like).
local accel = require "accel"

local M = {}

local function gelu_tanh(x) return accel.gelu(x, { approximate = "tanh" }) end
local function gelu(x) return accel.gelu(x) end

local known = {
  gelu = gelu, gelu_python = gelu,
  gelu_new = gelu_tanh, gelu_fast = gelu_tanh, gelu_accurate = gelu_tanh, gelu_pytorch_tanh = gelu_tanh,
  gelu_python_tanh = gelu_tanh,
  gelu_10 = function(x) return accel.clamp(accel.gelu(x), -10, 10) end,
  quick_gelu = function(x) return x * accel.sigmoid(x * 1.702) end,
  relu = function(x) return accel.relu(x) end,
  relu2 = function(x) return accel.square(accel.relu(x)) end,
  relu6 = function(x) return accel.clamp(x, 0, 6) end,
  leaky_relu = function(x) return accel.leaky_relu(x) end,
  silu = function(x) return accel.silu(x) end, swish = function(x) return accel.silu(x) end,
  mish = function(x) return accel.mish(x) end, hardswish = function(x) return accel.hardswish(x) end,
  sigmoid = function(x) return accel.sigmoid(x) end, tanh = function(x) return accel.tanh(x) end,
  linear = function(x) return x end,
}

--- The function with this name, or nil.
---@param name string
---@return (fun(x: accel.Tensor): accel.Tensor)?
function M.find(name) return known[name] end

local fused = { [gelu] = "gelu", [gelu_tanh] = "gelu_tanh", [known.relu] = "relu", [known.silu] = "silu", [known.swish] = "silu" }

--- The name that accel.mlp has for it, or nil.
---@param act fun(x: accel.Tensor): accel.Tensor
---@return string?
function M.fused(act) return fused[act] end

--- The gated product of a feed-forward layer, act(gate) * up.
---@param name string a known activation
---@return fun(gate: accel.Tensor, up: accel.Tensor): accel.Tensor
function M.gate(name)
  local act = known[name]
  if act == known.silu or name == "swish" then return function(gate, up) return accel.swiglu(gate, up) end end
  return function(gate, up) return act(gate) * up end
end

--- All names, in order.
---@return string[]
function M.names()
  local out = {}
  for name in next, known do out[#out + 1] = name end
  table.sort(out)
  return out
end

return M
