-- support/sample.lua: of n consecutive cases exactly one is taken, a seed repeats its choice, seeds together take every case, a full
-- run takes all.
local here = arg[0]:match "^.*/" or ""

local function load(seed, full)
  local environment = { ACCEL_TEST_SEED = seed and tostring(seed), ACCEL_TEST_FULL = full and "1" }
  local said = {}
  local env = setmetatable({ os = { getenv = function(name) return environment[name] end }, print = function(s) said[#said + 1] = s end },
    { __index = _G })
  return assert(loadfile(here .. "sample.lua", "t", env))(), said
end

local function choice(seed, n, cases)
  local sample, said = load(seed)
  local taken, list = sample.one_of(n), {}
  for i = 1, cases do list[i] = taken() end
  assert(#said == 1 and said[1]:find("ACCEL_TEST_SEED=" .. (seed or 1), 1, true), "the seed is printed once")
  return list
end

local covered = {}
for seed = 1, 60 do
  local list, again = choice(seed, 5, 100), choice(seed, 5, 100)
  for first = 1, 100, 5 do
    local n = 0
    for i = first, first + 4 do
      assert(list[i] == again[i], "the same seed takes the same cases")
      if list[i] then
        n = n + 1
        covered[i] = true
      end
    end
    assert(n == 1, ("%d of 5 cases"):format(n))
  end
end
for i = 1, 100 do assert(covered[i], ("case %d is never taken"):format(i)) end

local full, said = load(3, true)
local all = full.one_of(7)
for _ = 1, 20 do assert(all()) end
assert(#said == 0)
assert(load(nil).seed == 1)
print "sample ok"
