--- Which modules of a model become units of sharding, and which parameters each unit owns: the wrap policies of FSDP 1
--- (flat, torch's auto_wrap_policy) and of FSDP 2 (per_parameter, as Accelerate asks it bottom-up). Used by the engine
--- and by the plans. Nothing here reads tensor data.
---
--- A policy is a table: { kind = "none" }, { kind = "size", min_num_params = n }, { kind = "transformer", classes =
--- { "Block", ... } } (names of classes or classes), { kind = "lambda", fn = function(module) -> boolean }.
local ModuleDict = require "accel.nn.module_dict"
local ModuleList = require "accel.nn.module_list"
local MultiheadAttention = require "accel.nn.multihead_attention"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local M = {}

--- The class of a module of the model whose last name is `name`, or nil.
local function class_named(model, name)
  for _, module in ipairs(model:modules()) do
    local cls = class.of(module)
    if cls.__name:match "[^.]*$" == name then return cls end
  end
end

--- The test of a policy: is a module one of the wrapped classes? nil for policies by size.
local function test_of(model, policy)
  if policy.kind == "lambda" then return policy.fn end
  if policy.kind ~= "transformer" then return nil end
  local classes = {}
  for i, c in ipairs(policy.classes) do
    classes[i] = class.isclass(c) and c or class_named(model, c)
    if not classes[i] then
      raise("auto_wrap_policy: the model has no module of the class '%s' (transformer_cls_names_to_wrap)", tostring(c))
    end
  end
  return function(module)
    for _, c in ipairs(classes) do
      if class.isinstance(module, c) then return true end
    end
    return false
  end
end

--- Elements of the module's parameters, each once, without those in `skip`.
local function elements(module, skip)
  local n = 0
  for _, p in ipairs(module:parameters()) do
    if not skip[p] then n = n + p:numel() end
  end
  return n
end

local function is_container(module)
  return class.isinstance(module, ModuleList) or class.isinstance(module, ModuleDict)
end

--- Modules that FSDP 1 wraps below `model`, in the order in which it wraps them: children before their parents. By
--- size: a module is wrapped when its parameters outside wrapped children have min_num_params elements or more. Lists
--- and dicts of modules are not, and children of MultiheadAttention stay with it.
local function wrap_flat(model, policy, skip_modules, skip_params)
  local test, wrapped = test_of(model, policy), {}
  local function visit(module)
    local all, taken = elements(module, skip_params), 0
    if policy.kind == "size"
      and (all < policy.min_num_params or class.isinstance(module, MultiheadAttention)) then return 0 end
    for _, child in ipairs(module:children()) do
      if not skip_modules[child] then taken = taken + visit(child) end
    end
    if module == model then return all end
    local wraps
    if policy.kind == "size" then
      wraps = all - taken >= policy.min_num_params and not is_container(module)
    else
      wraps = test(module)
    end
    if not wraps then return taken end
    wrapped[#wrapped + 1] = module
    return all
  end
  if policy.kind ~= "none" then visit(model:_itself()) end
  return wrapped
end

local function set_of(list)
  local set = {}
  for _, x in ipairs(list or {}) do set[x] = true end
  return set
end

--- Modules and parameters that belong to no unit: ignored modules and their submodules.
local function left_out(ignored)
  local modules, params = set_of(ignored and ignored.modules), set_of(ignored and ignored.params)
  for module in next, modules do
    for _, p in ipairs(module:parameters()) do params[p] = true end
  end
  return modules, params
end

--- Gives every module of `wrapped` (children first, the root last) the parameters below it that no module before took.
--- Each unit: {module =, name =, names = {relative to the module}, params =, shared = {{first name, other name}, ...},
--- users = modules that lie in no unit before, elsewhere = {[name] = p} parameters of these that a unit before owns},
--- with parameters in the order in which a walk from the module meets them, each once.
local function assign(model, wrapped, skip_params)
  local names, taken, placed, units = {}, {}, {}, {}
  for name, module in pairs(model:named_modules()) do names[module] = name end
  for _, module in ipairs(wrapped) do
    local unit = {
      module = module, name = names[module], names = {}, params = {}, shared = {}, users = {}, elsewhere = {},
    }
    local first, met = {}, {}
    for path, below in pairs(module:named_modules()) do
      local own = not placed[below]
      if own then unit.users[#unit.users + 1] = below end
      for key, value, kind in below:_fields() do
        local name = path == "" and key or path .. "." .. key
        if kind ~= "parameter" or skip_params[value] then
          name = nil
        elseif taken[value] then
          if own and not met[value] then unit.elsewhere[name], met[value] = value, true end
        elseif first[value] then
          unit.shared[#unit.shared + 1] = { first[value], name }
        else
          first[value] = name
          unit.names[#unit.names + 1], unit.params[#unit.params + 1] = name, value
        end
      end
    end
    for _, p in ipairs(unit.params) do taken[p] = true end
    for _, below in ipairs(unit.users) do placed[below] = true end
    units[#units + 1] = unit
  end
  return units
end

--- The units of FSDP 1, the root first and then in the order of a walk over the model.
---@param model accel.nn.Module
---@param policy table
---@param ignored? {modules: accel.nn.Module[]?, params: accel.Tensor[]?} left out: their parameters belong to no unit
---@return table[]
function M.flat(model, policy, ignored)
  model = model:_itself()
  local skip_modules, skip_params = left_out(ignored)
  local wrapped = wrap_flat(model, policy, skip_modules, skip_params)
  wrapped[#wrapped + 1] = model
  local unit_of, ordered = {}, {}
  for _, unit in ipairs(assign(model, wrapped, skip_params)) do unit_of[unit.module] = unit end
  for _, module in ipairs(model:modules()) do ordered[#ordered + 1] = unit_of[module] end
  return ordered
end

--- The units of FSDP 2 in the order in which they are made, bottom-up, the root last. By size: every module with more
--- than min_num_params elements. Containers without a forward take none: their names are listed in `refused`, on which
--- the reference stops.
---@param model accel.nn.Module
---@param policy table
---@param ignored? {modules: accel.nn.Module[]?, params: accel.Tensor[]?} as of flat
---@return table[] units
---@return string[] refused
function M.per_parameter(model, policy, ignored)
  model = model:_itself()
  local skip_modules, skip_params = left_out(ignored)
  local test, order, stack, names = test_of(model, policy), {}, { model }, {}
  for name, module in pairs(model:named_modules()) do names[module] = name end
  while #stack > 0 do
    local module = table.remove(stack)
    for _, child in ipairs(module:children()) do
      if not skip_modules[child] then stack[#stack + 1] = child end
    end
    order[#order + 1] = module
  end
  local wrapped, refused = {}, {}
  for i = #order, 2, -1 do
    local module = order[i]
    local wraps = policy.kind == "size" and elements(module, skip_params) > policy.min_num_params
      or test and test(module)
    if wraps and is_container(module) then
      refused[#refused + 1] = names[module]
    elseif wraps then
      wrapped[#wrapped + 1] = module
    end
  end
  wrapped[#wrapped + 1] = model
  return assign(model, wrapped, skip_params), refused
end

return M
