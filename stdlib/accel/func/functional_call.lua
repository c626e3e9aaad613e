--- func.functional_call and func.stack_module_state: modules as functions of their parameters.
local accel = require "accel.core"
local check = require "accel.util.check"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local declared = { kwargs = options.none, tie_weights = true, strict = false }

--- Where each parameter and buffer lies: name -> { module, key }, and the names of each tensor.
local function places_of(module)
  local places, names = ordered(), {}
  for prefix, m in module:named_modules() do
    for _, key in ipairs(m._order) do
      if m._kinds[key] ~= "module" and m._tensors and rawget(m._tensors, key) ~= nil then
        local last = math.type(key) == "integer" and tostring(key - 1) or key
        local name = prefix == "" and last or prefix .. "." .. last
        local value = rawget(m._tensors, key)
        places[name] = { tensors = m._tensors, key = key, value = value }
        names[value] = names[value] or {}
        table.insert(names[value], name)
      end
    end
  end
  return places, names
end

--- A call of a module with other tensors in the place of parameters and buffers, by their dotted names. The module keeps its own ones. Gradients
--- flow into the tensors that are given. A buffer that forward writes to in place is written in the tensor that is given.
--- example: local net = accel.nn.Linear(1, 1)
---   return accel.func.functional_call(net, { weight = accel.tensor { { 2.0 } }, bias = accel.tensor { 1.0 } }, accel.ones(1, 1)) --> { { 3 } }
---@param module accel.nn.Module
---@param state table<string, accel.Tensor>|table[] tensors by name, or a list of such tables
---@param args any the argument, or a list of them
---@param opts? table
---  kwargs table: named arguments, which the call gets as its last one
---  tie_weights boolean = true: replace a tensor under all of its names
---  strict boolean = false: every parameter and buffer must be given
---@return any
function M.functional_call(module, state, args, opts, ...)
  local o = options("functional_call", opts, declared, ...)
  local who = "functional_call"
  if type(module) ~= "table" or not module.named_modules then raise("%s: expected a module, got %s", who, check.shown(module)) end
  if type(state) ~= "table" then raise("%s: the state must be a table of tensors by name, got %s", who, check.shown(state)) end
  local places, names = places_of(module)
  local new = {}
  for _, part in ipairs(state[1] ~= nil and state or { state }) do
    for name, value in ordered.iterate(part) do
      if not places[name] then
        local near = type(name) == "string" and require "accel.util.nearest"(name, places)
        raise("%s: the module has no parameter or buffer '%s'%s", who, tostring(name), near and ("; did you mean '%s'?"):format(near) or "")
      end
      if not tensors.is_tensor(value) then raise("%s: '%s' must be a tensor, got %s", who, name, check.shown(value)) end
      if new[name] ~= nil then raise("%s: '%s' is given twice", who, name) end
      new[name] = value
    end
  end
  if o.tie_weights then
    local tied = {}
    for name, value in next, new do
      for _, other in ipairs(names[places[name].value]) do
        local given = new[other] or tied[other]
        if given ~= nil and given ~= value then
          raise("%s: '%s' and '%s' are one tensor in the module, but two are given; set tie_weights = false", who, name, other)
        end
        tied[other] = value
      end
    end
    new = tied
  end
  if o.strict then
    for name in ordered.iterate(places) do
      if new[name] == nil then raise("%s: '%s' is missing, and strict = true", who, name) end
    end
  end
  local list = args == nil and {} or (type(args) == "table" and getmetatable(args) == nil) and args or { args }
  local n = #list
  if o.kwargs ~= nil then
    list = table.move(list, 1, n, 1, {})
    n = n + 1
    list[n] = o.kwargs
  end
  for name, value in next, new do rawset(places[name].tensors, places[name].key, value) end
  local results = table.pack(pcall(function() return module(table.unpack(list, 1, n)) end))
  for name in next, new do
    local p = places[name]
    rawset(p.tensors, p.key, p.value)
  end
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

--- The parameters and the buffers of several modules of one kind, stacked along a new first dim: two tables by name, for vmap over
--- functional_call (an ensemble). The stacked parameters are leaves that require gradients as the modules' do.
--- example: local params = accel.func.stack_module_state { accel.nn.Linear(2, 1), accel.nn.Linear(2, 1) } return params.weight.shape --> { 2, 1, 2 }
---@param models accel.nn.Module[]
---@return table<string, accel.Tensor>, table<string, accel.Tensor>
function M.stack_module_state(models, ...)
  check.surplus("stack_module_state", ...)
  local list = {}
  for i, m in ipairs(type(models) == "table" and models or {}) do
    if type(m) ~= "table" or not m.named_parameters then raise("stack_module_state: entry %d must be a module, got %s", i, check.shown(m)) end
    list[i] = m
  end
  if #list == 0 then raise("stack_module_state: expected a list of modules, got %s", check.shown(models)) end
  local function stacked(visit, leaves)
    local columns, out = ordered(), ordered()
    for i, m in ipairs(list) do
      local n = 0
      for name, t in m[visit](m) do
        if i == 1 then columns[name] = {} end
        local column = columns[name]
        if not column or #column ~= i - 1 then raise("stack_module_state: module %d has '%s', the first one does not", i, name) end
        if column[1] and (not tensors.same_shape(column[1], t) or column[1].requires_grad ~= t.requires_grad) then
          raise("stack_module_state: '%s' of module %d differs in shape or requires_grad from the first one's", name, i)
        end
        column[i], n = t, n + 1
      end
      for name, column in ordered.iterate(columns) do
        if #column ~= i then raise("stack_module_state: module %d has no '%s'", i, name) end
      end
    end
    for name, column in ordered.iterate(columns) do
      local _ <close> = accel.no_grad()
      local t = accel.stack(column, 1)
      out[name] = leaves and column[1].requires_grad and t:requires_grad_() or t
    end
    return out
  end
  for i, m in ipairs(list) do
    if m.training ~= list[1].training then raise("stack_module_state: module %d is in another mode (train or eval) than the first one", i) end
  end
  return stacked("named_parameters", true), stacked("named_buffers", false)
end

return M
