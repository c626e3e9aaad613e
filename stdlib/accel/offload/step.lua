--- Steps of optimizers whose states, or whose parameters and gradients, have their home on a tier (accel.offload.training). Tensors in
--- host memory are updated in place. Those in files pass through memory in slices: the next batch is read and the last one written
--- while one is computed. Rules go element by element, so that slices change no bit.
local accel = require "accel"
local core = require "accel.offload.core"
local raise = require "accel.util.raise"

local M = {}

require "accel.nn.divided".steps = M

local unscoped = accel.unscoped
local PAGE <const> = 4096
local LARGE <const> = 64 << 10 -- bytes: smaller files go through the page cache, on any file system
local MOST <const> = 128 -- slices of a batch

local function in_file(t) return core.tier(t) == "file" end

--- The memory through which slices of files pass.
local function memory_of(t) return t.device == "meta" and "meta" or "cpu" end

--- A flat view, whose elements [from, from + count) a slice names.
local function flat(t) return t.ndim == 1 and t or t:reshape(-1) end

-- Making states ----------------------------------------------------------------------------------

--- The state of a parameter: as the optimizer makes it, on the tier.
---@param tier accel.offload.Training
---@param optimizer accel.optim.Optimizer
---@param p accel.Tensor
---@param group table
---@return table<string, accel.Tensor>
function M.make_state(tier, optimizer, p, group)
  if optimizer.elementwise == false then
    raise("%s: its rule needs whole matrices, but states on a tier are updated in slices", getmetatable(optimizer).__name)
  end
  local n, out = p:numel(), {}
  for from = 0, math.max(n - 1, 0), tier.slice do
    local count = math.min(tier.slice, n - from)
    local part <close> = core.pages({ count }, p.dtype, memory_of(p)) -- released at once: garbage of this size would be the peak
    if in_file(p) then core.move(false, p, from, part):wait()
    else part:copy_(flat(p:detach()):narrow(1, from + 1, count)) end
    for name, value in next, optimizer:make_state(part, group) do
      out[name] = out[name] or tier:flat(tier.optimizer, "optimizer", memory_of(p), n, value.dtype)
      if tier.optimizer == "file" then core.move(true, out[name], from, value:contiguous()):wait()
      else out[name]:narrow(1, from + 1, count):copy_(value) end
      value:release()
    end
  end
  for name, t in next, out do
    if p.ndim ~= 1 then out[name] = unscoped(t.view, t, p.shape) end
  end
  return out
end

-- Slices -----------------------------------------------------------------------------------------

