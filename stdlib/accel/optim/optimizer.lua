--- optim.Optimizer: parameter groups, state per parameter, and the step boundary. It is the base of every optimizer.
---
--- A subclass declares its defaults and how a step group is stepped. A *step group* is a list of parameters of one group that got
--- their state in the same step and have shared every step since, so that one multi-tensor call and one step counter serve them all.
--- Parameters without a gradient in some step move to a separate step group. The learning rate lives on the device as a rank-0
--- tensor per group, refreshed when group.lr changes, and so do the step counter and the other numbers that a rule keeps, so that a
--- step can be recorded once and replayed. A learning rate given as a tensor of one element is followed: each step reads it, and a
--- value assigned to group.lr (by a schedule) is written to it. All of these are made when they are first needed, in the middle of a
--- step: outside every scope of the script, whose end they outlive. Saving and loading: state.lua.
local accel = require "accel"
local divided = require "accel.nn.divided"
local core = require "accel.optim.core"
local check = require "accel.util.check"
local class = require "accel.util.class"
local deferred = require "accel.nn.deferred"
local listed = require("accel.util.options").listed
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local recording = require "accel.util.recording"
local replaced = require "accel.nn.replaced"
local original = require "accel.util.checked".original
local spans = require "accel.util.spans"
local state = require "accel.optim.state"
local tensors = require "accel.util.tensors"

local unscoped = accel.unscoped

---@alias accel.ParamList accel.Tensor|accel.Tensor[]|table<string, accel.Tensor>|table[] tensors or groups

--- example: local SignSGD = accel.optim.Optimizer:extend("SignSGD")
---   SignSGD.defaults = { lr = 0.1 }
---   SignSGD.counts = false
---   function SignSGD:update(group, step_group, grads, lr)
---     for i, p in ipairs(step_group.params) do p:sub_(grads[i]:sign() * lr) end
---   end
---   local p = accel.ones(1, { requires_grad = true })
---   p.grad = p * 3
---   SignSGD({ p }):step()
---   return p --> { 0.9 }
---@class accel.optim.Optimizer
---@field param_groups table[] options and `params` of each group
---@field defaults table<string, any> the options with their defaults. A subclass sets this and the following fields
---@field buffers string[] {}. Names of the state tensors of each parameter. Lists of them are step_group.NAME
---@field counts boolean true. false: the rule does not need the step number, step_group.step, a rank-0 tensor
---@field numbers string[] {}. Names of other rank-0 tensors that a step group keeps from step to step
---@field number_dtype string "f64". dtype of these numbers
---@field update function the step of a step group
---@field elementwise boolean true. false: the rule needs whole tensors. For shards it steps by part_dtypes,
---  parts_of and update_whole (accel.shard.whole), and cannot without these
---@field whole_states boolean false. true: for a sharded parameter it keeps the state of the whole one
---@field spends function? the update that keeps no gradient it was given, `X.spends = X.update`: freed early
local Optimizer = class("accel.optim.Optimizer")

Optimizer.defaults = {}
Optimizer.buffers = {}
Optimizer.counts = true
Optimizer.numbers = {}
Optimizer.number_dtype = "f64"
Optimizer.elementwise = true
Optimizer.whole_states = false

--- Whether update takes self.inv_scale, a factor of gradients on the device (or nil, see deferred.lua), and
--- self.found_inf, which decides there whether the step is skipped (or nil), for this step alone. A function of the
--- optimizer, since it may depend on past steps.
---@return boolean
function Optimizer:fuses() return false end -- luacheck: ignore self

-- The handles of gradients end with the update that `spends` names. A subclass with its own update may keep them.
Optimizer.spends = nil

