--- nn.Module: the base of everything with parameters. A subclass defines init and forward:
---
---   local Net = nn.Module:extend("Net")
---   function Net:init(width) self.fc = nn.Linear(width, 10) end
---   function Net:forward(x) return self.fc(x):relu() end
---
--- Assigning an nn.Parameter or a module to a field registers it, in the order of assignment. A module is a raw field, so
--- that reading self.fc in forward is one table access. Tensors lie in a second table that the instance falls back to
--- (class.fallback), so that every assignment of one is seen: a plain tensor in place of a parameter is an error. Assigning
--- over a raw field cannot be intercepted: walks of the tree inspect it (module_tree.lua), register later assignments and
--- refuse values that replaced a module. To hold a module without registering it, put it in a table. An integer field i has
--- key i-1 in a state_dict, as in Hugging Face's files. Assigning to a registered field again replaces the value under the same key. nil removes it.
---
--- nn/module_tree.lua and nn/module_state.lua walk the tree (parameters, state_dict, to ...).
local buffer = require "accel.nn.buffer"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.optim.core"
local module_call = require "accel.nn.module_call"
local parameter = require "accel.nn.parameter"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local getmetatable, type, rawset, rawget = getmetatable, type, rawset, rawget

--- The base of everything with parameters. A subclass, `local Net = nn.Module:extend("Net")`, defines init and forward.
--- net(x) runs forward. Assigning an nn.Parameter or a module to a field registers it under the field's name (under i -
--- 1 for an integer field i), and assigning nil removes it. Pass untrained tensors of the state to register_buffer.
--- Entries of plain tables are not registered.
--- example: local N = accel.nn.Module:extend "N" function N.forward(_, x) return x * 2 end return N()(3) --> 6
---@class accel.nn.Module
---@field training boolean
local Module = class("accel.nn.Module")

--- The initial state of every instance: registered fields in order, and their kinds. The fallback table of tensors
--- (_tensors) and hooks are created with the first of them.
function Module.alloc() return { _order = {}, _kinds = {}, training = true } end

local is_module_class = setmetatable({}, { __mode = "k" })

--- Whether x is a module.
---@param x any
function Module.is_module(x)
  if type(x) ~= "table" then return false end
  local c = class.of(x)
  if c == nil then return false end
  local known = is_module_class[c]
  if known == nil then
    known = class.isinstance(x, Module)
    is_module_class[c] = known
  end
  return known
end

--- Why x is not a module, for messages.
---@param x any
function Module.not_a_module(x)
  if class.isclass(x) then
    return ("expected a module, got the class %s; did you forget '()'?"):format(x.__name)
  end
  return "expected a module, got " .. check.shown(x)
end

