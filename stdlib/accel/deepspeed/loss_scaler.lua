--- DynamicLossScaler: the loss scale of DeepSpeed's fp16 block, in the place of amp.GradScaler. It falls by half only after
--- `hysteresis` overflows, and doubles when loss_scale_window updates without one are through. A loss_scale above 0 stays as it is.
local GradScaler = require "accel.amp.grad_scaler"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local WHO <const> = "fp16"

--- example: accel.deepspeed.DynamicLossScaler({ initial_scale_power = 4 }):get_scale() --> 16
---@class accel.deepspeed.DynamicLossScaler : accel.amp.GradScaler
---@field hysteresis integer overflows that the scale bears
---@field min_loss_scale number
---@field static boolean the scale does not change
local DynamicLossScaler = GradScaler:extend "accel.deepspeed.DynamicLossScaler"

-- The tracker, one integer that is saved with the scale, holds two counters: updates without an overflow since the last one,
-- times WORD, and the overflows that may come before the scale falls.
local WORD <const> = 256

---@param block? table
---  loss_scale number = 0: a constant scale. 0: a dynamic one
---  initial_scale_power integer = 16: a dynamic scale starts at 2 to this power
---  loss_scale_window integer = 1000: updates without an overflow after which the scale doubles
---  hysteresis integer = 2: overflows after which it halves
---  consecutive_hysteresis boolean = false: every update without an overflow restores the hysteresis
---  min_loss_scale number = 1: the smallest scale. An overflow at it is an error
function DynamicLossScaler:init(block)
  local o = options(WHO, block, {
    loss_scale = 0, initial_scale_power = 16, loss_scale_window = 1000, hysteresis = 2, consecutive_hysteresis = false,
    min_loss_scale = 1,
  })
  check.number(WHO, "loss_scale", o.loss_scale, 0)
  check.count(WHO, "initial_scale_power", o.initial_scale_power)
  check.positive(WHO, "loss_scale_window", o.loss_scale_window)
  if check.positive(WHO, "hysteresis", o.hysteresis) >= WORD then
    raise("%s: hysteresis must be below %d, got %d", WHO, WORD, o.hysteresis)
  end
  check.number(WHO, "min_loss_scale", o.min_loss_scale, 0)
  self.static = o.loss_scale > 0
  self.hysteresis, self.consecutive_hysteresis, self.min_loss_scale = o.hysteresis, o.consecutive_hysteresis,
    o.min_loss_scale
  GradScaler.init(self, {
    init_scale = self.static and o.loss_scale + 0.0 or 2.0 ^ o.initial_scale_power, growth_interval = o.loss_scale_window,
  })
  self._start.tracker = o.hysteresis
end

function DynamicLossScaler:_rule(scale, tracker, found)
  if self.static then return end
  local value, word = scale:item(), tracker:item()
  local clean, left = word // WORD, word % WORD
  if found:item() ~= 0 then
    if left > 1 then
      left = left - 1
    else
      if value <= self.min_loss_scale then
        raise("fp16: gradients are not finite at the smallest loss scale, %g (min_loss_scale): the loss itself overflows; check it,"
          .. " or train in bf16", value)
      end
      value = math.max(value / 2, self.min_loss_scale)
    end
    clean = 0
  else
    if self.consecutive_hysteresis then left = self.hysteresis end
    if clean == self.growth_interval then
      if not self.consecutive_hysteresis then left = self.hysteresis end
      value, clean = value * 2, 0
    end
    clean = clean + 1
  end
  scale:fill_(value)
  tracker:fill_(clean * WORD + left)
end

return DynamicLossScaler
