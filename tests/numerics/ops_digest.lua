-- Prints one line per op, case and dtype: a digest of the bits of results and gradients. Run by
-- ops_threads_test.lua with different numbers of threads.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local cases = require "op_cases"

local function digest(t)
  local bytes = t:detach():contiguous():to_bytes()
  local h, n = #bytes * 0x9E3779B97F4A7C15, #bytes // 8 * 8
  for i = 1, n, 64 do
    local words = math.min(8, (n - i + 1) // 8)
    local a, b, c, d, e, f, g, k = string.unpack(("i8"):rep(words), bytes, i)
    if words == 8 then
      h = ((h ~ a) * 0x100000001B3 ~ b) * 0x100000001B3 ~ c
      h = ((h * 0x100000001B3 ~ d) * 0x100000001B3 ~ e) * 0x100000001B3 ~ f
      h = (h * 0x100000001B3 ~ g) * 0x100000001B3 ~ k
    else
      for _, w in ipairs { string.unpack(("i8"):rep(words), bytes, i) } do h = (h ~ w) * 0x100000001B3 end
    end
    h = h ~ (h >> 29)
  end
  for i = n + 1, #bytes do h = (h ~ bytes:byte(i)) * 0x100000001B3 end
  return ("%016x"):format(h)
end

local function line(info, case, f, label, dtype)
  accel.manual_seed(5)
  local t, leaves, outs, cots, text = cases.build(case, dtype), {}, {}, {}, {}
  for i, s in ipairs(case.inputs) do
    if case.grad ~= false and cases.wants_grad(s) then
      t[i].requires_grad = true
      leaves[#leaves + 1] = t[i]
    end
  end
  for _, r in ipairs(cases.run(case, f, t)) do
    text[#text + 1] = digest(r)
    if r.requires_grad then
      outs[#outs + 1] = r
      local w = accel.empty(r.shape, { dtype = r.dtype })
      cots[#cots + 1] = w:uniform_(-1, 1)
    end
  end
  local g = #outs > 0 and accel.grad(outs, leaves, { grad_outputs = cots, allow_unused = true }) or {}
  for i = 1, #leaves do text[#text + 1] = g[i] and digest(g[i]) or "-" end
  print(label, dtype, table.concat(text, " "))
end

local failed = cases.each(function(info, case, f, label)
  for _, dtype in ipairs { "f32", "bf16", "f64" } do line(info, case, f, label, dtype) end
end, function() return true end)
cases.finish(failed)
