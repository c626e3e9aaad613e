-- Options of functions and methods that come from C or stand in accel itself: each one changes what is seen, warns, or raises
-- (support/option_sweep.lua). Ops have a test of their own, ops_test.lua.
--   accel-run tests/options/core_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder { "core.lua", "system.lua", "tensor.lua" }

local made = { values = { dtype = { "f64" }, device = { "meta" }, requires_grad = { true }, generator = { "own" } } }
local function random_ones(call, given)
  if given.generator then given.generator = accel.Generator(99) end
  return call()
end
local function recipe(names, base, run, more)
  local function fresh()
    local own = {}
    for key, value in pairs(base) do own[key] = value end
    return own
  end
  local all = { base = fresh, run = run, values = made.values }
  for key, value in pairs(more or {}) do all[key] = value end
  s:recipe(names, all)
end
local function leading(...) -- for functions whose arguments are written out
  local args = table.pack(...)
  return function(call, given)
    if given.generator then given.generator = accel.Generator(99) end
    return call(table.unpack(args, 1, args.n))
  end
end
recipe("accel.tensor", { data = { 1.5, 2.5 } })
recipe({ "accel.zeros", "accel.ones", "accel.rand", "accel.randn" }, {}, leading(2, 3))
recipe("accel.empty", {}, function(call)
  local t = call(2, 3)
  return t.dtype, t.device, t.requires_grad
end)
recipe("accel.arange", {}, leading(1.0, 5))
recipe("accel.randint", {}, leading(1, 90, { 4 }), { values = { dtype = { "i32" }, device = { "meta" }, requires_grad = { true },
  generator = { "own" } },
  raises = { requires_grad = "only floating%-point" } })
recipe("accel.randperm", { n = 9 }, random_ones, { values = { dtype = { "i32" }, device = { "meta" }, requires_grad = { true },
  generator = { "own" } },
  raises = { requires_grad = "only floating%-point", dtype = "needs i64" } })
recipe("accel.full", { shape = { 2 }, value = 1.5 })
recipe("accel.linspace", { start = 0, stop = 1, n = 4 })
recipe("accel.eye", { n = 3 }, nil, { values = setmetatable({ m = { 2 } }, { __index = made.values }) })
recipe("accel.empty_like", { x = accel.ones(2) }, function(call)
  local t = call()
  return t.dtype, t.device, t.requires_grad
end)
recipe({ "accel.rand_like", "accel.randn_like" }, { x = accel.ones(2) }, random_ones)
recipe("accel.from_bytes", { bytes = string.pack("<ffff", 1, 2, 3, 4), dtype = "f32" }, nil,
  { values = { shape = { { 2, 2 } }, device = { "meta" }, requires_grad = { true }, dtype = { "f64" } } })
recipe("accel.empty_quantized", { quant_type = "nf4", shape = { 8, 64 } }, function(call)
  local t = call()
  return t.dtype, t.device, tostring(t):match "^[^%[]*", pcall(function() return t:quant_part("absmax").dtype, t:quant_part("absmax").shape end)
end, { values = { blocksize = { 128 }, dtype = { "bf16" }, nested = { true }, device = { "meta" } } })
local like = accel.ones(2)
recipe({ "Tensor:new_zeros", "Tensor:new_ones" }, {}, function(call) return call(like, 2, 3) end)
recipe("Tensor:new_empty", {}, function(call)
  local t = call(like, 2, 3)
  return t.dtype, t.device, t.requires_grad
end)
recipe("Tensor:new_full", { shape = { 2 }, value = 1.5 }, function(call) return call(like) end)
recipe("Tensor:new_tensor", { data = { 1.5 } }, function(call) return call(like) end)
local nan = { accel.tensor { 1.0, 0 / 0 }, accel.tensor { 1.0, 0 / 0 } }
local function close(call, given)
  local a, b = accel.tensor { 1.0 }, accel.tensor { 1.1 }
  if given.equal_nan ~= nil then a, b = nan[1], nan[2] end
  return call(a, b)
end
for _, name in ipairs { "accel.allclose", "Tensor:allclose" } do
  recipe(name, {}, close, { values = { rtol = { 0.5 }, atol = { 0.5 }, equal_nan = { true } } })
end
recipe("accel.Generator", {}, function(call)
  return accel.rand(3, { generator = call() })
end, { values = { seed = { 7 }, stream = { 5 } }, passes_on = true })

