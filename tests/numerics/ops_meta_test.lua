-- Every op on the meta device: the shapes and dtypes of the CPU for results and gradients, and not a byte
-- of memory.
--   accel-run tests/numerics/ops_meta_test.lua [OP]
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local numbers = require "numbers"
local cases = require "op_cases"

local function signature(r) return ("%s (%s)"):format(r.dtype, table.concat(r.shape, ", ")) end

local function describe(case, f, dtype, device)
  local t, list, text = cases.build(case, dtype, device), {}, {}
  for i, s in ipairs(case.inputs) do
    if case.grad ~= false and cases.wants_grad(s) and numbers.EPS[dtype] then
      t[i].requires_grad = true
      list[#list + 1] = t[i]
    end
  end
  local outs, cots = {}, {}
  for j, r in ipairs(cases.run(case, f, t)) do
    assert(r.device == device, ("result %d is on %s"):format(j, r.device))
    text[#text + 1] = ("%s, strides (%s)"):format(signature(r), table.concat(r:stride(), ", "))
    if r.requires_grad then outs[#outs + 1], cots[#cots + 1] = r, accel.zeros_like(r) end
  end
  local g = #outs > 0 and accel.grad(outs, list, { grad_outputs = cots, allow_unused = true }) or {}
  for i = 1, #list do text[#text + 1] = g[i] and "gradient " .. signature(g[i]) or "no gradient" end
  return table.concat(text, "; ")
end

local failed = cases.each(function(info, case, f)
  local dtypes = { "f64", "bf16" }
  if case.ints ~= false and not case.big then dtypes[3] = "i32" end
  for _, dtype in ipairs(dtypes) do
    local ok, want = pcall(describe, case, f, dtype, "cpu")
    collectgarbage()
    local born = accel.mem_stats("cpu").born_bytes
    local good, got = pcall(describe, case, f, dtype, "meta")
    assert(ok == good, ("%s: %s on the CPU, on meta: %s"):format(dtype, tostring(want), tostring(got)))
    if ok then
      assert(got == want, ("%s: %s on the CPU, %s on meta"):format(dtype, want, got))
    else
      local why = ("%s: %s on the CPU, on meta %s"):format(dtype, tostring(want), tostring(got))
      assert(got.code == want.code, why)
    end
    assert(accel.mem_stats("cpu").born_bytes == born, dtype .. ": CPU memory was taken")
  end
end, function() return true end)
cases.finish(failed)
