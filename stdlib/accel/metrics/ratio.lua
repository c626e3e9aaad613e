--- A quotient that is NaN where the divisor is 0: a share of nothing is no number.
return function(a, b)
  if b == 0 then return 0 / 0 end
  return a / b
end
