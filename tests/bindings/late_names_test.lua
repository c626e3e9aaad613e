-- Names of ops that are found on first use: aliases, in-place forms that give a tensor another view, fields that are ops; and x.data.
local accel = require "accel"

local function fails(part, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(part, 1, true), ("expected %q, got %s"):format(part, tostring(err)))
end

-- every alias that accel.ops() lists is the op, as a function and a method, and in place
local n = 0
for _, op in ipairs(accel.ops()) do
  for word in op.alias:gmatch "%S+" do
    n = n + 1
    local suffix = op.inplace and "_" or ""
    assert(accel[word .. suffix], word .. suffix)
    assert(op.signature:find "^%w+%(tensors" or accel.Tensor[word .. suffix], word .. suffix .. " as a method")
  end
end
assert(n > 40, n)
local y = accel.absolute(accel.tensor({ -1.0 }, { requires_grad = true }))
assert(y.grad_fn == "abs", "records have the op's own name")
fails("bad argument #1 'x' to 'abs'", accel.absolute, "x")
assert(accel.no_such_op == nil and accel.Tensor.no_such_op == nil)
fails("a tensor has no field or method 'absolut'", function() return y.absolut end)

-- in place through another view: the handle changes, other handles of the same memory stay
local x = accel.arange(6):reshape(1, 6)
local other = x:view(1, 6)
assert(rawequal(x:squeeze_(), x) and x.ndim == 1 and other.ndim == 2)
x:unsqueeze_(2):add_(1)
assert(x.shape == { 6, 1 } and other[1][1]:item() == 1, "the memory is shared")
x:t_():swapaxes_(1, 2):transpose_(1, 2)
assert(x.shape == { 1, 6 })
local leaf = accel.ones(1, 2, { requires_grad = true })
fails("a leaf that requires gradients cannot change its shape in place", leaf.squeeze_, leaf)
local inner = leaf * 3
assert(rawequal(inner:squeeze_(), inner) and inner.grad_fn == "squeeze")
inner:sum():backward()
assert(leaf.grad:equal(accel.full({ 1, 2 }, 3.0)))
fails("expected tensor", leaf.squeeze_, 3)

-- in place by a copy of the result: the shape and the kind of dtype must fit
fails("tril_: a leaf that requires gradients", leaf.tril_, leaf)
fails("addmm_: the result has shape (4, 4)", function() accel.ones(4):addmm_(accel.ones(4, 4), accel.ones(4, 4)) end)
fails("logit_", function() accel.ones(2, { dtype = "i64" }):logit_() end)
local t = accel.tensor { 1, 2, 3 }
assert(rawequal(t:cumsum_(1), t) and t:equal(accel.tensor { 1, 3, 6 }))
local saved = leaf * 1
local product = saved:cumprod_(2):sum() -- its gradient needs what saved was
leaf.grad = nil
product:backward()
assert(leaf.grad:equal(accel.tensor { { 2.0, 1.0 } }))

-- fields that are ops, read and called
local m = accel.arange(6):reshape(2, 3)
for _, name in ipairs { "T", "H", "mT", "mH" } do
  assert(m[name].shape == { 3, 2 } and m[name](m).shape == { 3, 2 }, name)
end
fails("x.H is of a matrix", function() return accel.ones(2, 2, 2).H end)
fails("a tensor is not a function", function() return m(1) end)
fails("a tensor is not a function", function() return m(accel.ones(1)) end)
fails("cannot be assigned", function() m.T = m end)
fails("must be a function, got", function() accel.accelerator.Accelerator():on_main_process(m) end)

-- data: the same parameter with other memory
local p = accel.ones(2, { requires_grad = true })
local seen = { [p] = true }
p.data = accel.tensor { 5.0, 6.0 }
assert(seen[p] and p.requires_grad and p:tolist()[2] == 6 and not p.data.requires_grad)
p.data:zero_()
assert(p:tolist()[1] == 0, "data shares memory")
p.data = p.data:double()
assert(p.dtype == "f64")
p:sum():backward()
assert(p.grad:equal(accel.ones(2)))
fails("does not fit the tensor", function() p.data = accel.zeros(3, { dtype = "f64" }) end)
fails("does not fit the tensor", function() p.data = accel.zeros(2) end) -- the dtype, after a backward
fails("does not fit the tensor", function() accel.ones(1, { requires_grad = true }).data = accel.tensor { 1 } end)
fails("data of a result of an operation", function() (p * 2).data = accel.zeros(2) end)
fails("expected tensor", function() p.data = 1 end)
local d = p * 2
assert(rawequal(d:detach_(), d) and not d.requires_grad and d.is_leaf)
assert(not p:detach_().requires_grad)

-- completion has them
local names = accel.host_chunk "repl/names"
for _, name in ipairs { "absolute", "absolute_", "kron", "atleast_1d" } do
  assert(names.of(accel)[name], name)
  assert((names.of(accel.ones(1))[name] ~= nil) == (name ~= "atleast_1d"), name)
end

-- a script can reach the function that finds them
for _, home in ipairs { require "accel.core", accel.Tensor } do
  local find = getmetatable(home).__index
  assert(not pcall(find, "x", "relu") and not pcall(find, 1, "kron"))
end
