-- How the reference's PyTorch calls are spelled here: op as in manifest.json -> function(args, kwargs, case, inputs) returning outputs.
-- Dims in the manifest are 0-based; these convert them. `needs` names the accel function without which a case is skipped.
-- More of them, by topic, in ops_adapters_<topic>.lua: each returns a function of (def, dim, dims).
local accel = require "accel"

local A, needs = {}, {}

local function dim(d) return d and (d >= 0 and d + 1 or d) end
local function dims(d)
  if type(d) ~= "table" then return dim(d) end
  local r = {}
  for i, v in ipairs(d) do r[i] = dim(v) end
  return r
end

local function def(op, name, fn)
  A[op], needs[op] = fn, name
end

for _, name in ipairs { "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "abs", "neg", "sign", "square", "reciprocal", "sin", "cos",
  "tanh", "sigmoid", "erf", "floor", "ceil", "round", "relu" } do
  def("torch." .. name, name, function(a) return accel[name](a[1]) end)
end
def("F.silu", "silu", function(a) return a[1]:silu() end)
def("F.gelu", "gelu", function(a, k) return a[1]:gelu { approximate = k.approximate or "none" } end)
for _, name in ipairs { "sub", "mul", "div", "maximum", "minimum", "atan2", "eq", "ne", "lt", "le", "gt", "ge" } do
  def("torch." .. name, name, function(a) return accel[name](a[1], a[2]) end)
end
def("torch.add", "add", function(a, k) return accel.add(a[1], a[2], { alpha = k.alpha or 1 }) end)
def("torch.pow", "pow", function(a) return accel.pow(a[1], a[2]) end)
def("torch.fmod", "fmod", function(a) return accel.fmod(a[1], a[2]) end)
def("torch.remainder", "remainder", function(a) return accel.remainder(a[1], a[2]) end)
def("torch.where", "where", function(a) return accel.where(a[1], a[2], a[3]) end)
def("torch.Tensor.masked_fill", "masked_fill", function(a) return a[1]:masked_fill(a[2], a[3]) end)
def("torch.clamp", "clamp", function(a, k) return a[1]:clamp { min = k.min, max = k.max } end)

for _, name in ipairs { "sum", "mean", "amax", "amin" } do
  def("torch." .. name, name, function(a, k) return accel[name](a[1], { dim = dims(k.dim), keepdim = k.keepdim or false }) end)
end
for _, name in ipairs { "max", "min" } do
  def("torch." .. name, name, function(a, k)
    if k.dim == nil then return accel[name](a[1]) end
    return accel[name](a[1], { dim = dim(k.dim), keepdim = k.keepdim or false })
  end)
end
for _, name in ipairs { "argmax", "argmin" } do
  def("torch." .. name, name, function(a, k) return accel[name](a[1], { dim = dim(k.dim), keepdim = k.keepdim or false }) end)
end
for _, name in ipairs { "softmax", "log_softmax" } do
  def("F." .. name, name, function(a, k) return accel[name](a[1], dim(k.dim)) end)
end

def("torch.matmul", "matmul", function(a) return a[1]:matmul(a[2]) end)
def("matmul(x.t(), y)", "matmul", function(a) return a[1]:transpose(1, 2):matmul(a[2]) end)
def("F.linear", "linear", function(a) return accel.linear(a[1], a[2], a[3]) end)
def("torch.linalg.multi_dot", "matmul", function(a) return a[1]:matmul(a[2]):matmul(a[3]) end)
def("torch.addmm", "addmm", function(a, k) return accel.addmm(a[1], a[2], a[3], { beta = k.beta, alpha = k.alpha }) end)

def("torch.cat", "cat", function(a, _, _, inputs) return accel.cat(inputs, 2) end)
def("torch.stack", "stack", function(a, _, _, inputs) return accel.stack(inputs, 2) end)
def("torch.split", "split", function(a, k) return accel.split(a[1], a[2], dim(k.dim)) end)
def("torch.chunk", "chunk", function(a, k) return accel.chunk(a[1], a[2], dim(k.dim)) end)
def("permute(2,0,1).reshape(-1,a)", "permute", function(a)
  return a[1]:permute(3, 1, 2):reshape(-1, a[1].shape[2])
end)
def("torch.transpose", "transpose", function(a) return a[1]:transpose(dim(a[2]), dim(a[3])) end)
def("expand then mul", "expand", function(a) return a[1]:expand(a[2].shape):mul(a[2]) end)
def("torch.squeeze", "squeeze", function(a) return a[1]:squeeze(dim(a[2])) end)
def("torch.unsqueeze", "unsqueeze", function(a) return a[1]:unsqueeze(dim(a[2])) end)
def("torch.narrow", "narrow", function(a) return a[1]:narrow(dim(a[2]), a[3] + 1, a[4]) end)
def("torch.index_select", "index_select", function(a) return a[1]:index_select(dim(a[2]), a[3]) end)
def("torch.gather", "gather", function(a) return a[1]:gather(dim(a[2]), a[3]) end)
for _, name in ipairs { "tril", "triu" } do
  def("torch." .. name, name, function(a, k) return accel[name](a[1], a[2] or k.diagonal or 0) end)
end
def("torch.scatter_add", "scatter_add", function(a) return a[1]:scatter_add(dim(a[2]), a[3], a[4]) end)
def("torch.index_add", "index_add", function(a, k) return a[1]:index_add(dim(a[2]), a[3], a[4], { alpha = k.alpha or 1 }) end)
def("F.embedding", "embedding", function(a, k) return accel.embedding(a[1], a[2], { padding_idx = k.padding_idx }) end)

def("F.layer_norm", "layer_norm", function(a, k) return accel.layer_norm(a[1], a[2], a[3], a[4], { eps = k.eps or 1e-5 }) end)
def("F.rms_norm", "rms_norm", function(a, k) return accel.rms_norm(a[1], a[2], a[3], { eps = k.eps }) end)

def("F.scaled_dot_product_attention", "scaled_dot_product_attention", function(a, k, case)
  return accel.scaled_dot_product_attention(a[1], a[2], a[3], {
    attn_mask = k.attn_mask, is_causal = k.is_causal or case.name == "gqa", scale = k.scale, enable_gqa = case.name == "gqa",
  })
end)
for _, name in ipairs { "rope(x, theta, interleaved): Llama/GPT-NeoX half rotation", "rope(x, theta, interleaved): GPT-J pairs" } do
  def(name, "rope", function(a) return a[1]:rope { theta = a[2], interleaved = a[3] } end)
end
def("silu(x) * y", "silu", function(a) return a[1]:silu() * a[2] end)

def("F.cross_entropy", "cross_entropy", function(a, k)
  return accel.cross_entropy(a[1], a[2], {
    weight = k.weight, ignore_index = k.ignore_index, reduction = k.reduction, label_smoothing = k.label_smoothing,
  })
end)
def("F.mse_loss", "nn", function(a) return accel.nn.functional.mse_loss(a[1], a[2]) end)

for _, topic in ipairs { "map", "reduce", "matmul", "norm", "attention", "conv", "sort", "pick", "loss" } do
  local name = "ops_adapters_" .. topic
  if package.searchpath(name, package.path) then require(name)(def, dim, dims) end
end

A.needs = needs
return A
