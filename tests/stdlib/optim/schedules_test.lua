-- Transformers' schedules as functions: with arguments by position and by name each gives the rates of get_scheduler.
local accel = require "accel"
local S = accel.optim.lr_scheduler
local function optimizer() return accel.optim.SGD({ accel.zeros(1, { requires_grad = true }) }, { lr = 0.5 }) end
local function rates(o, schedule)
  local list = {}
  for i = 1, 24 do
    list[i] = ("%a"):format(o.param_groups[1].lr)
    o:step()
    schedule:step()
  end
  return table.concat(list, " ")
end

-- name, get_scheduler's name, arguments by position and their names
local cases = {
  { "get_constant_schedule", "constant", {}, {} },
  { "get_constant_schedule_with_warmup", "constant_with_warmup", { 5 }, { "num_warmup_steps" } },
  { "get_linear_schedule_with_warmup", "linear", { 4, 20 }, { "num_warmup_steps", "num_training_steps" } },
  { "get_cosine_schedule_with_warmup", "cosine", { 4, 20, 1.5 }, { "num_warmup_steps", "num_training_steps", "num_cycles" } },
  { "get_cosine_with_hard_restarts_schedule_with_warmup", "cosine_with_restarts", { 4, 20, 3 },
    { "num_warmup_steps", "num_training_steps", "num_cycles" } },
  { "get_polynomial_decay_schedule_with_warmup", "polynomial", { 4, 20, 0.01, 2.0 },
    { "num_warmup_steps", "num_training_steps", "lr_end", "power" } },
  { "get_inverse_sqrt_schedule", "inverse_sqrt", { 4, 9 }, { "num_warmup_steps", "timescale" } },
  { "get_cosine_with_min_lr_schedule_with_warmup", "cosine_with_min_lr", { 4, 20, 0.5, -1, 0.1 },
    { "num_warmup_steps", "num_training_steps", "num_cycles", "last_epoch", "min_lr" } },
  { "get_cosine_with_min_lr_schedule_with_warmup_lr_rate", "cosine_warmup_with_min_lr", { 4, 20, 0.5, -1, nil, 0.2, 0.1 },
    { "num_warmup_steps", "num_training_steps", "num_cycles", "last_epoch", "min_lr", "min_lr_rate", "warmup_lr_rate" } },
  { "get_wsd_schedule", "warmup_stable_decay", { 4, 6, nil, 8, "cosine", "linear", 0.1, 0.5 },
    { "num_warmup_steps", "num_decay_steps", "num_training_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles" } },
}
for _, case in ipairs(cases) do
  local name, kind, list, names = table.unpack(case)
  local options = {}
  for i, key in ipairs(names) do options[key] = list[i] end
  local function made(make)
    local o = optimizer()
    return rates(o, make(o))
  end
  local want = made(function(o) return S.get_scheduler(kind, o, options) end)
  assert(made(function(o) return S[name](o, table.unpack(list, 1, #names)) end) == want, name)
  assert(made(function(o) return S[name](o, options) end) == want, name)
  options.last_epoch = 3 -- of a run that continues
  local o = optimizer()
  o.param_groups[1].initial_lr = 0.5
  assert(S[name](o, options).last_epoch == 4, name)
  local ok, err = pcall(S[name], optimizer(), { num_warmup = 3 })
  assert(not ok and tostring(err):find("unknown option 'num_warmup'", 1, true), err)
end

local o = optimizer()
local s = S.get_reduce_on_plateau_schedule(o, { patience = 0, factor = 0.5 })
s:step(1)
s:step(2)
assert(o.param_groups[1].lr == 0.25 and s:isinstance(S.ReduceLROnPlateau))