--- Batches of slices { i =, from =, count = } of parameters, each batch with at most `most` elements.
local function batches(params, most)
  local list, batch, room = {}, {}, most
  for i, p in ipairs(params) do
    local n, from = p:numel(), 0
    while from < n do
      local count = math.min(n - from, room)
      batch[#batch + 1] = { i = i, from = from, count = count }
      from, room = from + count, room - count
      if room == 0 or #batch == MOST then
        list[#list + 1], batch, room = batch, {}, most
      end
    end
  end
  if #batch > 0 then list[#list + 1] = batch end
  return list
end

--- Lists of a step group by name, with the information to fetch slices of each: {name, list, written}.
local function fields_of(optimizer, step_group, grads)
  local fields = { { name = "params", list = step_group.params, written = true }, { name = "grads", list = grads, written = false } }
  for _, name in ipairs(optimizer.buffers) do
    local list = step_group[name]
    if list and #list == #step_group.params then fields[#fields + 1] = { name = name, list = list, written = true }
    elseif list and #list > 0 then raise("the state '%s' is there for some parameters only", name) end
  end
  for _, field in ipairs(fields) do
    field.away = {}
    for i, t in ipairs(field.list) do field.away[i] = in_file(t) end
  end
  return fields
end

--- One of two sets of memory that batches take turns in.
local function make_sets(fields, most)
  local sets = { { writes = {} }, { writes = {} } }
  for _, field in ipairs(fields) do
    local any = false
    for _, away in ipairs(field.away) do any = any or away end
    if any then
      local size = field.list[1]:element_size()
      local gaps = MOST * 64 + (most * size // LARGE + 1) * 2 * PAGE
      for _, set in ipairs(sets) do
        set[field.name] = core.pages({ most + gaps // size }, field.list[1].dtype, memory_of(field.list[1]))
      end
    end
  end
  return sets
end

local function wait(transfers)
  for k, transfer in ipairs(transfers) do
    transfer:wait()
    transfers[k] = nil
  end
end

--- Handles of views, at once: those that wait for the collector would hold the sets.
local function drop_views(set)
  for _, views in next, set.views or {} do
    for _, view in ipairs(views) do view:release() end
  end
end

--- Begins to read a batch into a set. Large slices lie in memory as in the file, page for page, which lets them pass the page cache.
local function begin(batch, fields, set)
  wait(set.writes)
  drop_views(set)
  set.reads, set.views = {}, {}
  for _, field in ipairs(fields) do
    local views, at = {}, 0
    for k, slice in ipairs(batch) do
      local t = field.list[slice.i]
      if field.away[slice.i] then
        local size = t:element_size()
        local large = slice.count * size >= LARGE
        local unit = large and PAGE or 64
        local lead = large and ((t:storage_offset() + slice.from) * size % PAGE) // size or 0
        at = (at * size + unit - 1) // unit * unit // size + lead
        views[k] = set[field.name]:narrow(1, at + 1, slice.count)
        at = at + slice.count
        set.reads[#set.reads + 1] = core.move(false, t, slice.from, views[k])
      else
        views[k] = flat(t:detach()):narrow(1, slice.from + 1, slice.count)
      end
    end
    set.views[field.name] = views
  end
end

local function write(batch, fields, set)
  for _, field in ipairs(fields) do
    for k, slice in ipairs(field.written and batch or {}) do
      if field.away[slice.i] then
        set.writes[#set.writes + 1] = core.move(true, field.list[slice.i], slice.from, set.views[field.name][k])
      end
    end
  end
end

--- The step of a step group, wherever its tensors lie.
---@param tier accel.offload.Training
---@param optimizer accel.optim.Optimizer
---@param group table
---@param step_group table
---@param grads accel.Tensor[]
---@param lr accel.Tensor
function M.update(tier, optimizer, group, step_group, grads, lr)
  for _, name in ipairs { "found_inf", "inv_scale" } do -- of a device whose gradients came to the host
    local t = optimizer[name]
    if t and t.device ~= step_group.params[1].device then optimizer[name] = t:to(step_group.params[1].device) end
  end
  if tier.delayed then return tier.delayed:step(optimizer, group, step_group, grads) end
  if tier.overlap then
    return tier.overlap:step(optimizer, group, step_group, grads, function(part, some) optimizer:update(group, part, some, lr) end)
  end
  local fields, any = fields_of(optimizer, step_group, grads), false
  for _, field in ipairs(fields) do
    for _, away in ipairs(field.away) do any = any or away end
  end
  if not any then return optimizer:update(group, step_group, grads, lr) end
  local all = 0
  for _, p in ipairs(step_group.params) do all = all + p:numel() end
  local most = math.min(tier.slice, all)
  local list = batches(step_group.params, most)
  local sets = make_sets(fields, most)
  local shared = {}
  for _, name in ipairs { "step", table.unpack(optimizer.numbers) } do shared[name] = step_group[name] end
  local last = {}
  if #list > 0 then begin(list[1], fields, sets[1]) end
  for k, batch in ipairs(list) do
    local set = sets[2 - k % 2]
    if list[k + 1] then begin(list[k + 1], fields, sets[1 + k % 2]) end
    wait(set.reads)
    local part = setmetatable({ fresh = step_group.fresh }, { __index = step_group })
    for name, views in next, set.views do part[name] = views end
    for name, t in next, shared do -- every slice counts from the same numbers
      last[name] = t:clone()
      part[name] = last[name]
    end
    optimizer:update(group, part, set.views.grads, lr)
    write(batch, fields, set)
  end
  for _, set in ipairs(sets) do
    wait(set.writes)
    drop_views(set)
    for _, field in ipairs(fields) do
      if set[field.name] then set[field.name]:release() end
    end
  end
  for name, t in next, last do shared[name]:copy_(t) end
end

-- Lists of gradients ------------------------------------------------------------------------------

--- Calls fn with a list of tensors, or one by one if some have their home in a file, so that at most one is in memory.
---@param list accel.Tensor[]
---@param fn fun(list: accel.Tensor[])
function M.each(list, fn)
  for _, t in ipairs(list) do
    if in_file(t) then
      for _, one in ipairs(list) do fn { one } end
      return
    end
  end
  fn(list)
end

--- The norm of gradients, some with their home in a file, as clip_grad_norm_ computes it for a list. nil if none has.
---@param grads accel.Tensor[]
---@param p number
---@return number?
function M.norm(grads, p)
  local any, total, slice = false, 0.0, 1 << 18
  for _, t in ipairs(grads) do any = any or in_file(t) end
  if not any then return nil end
  local _ <close> = accel.no_grad()
  local most, buffers = 0, {}
  for _, t in ipairs(grads) do most = math.max(most, t:numel()) end
  for _, t in ipairs(grads) do
    local n, away = t:numel(), in_file(t)
    local memory = away and (buffers[t.dtype] or core.pages({ math.min(slice, most) }, t.dtype, memory_of(t)))
    buffers[t.dtype] = memory or buffers[t.dtype]
    for from = 0, n - 1, slice do
      local part
      if away then
        part = memory:narrow(1, 1, math.min(slice, n - from))
        core.move(false, t, from, part):wait()
      else
        part = flat(t):narrow(1, from + 1, math.min(slice, n - from))
      end
      local wide <close> = part:to "f64" -- released at once: garbage of this size would be the peak
      local x = accel.clip_grad_norm_({ wide }, math.huge, { norm_type = p }):item()
      if x ~= x then return x end
      if p == math.huge then total = math.max(total, x) else total = total + (p == 0 and x or x ^ p) end
    end
  end
  if p ~= 0 and p ~= math.huge then total = total ^ (1 / p) end
  return accel.full({}, total, { dtype = "f32" }):item()
end

return M
