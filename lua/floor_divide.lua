-- a // b for tensors and numbers: floor(a / b), as Lua divides; integers stay integers, exact up to 2^53.
local accel = ...

local function is_integral(x)
  if not accel.is_tensor(x) then return math.type(x) == "integer" end
  return not x:is_floating_point()
end

return function(a, b)
  if not (is_integral(a) and is_integral(b)) then return accel.div(a, b):floor() end
  local rest = accel.remainder(a, b)
  return accel.sub(a, rest):to("f64"):div(b):to(rest.dtype)
end
