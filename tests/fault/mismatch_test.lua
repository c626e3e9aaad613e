-- The mismatch matrix: pairs of programs in which one rank does something else than the others. Every job must end within a
-- second of its start-up, with an error that holds the script lines of both sides, and without a hang. What is late is tried
-- again (support/ranks.lua). tier: sampled
--   accel-run mismatch_test.lua
local accel = require "accel"
local support = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local src = os.getenv "ACCEL_TEST_SRC" or "."
local exe = os.getenv "ACCEL_TEST_BUILD"
exe = exe and exe .. "/bin/accel-run" or "build/dev/bin/accel-run"
local case_file = src .. "/tests/fault/mismatch_case.lua"
local sanitized = support.sample.sanitized

local ops = { "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "barrier" }
local reduces = { all_reduce = true, reduce = true, reduce_scatter = true }
local rooted = { reduce = true, broadcast = true, gather = true, scatter = true }
local function call(op, t)
  t = t or {}
  return ("%s %s %d %s %d"):format(op, t.dtype or "f32", t.n or 12, t.op or "sum", t.root or 0)
end

local cases = {}
-- lines: which line of each program the message must name; nil: that side made no further call
local function add(kind, ranks, odd, rest, other, rest_line, odd_line)
  cases[#cases + 1] = { kind = kind, ranks = ranks, odd = odd, rest = rest, other = other, rest_line = rest_line, odd_line = odd_line }
end
for i, op in ipairs(ops) do
  for ranks = 2, 3 do
    for odd = 0, ranks - 1 do
      for k, second in ipairs(ops) do
        if k ~= i then
          if ranks == 2 then add("op", ranks, odd, call(op), call(second), 2, 2) end
          if ranks == 2 and k > i then
            add("order", ranks, odd, call(op) .. ";" .. call(second), call(second) .. ";" .. call(op), 2, 2)
          end
          if ranks == 3 and (i + k + odd) % 3 == 0 then add("op", ranks, odd, call(op), call(second), 2, 2) end
        end
      end
      if op ~= "barrier" then
        add("dtype", ranks, odd, call(op), call(op, { dtype = "f64" }), 2, 2)
        add("count", ranks, odd, call(op), call(op, { n = 13 }), 2, 2)
        add("size", ranks, odd, call(op, { n = 200000 }), call(op, { n = 200001 }), 2, 2)
      end
      if reduces[op] then
        for _, reduction in ipairs { "max", "min", "prod", "mean" } do
          add("reduction", ranks, odd, call(op), call(op, { op = reduction }), 2, 2)
        end
      end
      if rooted[op] then add("root", ranks, odd, call(op), call(op, { root = 1 }), 2, 2) end
      add("missing", ranks, odd, call(op) .. ";" .. call "barrier", call "barrier", op ~= "barrier" and 2 or 3, op ~= "barrier" and 2 or nil)
      add("extra", ranks, odd, call "barrier", call "barrier" .. ";" .. call(op), nil, 3)
      add("exit", ranks, odd, call "barrier" .. ";" .. call(op), call "barrier", 3, nil)
    end
  end
end

local function command(c)
  -- own standard input and a hard limit: a hang is a failure, not a stuck test
  return ("timeout -s KILL 60 '%s' --num_processes %d '%s' %d '%s' '%s' 2>&1 </dev/null; echo \"status $?\""):format(exe, c.ranks,
    case_file, c.odd, c.rest, c.other)
end

local bad, slowest, counts = {}, 0, {}
local limit = sanitized and 6 or 1.5 -- seconds, with starting and ending the processes
local function judge(c, text)
  local status = tonumber(text:match "status (%d+)%s*$")
  local why
  if status == 0 then why = "ended well"
  elseif status == 137 then why = "hung"
  elseif c.rest_line and not text:find("rest.lua:" .. c.rest_line, 1, true) then why = "does not name rest.lua:" .. c.rest_line
  elseif c.odd_line and not text:find("odd.lua:" .. c.odd_line, 1, true) then why = "does not name odd.lua:" .. c.odd_line
  end
  counts[c.kind] = (counts[c.kind] or 0) + 1
  if why then bad[#bad + 1] = ("%s, %d ranks, rank %d apart: %s | %s: %s\n%s"):format(c.kind, c.ranks, c.odd, c.rest, c.other, why, text) end
end

local taken = support.sample.one_of(4, 12)
local judged = 0
for i = 1, #cases do
  if not taken() then goto continue end
  local text
  support.timely(function()
    local began = accel.clock()
    local p = assert(io.popen(command(cases[i])))
    text = p:read "a"
    p:close()
    local took = accel.clock() - began
    if took > limit and not text:find "status 137%s*$" then return ("%s took %.2f s"):format(command(cases[i]), took) end
    slowest = math.max(slowest, took)
  end)
  judge(cases[i], text)
  judged = judged + 1
  ::continue::
end

local parts = {}
for kind, n in accel.pairs(counts) do parts[#parts + 1] = ("%s %d"):format(kind, n) end
print(("%d cases (%s), slowest %.2f s"):format(judged, table.concat(parts, ", "), slowest))
for i = 1, math.min(#bad, 10) do print(bad[i]) end
assert(#bad == 0, #bad .. " cases failed")
assert(#cases >= 500, #cases)
assert(judged >= #cases // 12)
