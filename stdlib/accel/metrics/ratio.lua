--- A quotient that is NaN if the divisor is 0: a share of nothing is not a number.
return function(a, b)
  if b == 0 then return 0 / 0 end
  return a / b
end
