--- MS-AMP's level O2: Adam and AdamW keep their first moment in f8_e4m3 under a scale that is a power of two, and their second in f16 under
--- one by which its largest value fits: 3 bytes a parameter in the place of 8. A step widens them, group after group, and rounds them
--- again, without waiting for the device. A second moment that vanishes, below 1e-12 of the largest one, counts as the half of the least
--- number that does not, so that no first moment is divided by nothing.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local M = {}

local F16_TOP <const> = 60000 -- below 65504, so that a quotient rounded up still fits
local F16_LEAST <const> = 0x1p-24 -- values below half of it are rounded to 0
local F32_LEAST <const> = 1e-37

--- The values of a buffer and the factor that restores them, both in separate memory.
local function narrow(name, t)
  if name == "exp_avg" then return accel.fp8_cast(t, nil, nil, "e4m3", true) end
  local inverse = (t:max() / F16_TOP):clamp(F32_LEAST)
  return (t / inverse):to "f16", inverse
end

local function widen(name, t, inverse)
  local wide = t:to "f32"
  return (name == "exp_avg" and wide or wide:clamp(F16_LEAST / 2)) * inverse
end

--- Stores an optimizer's states in fewer bits, from its first step on. Existing states keep their values. Returns it.
--- example: local p = accel.ones(64, { requires_grad = true })
---   local o = accel.fp8.compress_states(accel.optim.AdamW({ p }, { lr = 0.1, weight_decay = 0 }))
---   p.grad = accel.ones(64) o:step() return o.state[p].exp_avg.dtype, o.state[p].exp_avg_sq.dtype, p:mean():item() < 0.91
---   --> "f8_e4m3", "f16", true
---@param optimizer accel.optim.Optimizer Adam or AdamW
---@return accel.optim.Optimizer
function M.compress_states(optimizer)
  local optim, cls = require "accel.optim", class.of(optimizer)
  if cls ~= optim.Adam and cls ~= optim.AdamW then
    raise("MS-AMP's level O2 keeps only states of Adam and AdamW in fp8, not of %s; use opt_level = 'O1'", cls and cls.__name or type(optimizer))
  end
  if rawget(optimizer, "_compressed") then return optimizer end
  if next(optimizer.state) ~= nil then
    raise "MS-AMP's level O2: the optimizer has already stepped; prepare it before its first step"
  end
  local make_state, update, buffers = optimizer.make_state, optimizer.update, { "exp_avg", "exp_avg_sq" }
  rawset(optimizer, "_compressed", true)
  rawset(optimizer, "make_state", function(self, p, group)
    local made = make_state(self, p, group)
    for _, name in ipairs(buffers) do
      local first = name == "exp_avg"
      made[name] = made[name]:to(first and "f8_e4m3" or "f16")
      made[name .. "_scale"] = accel.full({}, first and 1 or F32_LEAST, { dtype = "f32", device = p.device })
    end
    return made
  end)
  rawset(optimizer, "update", function(self, group, step_group, grads, lr)
    for _, name in ipairs(buffers) do
      local wide = {}
      for i, p in ipairs(step_group.params) do wide[i] = widen(name, self.state[p][name], self.state[p][name .. "_scale"]) end
      step_group[name] = wide
    end
    update(self, group, step_group, grads, lr)
    for _, name in ipairs(buffers) do
      for i, p in ipairs(step_group.params) do
        local state = self.state[p]
        state[name], state[name .. "_scale"] = accel.unscoped(narrow, name, step_group[name][i])
        step_group[name][i] = state[name]
      end
    end
  end)
  return optimizer
end

return M
