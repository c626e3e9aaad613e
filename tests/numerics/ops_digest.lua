-- Prints one line per op, case and dtype: a digest of the bits of results and gradients. Run by
-- ops_threads_test.lua with different numbers of threads.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local cases = require "op_cases"

-- The bytes as integers of 64 bits, each times an odd number of its place, summed up: integers wrap, so that threads
-- cannot change the sum, and another bit anywhere does.
local function digest(t)
  local bytes = t:detach():contiguous():to_bytes()
  bytes = bytes .. ("\0"):rep(-#bytes % 8)
  local x = accel.from_bytes(bytes, "i64")
  local place = accel.arange(1, x:numel() + 1, { dtype = "i64" }):mul(0x9E3779B97F4A7C15):bitwise_or(1)
  return ("%016x"):format(#bytes == 0 and 0 or x:mul(place):sum():item())
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

local taken = cases.one_of(4)
local failed = cases.each(function(info, case, f, label)
  for _, dtype in ipairs { "f32", "bf16", "f64" } do
    if taken(info.name .. " " .. dtype) then line(info, case, f, label, dtype) end
  end
end, function() return true end)
cases.finish(failed)
