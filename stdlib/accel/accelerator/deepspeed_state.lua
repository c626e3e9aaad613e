--- A checkpoint that DeepSpeed wrote, with the interface of accel.ckpt, so that accelerator:load_state reads it into models and optimizers
--- of any stage and number of ranks: fp32 masters, other optimizer states, options of its groups, the number of steps, the loss scale, the
--- position of a schedule. Random states, loaders and registered objects are missing and stay unchanged.
local accel = require "accel"
local content = require "accel.accelerator.checkpoint_content"
local deepspeed = require "accel.ckpt.deepspeed"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tree = require "accel.ckpt.tree"

local M = {}

local Checkpoint = {}
Checkpoint.__index = Checkpoint

--- The box of a whole tensor that begins at `offsets` (from 0) and has the target's shape.
local function copy_box(whole, target, offsets)
  for d = 1, target.ndim do
    local from = offsets and offsets[d] or 0
    if from > 0 or target.shape[d] < whole.shape[d] then whole = whole:narrow(d, from + 1, target.shape[d]) end
  end
  target:copy_(whole)
end

function Checkpoint:objects() return { "model", "optimizer" } end

function Checkpoint:value(name) return self.values[name], "a checkpoint of DeepSpeed has no " .. name end

function Checkpoint:tensors(object) return self.list[object] or {} end

function Checkpoint:read(object, name, target, offsets)
  local read = self.readers[object][name]
  if not read then return nil, "it is not in the checkpoint" end
  local ok, whole = pcall(read)
  if not ok then return nil, tostring(whole) end
  copy_box(whole, target, offsets)
  return true
end

function Checkpoint:verify() return true end -- it was read

function Checkpoint:close() self.readers = nil end

--- Options of this optimizer's group that DeepSpeed's group also sets.
local function options_of(own, theirs)
  local out = {}
  for key, value in next, own do
    local given = theirs[key]
    if key ~= "params" then
      out[key] = type(given) == type(value) and (type(given) ~= "table" or #given == #value) and given or value
    end
  end
  return out
end

local function add_model(c, dir)
  local state, read = deepspeed.open(dir)
  if not state then raise("%s", read) end
  local seen = {} -- tied ones once
  for name, t in ordered.iterate(state) do
    if not seen[t] then table.insert(c.list.model, { name = name, shape = t.shape, dtype = t.dtype }) end
    seen[t] = true
    c.readers.model[name] = function() return read(name) end
  end
end

local function add_optimizer(c, optimizer, found, names)
  local plain = { groups = {}, state = {}, rest = {} }
  if #names ~= #found.groups then raise("%d parameter groups are stored, here are %d", #found.groups, #names) end
  local own = optimizer:state_dict().param_groups
  for g, group in ipairs(found.groups) do
    plain.groups[g] = options_of(own[g], group.options)
    plain.groups[g].params = group.names
    for _, name in ipairs(group.names) do
      local step = not found.steps and found.step or found.steps and found.steps[name]
      if step then -- nil: a parameter that never stepped
        local entry = { step = accel.full({}, math.tointeger(step) or math.floor(step), { dtype = "i64", device = "cpu" }) }
        for key, readers in next, found.states do
          if readers[name] then
            entry[key] = accel.empty(readers[name].shape, { device = "meta" })
            c.readers.optimizer[("state.%s.%s"):format(name, key)] = readers[name].read
          end
        end
        plain.state[name] = tree.split(entry, "state." .. name, function(at, t)
          table.insert(c.list.optimizer, { name = at, shape = t.shape, dtype = t.dtype })
          c.readers.optimizer[at] = c.readers.optimizer[at] or function() return t end
        end)
      end
    end
  end
  c.values.optimizer = plain
end

--- The kept part of the present state, with the loss scale and the place of schedules from the checkpoint.
local function adopt(c, accelerator, found, steps)
  local scaler = c.values.scaler
  if scaler and found.scale then scaler.scale = found.scale end
  for i in ipairs(found.model.lr_scheduler and accelerator._prepared.schedulers or {}) do
    local state = c.values[content.name("scheduler", i)].state
    if type(state) == "table" and math.type(state.last_epoch) == "integer" then state.last_epoch = steps end
  end
end

local told

--- Opens a folder for the models and optimizers of an Accelerator. It runs on all ranks and raises on a mismatch.
---@param accelerator accel.Accelerator
---@param dir string
---@return table checkpoint
function M.open(accelerator, dir)
  local prepared = accelerator._prepared
  if #prepared.models ~= 1 or #prepared.optimizers > 1 then
    raise("a checkpoint of DeepSpeed holds one model and one optimizer, prepared are %d and %d", #prepared.models, #prepared.optimizers)
  end
  local now, record = content.collect(accelerator, { {} }), content.record(accelerator, {})
  local c = setmetatable({ values = {}, list = { model = {}, optimizer = {} }, readers = { model = {}, optimizer = {} },
    manifest = { state = record } }, Checkpoint)
  for name, value in next, now.data do c.values[name] = value end
  for name, value in next, now.own do c.values[name] = value end
  add_model(c, dir)
  if prepared.optimizers[1] then
    local known = content.parameters(accelerator)
    local names = content.names(prepared.optimizers[1], known)
    local found = deepspeed.optimizer(dir, names)
    local skipped = found.model.skipped_steps or 0
    add_optimizer(c, prepared.optimizers[1], found, names)
    for name, master in next, found.masters or {} do c.readers.model[name] = master.read end
    adopt(c, accelerator, found, found.model.global_steps - skipped)
    local counts = record.optimizers[1]
    counts.applied, counts.skipped = found.model.global_steps - skipped, skipped
    record.step = counts.applied
  end
  if not told and accelerator.is_local_main_process then
    told = true
    accelerator:_warn(("load_state: %s was written by DeepSpeed: random states, loaders and registered objects stay as they are"):format(dir))
  end
  return c
end

return M
