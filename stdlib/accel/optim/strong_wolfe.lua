--- The line search of LBFGS: a step length at which the function has fallen enough and its slope is small (the strong Wolfe conditions;
--- Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6, with cubic interpolation).
local C1 <const>, C2 <const>, CHANGE <const> = 1e-4, 0.9, 1e-9

--- The minimum of the cubic with these values and slopes at two points, within bounds.
local function cubic(a, b, low, high)
  low, high = low or math.min(a.t, b.t), high or math.max(a.t, b.t)
  local d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
  local square = d1 * d1 - a.slope * b.slope
  if not (square >= 0) then return (low + high) / 2 end
  if a.t > b.t then a, b = b, a end
  local d2 = math.sqrt(square)
  local t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
  return math.min(math.max(t, low), high)
end

---@param evaluate fun(t: number): number, accel.Tensor value and gradient at this length
---@param t number first guess
---@param d accel.Tensor direction
---@param f number value at 0
---@param gradient accel.Tensor at 0
---@param slope number along d at 0
---@param limit integer evaluations after the first one
---@return number value, accel.Tensor gradient, number t, integer evaluations
return function(evaluate, t, d, f, gradient, slope, limit)
  local size, evals = d:abs():amax():item(), 0
  local function at(length)
    local value, g = evaluate(length)
    evals = evals + 1
    return { t = length, f = value, g = g, slope = g:dot(d):item() }
  end
  local function too_high(p) return p.f > f + C1 * p.t * slope end
  local function is_flat(p) return math.abs(p.slope) <= -C2 * slope end

  -- forward until the minimum lies between two points
  local last, now, tries = { t = 0, f = f, g = gradient, slope = slope }, at(t), 0
  local start, a, b, done = last, nil, nil, false
  while tries < limit do
    if too_high(now) or (tries > 1 and now.f >= last.f) then
      a, b = last, now
    elseif is_flat(now) then
      a, b, done = now, now, true
    elseif now.slope >= 0 then
      a, b = last, now
    end
    if a then break end
    local next_t = cubic(last, now, now.t + 0.01 * (now.t - last.t), now.t * 10)
    last, now, tries = now, at(next_t), tries + 1
  end
  if not a then a, b = start, now end

  -- between them, with a least distance from the ends
  local low, high = a, b
  if b.f < a.f then low, high = b, a end
  local stuck = false
  while not done and tries < limit do
    local left, right = math.min(low.t, high.t), math.max(low.t, high.t)
    if (right - left) * size < CHANGE then break end
    t = cubic(low, high)
    local margin = 0.1 * (right - left)
    if math.min(right - t, t - left) < margin then
      if stuck or t >= right or t <= left then
        t = math.abs(t - right) < math.abs(t - left) and right - margin or left + margin
        stuck = false
      else
        stuck = true
      end
    else
      stuck = false
    end
    now, tries = at(t), tries + 1
    if too_high(now) or now.f >= low.f then
      high = now
      if high.f < low.f then low, high = high, low end
    else
      if is_flat(now) then done = true
      elseif now.slope * (high.t - low.t) >= 0 then high = low
      end
      low = now
    end
  end
  return low.f, low.g, low.t, evals
end
