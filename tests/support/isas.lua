--- The instruction sets that ACCEL_CPU_ISA takes on this kind of machine, for tests that run their kernels one after another:
---   for _, isa in ipairs(require "isas") do ... end
local accel = require "accel"

local list = {}
for _, row in ipairs((accel.params())) do
  if row.name == "ACCEL_CPU_ISA" then
    for isa in row.allowed:gmatch "[^|]+" do if isa ~= "auto" then list[#list + 1] = isa end end
  end
end
assert(#list > 1)
return list
