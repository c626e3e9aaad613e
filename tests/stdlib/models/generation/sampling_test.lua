-- What may be drawn and how often: every way of cutting candidates against its definition, the draw against probabilities.
local accel = require "accel"
local sampling = require "accel.models.generation.sampling"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end

local shares = { 0.1, 0.5, 0.05, 0.35 }
local function logs(list)
  local out = {}
  for i, p in ipairs(list) do out[i] = math.log(p) end
  return out
end
local row = accel.tensor { logs(shares) }

--- Probabilities of all ids under o.
local function of(o, least) return sampling.scatter(sampling.candidates(row, o, least), 4):softmax(2):tolist()[1] end

local function near(got, want, bar)
  for i = 1, 4 do
    assert(math.abs(got[i] - want[i]) < (bar or 1e-6), ("%d: %g, wanted %g"):format(i, got[i], want[i]))
  end
end

local top2 = { 0, 0.5 / 0.85, 0, 0.35 / 0.85 }
near(of {}, shares)
near(of { top_k = 2 }, top2)
near(of { top_k = 9 }, shares)
near(of { top_p = 0.8 }, top2)
near(of { top_p = 0.4 }, { 0, 1, 0, 0 })
near(of({ top_p = 0.4 }, 2), top2)
near(of({ top_k = 1 }, 2), top2)
near(of { min_p = 0.5 }, top2)
near(of { epsilon_cutoff = 0.2 }, top2)
near(of { epsilon_cutoff = 0.9 }, { 0, 1, 0, 0 }) -- the greatest stays
local z = 0.1 ^ 2 + 0.5 ^ 2 + 0.05 ^ 2 + 0.35 ^ 2
near(of { temperature = 0.5 }, { 0.1 ^ 2 / z, 0.5 ^ 2 / z, 0.05 ^ 2 / z, 0.35 ^ 2 / z })
-- entropy 1.094: informations 2.30, 0.69, 3.00, 1.05, so that 0.35 is the most typical, then 0.5
near(of { typical_p = 0.2 }, { 0, 0, 0, 1 })
near(of { typical_p = 0.5 }, top2)
-- sqrt(0.09) exp(-1.094) = 0.1005
near(of { eta_cutoff = 0.09 }, { 0.1 / 0.95, 0.5 / 0.95, 0, 0.35 / 0.95 })
near(of { top_k = 3, top_p = 0.85, min_p = 0.1 }, top2) -- 0.894 before the third

do -- the draw has these probabilities, with and without candidates, and follows the seed
  local function counts(o, n)
    local random, got = accel.util.Random(1), { 0, 0, 0, 0 }
    local c = sampling.candidates(row:expand(n, 4):contiguous(), o)
    for _, id in ipairs(sampling.draw(c, random)) do got[id + 1] = got[id + 1] + 1 / n end
    return got
  end
  near(counts({}, 20000), shares, 0.012)
  near(counts({ top_k = 2 }, 20000), top2, 0.012)
  local draw = function(seed) return table.concat(sampling.draw(sampling.candidates(row:expand(50, 4), {}), accel.util.Random(seed))) end
  assert(draw(1) == draw(1) and draw(1) ~= draw(2))
end

do -- several without replacement: all different, the first one by its probability (p1 in 1000 draws of 2 of 4)
  local n = 4000
  local random = accel.util.Random(5)
  local scores = row:expand(n, 4):contiguous()
  local values, index = sampling.draw_several(scores, 2, random)
  local pair = { 0, 0, 0, 0 }
  for b, two in ipairs(index:tolist()) do
    assert(two[1] ~= two[2])
    assert(math.abs(values[b][1]:item() - math.log(shares[two[1] + 1])) < 1e-6 and values[b][1]:item() >= values[b][2]:item())
    for _, id in ipairs(two) do pair[id + 1] = pair[id + 1] + 1 / n end
  end
  -- id i is among two with p_i + sum over j of p_j p_i / (1 - p_j)
  for i = 1, 4 do
    local want = shares[i]
    for j = 1, 4 do
      if j ~= i then want = want + shares[j] * shares[i] / (1 - shares[j]) end
    end
    assert(math.abs(pair[i] - want) < 0.03, ("%d: %g, wanted %g"):format(i, pair[i], want))
  end
end

fails("logit of id 0 is not finite", sampling.check, accel.tensor { { 0 / 0, 1 } })
fails("logit of id 1 is not finite", sampling.check, accel.tensor { { 0, 1 }, { 0, math.huge } })
fails("every logit is minus infinity", sampling.check, accel.tensor { { -math.huge, -math.huge } })
