--- Reads folders that Accelerate's save_state wrote: on one process, under DistributedDataParallel, and under FSDP in its forms (whole,
--- sharded by torch.distributed.checkpoint, one file for each rank). Files are identified by Accelerate's names. Every file is data, and
--- nothing in it is executed. accel.accelerator.checkpoint_foreign loads the result.
---
--- A folder of another tool (this one, and trainer.lua) has
---   tool              the name of the tool
---   model(i)          -> a model's tensors by name, the name of its file, whether it is an adapter. nil, the missing file
---   optimizer(i)      -> { state =, param_groups = } as torch's state_dict has it, the file. nil, the missing file
---   schedule(i)       -> torch's state of a schedule, the file. nil, the missing file
---   loader(i)         -> the position in a pass { batches =, finished = }. nil if there is none
---   scaler()          -> torch's state of a gradient scaler. nil, the missing file
---   custom            -> the names of the files of registered objects, in order. load(name) reads one
---   step(rank)        -> the number of micro-batches so far. nil and the reason if that is unknown
---   rest()            -> the names of the files that were not read
--- with i counted from 0.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local M = {}

--- Names that Accelerate gives, as patterns.
local NAMES <const> = { "^model_?%d*%.safetensors$", "^pytorch_model_?%d*%.bin$", "^pytorch_model_fsdp", "^optimizer_?%d*%.bin$",
  "^optimizer_%d+$", "^optimizer_%d+_rank%d+%.bin$", "^scheduler_?%d*%.bin$", "^scaler%.pt$", "^random_states_%d+%.pkl$",
  "^custom_checkpoint_%d+%.pkl$" }
--- Names in folders of accel, whose manifest may be missing.
local OWN <const> = { "^MANIFEST%.json$", "%.accel$", "^random_states_%d+%.bin$" }

local function any(name, patterns)
  for _, pattern in ipairs(patterns) do
    if name:find(pattern) then return true end
  end
  return false
end

--- Whether Accelerate wrote a folder.
---@param dir string
---@return boolean
function M.is(dir)
  local found = false
  for _, name in ipairs(accel.listdir(dir) or {}) do
    if any(name, OWN) then return false end
    found = found or any(name, NAMES)
  end
  return found
end

--- The name of object i of a kind: "optimizer.bin", "optimizer_1.bin".
---@param name string
---@param i integer
---@param ending string
---@return string
function M.numbered(name, i, ending) return i == 0 and name .. ending or ("%s_%d%s"):format(name, i, ending) end
local numbered = M.numbered

---@class accel.ckpt.Foreign
---@field dir string
---@field tool string
---@field custom string[]
local Folder = class("accel.ckpt.Foreign")
M.Folder = Folder

---@param dir string
---@param tool string
function Folder:init(dir, tool)
  self.dir, self.tool, self.names, self.read, self.custom = dir, tool, {}, {}, {}
  for _, name in ipairs(accel.listdir(dir) or {}) do self.names[name] = true end
end

--- The content of a file, or of a folder of torch.distributed.checkpoint.
---@param name string
---@return any
function Folder:load(name)
  self.read[name] = true
  local value, message = accel.load(self.dir .. "/" .. name, { device = "cpu" })
  if value == nil then raise("%s", message) end
  return value
end

--- The first of several files that exists, or nil.
function Folder:first(...)
  for _, name in ipairs { ... } do
    if self.names[name] then return name end
  end
end

--- The names of files that nothing has read, sorted.
---@return string[]
function Folder:rest()
  local list = {}
  for name in next, self.names do
    if not self.read[name] then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

