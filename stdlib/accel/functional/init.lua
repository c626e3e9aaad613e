--- accel.functional: functions of PyTorch that are made of several ops. You can also call each as accel.NAME, and as a method of tensors
--- if PyTorch has that method. They are loaded on first use.
local home <const> = {
  -- joining and cutting
  atleast_1d = "stack", atleast_2d = "stack", atleast_3d = "stack", column_stack = "stack", dstack = "stack",
  tensor_split = "split", hsplit = "split", vsplit = "split", dsplit = "split",
  broadcast_tensors = "broadcast", broadcast_shapes = "broadcast", sum_to_size = "broadcast",
  -- elements by position
  take = "take", put = "take", put_ = "take", unravel_index = "take", nonzero_static = "take", nonzero = "take",
  select_scatter = "scatter", diagonal_scatter = "scatter", as_strided_scatter = "scatter",
  fliplr = "order", flipud = "order", msort = "order", diagflat = "order", positive = "order",
  -- products
  inner = "products", kron = "products", tensordot = "products", dist = "products", addbmm = "products", addbmm_ = "products",
  addmv = "products", addmv_ = "products", addr = "products", addr_ = "products",
  -- dtypes
  type_as = "dtypes", type = "dtypes", byte = "dtypes", char = "dtypes", short = "dtypes",
  promote_types = "dtypes", result_type = "dtypes", can_cast = "dtypes", is_floating_point = "dtypes", is_signed = "dtypes",
  -- questions
  numel = "questions", is_nonzero = "questions", is_same_size = "questions", is_shared = "questions",
  is_pinned = "questions", is_inference = "questions", ndimension = "questions",
  -- complex numbers
  is_complex = "complex", is_conj = "complex", is_neg = "complex", isreal = "complex", resolve_conj = "complex", resolve_neg = "complex",
  -- positions and choices, derivatives, draws
  tril_indices = "indices", triu_indices = "indices", combinations = "indices", pdist = "indices",
  gradient = "derivatives", polygamma = "derivatives", normal = "draws", randint_like = "draws",
  float_power_ = "inplace", ldexp_ = "inplace", renorm_ = "inplace", scatter_reduce_ = "inplace", index_reduce_ = "inplace",
  polygamma_ = "inplace", mvlgamma_ = "inplace",
  -- making tensors
  as_tensor = "create", asarray = "create", scalar_tensor = "create", logspace = "create", fill = "create",
  to_dlpack = "create", empty_strided = "create", new_empty_strided = "create", empty_permuted = "create",
}

-- Those of them that are functions of accel alone, and methods alone.
local FUNCTIONS <const> = [[atleast_1d atleast_2d atleast_3d column_stack dstack broadcast_tensors broadcast_shapes unravel_index tensordot
  promote_types can_cast as_tensor asarray scalar_tensor logspace fill empty_strided empty_permuted to_dlpack result_type numel
  is_floating_point is_complex tril_indices triu_indices combinations pdist gradient normal randint_like]]
local METHODS <const> = [[sum_to_size put_ addbmm_ addr_ type_as type byte char short is_shared is_pinned new_empty_strided ndimension polygamma
  float_power_ renorm_ scatter_reduce_ index_reduce_ polygamma_ mvlgamma_]]

local function set(text)
  local names = {}
  for name in text:gmatch "%S+" do names[name] = true end
  return names
end
local function_only, method_only = set(FUNCTIONS), set(METHODS)

local M = require "accel.util.lazy" ("accel.functional", home)

--- The function of a name of accel, or of a method of tensors. nil: there is none.
---@param name any
---@param method boolean
---@return function?
function M._find(name, method)
  if not home[name] or (method and function_only or method_only)[name] then return nil end
  return M[name]
end

return M
