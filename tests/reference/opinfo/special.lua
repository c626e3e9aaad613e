-- Ops of PyTorch's test database that accel spells otherwise; false: it has no counterpart. Functions of (args, kwargs).
local accel = require "accel"
local spell = require "opinfo.spell"

local F, dim, plain = accel.nn.functional, spell.dim, spell.plain
local S = {}

local function missing(what) error({ missing = what }, 0) end

--- A function of Lua with PyTorch's names of options: positional arguments as they are.
local function lua(fn, rename, convert)
  return function(args, kwargs)
    local given, n, named = { table.unpack(args, 1, args.n) }, args.n, nil
    for i, c in pairs(convert or {}) do
      if type(i) == "number" then given[i] = c(given[i]) end
    end
    for key, v in pairs(kwargs) do
      named = named or {}
      local here = rename and rename[key] or key
      named[here] = convert and convert[key] and convert[key](v) or v
    end
    if named then
      n = n + 1
      given[n] = named
    end
    return fn(table.unpack(given, 1, n))
  end
end

-- operators
S.__radd__ = function(a) return a[2] + a[1] end
S.__rsub__ = function(a) return a[2] - a[1] end
S.__rmul__ = function(a) return a[2] * a[1] end
S.__rdiv__ = function(a) return a[2] / a[1] end
S.__rpow__ = function(a) return a[2] ^ a[1] end
S.__rmod__ = function(a) return a[2] % a[1] end
S.__rand__ = function(a) return a[2] & a[1] end
S.__ror__ = function(a) return a[2] | a[1] end
S.__rxor__ = function(a) return a[2] ~ a[1] end
S.__rmatmul__ = function(a) return accel.matmul(a[2], a[1]) end

-- x[...]: positions and ranges count from 1, and the end of a range is part of it; tensors of indices are as they are
local function is_slice(v) return getmetatable(v) == spell.slice end

local function range(v, size)
  local first, stop, step = v[1] or 0, v[2] or size, v[3] or 1
  if first < 0 then first = math.max(first + size, 0) end
  if stop < 0 then stop = stop + size end
  return { first + 1, math.min(stop, size), step }
end

local function width(v) -- how many dims an entry stands for
  if v == spell.ellipsis or v == false then return 0 end
  return accel.is_tensor(v) and v.dtype == "bool" and v.ndim or 1
end

S.__getitem__ = function(a)
  local x, list, whole = a[1], a[2], true
  local several = type(list) == "table" and not is_slice(list) and list ~= spell.ellipsis
  for _, v in ipairs(several and list or {}) do whole = whole and type(v) == "number" end
  if whole then list = { list } end -- a list of numbers is one tensor of indices
  local left, at, spec = x.ndim, 1, {}
  for _, v in ipairs(list) do left = left - width(v) end
  for i, v in ipairs(list) do
    if v == spell.ellipsis then spec[i] = "..."
    elseif v == false then spec[i] = accel.newaxis -- None
    elseif is_slice(v) then spec[i] = range(v, x.shape[at])
    elseif type(v) == "table" then spec[i] = accel.tensor(v, { dtype = "i64" })
    else spec[i] = dim(v) end
    at = at + (v == spell.ellipsis and left or width(v))
  end
  return x[spec]
end

-- one function for several dtypes
for name, dtype in pairs { bfloat16 = "bf16", bool = "bool", double = "f64", float = "f32", half = "f16", int = "i32", long = "i64",
  short = "i16" } do
  S[name] = function(a, k)
    if k.memory_format ~= nil then missing "memory formats" end
    return a[1]:to(dtype)
  end
end

S["repeat"] = function(a) return accel.tile(table.unpack(a, 1, a.n)) end
S.split_with_sizes = function(a, k) return accel.split(a[1], a[2], dim(a[3] or k.dim or 0)) end
S.split = plain "split"
S["split.list_args"] = S.split
S["max.binary"] = function(a) return accel.maximum(a[1], a[2]) end
S["min.binary"] = function(a) return accel.minimum(a[1], a[2]) end
S.norm = function(a, k)
  local p = a[2]
  if a.n < 2 then p = k.p end
  if p == nil then p = 2 end
  if p == "fro" then p = 2 end
  if type(p) == "string" then missing "norm of a word" end
  local d = a[3] or k.dim
  if k.dtype then missing "option dtype of norm" end
  return accel.norm(a[1], { p = p, dim = dim(d), keepdim = a[4] or k.keepdim or false })
