--- Saving and loading of an optimizer's state, for optimizer.lua.
local accel = require "accel"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local unscoped = accel.unscoped

--- How states count parameters. 2: models list theirs in the order of Transformers. States of earlier versions have no such number.
M.NUMBERING = 2

--- An option's value. Lists such as betas are copied, so that no two groups share one.
function M.copy_option(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, v in next, value do copy[key] = v end
  return copy
end

---@param given table
---@return table
function M.copy_options(given)
  local copy = {}
  for key, value in next, given do
    if key ~= "params" then copy[key] = M.copy_option(value) end
  end
  return copy
end

---@param self accel.optim.Optimizer
function M.save(self)
  local out, index = { state = {}, param_groups = {}, numbering = M.NUMBERING }, 0
  for g, group in ipairs(self.param_groups) do
    local copy = M.copy_options(group)
    copy.params = {}
    for i, p in ipairs(group.params) do
      copy.params[i] = index
      local state = self.state[p]
      if state then
        local entry = {}
        for key, value in next, state do entry[key] = value end
        out.state[index] = entry
      end
      index = index + 1
    end
    out.param_groups[g] = copy
  end
  return out
end

local function plain(value) return tensors.is_tensor(value) and value:item() or value end

local function alike(a, b)
  return a.dtype == b.dtype and a.device == b.device and a:is_contiguous() and b:is_contiguous()
end

--- The state of p from a saved entry. With `assign` it takes the entry's tensors if they are of its kind. Also returns
--- the numbers it shares with others as a table. nil when the entry holds none of p's states, so that p starts afresh.
local function load_entry(self, p, group, index, entry, assign)
  local state, missing, found = unscoped(self._make_state, self, p, group), nil, false
  for name, t in pairs(state) do
    local value = entry[name]
    if value == nil then
      missing = name
    else
      found = true
      if not tensors.same_shape(value, t) then
        raise("load_state_dict: %s of parameter %d has shape %s, the parameter %s needs %s", name, index,
          tensors.shape_string(value), tensors.shape_string(p), tensors.shape_string(t))
      end
      if assign and alike(t, value) then state[name] = value else t:copy_(value) end
    end
  end
  local shared = {}
  local function take(name)
    shared[name] = plain(entry[name])
    if shared[name] == nil then missing = name else found = true end
  end
  if self.counts then take "step" end
  for _, name in ipairs(self.numbers) do take(name) end
  if missing and found then raise("load_state_dict: parameter %d has no '%s'", index, missing) end
  if missing then return nil end
  if self.counts then shared.step = math.tointeger(shared.step) or 0 end
  return state, shared
end

--- Parameters with equal numbers step together.
local function key_of(self, shared)
  local key = { ("%d"):format(shared.step or 0) }
  for i, name in ipairs(self.numbers) do key[i + 1] = ("%a"):format(shared[name]) end
  return table.concat(key, " ")
end

--- A state without the number of its order, for an optimizer of a model whose parameters had another order in earlier versions. PyTorch's states
--- also have none, and their counts of steps are f32 tensors, or numbers.
local function check_numbering(self, dict)
  local order = package.loaded["accel.models.order"]
  if not order or dict.numbering == M.NUMBERING or next(dict.state or {}) == nil then return end
  for _, entry in next, dict.state do
    local step = type(entry) == "table" and entry.step
    if step and not (tensors.is_tensor(step) and step.dtype == "i64") then return end
  end
  for _, group in ipairs(self.param_groups) do
    if order.former(group.params) ~= nil then
      raise("load_state_dict: this state counts parameters by number, and earlier versions of accel listed this model's in another order; set"
        .. " numbering = %d in it if another program or a later accel wrote it, else load the folder of save_state, which names parameters",
        M.NUMBERING)
    end
  end
end

local function load_group(self, group, given, saved, assign)
  for key, value in next, given do
    if key ~= "params" then group[key] = M.copy_option(value) end
  end
  local was = self._private[group] or {}
  local private = { step_groups = {}, pending = {}, given_lr = was.given_lr, shown_lr = was.shown_lr }
  self._private[group] = private
  local sets, order = {}, {}
  for i, p in ipairs(group.params) do
    local index = given.params[i]
    local entry = saved[index]
    local state, shared
    if entry then state, shared = load_entry(self, p, group, index, entry, assign) end
    if state then
      self.state[p] = state
      local key = key_of(self, shared)
      if not sets[key] then
        sets[key] = { shared = shared, params = {} }
        order[#order + 1] = sets[key]
      end
      table.insert(sets[key].params, p)
    else
      private.pending[#private.pending + 1] = p
    end
  end
  for _, set in ipairs(order) do
    local shared, device = {}, set.params[1].device
    for name, value in next, set.shared do
      local dtype = name == "step" and "i64" or self.number_dtype
      shared[name] = unscoped(accel.full, {}, value, { dtype = dtype, device = device })
    end
    self:_new_step_group(private, set.params, shared, false)
  end
end

---@param self accel.optim.Optimizer
---@param dict table
---@param opts? {assign: boolean?}
function M.load(self, dict, opts)
  local assign = options("load_state_dict", opts, { assign = false }).assign
  if type(dict) ~= "table" or type(dict.param_groups) ~= "table" then
    raise("load_state_dict: expected the result of state_dict, got %s", type(dict))
  end
  if #dict.param_groups ~= #self.param_groups then
    raise("load_state_dict: %d parameter groups given, the optimizer has %d", #dict.param_groups,
      #self.param_groups)
  end
  for g, group in ipairs(self.param_groups) do
    local n = #dict.param_groups[g].params
    if n ~= #group.params then
      raise("load_state_dict: group %d has %d parameters, the optimizer's has %d", g, n, #group.params)
    end
  end
  check_numbering(self, dict)
  local _ <close> = accel.no_grad()
  local state, private, before = self.state, self._private, {}
  for g, group in ipairs(self.param_groups) do before[g] = M.copy_options(group) end
  self.state, self._private = {}, {}
  local ok, err = pcall(function()
    for g, group in ipairs(self.param_groups) do
      load_group(self, group, dict.param_groups[g], dict.state or {}, assign)
    end
  end)
  if ok then return end
  self.state, self._private = state, private -- a state that does not fit changes nothing
  for g, group in ipairs(self.param_groups) do
    for key in next, M.copy_options(group) do group[key] = before[g][key] end
  end
  error(err, 0)
end

return M
