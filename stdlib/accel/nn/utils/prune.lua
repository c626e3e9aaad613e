--- Pruning: a mask for a parameter, as torch.nn.utils.prune. <name>_orig is trained, <name>_mask is a buffer of 0 and 1, and
--- <name> is their product, computed before every forward. Pruning again multiplies the masks: what is pruned stays so.
---
---   local prune = nn.utils.prune
---   prune.l1_unstructured(layer, "weight", { amount = 0.3 })    -- 30 % of the elements
---   prune.ln_structured(layer, "weight", { amount = 2, n = 2, dim = 1 })  -- and 2 rows
---   prune.remove(layer, "weight")                               -- the product is the parameter
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

-- ---- the masked parameter ----
local function masked(module, name) return module[name .. "_orig"] * module[name .. "_mask"] end

local function pruned(module) return Module.is_module(module) and rawget(module, "_pruned") or nil end

--- The tensor whose elements are pruned: the original of a parameter that is pruned already.
local function original(who, module, name)
  if not Module.is_module(module) then raise("%s: %s", who, Module.not_a_module(module)) end
  local names = pruned(module)
  if names and names[name] then return module[name .. "_orig"] end
  local p = module[name]
  if not tensors.is_tensor(p) or not Parameter.is(p) then raise("%s: the module has no parameter '%s'", who, tostring(name)) end
  return p
end

local function mask_of(module, name, like)
  local names = pruned(module)
  return names and names[name] and module[name .. "_mask"] or accel.ones_like(like:detach())
end

local function set_mask(module, name, p, mask)
  local names = pruned(module)
  if names and names[name] then
    local _ <close> = accel.no_grad()
    module[name .. "_mask"]:copy_(mask)
  else
    if not names then
      names = {}
      rawset(module, "_pruned", names)
      module:register_forward_pre_hook(function(m)
        for key in next, m._pruned do m[key] = masked(m, key) end
      end, { copied = true })
    end
    names[name] = true
    module[name] = nil
    module:_unregister(name)
    module:register_parameter(name .. "_orig", p)
    module:register_buffer(name .. "_mask", mask)
  end
  module[name] = masked(module, name)
  return module
end

-- ---- methods ----
--- A way to choose what is pruned. A subclass sets PRUNING_TYPE ("unstructured", "structured" with a field dim, "global") and defines
--- compute_mask(t, default_mask), which returns a mask like t.
--- example: local Method = accel.nn.utils.prune.BasePruningMethod:extend "Method"
---   function Method.compute_mask(_, t, mask) return mask * t:gt(0):to(mask.dtype) end
---   local m = accel.nn.Linear(2, 1) Method():apply(m, "weight") return accel.nn.utils.prune.is_pruned(m) --> true
---@class accel.nn.utils.prune.BasePruningMethod
local Base = class("accel.nn.utils.prune.BasePruningMethod")
M.BasePruningMethod = Base
Base.PRUNING_TYPE = "unstructured"

--- A mask like t, from the mask of what is pruned already. Every method defines its own.
---@param t accel.Tensor
---@param default_mask accel.Tensor
---@return accel.Tensor
function Base:compute_mask(t, default_mask) -- luacheck: ignore
  raise("%s does not define compute_mask", class.of(self).__name)
end

--- Prunes a parameter of module. What was pruned before stays pruned, and the rest alone is chosen from.
---@param module accel.nn.Module
---@param name string
---@param importance_scores? accel.Tensor like the parameter: chosen from in its place
---@return accel.nn.Module
function Base:apply(module, name, importance_scores)
  local who = class.of(self).__name:match "[^.]*$"
  local p = original(who, module, name)
  if importance_scores ~= nil and not (tensors.is_tensor(importance_scores) and tensors.same_shape(importance_scores, p)) then
    raise("%s: importance_scores must have the shape of the parameter, %s", who, tensors.shape_string(p))
  end
  local _ <close> = accel.no_grad()
  local mask = mask_of(module, name, p)
  local t = (importance_scores or p):detach()
  local new = self:_combined(t, mask)
  return accel.enable_grad(function() return set_mask(module, name, p, new) end)
end

