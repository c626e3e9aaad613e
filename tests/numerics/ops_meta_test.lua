-- Every op on the meta device: the shapes and dtypes of the CPU for results and gradients, and not a byte
-- of memory. Shapes that depend on data have their bound there, or the op says what it needs to know one.
-- tier: sampled (of the cases of an op and a dtype)
--   accel-run tests/numerics/ops_meta_test.lua [OP]
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local numbers = require "numbers"
local cases = require "op_cases"

local function signature(r) return ("%s (%s)"):format(r.dtype, table.concat(r.shape, ", ")) end

-- What comes out, as a text, and the shapes of results that the text leaves out.
local function describe(info, case, f, dtype, device)
  local t, list, text, shapes = cases.build(case, dtype, device), {}, {}, {}
  for i, s in ipairs(case.inputs) do
    if case.grad ~= false and cases.wants_grad(s) and numbers.EPS[dtype] then
      t[i].requires_grad = true
      list[#list + 1] = t[i]
    end
  end
  local outs, cots = {}, {}
  for j, r in ipairs(cases.run(case, f, t)) do
    assert(r.device == device, ("result %d is on %s"):format(j, r.device))
    if info.dynamic then
      text[#text + 1], shapes[j] = ("%s, rank %d"):format(r.dtype, #r.shape), r.shape
    else
      text[#text + 1] = ("%s, strides (%s)"):format(signature(r), table.concat(r:stride(), ", "))
    end
    if r.requires_grad then outs[#outs + 1], cots[#cots + 1] = r, accel.zeros_like(r) end
  end
  local g = #outs > 0 and accel.grad(outs, list, { grad_outputs = cots, allow_unused = true }) or {}
  for i = 1, #list do text[#text + 1] = g[i] and "gradient " .. signature(g[i]) or "no gradient" end
  return { text = table.concat(text, "; "), shapes = shapes }
end

local function within(small, large)
  for j, s in ipairs(small) do
    for d, extent in ipairs(s) do
      assert(extent <= large[j][d], ("result %d: extent %d is beyond its bound %d"):format(j, extent, large[j][d]))
    end
  end
end

local taken = cases.one_of(3)
local failed = cases.each(function(info, case, f)
  local dtypes = { "f64", "bf16" }
  if case.ints ~= false and not case.big then dtypes[3] = "i32" end
  for _, dtype in ipairs(dtypes) do
    if not taken(info.name .. " " .. dtype) then goto continue end
    local ok, want = pcall(describe, info, case, f, dtype, "cpu")
    collectgarbage()
    local born = accel.mem_stats("cpu").born_bytes
    local good, got = pcall(describe, info, case, f, dtype, "meta")
    if case.meta == false then
      assert(ok and not good and got.code == "invalid_argument", ("%s: on meta: %s"):format(dtype, tostring(got)))
    else
      assert(ok == good, ("%s: %s on the CPU, on meta: %s"):format(dtype, tostring(want), tostring(got)))
    end
    if ok and good then
      local why = ("%s: %s on the CPU, %s on meta"):format(dtype, want.text, got.text)
      assert(got.text == want.text, why)
      within(want.shapes, got.shapes)
    elseif not ok then
      local why = ("%s: %s on the CPU, on meta %s"):format(dtype, tostring(want), tostring(got))
      assert(got.code == want.code, why)
    end
    assert(accel.mem_stats("cpu").born_bytes == born, dtype .. ": CPU memory was taken")
    ::continue::
  end
end, function() return true end)
cases.finish(failed)
