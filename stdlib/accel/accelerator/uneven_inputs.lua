--- join_uneven_inputs, for ranks that run out of batches before others: their common decisions while they accumulate,
--- and the state that they take over from one another afterwards. Used by accumulation.lua.
local dist = require "accel.dist"

local M = {}

--- Whether a loader ends the update at this micro-step. It does on all ranks if it does on one. A rank without batches
--- cannot add to a later step, so its accumulated gradients are used now. If all ranks end together,
--- sync_with_dataloader decides. A collective of the ranks that have batches.
---@param state accel.accelerator.GradientState
---@param join accel.dist.Join
---@return boolean
function M.any_loader_ends(state, join)
  local ends = state.end_of_dataloader
  local ending = join:sum(ends and 1 or 0)
  if ending == 0 then return false end
  return state.sync_with_dataloader or join:sum(ends and 0 or 1) > 0
end

local COUNTS <const> = { "applied", "skipped", "step_was_skipped" }

--- All ranks take over rank `src`'s state: of the optimizers of this model, of their schedules, the loss scale, and the
--- progress of the update. A collective.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module
---@param src integer
function M.broadcast_state(accelerator, model, src)
  local set, schedules, state, prepared = {}, {}, accelerator.gradient_state, accelerator._prepared
  for _, p in ipairs(model:parameters()) do set[p] = true end
  local optimizers = prepared:optimizers_of(set)
  for _, schedule in ipairs(prepared.schedulers) do
    for _, optimizer in ipairs(schedule.optimizers) do
      if prepared.holds(optimizer, set) then
        schedules[#schedules + 1] = schedule
        break
      end
    end
  end
  local scaler, is_source, list = accelerator.scaler, dist.get_rank() == src, {}
  if is_source then
    local sent = { step = state.step, sync = state.sync_gradients, scaler = scaler and scaler:state_dict(),
      optimizers = {}, schedules = {} }
    for i, optimizer in ipairs(optimizers) do
      local own = { state = optimizer:state_dict() }
      for _, key in ipairs(COUNTS) do own[key] = optimizer[key] end
      sent.optimizers[i] = own
    end
    for i, schedule in ipairs(schedules) do
      sent.schedules[i] = { state = schedule:state_dict(), seen = schedule.seen, skipped = schedule.skipped }
    end
    list[1] = sent
  end
  dist.broadcast_object_list(list, { src = src, max_bytes = math.maxinteger })
  if is_source then return end
  local received = list[1]
  state.step, state.sync_gradients = received.step, received.sync
  for i, optimizer in ipairs(optimizers) do
    optimizer:load_state_dict(received.optimizers[i].state)
    for _, key in ipairs(COUNTS) do optimizer._counts:set(key, received.optimizers[i][key]) end
  end
  for i, schedule in ipairs(schedules) do
    schedule:load_state_dict(received.schedules[i].state)
    rawset(schedule, "seen", received.schedules[i].seen)
    rawset(schedule, "skipped", received.schedules[i].skipped)
  end
  if received.scaler then scaler:load_state_dict(received.scaler) end
end

return M
