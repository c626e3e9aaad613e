--- check_micro_batches(who, o): the option micro_batches of a data-parallel wrapper is a positive integer, and goes with
--- deterministic = "world" only. All ranks have to give the same one.
local check = require "accel.util.check"
local raise = require "accel.util.raise"

---@param who string
---@param o {deterministic: "world"?, micro_batches: integer?}
return function(who, o)
  if o.micro_batches == nil then return end
  check.positive(who, "micro_batches", o.micro_batches)
  if o.deterministic ~= "world" then
    raise('%s: micro_batches fixes the order of sums, for deterministic = "world" only; set both, or leave it out', who)
  end
end