local function register(self, key, kind)
  local kinds = rawget(self, "_kinds")
  if not kinds[key] then
    local order = self._order
    order[#order + 1] = key
  end
  kinds[key] = kind
end

--- Removes key from the registered fields. Its value stays a plain field. For code that puts a computed tensor in the
--- place of a parameter.
function Module:_unregister(key)
  self._kinds[key] = nil
  for i, name in ipairs(self._order) do
    if name == key then return table.remove(self._order, i) and nil end
  end
end

--- Puts registered fields in the order of a list. Fields that the list does not name follow in the order they had.
---@param names string[]
function Module:_reorder(names)
  local order, listed = {}, {}
  for _, name in ipairs(names) do
    listed[name] = true
    if self._kinds[name] then order[#order + 1] = name end
  end
  for _, name in ipairs(self._order) do
    if not listed[name] then order[#order + 1] = name end
  end
  rawset(self, "_order", order)
end

--- Stores a field: tensors in the fallback table, everything else in the instance.
local function store(self, key, value)
  local fallback = rawget(self, "_tensors")
  local tensor = type(value) == "userdata" and tensors.is_tensor(value)
  if tensor and not fallback then
    fallback = class.fallback(self)
    rawset(self, "_tensors", fallback)
  end
  if tensor then
    rawset(self, key, nil)
    rawset(fallback, key, value)
  else
    if fallback then rawset(fallback, key, nil) end
    rawset(self, key, value)
  end
end

--- The values that may replace a parameter, buffer or module under its name. Any other value is an error, because it
--- would silently remove it from the model.
local function check_successor(self, key, value, registered)
  local tensor = tensors.is_tensor(value)
  if registered == "module" then
    raise("%s: cannot assign %s to module '%s' (assign a module, or nil to take it out)",
      getmetatable(self).__name, tensor and "a plain tensor" or check.shown(value), tostring(key))
  elseif registered == "parameter" then
    raise("%s: cannot assign %s to parameter '%s' (use nn.Parameter, or copy_ inside no_grad)",
      getmetatable(self).__name, tensor and "a plain tensor" or check.shown(value), tostring(key))
  elseif not tensor then
    raise("%s: cannot assign %s to buffer '%s', it must be a tensor or nil", getmetatable(self).__name,
      check.shown(value), tostring(key))
  end
end

local function name_order(a, b)
  local x, y = math.type(a) == "integer", math.type(b) == "integer"
  if x and y then return a < b end
  if x ~= y then return x end
  return tostring(a) < tostring(b)
end

--- Catches up on assignments over raw fields, in the order of names: unregistered modules and parameters are registered
--- as if just assigned. Any other value in place of a module is an error.
function Module:_audit()
  local kinds, late = rawget(self, "_kinds"), nil
  for key, value in next, self do
    local of = type(value)
    if of == "table" and Module.is_module(value) then
      if kinds[key] ~= "module" then
        late = late or {}
        late[#late + 1] = key
      end
    elseif of == "userdata" and parameter.is(value) then
      late = late or {}
      late[#late + 1] = key
    elseif kinds[key] == "module" then
      check_successor(self, key, value, "module")
    end
  end
  if not late then return end
  table.sort(late, name_order)
  for _, key in ipairs(late) do
    local value = rawget(self, key)
    register(self, key, parameter.is(value) and "parameter" or "module")
    store(self, key, value)
  end
end

--- Assignment to a field that the instance does not have itself: a new one, or a tensor's.
function Module.__newindex(self, key, value)
  local registered = rawget(self, "_kinds")[key]
  if parameter.is(value) then
    if registered ~= "buffer" and registered ~= "temporary" then register(self, key, "parameter") end
  elseif Module.is_module(value) then
    register(self, key, "module")
  elseif buffer.kind(value) and registered ~= "parameter" and registered ~= "module" then
    register(self, key, buffer.kind(value))
  elseif registered and value ~= nil then
    check_successor(self, key, value, registered)
  end
  store(self, key, value)
end

local families = { buffer = "buffer", temporary = "buffer", parameter = "parameter", module = "module" }

--- Refuses names that cannot be keys, and those under which something of another kind already lies: it would leave
--- the model unnoticed.
local function check_name(self, what, name, kind)
  if math.type(name) ~= "integer" and (type(name) ~= "string" or name == "" or name:find(".", 1, true)) then
    raise("%s: name must be a string without dots, got '%s'", what, tostring(name))
  end
  local fallback, value = rawget(self, "_tensors"), rawget(self, name)
  if value == nil and fallback then value = rawget(fallback, name) end
  if value == nil then
    if self[name] == nil then return end
    raise("%s: '%s' already names something of %s", what, name, getmetatable(self).__name)
  end
  local is = families[rawget(self, "_kinds")[name]] or (Module.is_module(value) and "module")
    or (parameter.is(value) and "parameter") or "field"
  if is ~= kind then
    raise("%s: '%s' is already a %s of %s (assign nil to take it out first)", what, tostring(name), is,
      getmetatable(self).__name)
  end
end

--- Registers a tensor that belongs to the state but is not learnt. persistent = false keeps it out of
--- state_dict.
---@param name string
---@param t accel.Tensor?
---@param persistent? boolean|{persistent: boolean?}
function Module:register_buffer(name, t, persistent, ...)
  check.surplus("register_buffer", ...)
  if type(persistent) == "table" then
    persistent = require "accel.util.options"("register_buffer", persistent, { persistent = true }).persistent
  end
  check_name(self, "register_buffer", name, "buffer")
  if t ~= nil and not tensors.is_tensor(t) then
    raise("register_buffer: '%s' must be a tensor or nil, got %s", name, type(t))
  end
  register(self, name, persistent == false and "temporary" or "buffer")
  store(self, name, t)
end

--- The same as assigning. nil reserves the name of a parameter that this instance lacks.
---@param name string
---@param p accel.Tensor?
function Module:register_parameter(name, p)
  check_name(self, "register_parameter", name, "parameter")
  if p ~= nil and not parameter.is(p) then
    raise("register_parameter: '%s' must be an nn.Parameter or nil", name)
  end
  register(self, name, "parameter")
  store(self, name, p)
end

--- Registers a module under a name, as assigning it to a field does. add_module and register_module are the same function.
---@param name string|integer
---@param module accel.nn.Module
function Module:register_module(name, module)
  check_name(self, "register_module", name, "module")
  if module ~= nil and not Module.is_module(module) then
    raise("register_module: '%s': %s", tostring(name), Module.not_a_module(module))
  end
  register(self, name, "module")
  store(self, name, module)
end
Module.add_module = Module.register_module

--- The computation of net(x), without hooks. Every module defines its own.
function Module:forward(...) -- luacheck: ignore
  raise("%s does not define forward", getmetatable(self).__name)
end

--- net(x): hooks, forward, and the collector's turn (module_call.lua).
Module.__call = module_call.any

local function add_hook(self, kind, fn, opts, ...)
  if type(fn) ~= "function" then raise("register_%s_hook: expected a function, got %s", kind, type(fn)) end
  local hooks = rawget(self, "_hooks")
  if not hooks then
    hooks = require "accel.nn.hooks"()
    rawset(self, "_hooks", hooks)
  end
  return hooks:add(kind, fn, opts, ...)
end

--- fn(module, args) before forward. A returned table (or single value) replaces the arguments. Returns a handle with
--- remove().
---@param fn function
---@param opts? table options of the hook
function Module:register_forward_pre_hook(fn, opts, ...) return add_hook(self, "forward_pre", fn, opts, ...) end

--- fn(module, args, output, ...) after forward. Its results, one value or several, replace all outputs.
---@param fn function
---@param opts? table options of the hook
function Module:register_forward_hook(fn, opts, ...) return add_hook(self, "forward", fn, opts, ...) end

--- fn(module, grad_inputs, grad_outputs) in backward, when the gradients of all tensor inputs are known. A returned
--- tensor (or list with one) replaces the gradient of a module with a single differentiable input.
---@param fn function
---@param opts? table options of the hook
function Module:register_full_backward_hook(fn, opts, ...) return add_hook(self, "full_backward", fn, opts, ...) end

--- fn(module, prefix) before the module's tensors are put into a state_dict.
---@param fn function
---@param opts? table options of the hook
function Module:register_state_dict_pre_hook(fn, opts, ...) return add_hook(self, "state_dict_pre", fn, opts, ...) end

--- fn(module, state, prefix) after the module's tensors and those below it are in the state_dict, which it may
--- change.
---@param fn function
---@param opts? table options of the hook
function Module:register_state_dict_post_hook(fn, opts, ...) return add_hook(self, "state_dict_post", fn, opts, ...) end

--- fn(module, state, prefix) before the module looks for its tensors, all of whose names begin with prefix, in
--- state, a copy that it may change: to rename keys of older files.
---@param fn function
---@param opts? table options of the hook
function Module:register_load_state_dict_pre_hook(fn, opts, ...) return add_hook(self, "load_state_dict_pre", fn, opts, ...) end

--- fn(module, result) after a state was loaded. result = {missing_keys=, unexpected_keys=}.
---@param fn function
---@param opts? table options of the hook
function Module:register_load_state_dict_post_hook(fn, opts, ...) return add_hook(self, "load_state_dict_post", fn, opts, ...) end

--- A copy of this module and all submodules: parameters, their gradients and buffers are copied. Tensors and modules
--- shared by several fields are shared in the copy as well. Hooks are not copied. See accel.nn.deepcopy.
---@return accel.nn.Module
function Module:clone() return require "accel.nn.deepcopy"(self) end

--- Sets the mode of this module and everything below it. Dropout and its like look at `training`.
---@param mode? boolean default true
---@return accel.nn.Module self
function Module:train(mode, ...)
  check.object(self, "m", "train")
  check.surplus("train", ...)
  if mode == nil then mode = true end
  if type(mode) ~= "boolean" then raise("train: mode must be a boolean, got %s", check.shown(mode)) end
  rawset(self, "training", mode)
  for _, child in ipairs(self:children()) do child:train(mode) end
  return self
end

--- As train(false): the mode for evaluation.
function Module:eval()
  check.object(self, "m", "eval")
  return self:train(false)
end

--- fn(module) for every module below, then for this one.
---@param fn fun(module: accel.nn.Module)
function Module:apply(fn)
  for _, child in ipairs(self:children()) do child:apply(fn) end
  fn(self)
  return self
end

--- Makes every parameter learn (default) or not.
---@param on? boolean [true]
function Module:requires_grad_(on)
  if on ~= nil and type(on) ~= "boolean" then raise("requires_grad_: on must be true or false, got %s", check.shown(on)) end
  for _, p in ipairs(self:parameters()) do p:requires_grad_(on ~= false) end
  return self
end

--- Drops every gradient.
function Module:zero_grad()
  core.zero(self:parameters())
end

--- The text between the parentheses when this module is printed. Subclasses print their sizes here.
function Module:extra_repr() return "" end

local function indent(text) return (text:gsub("\n", "\n  ")) end

--- Printed as PyTorch prints modules: nested, one child a line.
function Module.__tostring(self)
  local name = getmetatable(self).__name:match("[^.]*$")
  local lines, extra = {}, self:extra_repr()
  for key, child in self:named_children() do
    lines[#lines + 1] = ("  (%s): %s"):format(key, indent(tostring(child)))
  end
  if #lines == 0 then return ("%s(%s)"):format(name, extra) end
  if extra ~= "" then table.insert(lines, 1, "  " .. extra) end
  return ("%s(\n%s\n)"):format(name, table.concat(lines, "\n"))
end

require "accel.nn.module_tree"(Module)
require "accel.nn.module_state"(Module)

require "accel.util.absent_methods"(Module, "Module",
  "cuda cpu xpu share_memory to_empty compile megatron_generate save_checkpoint load_checkpoint")

return Module