local function list_of(params)
  if tensors.is_tensor(params) then return { params } end
  if type(params) ~= "table" then
    raise("optimizer: expected a list of parameters or of groups, got %s", type(params))
  end
  if params[1] ~= nil then return params end
  if class.of(params) and not ordered.is(params) then
    raise("optimizer: expected a list of parameters, got a %s; give net:parameters()", class.of(params).__name)
  end
  local out = {}
  for _, p in ordered.iterate(params) do out[#out + 1] = p end
  return out
end

--- params: a list of tensors, a table of named ones, or a list of groups {params = ..., lr = ...}.
---@param params accel.Tensor[]|table parameters, named ones, or groups
---@param opts? table options by name
function Optimizer:init(params, opts)
  local options = state.copy_options(self.defaults)
  self._given_lr = self:_take_options(options, opts)
  self.options = options
  self.param_groups, self.state, self._private = {}, {}, {}
  replaced.register(self)
  local list = params
  if type(params) ~= "table" or params.params == nil then list = list_of(params) end
  if list.params ~= nil then
    self:add_param_group(list)
  elseif type(list[1]) == "table" then
    for _, group in ipairs(list) do self:add_param_group(group) end
  elseif #list > 0 then
    self:add_param_group { params = list }
  else
    raise("%s: got an empty list of parameters", getmetatable(self).__name)
  end
end

--- A learning rate given as a tensor of one element: its number. The group follows the tensor (device_lr).
local function number_of(self, value)
  if value:numel() ~= 1 then
    raise("%s: lr as a tensor must have one element, got shape %s", getmetatable(self).__name, tensors.shape_string(value))
  end
  return value:item() + 0.0
end

-- Options of PyTorch's optimizers that say how a step is computed.
local IMPLIED <const> = {
  foreach = "every step is one call for many parameters", fused = "every step is one pass over all parameters",
  capturable = "accel.graph records the steps of every optimizer", differentiable = "gradients do not pass through steps",
}

--- Takes and checks options. Returns the learning rate if it is a tensor.
function Optimizer:_take_options(into, given)
  local lr
  if given ~= nil and type(given) ~= "table" then
    raise("%s: options must be a table, got %s", getmetatable(self).__name, type(given))
  end
  for key, value in next, given or {} do
    local default = self.defaults[key]
    if key == "lr" and default ~= nil and tensors.is_tensor(value) then lr, value = value, number_of(self, value) end
    if key ~= "params" and key ~= "initial_lr" then
      if default == nil then
        if IMPLIED[key] then raise("%s: unknown option '%s': %s; leave it out", getmetatable(self).__name, key, IMPLIED[key]) end
        local near = type(key) == "string" and require "accel.util.nearest"(key, self.defaults)
        raise("%s: unknown option '%s'%s", getmetatable(self).__name, tostring(key),
          near and ("; did you mean '%s'?"):format(near) or listed(self.defaults))
      elseif type(value) ~= type(default) then
        raise("%s: option '%s' must be a %s, got %s", getmetatable(self).__name, key, type(default),
          type(value))
      end
    end
    into[key] = state.copy_option(value)
  end
  return lr
end

--- Subclasses check the values of one group here.
function Optimizer:check_options(_) end

--- For checks of options: raises unless each of these is a number, not below zero.
---@param o table options by name
function Optimizer:expect_not_negative(o, ...)
  for _, name in ipairs { ... } do check.number(getmetatable(self).__name, name, o[name], 0) end
end

--- For checks of options: raises unless betas are two numbers in [0, 1), or n of them.
---@param o table
---@param n? integer 2 or 3
function Optimizer:expect_betas(o, n)
  n = n or 2
  self:expect(#o.betas == n, "betas must be %s numbers, got %d", n == 2 and "two" or "three", #o.betas)
  for i = 1, n do
    local beta = o.betas[i]
    self:expect(type(beta) == "number" and beta >= 0 and beta < 1, "beta %d must lie in [0, 1), got %s", i,
      tostring(beta))
  end
end

--- For checks of options: raises unless ok.
---@param ok any whether the check holds
---@param fmt string message, for string.format
function Optimizer:expect(ok, fmt, ...)
  if not ok then raise(getmetatable(self).__name .. ": " .. fmt, ...) end
end

--- Replaces parameters of sharded models by this rank's shards (accel.shard.owners). Returns the sharding's callbacks, or
--- nil.
local function adopt(self)
  local owners = divided.owners
  if owners and self._owners_seen ~= owners.version then owners.adopt(self) end
  return self._sharding
end

--- For subclasses that write to parameters outside a step: callbacks before and after, on all ranks (sharding:before(),
--- sharding:after()). nil if nothing is sharded.
function Optimizer:_shards() return adopt(self) end

--- Adds parameters with separate options.
---@param group table {params = ..., lr = ...}
function Optimizer:add_param_group(group)
  if type(group) ~= "table" or group.params == nil then
    raise("%s: a parameter group is a table with `params`", getmetatable(self).__name)
  end
  local new = state.copy_options(self.options)
  local given_lr = self:_take_options(new, group)
  if not given_lr and group.lr == nil then given_lr = self._given_lr end
  self:check_options(new)
  local known = {}
  for _, g in ipairs(self.param_groups) do
    for _, p in ipairs(g.params) do known[p] = true end
  end
  new.params = {}
  for i, p in ipairs(list_of(group.params)) do
    if not tensors.is_tensor(p) then
      raise("%s: parameter %d is a %s, not a tensor", getmetatable(self).__name, i, type(p))
    elseif not p.is_leaf then
      raise("%s: parameter %d is the result of an operation; only leaves can be optimized",
        getmetatable(self).__name, i)
    elseif known[p] then
      raise("%s: parameter %d appears twice", getmetatable(self).__name, i)
    end
    known[p] = true
    new.params[i] = p
  end
  self.param_groups[#self.param_groups + 1] = new
  self._private[new] = { step_groups = {}, pending = table.move(new.params, 1, #new.params, 1, {}), given_lr = given_lr, shown_lr = new.lr }
  self._owners_seen = nil
  adopt(self)
  if self._adopt_whole then self:_adopt_whole() end -- of a model that is on several ranks
end

--- Drops every gradient (the next backward writes instead of adding).
function Optimizer:zero_grad(...)
  check.object(self, "o", "zero_grad")
  if select("#", ...) > 0 then
    raise("%s: zero_grad takes no arguments: gradients are always dropped", getmetatable(self).__name)
  end
  deferred.drop(self)
  local sharding = adopt(self)
  if sharding then sharding:zero() end
  for _, group in ipairs(self.param_groups) do core.zero(group.params) end
end

--- New state tensors for p by buffer name. Subclasses leave out those that the group's options do not need.
---@param p accel.Tensor a parameter
---@param group table parameter group
function Optimizer:make_state(p, group) -- luacheck: ignore group
  local made = {}
  for _, name in ipairs(self.buffers) do made[name] = accel.zeros_like(p) end
  return made
end

--- make_state of a parameter, or of the part of a sharded one that this rank steps on.
function Optimizer:_make_state(p, group)
  local owners = self.whole_states and self._sharding and divided.owners
  return self:make_state(owners and owners.like_whole(p) or p, group)
end

--- The value that a number of `numbers` starts from.
---@param name string name of the number
---@param group table parameter group
---@return number
function Optimizer:first_number(name, group) return 0 end -- luacheck: ignore

--- The lists of state tensors of a step group, one per buffer: of those parameters that have it, in their order.
local function list_buffers(self, step_group)
  for _, name in ipairs(self.buffers) do
    local list = {}
    for _, p in ipairs(step_group.params) do list[#list + 1] = self.state[p][name] end
    step_group[name] = list
  end
end

--- Parameters with shared = {step =, <number> =} as a new step group. fresh: their state was made just now.
function Optimizer:_new_step_group(private, params, shared, fresh)
  local step_group = { params = params, fresh = fresh }
  for name, t in next, shared do
    step_group[name] = t
    for _, p in ipairs(params) do self.state[p][name] = t end
  end
  list_buffers(self, step_group)
  private.step_groups[#private.step_groups + 1] = step_group
end

--- For update: makes the zeros of a buffer that the group's options have come to need after the state was
--- made. Returns whether there were any to make.
---@param step_group table parameters of the group that take the step
---@param name string name of the buffer
function Optimizer:complete(step_group, name)
  if #step_group[name] == #step_group.params then return false end
  for _, p in ipairs(step_group.params) do
    self.state[p][name] = self.state[p][name] or unscoped(accel.zeros_like, p)
  end
  list_buffers(self, step_group)
  return true
end

--- Gives parameters that have a gradient for the first time their state, as one new step group.
local function admit(self, private, group, tier)
  local waiting, ready = {}, {}
  for _, p in ipairs(private.pending) do
    if p.grad then ready[#ready + 1] = p else waiting[#waiting + 1] = p end
  end
  private.pending = waiting
  if #ready == 0 then return end
  for _, p in ipairs(ready) do
    if tier and tier.optimizer then self.state[p] = require("accel.offload.step").make_state(tier, self, p, group)
    else self.state[p] = self:_make_state(p, group) end
  end
  local shared, device = {}, ready[1].device
  if self.counts then shared.step = accel.zeros({}, { dtype = "i64", device = device }) end
  for _, name in ipairs(self.numbers) do
    shared[name] = accel.full({}, self:first_number(name, group), { dtype = self.number_dtype, device = device })
  end
  self:_new_step_group(private, ready, shared, true)
end

--- The gradients of a step group. If some are missing, those parameters leave it. nil if all are missing.
local function gradients(self, private, step_group)
  local params = step_group.params
  local grads, all = core.gradients(params)
  if all then return grads end
  local kept, kept_grads, gone = {}, {}, {}
  for i, p in ipairs(params) do
    if grads[i] then
      kept[#kept + 1], kept_grads[#kept_grads + 1] = p, grads[i]
    else
      gone[#gone + 1] = p
    end
  end
  if #kept == 0 then return nil end
  local shared = { step = step_group.step and unscoped(step_group.step.clone, step_group.step) }
  for _, name in ipairs(self.numbers) do shared[name] = unscoped(step_group[name].clone, step_group[name]) end
  self:_new_step_group(private, gone, shared, false)
  step_group.params = kept
  list_buffers(self, step_group)
  return kept_grads
end

--- If the learning rate was given as a tensor, the group and the tensor have one value: the group's if it was assigned since
--- (by a schedule), otherwise the tensor's.
local function follow(private, group)
  local given = private.given_lr
  if group.lr ~= private.shown_lr then given:detach():fill_(group.lr) else group.lr = given:item() + 0.0 end
  private.shown_lr = group.lr
end

--- The group's learning rate as a rank-0 tensor on the device.
local function device_lr(private, group)
  if private.given_lr then follow(private, group) end
  if private.lr_value ~= group.lr then
    if not private.lr then
      private.lr = unscoped(accel.full, {}, group.lr, { dtype = "f64", device = group.params[1].device })
    else
      private.lr:fill_(group.lr)
    end
    recording.note "the learning rate of an optimizer changes"
    private.lr_value = group.lr
  end
  return private.lr
end

--- For recorded steps (accel.graph): learning rates that changed are put on the device now, not in the next step.
function Optimizer:_refresh_lr()
  local _ <close> = accel.no_grad()
  for _, group in ipairs(self.param_groups) do
    if group.params[1] then unscoped(device_lr, self._private[group], group) end
  end
end

--- For recorded steps: counts n steps that did not pass through step().
function Optimizer:_count_steps(n) self._steps = (self._steps or 0) + n end

-- A step that raises leaves no word on the next one: gradients that it was to multiply are multiplied.
local steps = { __close = function(step, failure)
  local self = step[1]
  self.found_inf = nil
  if failure == nil then return deferred.drop(self) end
  if self.inv_scale and not pcall(deferred.apply, self) then deferred.drop(self) end
end }

--- Updates every parameter that has a gradient. Then comes the step boundary (Ctrl-C, collector, profiler). closure, if
--- given, computes the loss and the gradients again, and its result is returned.
---@param closure? fun(): any
function Optimizer:step(closure, ...)
  check.object(self, "o", "step")
  check.surplus("Optimizer:step", ...)
  local span = spans.running and spans.begin(spans.OPTIMIZER, spans.step_name(self))
  local result
  if closure then
    local _ <close> = accel.enable_grad()
    result = closure()
  end
  if next(deferred.consumed) then require "accel.optim.singly".check(self) end
  local sharding = adopt(self)
  local tier = sharding and sharding:tier()
  if sharding then sharding:before() end
  do
    local _ <close> = setmetatable({ self }, steps)
    local _ <close> = accel.no_grad()
    deferred.prepare(self)
    local whole = sharding and not self.elementwise and {}
    for _, group in ipairs(self.param_groups) do
      local private = self._private[group]
      if #private.pending > 0 then unscoped(admit, self, private, group, tier) end
      local step_groups = private.step_groups
      for i = 1, #step_groups do
        local grads = gradients(self, private, step_groups[i])
        if grads and whole then
          whole[#whole + 1] = { group = group, step_group = step_groups[i], grads = grads, lr = device_lr(private, group) }
        elseif grads then
          local update = self.update
          local lr = device_lr(private, group)
          if tier then require("accel.offload.step").update(tier, self, group, step_groups[i], grads, lr)
          else update(self, group, step_groups[i], grads, lr) end
          if original(update) == original(self.spends) then core.spend(grads) end
        end
        if grads then step_groups[i].fresh = false end
      end
    end
    if whole then require "accel.shard.whole".step(self, sharding, whole) end
  end
  if sharding then sharding:after() end
  if next(deferred.consumed) then require "accel.optim.singly".finish(self) end
  self._steps = (self._steps or 0) + 1
  if recording.running then recording.count(self) end
  if spans.running then
    spans.mark_optimizer(self)
    spans.finish(span)
  end
  accel.step()
  return result
end

-- Parameters one by one ---------------------------------------------------------------------------

--- Whether parameters can step one at a time, in a backward: the rule is made of `update` alone.
---@return boolean
function Optimizer:_steps_singly()
  return original(self.step) == original(Optimizer.step) and not self._sharding and not divided.steps
end

--- A function that steps one parameter now and drops its gradient (singly.lua).
---@return fun(p: accel.Tensor)
function Optimizer:_singly() return require "accel.optim.singly".stepper(self, admit, device_lr) end

--- Subclasses: one step of a step group.
---@param group table
---@param step_group table params, step, and one list per buffer
---@param grads accel.Tensor[]
---@param lr accel.Tensor
function Optimizer:update(group, step_group, grads, lr) -- luacheck: ignore
  raise("%s does not define update", getmetatable(self).__name)
end

--- The thread that can step in this optimizer's place, for accel.offload: its module, and the name by which it knows the rule. nil: the
--- rule is not one of accel.optim.
---@return string? module
---@return string? name
function Optimizer:_stepper()
  local class_, name, optim = getmetatable(self), getmetatable(self).__name:match "[^.]*$", require "accel.optim"
  if getmetatable(optim).__names[name] and optim[name] == class_ then return "accel.optim.stepper", name end
end

--- Completes updates that run in parallel with the script (accel.offload.delayed).
local function settle(self)
  local tier = self._sharding and self._sharding:tier()
  if tier and tier.delayed then tier.delayed:flush() end
end

--- A step skipped for overflow: the previous update's results are available, as after any other step.
function Optimizer:_skip() settle(self) end

--- {state = {[i] = {step=, ...}}, param_groups = {{lr=, ..., params = {i, ...}}}} with i counting parameters from 0, as
--- in PyTorch's files.
---@return table
function Optimizer:state_dict()
  settle(self)
  return state.save(self)
end

--- Restores a state_dict. Groups must have the same sizes. Values are copied. With assign = true, tensors of the right
--- dtype and device become the optimizer's own.
---@param dict table
---@param opts? {assign: boolean?}
function Optimizer:load_state_dict(dict, opts, ...)
  check.result("Optimizer:load_state_dict", dict, opts)
  check.surplus("Optimizer:load_state_dict", ...)
  settle(self)
  state.load(self, dict, opts)
end

function Optimizer.__tostring(self)
  local lines = {}
  for g, group in ipairs(self.param_groups) do
    lines[#lines + 1] = ("Parameter group %d (%d tensors)"):format(g, #group.params)
    local keys = {}
    for key in next, group do keys[#keys + 1] = key ~= "params" and key or nil end
    table.sort(keys)
    for _, key in ipairs(keys) do
      local value = group[key]
      if type(value) == "table" then
        local parts = {}
        for i, v in ipairs(value) do parts[i] = tostring(v) end
        value = "{" .. table.concat(parts, ", ") .. "}"
      end
      lines[#lines + 1] = ("    %s: %s"):format(key, tostring(value))
    end
  end
  return ("%s (\n%s\n)"):format(getmetatable(self).__name:match("[^.]*$"), table.concat(lines, "\n"))
end

return Optimizer