--- The files of all ranks, rank 0 first, or nil. Raises if there are gaps.
local function of_ranks(self, prefix)
  local files, n, last = {}, 0, -1
  for name in next, self.names do
    local rank = math.tointeger(tonumber(name:sub(1, #prefix) == prefix and name:sub(#prefix + 1):match "^(%d+)%.bin$" or nil))
    if rank then files[rank + 1], n, last = name, n + 1, math.max(last, rank) end
  end
  if n == 0 then return nil end
  if last + 1 ~= n then raise("%s: it has files of %d ranks, but none of every rank up to %d", self.dir .. "/" .. prefix, n, last) end
  return files
end

--- What ranks wrote, joined.
local function joined(self, files)
  local trees = {}
  for r, name in ipairs(files) do trees[r] = self:load(name) end
  return require "accel.ckpt.accelerate_ranks".join(trees, files)
end

function Folder:model(i)
  local name = self:first(numbered("model", i, ".safetensors"), numbered("pytorch_model", i, ".bin"),
    numbered("pytorch_model_fsdp", i, ".bin"))
  if name then return self:load(name), name end
  name = self:first(("pytorch_model_fsdp_%d"):format(i))
  if name then
    local tree = self:load(name)
    return tree.model or tree, name
  end
  local files = of_ranks(self, ("pytorch_model_fsdp_%d_rank"):format(i))
  if files then return joined(self, files), files[1] end
  files = of_ranks(self, "pytorch_model_fsdp_rank") -- LOCAL_STATE_DICT
  if files then
    raise("%s/%s: it holds flat parameters of one rank (LOCAL_STATE_DICT), which have no names; save with FULL_STATE_DICT or "
      .. "SHARDED_STATE_DICT", self.dir, files[1])
  end
  return nil, numbered("model", i, ".safetensors")
end

function Folder:optimizer(i)
  local name, state = self:first(numbered("optimizer", i, ".bin")), nil
  if name then
    state = self:load(name)
  else
    name = self:first(("optimizer_%d"):format(i))
    local files = not name and of_ranks(self, ("optimizer_%d_rank"):format(i))
    if name then state = self:load(name)
    elseif files then state, name = joined(self, files), files[1]
    else return nil, numbered("optimizer", i, ".bin") end
    state = state.optimizer or state
  end
  if type(state) ~= "table" or type(state.param_groups) ~= "table" then raise("%s/%s is not the state of an optimizer", self.dir, name) end
  if state.param_groups.params then state.param_groups = { state.param_groups } end -- one group, of torch.distributed.checkpoint
  state.state = state.state or {} -- without state, torch.distributed.checkpoint writes no entry
  return state, name
end

function Folder:schedule(i)
  local name = numbered("scheduler", i, ".bin")
  if not self.names[name] then return nil, name end
  return self:load(name), name
end

function Folder:scaler()
  if not self.names["scaler.pt"] then return nil, "scaler.pt" end
  return self:load "scaler.pt"
end

--- The position of torchdata's StatefulDataLoader. With workers it counts from its last snapshot.
function Folder:loader(i)
  local name = numbered("dl_state_dict", i, ".bin")
  if not self.names[name] then return nil end
  local state = self:load(name)
  local snapshot = type(state._snapshot) == "table" and state._snapshot
  local batches = state._num_yielded or snapshot and (snapshot._snapshot_step or 0) + (state._steps_since_snapshot or 0)
  if math.type(batches) ~= "integer" then raise("%s/%s: it has no number of batches", self.dir, name) end
  return { batches = batches, finished = state._iterator_finished == true }
end

function Folder:step(rank)
  local name = self:first(("random_states_%d.pkl"):format(rank), "random_states_0.pkl")
  if not name then return nil, "random_states_0.pkl" end
  local ok, states = pcall(self.load, self, name)
  if not ok then return nil, tostring(states) end -- Accelerate also continues without them
  for other in next, self.names do self.read[other] = self.read[other] or other:find "^random_states_%d+%.pkl$" ~= nil end
  local step = type(states) == "table" and states.step
  if math.type(step) ~= "integer" then return nil, name .. " has no step" end
  return step
end

---@param dir string
---@return accel.ckpt.Foreign
function M.open(dir)
  local self, numbers = Folder(dir, "Accelerate"), {}
  for name in next, self.names do
    local n = math.tointeger(tonumber(name:match "^custom_checkpoint_(%d+)%.pkl$"))
    if n then numbers[#numbers + 1] = n end
  end
  table.sort(numbers)
  for k, n in ipairs(numbers) do self.custom[k] = ("custom_checkpoint_%d.pkl"):format(n) end
  return self
end

--- The folder with the highest number at its end among those that Accelerate wrote, as its automatic naming takes it. nil without one.
---@param parent string
---@return string?
function M.newest(parent)
  local most, path = -1, nil
  for _, name in ipairs(accel.listdir(parent) or {}) do
    local n = math.tointeger(tonumber(name:match "(%d+)$"))
    if n and n > most and M.is(parent .. "/" .. name) then most, path = n, parent .. "/" .. name end
  end
  return path
end

return M
