--- What the suites of tests/cuda share: they skip without a device (exit status 77) and leave nothing on it.
local accel = require "accel"
local numbers = require "numbers"

local M = { cuda = accel.features().devices.cuda, failed = 0 }

if M.cuda.count == 0 then
  print("skipped: " .. M.cuda.state)
  os.exit(77, true)
end

--- The twin of the tests, not a GPU.
M.emulated = M.cuda.state:find "emulated" ~= nil

-- What a job around this test or an `accelerate` configuration would tell a child.
local outer = {}
do
  local p <close> = assert(io.popen "env")
  for line in p:lines() do
    local name = line:match "^([%w_]+)="
    if name and (name:find "^ACCELERATE_" or name:find "RANK" or name:find "WORLD" or name:find "^MASTER_" or name:find "^SLURM_"
      or name:find "^PMI" or name:find "^TORCHELASTIC_" or name:find "_COMM_") then
      outer[#outer + 1] = "unset " .. name .. "; "
    end
  end
end

--- What a command prints, outside of any job that runs this test, without the line in which a sanitizer speaks of the twin's fibers; and
--- whether it succeeded.
---@param command string
---@return string, boolean
function M.output(command)
  local p = assert(io.popen(table.concat(outer) .. command .. " 2>&1"))
  local text = p:read "a"
  return (text:gsub("[^\n]*==%d+==WARNING: ASan doesn't fully support [^\n]*\n", "")), p:close() == true
end

--- A file with this text that is gone when its variable is: local script <close> = suite.temporary(text).
---@param text string
---@return { path: string }
function M.temporary(text)
  local path = os.tmpname()
  local f = assert(io.open(path, "w"))
  assert(f:write(text))
  f:close()
  return setmetatable({ path = path }, { __close = function() os.remove(path) end })
end

--- Roundings of their dtype that results may be away from the CPU's: sums run in another order, libm differs, fused ops round once.
---@type table<string, number>
M.BAR = { f64 = 64, f32 = 64, bf16 = 4, f16 = 4 }

--- How many roundings a result of the device is away from the CPU's, on the scale of the largest value (at least `floor`); and why, where
--- no number says it. Another shape or dtype is infinitely far away.
---@param got accel.Tensor
---@param want accel.Tensor
---@param floor? number
---@param dtype? string whose roundings, when it is not the result's: results of an op under autocast
---@return number, string?
function M.roundings(got, want, floor, dtype)
  if got.dtype ~= want.dtype then return math.huge, got.dtype .. " instead of " .. want.dtype end
  if not numbers.same_shape(got.shape, want.shape) then
    return math.huge, ("(%s) instead of (%s)"):format(table.concat(got.shape, ", "), table.concat(want.shape, ", "))
  end
  local e, why = numbers.distance(numbers.flat(got), numbers.flat(want), floor)
  return e / (numbers.EPS[dtype or want.dtype] or 1), why
end

--- Whether a result of the device is the CPU's within `bar` roundings (M.BAR of its dtype; integers: equal); else it says so, and the
--- suite has failed.
---@param what string
---@param got accel.Tensor
---@param want accel.Tensor
---@param options? { bar: number?, floor: number?, dtype: string? }
---@return boolean
function M.expect(what, got, want, options)
  local o = options or {}
  local e, why = M.roundings(got, want, o.floor, o.dtype)
  local bar = o.bar or M.BAR[o.dtype or want.dtype] or 0
  if e <= bar then return true end
  print(("FAIL %s: error of %.3g roundings, bar %.3g%s"):format(what, e, bar, why and " (" .. why .. ")" or ""))
  M.failed = M.failed + 1
  return false
end

--- The end of a suite of n cases (nil: one that asserts). Bytes that are left on a device are a failure, too; without failures it returns,
--- and accel-run looks for tensors that are left (ACCEL_LEAK_CHECK).
---@param n? integer
function M.finish(n)
  collectgarbage()
  collectgarbage()
  for i = 0, M.cuda.count - 1 do
    local left = accel.mem_stats("cuda:" .. i).live_bytes
    if left ~= 0 then
      print(("FAIL %d bytes are left on cuda:%d"):format(left, i))
      M.failed = M.failed + 1
    end
  end
  if n then print(("%d cases, %d failed"):format(n, M.failed)) end
  if M.failed > 0 then os.exit(1, true) end
end

return M