-- ---- signals ----
local written = { window_length = { 7 }, dtype = { "f64" }, device = { "meta" }, requires_grad = { true }, periodic = { false } }
recipe("^accel%.%l+_window$", { window_length = 5 }, nil, { values = setmetatable({ alpha = { 0.6 }, beta = { 0.3 } }, { __index = written }) })
local sound = accel.tensor { 1.0, -2.0, 0.5, 3.0, 2.0, -1.0, 0.0, 1.5, 2.5, -0.5, 1.0, 4.0 }
local by_frames = { input = { sound * 2 }, n_fft = { 6 }, hop_length = { 2 }, win_length = { 3 }, center = { false },
  window = { accel.tensor { 0.5, 1.0, 2.0, 1.0 } }, normalized = { true }, onesided = { false }, pad_mode = { "constant" },
  return_complex = { false }, length = { 5 } }
local function of(call, given, entry, input) -- a method has its input already
  if entry.kind ~= "method" and given.input then input, given.input = given.input, nil end
  return call(input)
end
recipe({ "accel.stft", "Tensor:stft" }, { n_fft = 4 }, function(call, given, entry)
  if given.return_complex == nil then given.return_complex = true end
  return of(call, given, entry, sound)
end, { values = by_frames, raises = { input = "by position and as an option" } })
local frames = sound:stft(4, { return_complex = true, onesided = false }) * accel.tensor { 1.0, 2.0, 3.0, 4.0 }:unsqueeze(2)
recipe({ "accel.istft", "Tensor:istft" }, { n_fft = 4 }, function(call, given, entry) return of(call, given, entry, frames) end, {
  values = setmetatable({ input = { frames * 2 }, onesided = { true }, return_complex = { true } }, { __index = by_frames }),
  raises = { onesided = "expected 3 frequencies", n_fft = "expected 4 frequencies", input = "by position and as an option" } })

-- ---- gradients ----
local function graph()
  local x, y = accel.tensor({ 1.0, 2.0 }, { requires_grad = true }), accel.tensor({ 3.0, 4.0 }, { requires_grad = true })
  return x, y, x * x * y
end
local backward_values = {
  gradient = { accel.tensor { 1.0, 3.0 } }, gradients = { accel.tensor { 1.0, 3.0 } }, grad_tensors = { { accel.tensor { 1.0, 3.0 } } },
  grad_outputs = { { accel.tensor { 1.0, 3.0 } } }, inputs = { "x" }, retain_graph = { true }, create_graph = { true }, allow_unused = { true },
}
local function backward(call, given, entry)
  local x, y, z = graph()
  local watched = {}
  for key, value in pairs(given) do watched[key] = value end
  if given.inputs == "x" then given.inputs = { x } end
  local out = z:sum()
  if watched.gradient or watched.gradients or watched.grad_tensors then out = z end
  if entry.kind == "method" then call(out) else call(entry.name == "accel.backward" and { out } or out) end
  local again = pcall(function() out:sum():backward() end)
  local wanted = x.grad and x.grad.requires_grad
  return x.grad, y.grad, again, wanted
end
recipe({ "accel.backward", "Tensor:backward" }, {}, backward, { values = backward_values })
recipe("accel.grad", {}, function(call, given)
  local x, y, z = graph()
  local out = given.grad_outputs and z or z:sum()
  local other = accel.ones(1, { requires_grad = true })
  local ok, list = pcall(call, out, given.allow_unused ~= nil and { x, other } or { x, y })
  if not ok and given.allow_unused == nil then error(list, 0) end
  return ok, ok and list[1], ok and list[1].requires_grad, pcall(function() z:sum():backward() end)
end, { values = backward_values, with = { allow_unused = { allow_unused = false } } })
local function ran() return "ran" end
local function in_block(call, given)
  if given.f then return call() end
  local _ <close> = call()
  return accel.is_grad_enabled()
end
for name, base in pairs { no_grad = {}, enable_grad = {}, set_grad_enabled = { on = false } } do
  recipe("accel." .. name, base, in_block, { values = { f = { ran } }, passes_on = true })
end
recipe({ "Tensor:size", "Tensor:stride" }, {}, function(call) return call(accel.ones(2, 3)) end, { values = { dim = { 2 } } })
recipe("Tensor:requires_grad_", {}, function(call) return call(accel.ones(2, 3)).requires_grad end, { values = { on = { false } } })
recipe("accel.autocast", {}, function(call, given)
  local a = accel.ones(2, 2)
  local function product() return a:matmul(a).dtype end
  if given.f then
    given.f = product
    return call()
  end
  local _ <close> = call()
  return product(), accel.get_autocast_dtype()
end, { values = { dtype = { "f16" }, enabled = { false }, f = { ran }, device = { "meta" } }, passes_on = true })
local CHECKPOINTS = "tests/options/autograd_test.lua"
s:leave({ "accel.checkpoint", "accel.checkpoint_sequential" }, CHECKPOINTS)
s:leave("accel.Function", "what is given is the function itself")