end
S["norm.nuc"] = false
local function unbiased(name)
  return function(a, k)
    local d, correction = k.dim, k.correction
    if type(a[2]) == "boolean" then correction = a[2] and 1 or 0
    elseif a[2] ~= nil then d = a[2] end
    if type(a[3]) == "boolean" then correction = a[3] and 1 or 0 end
    if k.unbiased ~= nil then correction = k.unbiased and 1 or 0 end
    return accel[name](a[1], { dim = dim(d), keepdim = a[4] or k.keepdim or false, correction = correction })
  end
end
S.std, S.var, S.std_mean, S.var_mean = unbiased "std", unbiased "var", unbiased "std_mean", unbiased "var_mean"
do
  local call = plain "cdist"
  S.cdist = function(a, k) -- compute_mode chooses how, not what
    local mode = a.n >= 4 and a[4] or k.compute_mode
    if mode and not tostring(mode):find "^[%w_]*mm_for_euclid_dist" then missing "this compute_mode of cdist" end
    a[4], a.n, k.compute_mode = nil, math.min(a.n, 3), nil
    return call(a, k)
  end
end
S["div.no_rounding_mode"] = plain "div"
S["div.floor_rounding"], S["div.trunc_rounding"] = plain "div", plain "div"
do
  local call = plain "scaled_dot_product_attention"
  S["nn.functional.scaled_dot_product_attention"] = function(a, k)
    if (k.dropout_p or 0) > 0 then missing "the numbers that PyTorch's dropout draws" end
    return call(a, k)
  end
end
for _, name in ipairs { "unique", "unique_consecutive" } do
  S[name] = function(a, k)
    return { accel[name](a[1], { dim = dim(k.dim), return_inverse = k.return_inverse or false, return_counts = k.return_counts or false }) }
  end
end
-- the tensors are a list here
for _, name in ipairs { "cartesian_prod", "block_diag" } do
  S[name] = function(a)
    return accel[name](type(a[1]) == "table" and a[1] or { table.unpack(a, 1, a.n) })
  end
end
S.polygamma = function(a) return accel.polygamma(a[2], a[1]) end -- the sample's input is the second argument
S["special.polygamma"] = S.polygamma
S.combinations = function(a, k) return accel.combinations(a[1], a[2] or k.r, a[3] or k.with_replacement) end
S["nn.functional.pdist"] = function(a, k) return accel.pdist(a[1], a[2] or k.p) end
for _, name in ipairs { "tril_indices", "triu_indices" } do
  S[name] = function(a, k) return accel[name](a[1], a[2], a[3] or k.offset, { dtype = k.dtype, device = k.device }) end
end
S.gradient = function(a, k)
  local spacing = k.spacing
  return accel.gradient(a[1], { spacing = spacing, dim = dim(k.dim), edge_order = k.edge_order })
end
for _, name in ipairs { "exponential", "cauchy", "geometric", "log_normal", "uniform" } do
  S[name] = function(a)
    local x = a[1]:detach() * 1
    return x[name .. "_"](x, table.unpack(a, 2, a.n))
  end
end
S.randint_like = function(a, k) return accel.randint_like(a[1], a[2], a[3] or k.high, { dtype = k.dtype, device = k.device }) end
S.narrow = function(a)
  local start = a[3]
  if accel.is_tensor(start) then missing "a start of narrow that is a tensor" end
  return accel.narrow(a[1], dim(a[2]), start >= 0 and start + 1 or start, a[4])
end
S.zero_ = function(a)
  local x = a[1] * 1
  return x:zero_()
end
S.movedim = function(a) return accel.movedim(a[1], dim(a[2]), dim(a[3])) end
S.to = function(a, k)
  if next(k) and (k.copy ~= nil or k.memory_format ~= nil) then missing "options of to" end
  for i = 2, a.n do
    if type(a[i]) == "boolean" then missing "options of to" end
  end
  local o = { dtype = k.dtype, device = k.device }
  for i = 2, a.n do
    local v = a[i]
    if accel.is_tensor(v) then o.dtype, o.device = v.dtype, v.device
    elseif v == "cpu" then o.device = v
    elseif v ~= nil then o.dtype = v end
  end
  return a[1]:to(o)
