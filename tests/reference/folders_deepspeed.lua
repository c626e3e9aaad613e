-- Folders that DeepSpeed wrote: the weights that its zero_to_fp32.py makes of them and the whole optimizer states, both put together from
-- the files of all ranks. Used by folders.lua.
local accel = require "accel"
local deepspeed = require "accel.ckpt.deepspeed"
local raw = require "raw"

local M = {}

--- Whether two tensors have the same values in the same order. DeepSpeed keeps frozen weights in 16 bits and flat states at stage 3.
local function same(got, want)
  if got:numel() ~= want:numel() then return false end
  return accel.equal(got:detach():reshape(-1):to "f64", want:reshape(-1):to "f64")
end

--- Names of the optimizer's parameters by group: DeepSpeed's own lists, or at stage 0 all parameters in the model's order.
local function groups_of(about, state)
  local groups = {}
  for g, shapes in ipairs(about.param_shapes) do
    groups[g] = {}
    for name in pairs(shapes) do table.insert(groups[g], name) end
  end
  if #groups > 0 then return groups end
  local is_buffer = {}
  for _, name in ipairs(about.buffer_names) do is_buffer[name] = true end
  groups[1] = {}
  for name in pairs(state) do
    if not is_buffer[name] then table.insert(groups[1], name) end
  end
  return groups
end

--- Compares one folder; report(quantity, distance, bar) is called for what differs.
---@param path string
---@param report fun(quantity: string, distance: any, bar: any)
function M.check(path, report)
  local about = assert(raw.json(path .. "/expected.json"))
  local expected = assert(accel.load(path .. "/expected.safetensors"))
  local state, read, close = deepspeed.open(path .. "/folder")
  if not state then return report("open", read, "opens") end
  local groups = groups_of(about, state)
  local found = deepspeed.optimizer(path .. "/folder", groups)
  local function compare(quantity, got, want)
    if not got then report(quantity, "missing", "equal")
    elseif not same(got, want) then report(quantity, "other values", "equal") end
  end
  local weights = 0
  for key, want in pairs(expected) do
    local weight, name, what = key:match "^weight/(.*)", key:match "^universal/(.*)/([^/]*)$"
    local index, slot = key:match "^optimizer/(%d+)/(.*)"
    if index then name, what = groups[1][math.tointeger(index) + 1], slot end
    if weight then
      weights = weights + 1
      compare(key, state[weight] and read(weight), want)
    elseif what == "fp32" then compare(key, state[name] and read(name), want)
    elseif what == "step" then
      local step = found.steps and found.steps[name] or found.step
      if step ~= want:item() then report(key, step, want:item()) end
    elseif what then
      local reader = found.states[what] and found.states[what][name]
      compare(key, reader and reader.read(), want)
    else report(key, "the comparison knows no such quantity", "known") end
  end
  local names = 0
  for _ in pairs(state) do names = names + 1 end
  if names ~= weights then report("weights", names, weights) end
  close()
end

return M
