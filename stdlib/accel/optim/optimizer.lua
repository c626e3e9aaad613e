--- optim.Optimizer: parameter groups, state per parameter, and the step boundary; every optimizer is below it.
---
--- A subclass declares its defaults and how a step group is stepped. A *step group* is a list of parameters of one
--- group that got their state in the same step and have shared every step since, so that one multi-tensor
--- call and one step counter serve them all. Parameters that miss a gradient in some step move to a step group
--- of their own. The learning rate lives on the device as a rank-0 tensor per group, refreshed when
--- group.lr changes, and so do the step counter and the other numbers that a rule keeps, so that a step can
--- be recorded once and replayed. All of these are made when they are first needed, in the middle of a step:
--- outside every scope of the script, whose end they outlive. Saving and loading: state.lua.
local accel = require "accel"
local core = require "accel.optim.core"
local check = require "accel.util.check"
local class = require "accel.util.class"
local deferred = require "accel.optim.deferred"
local nearest = require "accel.util.nearest"
local listed = require("accel.util.options").listed
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local recording = require "accel.util.recording"
local spans = require "accel.profiler.spans"
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
---@field defaults table<string, any> the options with their defaults; a subclass sets this and what follows
---@field buffers string[] {}; names of the state tensors of each parameter; lists of them are step_group.NAME
---@field counts boolean true; false: the rule needs no number of the step, step_group.step, a rank-0 tensor
---@field numbers string[] {}; names of other rank-0 tensors that a step group keeps from step to step
---@field number_dtype string "f64"; dtype of these numbers
---@field update function the step of a step group
---@field elementwise boolean true; false: the rule needs whole tensors; on parts of sharded ones it steps by part_dtypes,
---  parts_of and update_whole (accel.shard.whole), and cannot without these
---@field whole_states boolean false; true: of a parameter that is sharded it keeps the state of the whole one
---@field spends function? the update that keeps no gradient it was given, `X.spends = X.update`: freed early
local Optimizer = class("accel.optim.Optimizer")

Optimizer.defaults = {}
Optimizer.buffers = {}
Optimizer.counts = true
Optimizer.numbers = {}
Optimizer.number_dtype = "f64"
Optimizer.elementwise = true
Optimizer.whole_states = false

--- Whether update takes self.inv_scale, a number on the device that gradients count times (or nil; deferred.lua), and
--- self.found_inf, which says there whether the step is left out (or nil): for this step alone. A function of the
--- optimizer, since it may depend on what it has seen.
---@return boolean
function Optimizer:fuses() return false end -- luacheck: ignore self

-- The handles of gradients end with the update that `spends` names. A subclass with an update of its own may keep them.
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
function Optimizer:init(params, opts)
  local options = state.copy_options(self.defaults)
  self:_take_options(options, opts)
  self.options = options
  self.param_groups, self.state, self._private = {}, {}, {}
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

function Optimizer:_take_options(into, given)
  if given ~= nil and type(given) ~= "table" then
    raise("%s: options must be a table, got %s", getmetatable(self).__name, type(given))
  end
  for key, value in next, given or {} do
    local default = self.defaults[key]
    if key ~= "params" and key ~= "initial_lr" then
      if default == nil then
        local near = type(key) == "string" and nearest(key, self.defaults)
        raise("%s: unknown option '%s'%s", getmetatable(self).__name, tostring(key),
          near and ("; did you mean '%s'?"):format(near) or listed(self.defaults))
      elseif type(value) ~= type(default) then
        raise("%s: option '%s' must be a %s, got %s", getmetatable(self).__name, key, type(default),
          type(value))
      end
    end
    into[key] = state.copy_option(value)
  end
end

--- Subclasses check the values of one group here.
function Optimizer:check_options(_) end

--- For checks of options: raises unless each of these is a number, not below zero.
function Optimizer:expect_not_negative(o, ...)
  for _, name in ipairs { ... } do check.number(getmetatable(self).__name, name, o[name], 0) end
end

--- For checks of options: raises unless betas are two numbers in [0, 1), or as many as n says.
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
function Optimizer:expect(ok, fmt, ...)
  if not ok then raise(getmetatable(self).__name .. ": " .. fmt, ...) end
end