-- ---- compiled and recorded functions ----
recipe("accel.compile", { fn = function(x) return x * 2 + 1 end }, function(call)
  local f = call()
  return type(f), type(f) == "table" and rawequal(f, nil) or f == nil, pcall(f, accel.ones(2))
end, {
  values = { backend = { "eager", "cudagraphs" }, mode = { "max-autotune" }, fullgraph = { true }, dynamic = { true }, options = { { trace = true } },
    disable = { true } },
  elsewhere = { backend = "tests/stdlib/compile_test.lua", disable = "tests/stdlib/compile_test.lua", mode = "tests/stdlib/compile_test.lua" },
})
s:leave("accel.graph", "needs a GPU: tests/cuda/graph_suite.lua")

-- ---- files, text, bytes ----
local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/options_core")
local serial = 0
local function path(name)
  serial = serial + 1
  return ("%s/%d%s"):format(folder, serial, name)
end
recipe("accel.save", { tensors = { a = accel.ones(2) } }, function(call, given)
  given.path = path "x.safetensors"
  if given.set then
    accel.makedirs(folder .. "/set")
    given.path, given.set = "x.safetensors", assert(require "accel.util.writer".set(folder .. "/set"))
    assert(call())
    assert(given.set:commit())
    return accel.listdir(folder .. "/set")
  end
  call()
  local f <close> = assert(io.open(given.path, "rb"))
  return f:read "a"
end, { values = { metadata = { { who = "me" } }, set = { true } }, passes_on = true })
recipe("accel.write_file", { bytes = "x" }, function(call, given)
  given.path = path "x.bin"
  assert(call())
  return require "lfs".attributes(given.path, "permissions")
end, { values = { private = { true } } })
local saved = path "y.safetensors"
accel.save(saved, { a = accel.ones(2) })
recipe("accel.load", { path = saved }, nil, { values = { device = { "meta" }, map_location = { "meta" } } })
local tokens = path "t.bin"
accel.write_file(tokens, string.pack("<I2I2I2I2", 1, 2, 3, 4))
recipe("accel.open_tokens", { path = tokens }, function(call)
  local f = call()
  return f.n or f.count or #f
end, { values = { dtype = { "u32" }, header = { 4 } } })
recipe("accel.json.decode", { text = '{"c": 2, "a": 1, "b": null}' }, function(call, given)
  if given.wide_integers ~= nil or given.records ~= nil then
    given.text = "[18446744073709551615]"
    local ok, list = pcall(call)
    return ok, ok and list
  end
  local value, message = call()
  return value, message, value and tostring(value.b) ~= "nil", value and accel.json.encode(value)
end, { values = { nulls = { true }, wide_integers = { true }, ordered = { true }, records = { true } },
  with = { wide_integers = { wide_integers = false }, records = { records = false } } })
recipe("accel.json.encode", { value = { a = { 1, 2 } } })
recipe("accel.yaml.decode", { text = "a: [1, 2, 3]" }, function(call)
  local value, message = call()
  return value, message
end, { values = { max_nodes = { 2 } } })
recipe("accel.encode", { value = { 1, 2, ("x"):rep(100) } }, nil, { values = { max_bytes = { 10 }, tensor = { true } },
  raises = { max_bytes = "10" } })
recipe("accel.decode", { bytes = accel.encode { accel.ones(2) } }, function(call)
  local value, message = call()
  return value, message
end, { values = { max_bytes = { 4 } } })

s:leave({ "accel.scope", "accel.unscoped", "accel.device" }, "the function that is given runs inside")
s:leave({ "accel.mem_stats", "accel.reset_peak_memory", "accel.empty_cache", "accel.synchronize", "accel.device_flags" },
  "of devices: tests/host/device and tests/cuda/device_suite.lua")
s:leave({ "accel.isatty", "accel.repl", "accel.breakpoint", "accel.pdb.set_trace" }, "of terminals: tests/lua/repl_test.lua")
s:leave("accel.launch", "starts ranks: tests/options/launch_test.lua")

s:finish()