--- The mask of t, of which `mask` is pruned already.
function Base:_combined(t, mask)
  if self.PRUNING_TYPE == "global" then return self:compute_mask(t, mask) end
  if self.PRUNING_TYPE == "structured" then
    local dims, dim = {}, self.dim < 0 and self.dim + t.ndim + 1 or self.dim
    for d = 1, t.ndim do
      if d ~= dim then dims[#dims + 1] = d end
    end
    local rows = accel.nonzero(mask:sum(dims):ne(0)):squeeze(2)
    if rows:numel() == t:size(dim) then return self:compute_mask(t, mask) end
    local part = self:compute_mask(t:index_select(dim, rows), mask:index_select(dim, rows))
    return accel.zeros_like(mask):index_copy(dim, rows, part)
  end
  local flat = mask:reshape(-1)
  local left = accel.nonzero(flat:eq(1)):squeeze(2)
  local part = self:compute_mask(t:reshape(-1):index_select(1, left), flat:index_select(1, left))
  return flat:index_copy(1, left, part):reshape(mask.shape)
end

--- How many of n an amount is: a fraction (a float from 0 to 1), or a number (an integer).
local function count_of(who, amount, n)
  if math.type(amount) == "integer" then
    if amount < 0 or amount > n then raise("%s: amount is %d, but there are %d to prune from", who, amount, n) end
    return amount
  end
  if math.type(amount) ~= "float" or not (amount >= 0 and amount <= 1) then
    raise("%s: amount must be a fraction from 0.0 to 1.0 or an integer, got %s", who, check.shown(amount))
  end
  local x = amount * n
  local low = math.floor(x)
  if x - low == 0.5 then return low + low % 2 end -- to even, as Python rounds
  return math.floor(x + 0.5)
end

local function method(name, kind, ...)
  local Class = Base:extend("accel.nn.utils.prune." .. name)
  local parse = arguments(name, ...)
  Class.PRUNING_TYPE = kind
  function Class:init(...)
    for key, value in next, parse(...) do self[key] = value end
    if kind == "structured" then check.integer(name, "dim", self.dim) end
  end
  return Class
end

--- Keeps everything.
--- example: accel.nn.utils.prune.Identity():apply(accel.nn.Linear(2, 1), "weight").weight_mask --> { { 1, 1 } }
---@class accel.nn.utils.prune.Identity : accel.nn.utils.prune.BasePruningMethod
M.Identity = method("Identity", "unstructured")
--- See BasePruningMethod:compute_mask.
---@param mask accel.Tensor
---@return accel.Tensor
function M.Identity.compute_mask(_, _, mask) return mask end

--- Elements at random. amount: a fraction, or an integer.
--- example: accel.nn.utils.prune.RandomUnstructured(3):apply(accel.nn.Linear(4, 1), "weight").weight_mask:sum() --> 1
---@class accel.nn.utils.prune.RandomUnstructured : accel.nn.utils.prune.BasePruningMethod
M.RandomUnstructured = method("RandomUnstructured", "unstructured", { "amount", any = true })
--- See BasePruningMethod:compute_mask.
---@param t accel.Tensor
---@param mask accel.Tensor
---@return accel.Tensor
function M.RandomUnstructured:compute_mask(t, mask)
  local n = count_of("random_unstructured", self.amount, t:numel())
  if n == 0 then return mask end
  local _, chosen = accel.rand(t:numel(), { device = t.device }):topk(n)
  return mask:reshape(-1):index_fill(1, chosen, 0):reshape(mask.shape)
end

--- The elements of smallest magnitude. amount: a fraction, or an integer.
--- example: accel.nn.utils.prune.L1Unstructured(0.5):apply(accel.nn.Linear(4, 1), "weight").weight_mask:sum() --> 2
---@class accel.nn.utils.prune.L1Unstructured : accel.nn.utils.prune.BasePruningMethod
M.L1Unstructured = method("L1Unstructured", "unstructured", { "amount", any = true })
--- See BasePruningMethod:compute_mask.
---@param t accel.Tensor
---@param mask accel.Tensor
---@return accel.Tensor
function M.L1Unstructured:compute_mask(t, mask)
  local n = count_of("l1_unstructured", self.amount, t:numel())
  if n == 0 then return mask end
  local _, chosen = t:abs():reshape(-1):topk(n, 1, false)
  return mask:reshape(-1):index_fill(1, chosen, 0):reshape(mask.shape)
end

--- mask with 0 for every entry of dim but these.
local function keep_rows(mask, dim, rows)
  local shape = {}
  dim = dim < 0 and dim + mask.ndim + 1 or dim
  for d = 1, mask.ndim do shape[d] = d == dim and mask:size(dim) or 1 end
  local kept = accel.zeros(mask:size(dim), { dtype = mask.dtype, device = mask.device }):index_fill(1, rows, 1)
  return mask * kept:reshape(shape)
end

--- Entries of dimension dim at random.
--- example: accel.nn.utils.prune.RandomStructured(1, 1):apply(accel.nn.Linear(4, 3), "weight").weight_mask:sum() --> 8
---@class accel.nn.utils.prune.RandomStructured : accel.nn.utils.prune.BasePruningMethod
M.RandomStructured = method("RandomStructured", "structured", { "amount", any = true }, { "dim", -1 })
--- See BasePruningMethod:compute_mask.
---@param t accel.Tensor
---@param mask accel.Tensor
---@return accel.Tensor
function M.RandomStructured:compute_mask(t, mask)
  local n = t:size(self.dim)
  local keep = n - count_of("random_structured", self.amount, n)
  local _, rows = accel.rand(n, { device = t.device }):topk(keep)
  return keep_rows(mask, self.dim, rows)
end

--- Entries of dimension dim whose norm of order n is smallest.
--- example: accel.nn.utils.prune.LnStructured(1, 2, 1):apply(accel.nn.Linear(4, 3), "weight").weight_mask:sum() --> 8
---@class accel.nn.utils.prune.LnStructured : accel.nn.utils.prune.BasePruningMethod
M.LnStructured = method("LnStructured", "structured", { "amount", any = true }, { "n", 2 }, { "dim", -1 })
--- See BasePruningMethod:compute_mask.
---@param t accel.Tensor
---@param mask accel.Tensor
---@return accel.Tensor
function M.LnStructured:compute_mask(t, mask)
  local size, dims = t:size(self.dim), {}
  local dim = self.dim < 0 and self.dim + t.ndim + 1 or self.dim
  for d = 1, t.ndim do
    if d ~= dim then dims[#dims + 1] = d end
  end
  local keep = size - count_of("ln_structured", self.amount, size)
  local norms = #dims > 0 and accel.norm(t, self.n, dims) or t:abs()
  local _, rows = norms:topk(keep)
  return keep_rows(mask, dim, rows)
end

--- A mask of the caller's.
--- example: accel.nn.utils.prune.CustomFromMask(accel.zeros(1)):apply(accel.nn.Linear(2, 1), "bias").bias --> { 0 }
---@class accel.nn.utils.prune.CustomFromMask : accel.nn.utils.prune.BasePruningMethod
M.CustomFromMask = method("CustomFromMask", "global", { "mask" })
--- See BasePruningMethod:compute_mask.
---@param t accel.Tensor
---@param mask accel.Tensor
---@return accel.Tensor
function M.CustomFromMask:compute_mask(t, mask)
  local own = self.mask
  if not tensors.is_tensor(own) or not tensors.same_shape(own, t) then
    raise("custom_from_mask: mask must be a tensor of shape %s", tensors.shape_string(t))
  end
  return mask * own:to(mask.dtype)
end

-- ---- functions ----
--- Prunes nothing, but makes <name>_orig and <name>_mask.
--- example: local m = accel.nn.utils.prune.identity(accel.nn.Linear(2, 1), "weight") return m.weight_mask --> { { 1, 1 } }
---@param module accel.nn.Module
---@param name string
---@return accel.nn.Module
function M.identity(module, name, ...)
  check.surplus("identity", ...)
  return M.Identity():apply(module, name)
end

local random_arguments = arguments("random_unstructured", { "amount", any = true })

--- Prunes elements at random.
--- example: accel.nn.utils.prune.random_unstructured(accel.nn.Linear(4, 4), "weight", 5).weight_mask:sum() --> 11
---@param module accel.nn.Module
---@param name string
---@param ... any amount, a fraction or an integer, by position or in a table
---@return accel.nn.Module
function M.random_unstructured(module, name, ...)
  return M.RandomUnstructured(random_arguments(...).amount):apply(module, name)
end

local l1_arguments = arguments("l1_unstructured", { "amount", any = true }, { "importance_scores" })

--- Prunes the elements of smallest magnitude, or of smallest importance_scores.
--- example: local m = accel.nn.Linear(2, 1) accel.no_grad(function() m.weight:copy_(accel.tensor { { 3.0, -1 } }) end)
---   return accel.nn.utils.prune.l1_unstructured(m, "weight", 0.5).weight --> { { 3, 0 } }
---@param module accel.nn.Module
---@param name string
---@param ... any amount, a fraction or an integer, and importance_scores, by position or in one table
---@return accel.nn.Module
function M.l1_unstructured(module, name, ...)
  local o = l1_arguments(...)
  return M.L1Unstructured(o.amount):apply(module, name, o.importance_scores)
end

local rows_arguments = arguments("random_structured", { "amount", any = true }, { "dim", -1 })

--- Prunes entries of a dimension at random.
--- example: accel.nn.utils.prune.random_structured(accel.nn.Linear(4, 3), "weight", 1, 1).weight_mask:sum() --> 8
---@param module accel.nn.Module
---@param name string
---@param ... any amount, a fraction or an integer, and dim = -1, by position or in one table
---@return accel.nn.Module
function M.random_structured(module, name, ...)
  local o = rows_arguments(...)
  return M.RandomStructured(o.amount, o.dim):apply(module, name)
end

local ln_arguments = arguments("ln_structured", { "amount", any = true }, { "n", any = true }, { "dim", any = true }, { "importance_scores" })

--- Prunes the entries of a dimension whose norm of order n is smallest.
--- example: local m = accel.nn.Linear(1, 2) accel.no_grad(function() m.weight:copy_(accel.tensor { { 3.0 }, { -1 } }) end)
---   return accel.nn.utils.prune.ln_structured(m, "weight", { amount = 1, n = 2, dim = 1 }).weight --> { { 3 }, { 0 } }
---@param module accel.nn.Module
---@param name string
---@param ... any amount, n, dim, importance_scores by position or in one table
---@return accel.nn.Module
function M.ln_structured(module, name, ...)
  local o = ln_arguments(...)
  return M.LnStructured(o.amount, check.number("ln_structured", "n", o.n), check.integer("ln_structured", "dim", o.dim))
    :apply(module, name, o.importance_scores)
end

--- Prunes by a mask of 0 and 1.
--- example: accel.nn.utils.prune.custom_from_mask(accel.nn.Linear(2, 1), "bias", accel.zeros(1)).bias --> { 0 }
---@param module accel.nn.Module
---@param name string
---@param mask accel.Tensor
---@return accel.nn.Module
function M.custom_from_mask(module, name, mask, ...)
  check.surplus("custom_from_mask", ...)
  return M.CustomFromMask(mask):apply(module, name)
end

--- Prunes among the elements of several parameters together: parameters is a list of {module, name}, pruning_method one of the
--- unstructured classes of this module. Further options are the method's, importance_scores a table of scores by index.
--- example: local a, b = accel.nn.Linear(2, 1), accel.nn.Linear(2, 1) local p = accel.nn.utils.prune
---   p.global_unstructured({ { a, "weight" }, { b, "weight" } }, p.L1Unstructured, { amount = 3 })
---   return a.weight_mask:sum() + b.weight_mask:sum() --> 1
---@param parameters table[] {module, name}
---@param pruning_method table a class
---@param opts table amount, importance_scores
function M.global_unstructured(parameters, pruning_method, opts, ...)
  local who = "global_unstructured"
  check.surplus(who, ...)
  if type(parameters) ~= "table" or #parameters == 0 then raise("%s: expected a list of {module, name}", who) end
  if not class.isclass(pruning_method) or pruning_method.PRUNING_TYPE ~= "unstructured" then
    raise("%s: pruning_method must be an unstructured one, such as prune.L1Unstructured", who)
  end
  local rest, scores = {}, nil
  for key, value in next, opts or {} do
    if key == "importance_scores" then scores = value else rest[key] = value end
  end
  local values, masks, ps = {}, {}, {}
  local whole
  do
    local _ <close> = accel.no_grad()
    for i, pair in ipairs(parameters) do
      local module, name = pair[1], pair[2]
      ps[i] = original(who, module, name)
      values[i] = (scores and scores[i] or ps[i]):detach():reshape(-1)
      masks[i] = mask_of(module, name, ps[i]):reshape(-1)
    end
    whole = pruning_method(rest):_combined(accel.cat(values, 1), accel.cat(masks, 1))
  end
  local at = 1
  for i, pair in ipairs(parameters) do
    local n = ps[i]:numel()
    M.custom_from_mask(pair[1], pair[2], whole:narrow(1, at, n):reshape(ps[i].shape))
    at = at + n
  end
end

--- Makes the product of parameter and mask the parameter, and drops both.
--- example: local p = accel.nn.utils.prune local m = p.remove(p.identity(accel.nn.Linear(2, 1), "weight"), "weight") return p.is_pruned(m) --> false
---@param module accel.nn.Module
---@param name string
---@return accel.nn.Module
function M.remove(module, name, ...)
  check.surplus("remove", ...)
  local names = pruned(module)
  if not names or not names[name] then raise("remove: '%s' of the module is not pruned", tostring(name)) end
  local p = module[name .. "_orig"]
  do
    local _ <close> = accel.no_grad()
    p:copy_(masked(module, name))
  end
  names[name] = nil
  for _, key in ipairs { name, name .. "_orig", name .. "_mask" } do
    module[key] = nil
    module:_unregister(key)
  end
  module:register_parameter(name, p)
  return module
end

--- Whether a parameter of the module or of one below is pruned.
--- example: accel.nn.utils.prune.is_pruned(accel.nn.Linear(2, 1)) --> false
---@param module accel.nn.Module
---@return boolean
function M.is_pruned(module, ...)
  check.surplus("is_pruned", ...)
  if not Module.is_module(module) then raise("is_pruned: %s", Module.not_a_module(module)) end
  for _, m in ipairs(module:modules()) do
    local names = pruned(m)
    if names and next(names) then return true end
  end
  return false
end

return M
