--- Which of many cases that differ only in size a run takes: one of n, chosen by a seed that is printed; all of them where
--- ACCEL_TEST_FULL=1 (the tier matrix). ACCEL_TEST_SEED repeats a run's choice; tests/run.sh sets it anew for each run, so that
--- over time every case is taken. All ranks of a job make the same choice.
local M = {}

--- Every case is taken.
M.full = os.getenv "ACCEL_TEST_FULL" == "1"
--- A sanitizer makes processes about ten times as slow.
M.sanitized = (os.getenv "ACCEL_TEST_SANITIZE" or "") ~= ""
M.seed = tonumber(os.getenv "ACCEL_TEST_SEED") or 1

local said = false

--- A function that says of case after case whether it is taken: one of n (under a sanitizer, of n_sanitized), each in a full run.
--- Of n consecutive cases exactly one is.
---@param n integer
---@param n_sanitized? integer [n]
---@return fun(): boolean
function M.one_of(n, n_sanitized)
  if M.sanitized then n = n_sanitized or n end
  if M.full or n <= 1 then return function() return true end end
  if not said then
    print(("a sample of the cases: ACCEL_TEST_SEED=%d takes the same, ACCEL_TEST_FULL=1 all"):format(M.seed))
    said = true
  end
  local at, chosen, state = 0, 0, M.seed
  return function()
    if at % n == 0 then -- the next n cases; splitmix64 (Steele, Lea, Flood 2014)
      state = state + 0x9E3779B97F4A7C15
      local z = (state ~ state >> 30) * 0xBF58476D1CE4E5B9
      z = (z ~ z >> 27) * 0x94D049BB133111EB
      chosen = at + (z ~ z >> 31) % n
    end
    at = at + 1
    return at - 1 == chosen
  end
end

return M
