--- Writes the files of a checkpoint by Accelerate's names and in PyTorch's format, so that Accelerate's load_state loads the folder:
--- model.safetensors (or pytorch_model.bin), optimizer.bin, scheduler.bin, scaler.pt, custom_checkpoint_0.pkl, random_states_0.pkl.
--- Plain data that Accelerate has no place for (positions of loaders, random states, counts of steps) stays in accel's files beside
--- them, which Accelerate ignores. Used by accelerator:save_state{ format = "accelerate" } and accel-run ckpt convert.
local accel = require "accel"
local accelerate = require "accel.ckpt.accelerate"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local torch_state = require "accel.ckpt.torch_state"
local writing = require "accel.ckpt.write"

local M = {}

--- The number of an object of a kind, from 0: 1 for "model_1". nil for another kind.
local function number(name, kind)
  if name == kind then return 0 end
  return math.tointeger(tonumber(name:match("^" .. kind .. "_(%d+)$") or nil))
end

--- Writes a value as a file of torch.save, as part of a save.
local function write_torch(save, name, value)
  local ok, message = accel.save(save.folder .. "/" .. name, value, { format = "torch" })
  if not ok then raise("%s: %s", name, message) end
  writing.adopt(save, name)
end

--- Writes a model. Tied names stand once in safetensors, and all of them in PyTorch's format.
---@param save accel.ckpt.Save
---@param name string "model", "model_1"
---@param tensors {name: string, tensor: accel.Tensor}[]
---@param metadata table<string, string> the format, and the name of each tied tensor's first
---@param safe_serialization boolean
function M.model(save, name, tensors, metadata, safe_serialization)
  if safe_serialization then return save:add_tensors(name .. ".safetensors", tensors, { format = "pt" }) end
  local state = ordered()
  for _, entry in ipairs(tensors) do state[entry.name] = entry.tensor:detach() end
  for alias, first in accel.pairs(metadata) do
    if alias ~= "format" and state[first] then state[alias] = state[first] end
  end
  write_torch(save, accelerate.numbered("pytorch_model", number(name, "model"), ".bin"), state)
end

--- Writes an optimizer from its plain data (accel.ckpt.optimizer) and its tensors.
---@param save accel.ckpt.Save
---@param name string "optimizer", "optimizer_1"
---@param plain table
---@param find fun(name: string): accel.Tensor
---@param class string of the optimizer
function M.optimizer(save, name, plain, find, class)
  write_torch(save, name .. ".bin", torch_state.optimizer_out(plain, find, class))
end

--- Writes the plain data that Accelerate reads. Returns the names that are written whole, and need no file of accel's.
---@param save accel.ckpt.Save
---@param data table<string, any> by name
---@return table<string, boolean>
function M.data(save, data)
  local done = {}
  for name, value in accel.pairs(data) do
    local k = number(name, "scheduler")
    if k and type(value.state) == "table" and math.type(value.state.last_epoch) == "integer" then
      local optimizer, lrs = data[k == 0 and "optimizer" or ("optimizer_%d"):format(k)] or data.optimizer, {}
      for g, group in ipairs(optimizer and optimizer.groups or {}) do lrs[g] = group.lr end
      write_torch(save, name .. ".bin", torch_state.schedule_out(value.state, lrs))
    elseif name == "scaler" then
      write_torch(save, "scaler.pt", value)
    elseif name:find "^custom_checkpoint_%d+$" then
      write_torch(save, name .. ".pkl", value)
      done[name] = true
    elseif number(name, "optimizer") then
      done[name] = true
    end
  end
  return done
end

--- Writes the states of a rank, of which Accelerate needs the number of micro-batches.
---@param save accel.ckpt.Save
---@param rank integer
---@param step integer
function M.random(save, rank, step) write_torch(save, ("random_states_%d.pkl"):format(rank), { step = step }) end

return M