--- Parameters of sharded models are replaced by what this rank has of them (accel.shard.owners). Returns what the sharding
--- wants to be told, nil where there is none.
local function adopt(self)
  local owners = package.loaded["accel.shard.owners"]
  if owners and self._owners_seen ~= owners.version then owners.adopt(self) end
  return self._sharding
end

--- For subclasses that write to parameters outside a step: what is told before and after, on all ranks (sharding:before(),
--- sharding:after()); nil where nothing is sharded.
function Optimizer:_shards() return adopt(self) end

--- Adds parameters with options of their own.
---@param group table {params = ..., lr = ...}
function Optimizer:add_param_group(group)
  if type(group) ~= "table" or group.params == nil then
    raise("%s: a parameter group is a table with `params`", getmetatable(self).__name)
  end
  local new = state.copy_options(self.options)
  self:_take_options(new, group)
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
  self._private[new] = { step_groups = {}, pending = table.move(new.params, 1, #new.params, 1, {}) }
  self._owners_seen = nil
  adopt(self)
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

--- Fresh state tensors for p by buffer name; subclasses leave out what the group's options do not need.
function Optimizer:make_state(p, group) -- luacheck: ignore group
  local made = {}
  for _, name in ipairs(self.buffers) do made[name] = accel.zeros_like(p) end
  return made
end

--- make_state of a parameter, or of the part of a sharded one that this rank steps on.
function Optimizer:_make_state(p, group)
  local owners = self.whole_states and self._sharding and package.loaded["accel.shard.owners"]
  return self:make_state(owners and owners.like_whole(p) or p, group)
end

--- The value that a number of `numbers` starts from.
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

--- The gradients of a step group. Where some are missing, those parameters leave it; nil when all are.
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

--- The group's learning rate as a rank-0 tensor on the device.
local function device_lr(private, group)
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

--- For recorded steps: n steps were made that step() knows nothing of.
function Optimizer:_count_steps(n) self._steps = (self._steps or 0) + n end

-- A step that raises leaves no word on the next one: gradients that it was to multiply are multiplied.
local steps = { __close = function(step, failure)
  local self = step[1]
  self.found_inf = nil
  if failure == nil then return deferred.drop(self) end
  if self.inv_scale and not pcall(deferred.apply, self) then deferred.drop(self) end
end }

--- Updates every parameter that has a gradient; then comes the step boundary (Ctrl-C, collector, profiler).
--- closure, when given, computes the loss and the gradients again; its result is returned.
---@param closure? fun(): any
function Optimizer:step(closure)
  check.object(self, "o", "step")
  local span = spans.running and spans.begin(spans.OPTIMIZER, spans.step_name(self))
  local result
  if closure then
    local _ <close> = accel.enable_grad()
    result = closure()
  end
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
          if update == self.spends then core.spend(grads) end
        end
        if grads then step_groups[i].fresh = false end
      end
    end
    if whole then require "accel.shard.whole".step(self, sharding, whole) end
  end
  if sharding then sharding:after() end
  self._steps = (self._steps or 0) + 1
  if recording.running then recording.count(self) end
  if spans.running then
    spans.mark_optimizer(self)
    spans.finish(span)
  end
  accel.step()
  return result
end

--- Subclasses: one step of a step group.
---@param group table
---@param step_group table params, step, and one list per buffer
---@param grads accel.Tensor[]
---@param lr accel.Tensor
function Optimizer:update(group, step_group, grads, lr) -- luacheck: ignore
  raise("%s does not define update", getmetatable(self).__name)
end

--- Updates that go on beside the script (accel.offload.delayed) are done afterwards.
local function settle(self)
  local tier = self._sharding and self._sharding:tier()
  if tier and tier.delayed then tier.delayed:flush() end
end

--- A step that is left out, since gradients overflowed: what the update before made is there, as behind any other step.
function Optimizer:_skip() settle(self) end

--- {state = {[i] = {step=, ...}}, param_groups = {{lr=, ..., params = {i, ...}}}} where i counts parameters
--- from 0, as in PyTorch's files.
---@return table
function Optimizer:state_dict()
  settle(self)
  return state.save(self)
end

--- Takes over what state_dict gave; groups must have the same sizes. Values are copied; with assign = true tensors of the
--- right dtype and device become the optimizer's own.
---@param dict table
---@param opts? {assign: boolean?}
function Optimizer:load_state_dict(dict, opts)
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
