-- Complex tensors: every op takes them as PyTorch does or refuses by name; text; tables; files; other libraries; derivatives of both
-- orders. calls/complex compares values and gradients with PyTorch.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../../../support/?.lua;" .. package.path
local cases = require "op_cases"
accel.manual_seed(3)

-- ---- every op, by the cases of the generated tests: works, or an error of dtype that names the op ----
local function complex_of(t)
  return t:is_floating_point() and t:to(t.dtype == "f64" and "c128" or "c64") or t
end
local works, refused, wrong = 0, 0, {}
for _, info in ipairs(cases.ops()) do
  local found, list = pcall(cases.cases, info)
  local case
  for _, c in ipairs(found and list or {}) do -- the first whose inputs have elements
    local full = not c.big
    for _, s in ipairs(c.inputs) do
      for _, n in ipairs(s.shape) do full = full and n > 0 end
    end
    if full then case = c break end
  end
  local complex = { real = true, imag = true, conj = true, angle = true, sgn = true, adjoint = true, view_as_real = true }
  if case and not complex[info.name] then
    local t, any = cases.build(case, "f64"), false
    for i, x in ipairs(t) do
      any = any or x:is_floating_point()
      t[i] = complex_of(x)
    end
    local ok, why = pcall(function() return cases.run(case, accel.op(info.name), t) end)
    if any and ok then works = works + 1
    elseif any then
      refused = refused + 1
      local text = tostring(why)
      local fine = type(why) == "table" and why.code ~= "internal" and text:find("complex", 1, true)
        or text:find("c128", 1, true) or text:find("float", 1, true) or text:find("expected", 1, true)
      if not fine then wrong[#wrong + 1] = info.name .. ": " .. text end
    end
  end
end
print(("%d ops take complex tensors, %d refuse them"):format(works, refused))
for _, line in ipairs(wrong) do print("FAIL " .. line) end
assert(#wrong == 0 and works > 90 and refused > 100)

-- ---- text, as PyTorch's ----
local z = accel.tensor { { real = 1, imag = -2 }, { real = -3.5 }, { imag = 1e-3 } }
assert(z.dtype == "c64")
assert(tostring(z) == "tensor([ 1.0000e+00-2.0000e+00j, -3.5000e+00+0.0000e+00j,\n         0.0000e+00+1.0000e-03j])"
  or tostring(z) == "tensor([ 1.0000-2.0000e+00j, -3.5000+0.0000e+00j,  0.0000+1.0000e-03j])", tostring(z))
assert(tostring(accel.zeros(2, { dtype = "c128" })) == "tensor([0.+0.j, 0.+0.j], dtype=c128)")
assert(tostring(accel.tensor { real = 1, imag = 2 }) == "tensor(1.+2.j)")

-- ---- tables ----
local one = z[1]:item()
assert(one.real == 1 and one.imag == -2 and z:tolist()[2].real == -3.5)
assert(accel.tensor(z:tolist()):eq(z):all():item())
assert(accel.tensor({ 1, { real = 2, imag = 1 } }, { dtype = "c128" }).dtype == "c128")
assert(not pcall(accel.tensor, { { real = 1, imag = 1 } }, { dtype = "f32" }))
assert(not pcall(accel.tensor, { { real = "x" } }))

-- ---- views share memory, in-place forms write through them ----
local v = accel.zeros(3, { dtype = "c64" })
v:imag():fill_(2)
v:real():add_(1)
assert(v:eq(accel.tensor { { real = 1, imag = 2 }, { real = 1, imag = 2 }, { real = 1, imag = 2 } }):all():item())
v[2] = 7
assert(v[2]:item().real == 7 and v[2]:item().imag == 0)
assert(not pcall(function() accel.zeros(3):add_(v) end) and not pcall(function() accel.zeros(3):copy_(v) end))

-- ---- files and other libraries ----
local dir = assert(os.getenv "ACCEL_TEST_TMP")
accel.save(dir .. "/z.safetensors", { z = z })
assert(accel.load(dir .. "/z.safetensors").z:eq(z):all():item())
for _, dtype in ipairs { "c64", "c128" } do
  accel.save(dir .. "/z.pt", { z = z:to(dtype) })
  local back = accel.load(dir .. "/z.pt").z
  assert(back.dtype == dtype and back:eq(z:to(dtype)):all():item())
  assert(accel.from_dlpack(z:to(dtype):to_dlpack()):eq(z):all():item())
end

-- ---- derivatives ----
local check, second = accel.autograd.gradcheck, accel.autograd.gradgradcheck
local a = accel.randn(4, { dtype = "c128", requires_grad = true })
local b = (accel.randn(4, { dtype = "c128" }) + 2):requires_grad_(true)
for _, name in ipairs { "exp", "log", "sqrt", "sin", "cosh", "tanh", "abs", "angle", "sgn", "conj", "reciprocal", "sigmoid" } do
  assert(check(function(t) return t[name](t) end, b) and second(function(t) return t[name](t) end, b), name)
end
for _, name in ipairs { "add", "sub", "mul", "div", "pow", "dot", "outer" } do
  assert(check(function(s, t) return t[name](t, s) end, { a, b }) and second(function(s, t) return t[name](t, s) end, { a, b }), name)
end
local error_text = select(2, pcall(function() a:sum():backward() end))
assert(tostring(error_text):find("needs a real output", 1, true), tostring(error_text))

-- ---- optimizers step the parts: a step of SGD is z - lr grad ----
local p = accel.tensor({ { real = 3, imag = 4 } }, { requires_grad = true })
for _, name in ipairs { "SGD", "Adam", "AdamW" } do
  p.grad = nil
  local before = p:detach():clone()
  local optimizer = accel.optim[name]({ p }, { lr = 0.1 })
  p:abs():sum():backward()
  optimizer:step()
  if name == "SGD" then assert((p:detach() - before + before:sgn() * 0.1):abs():max():item() < 1e-6) end
  assert(p:abs():item() < before:abs():item(), name)
end

-- ---- meta ----
local m = accel.zeros(2, 3, { dtype = "c64", device = "meta" })
assert(m:matmul(m:t():conj()).shape[2] == 2 and m:abs().dtype == "f32" and (m * 2).dtype == "c64")
-- ---- 0 to a power: 1 for the power 0, 0 above it, and nothing below ----
do
  local zero = accel.zeros(4, { dtype = "c64" })
  local y = zero:pow(accel.tensor { { real = 0, imag = 0 }, { real = 2, imag = 1 }, { real = -1, imag = 0 }, { real = 0, imag = 1 } }):tolist()
  assert(y[1].real == 1 and y[1].imag == 0 and y[2].real == 0 and y[2].imag == 0)
  assert(y[3].real ~= y[3].real and y[4].real ~= y[4].real)
end

print "ok"