end
S.item = function(a) return a[1]:item() end
S.equal = function(a) return a[1]:equal(a[2]) end
S.allclose = function(a, k) return accel.allclose(a[1], a[2], k) end
S.contiguous = function(a, k)
  if k.memory_format ~= nil then missing "memory formats" end
  return a[1]:contiguous()
end
S.clone = function(a, k)
  if k.memory_format ~= nil then missing "memory formats" end
  return a[1]:clone()
end

-- new tensors
local function options(k, ...)
  local o = {}
  for key, v in pairs(k) do o[key] = v end
  for _, name in ipairs { ... } do o[name] = nil end
  if o.layout or o.pin_memory ~= nil or o.memory_format then missing "layouts of new tensors" end
  return o
end
for _, name in ipairs { "zeros", "ones", "empty" } do
  S[name] = function(a, k) return accel[name](a[1], options(k)) end
  S["new_" .. name] = function(a, k) return a[1]["new_" .. name](a[1], a[2], options(k)) end
  S[name .. "_like"] = function(a, k) return accel[name .. "_like"](a[1], options(k)) end
end
S.full = function(a, k) return accel.full(a[1], a[2], options(k)) end
S.full_like = function(a, k) return accel.full_like(a[1], a[2] == nil and k.fill_value or a[2], options(k, "fill_value")) end
S.new_full = function(a, k) return a[1]:new_full(a[2], a[3], options(k)) end
S.rand_like = function(a, k) return accel.rand_like(a[1], options(k)) end
S.randn_like = function(a, k) return accel.randn_like(a[1], options(k)) end
S.randn = function(a, k) return accel.randn(a[1], options(k)) end
S.randint, S.arange, S.linspace, S.eye = false, false, false, false

-- ids and classes
S["nn.functional.one_hot"] = function(a, k) return accel.one_hot(a[1], a[2] or k.num_classes or -1) end
-- the sample database has the weight first
local function weight_first(fn)
  return function(a, k)
    local n = math.max(a.n, 2)
    for name in pairs(k) do
      if name == "scale_grad_by_freq" or name == "sparse" then
        if k[name] then missing("option " .. name) end
        k[name] = nil
      end
    end
    local call = { a[2], a[1], table.unpack(a, 3, n) }
    if next(k) then call[n + 1] = k end
    return fn(table.unpack(call, 1, n + (next(k) and 1 or 0)))
  end
end
S["nn.functional.embedding"] = weight_first(F.embedding)
S["nn.functional.embedding_bag"] = weight_first(function(ids, weight, ...)
  local args = table.pack(...)
  local o = type(args[args.n]) == "table" and args[args.n] or nil
  if o then o.per_sample_weights = o.per_sample_weights end
  return F.embedding_bag(ids, weight, ...)
end)
S.where = function(a) return accel.where(a[2], a[1], a[3]) end -- the sample's input is the second argument
S["meshgrid.variadic_tensors"] = function(a, k)
  return accel.meshgrid({ table.unpack(a, 1, a.n) }, k)
end
S["meshgrid.list_of_tensors"] = function(a, k) return accel.meshgrid(a[1], k) end
S.einsum = function(a) return accel.einsum(a[2], a[1]) end
S["nn.functional.softmin"] = lua(F.softmin, nil, { [2] = dim, dim = dim })
S["nn.functional.bilinear"] = lua(F.bilinear)
S["nn.functional.pairwise_distance"] = lua(F.pairwise_distance)
for _, name in ipairs { "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "dropout", "dropout2d", "dropout3d", "alpha_dropout",
  "conv1d", "conv2d", "conv3d" } do
  S["nn.functional." .. name] = lua(F[name])
end
for _, name in ipairs { "avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d" } do -- no stride: that of the window
  local call = plain(name)
  S["nn.functional." .. name] = function(a, k)
    if type(a[3]) == "table" and #a[3] == 0 then a[3] = nil end
    if type(k.stride) == "table" and #k.stride == 0 then k.stride = nil end
    return call(a, k)
  end
end
do
  local call = plain "interpolate"
  S["nn.functional.interpolate"] = function(a, k)
    for i = 2, a.n do
      if a[i] == "nearest-exact" then a[i] = "nearest_exact" end
    end
    if k.mode == "nearest-exact" then k.mode = "nearest_exact" end
    return call(a, k)
  end
end
S["unfold"] = false -- of tensors: windows as a view
S["nn.functional.upsample"] = lua(F.upsample)

for name, fn in pairs(require "opinfo.linalg") do S[name] = fn end
return S
