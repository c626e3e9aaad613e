-- Speeds of CUDA kernels beside the copy bandwidth of the same run: accel-run tests/cuda/speeds.lua [elements]. Called by tests/gpu.sh.
-- Bytes are those that must move; the goal of map, norm, softmax and optimizer kernels is 80 % of the copy.
local accel = require "accel"
local state = accel.features().devices.cuda
if state.count == 0 then
  print("skipped: " .. state.state)
  os.exit(77, true)
end
local n = tonumber(arg[1]) or (state.state:find "emulated" and 4096 or 64 * 1024 * 1024)
local rows = math.max(1, n // 4096)

-- Seconds a call, the best of 5 rounds of many.
local function seconds(f)
  for _ = 1, 3 do f() end
  accel.synchronize "cuda"
  local best = math.huge
  for _ = 1, 5 do
    local start = accel.clock()
    for _ = 1, 10 do f() end
    accel.synchronize "cuda"
    best = math.min(best, (accel.clock() - start) / 10)
  end
  return best
end

local copy, failed
local function row(name, bytes, f)
  accel.no_grad(function()
    local ok, t = pcall(seconds, f)
    if not ok then
      print(("%-34s FAILED: %s"):format(name, t))
      failed = true
      return
    end
    local rate = bytes / t / 1e9
    copy = copy or rate
    print(("%-34s %9.3f ms %9.1f GB/s %6.1f %% of copy"):format(name, t * 1e3, rate, 100 * rate / copy))
  end)
  collectgarbage()
end

for _, dtype in ipairs { "f32", "bf16" } do
  local size = dtype == "f32" and 4 or 2
  local x, y = accel.ones(rows, 4096, { dtype = dtype, device = "cuda" }), accel.ones(rows, 4096, { dtype = dtype, device = "cuda" })
  local w, b = accel.ones(4096, { dtype = dtype, device = "cuda" }), accel.zeros(4096, { dtype = dtype, device = "cuda" })
  local all = rows * 4096 * size
  row("copy " .. dtype, 2 * all, function() y:copy_(x) end)
  row("add " .. dtype, 3 * all, function() return x + y end)
  row("gelu " .. dtype, 2 * all, function() return x:gelu() end)
  row("add a row (broadcast) " .. dtype, 2 * all, function() return x + w end)
  row("transposed copy " .. dtype, 2 * all, function() return x:t():contiguous() end)
  row("sum of all " .. dtype, all, function() return x:sum() end)
  row("sum of rows " .. dtype, all, function() return x:sum(2) end)
  row("sum of columns " .. dtype, all, function() return x:sum(1) end)
  row("layer_norm " .. dtype, 2 * all, function() return accel.layer_norm(x, { 4096 }, w, b) end)
  row("rms_norm " .. dtype, 2 * all, function() return accel.rms_norm(x, { 4096 }, w) end)
  row("softmax " .. dtype, 2 * all, function() return x:softmax(-1) end)
  row("dropout " .. dtype, 2 * all, function() return x:dropout(0.1) end)
  row("cumsum of rows " .. dtype, 2 * all, function() return x:cumsum(2) end)
end

-- optimizers and order; bytes of sorting are those of keys and positions, once in and once out
do
  local x = accel.rand(rows, 4096, { device = "cuda" })
  local all = rows * 4096 * 4
  local g, m, v = x * 0.1, x:zeros_like(), x:zeros_like()
  local lr, step = accel.full({}, 1e-3, { device = "cuda" }), accel.zeros({}, { device = "cuda" })
  local r, c = accel.zeros(rows, 1, { device = "cuda" }), accel.zeros(1, 4096, { device = "cuda" })
  row("adamw", 7 * all, function() accel.adamw_step_({ x }, { g }, { m }, { v }, lr, step) end)
  row("sgd with momentum", 5 * all, function() accel.sgd_step_({ x }, { g }, { m }, lr, 0.9) end)
  row("adafactor", 3 * all, function() accel.adafactor_step_({ x }, { g }, { r }, { c }, {}, lr, step) end)
  row("clip_grad_norm", 3 * all, function() accel.clip_grad_norm_({ g }, 1) end)
  local line = x:reshape(-1)
  local ids = (line:narrow(1, 1, rows) * 1000):to "i64"
  row("sort of all", 4 * all, function() return line:sort() end)
  row("sort of rows", 4 * all, function() return x:sort(2) end)
  row("topk of rows", all, function() return x:topk(50, 2) end)
  row("masked_select", 2 * all, function() return line:masked_select(line:gt(0.5)) end)
  row("rows added by number", 2 * all, function() return accel.zeros(1000, 4096, { device = "cuda" }):index_add(1, ids, x) end)
end

-- A call and its gradient; bytes: of both.
local function backward(name, bytes, leaves, f)
  local t = seconds(function()
    local y = f()
    accel.grad(y, leaves, { grad_outputs = y:detach() })
  end)
  local rate = bytes / t / 1e9
  print(("%-34s %9.3f ms %9.1f GB/s %6.1f %% of copy"):format(name, t * 1e3, rate, 100 * rate / copy))
  collectgarbage()
end
local emulated = state.state:find "emulated"
for _, dtype in ipairs { "f32", "bf16" } do
  local o, size = { dtype = dtype, device = "cuda", requires_grad = true }, dtype == "f32" and 4 or 2
  local x, w, b = accel.ones({ rows, 4096 }, o), accel.ones({ 4096 }, o), accel.zeros({ 4096 }, o)
  local all = rows * 4096 * size
  backward("layer_norm, both ways " .. dtype, 5 * all, { x, w, b }, function() return accel.layer_norm(x, { 4096 }, w, b) end)
  backward("rms_norm, both ways " .. dtype, 5 * all, { x, w }, function() return accel.rms_norm(x, { 4096 }, w) end)
  backward("softmax, both ways " .. dtype, 5 * all, { x }, function() return x:softmax(-1) end)
  local side, n, channels = emulated and 4 or 56, emulated and 2 or 64, emulated and 16 or 256
  local image, c = accel.ones({ n, channels, side, side }, o), accel.ones({ channels }, o)
  local plane = n * channels * side * side * size
  backward("group_norm, both ways " .. dtype, 8 * plane, { image, c }, function() return image:group_norm(8, c) end)
  backward("batch_norm, both ways " .. dtype, 8 * plane, { image, c },
    function() return image:batch_norm(nil, nil, c, nil, { training = true }) end)
  local k = accel.ones({ channels, channels, 3, 3 }, o)
  for _, way in ipairs { "forward", "both ways" } do
    local function f() return accel.conv2d(image, k, nil, 1, 1) end
    local t = seconds(way == "forward" and f or function() accel.grad(f(), { image, k }, { grad_outputs = image:detach() }) end)
    local flops = 2 * n * side * side * channels ^ 2 * 9 * (way == "forward" and 1 or 3)
    print(("%-34s %9.3f ms %9.1f Tflop/s"):format(("conv2d 3 x 3, %s %s"):format(way, dtype), t * 1e3, flops / t / 1e12))
  end
end

local m = state.state:find "emulated" and 64 or 8192
for _, dtype in ipairs { "f32", "bf16" } do
  local a, b = accel.ones(m, m, { dtype = dtype, device = "cuda" }), accel.ones(m, m, { dtype = dtype, device = "cuda" })
  local t = seconds(function() return a:matmul(b) end)
  print(("%-34s %9.3f ms %9.1f Tflop/s"):format(("matmul %d %s"):format(m, dtype), t * 1e3, 2 * m ^ 3 / t / 1e12))
end

-- Attention by the flops of its products: 4 b h t t d forward, 2.5 times that backward, half of both when causal.
local emulated = state.state:find "emulated" ~= nil
for _, d in ipairs { 64, 128 } do
  for _, causal in ipairs { false, true } do
    local b, h, t = emulated and 1 or 4, emulated and 1 or 2048 // d, emulated and 64 or 4096
    local function heads() return accel.randn(b, t, h, d):to("bf16"):to("cuda"):transpose(2, 3):detach() end
    local q, k, v, g = heads(), heads(), heads(), heads()
    for _, x in ipairs { q, k, v } do x.requires_grad = true end
    local function forward() return accel.scaled_dot_product_attention(q, k, v, { is_causal = causal }) end
    local flops = 4 * b * h * t * t * d / (causal and 2 or 1)
    local one = seconds(function() accel.no_grad(forward) end)
    local both = seconds(function() accel.grad({ forward() }, { q, k, v }, { grad_outputs = { g } }) end)
    print(("%-34s %9.3f ms %9.1f Tflop/s, backward %9.3f ms %9.1f Tflop/s"):format(
      ("attention %d%s bf16"):format(d, causal and " causal" or ""), one * 1e3, flops / one / 1e12, (both - one) * 1e3,
      2.5 * flops / (both - one) / 1e12))
    collectgarbage()
  end
end

for _, dtype in ipairs { "f32", "bf16" } do
  local size, classes, count = dtype == "f32" and 4 or 2, emulated and 500 or 50257, emulated and 8 or 8192
  local x = accel.randn(count, classes):to(dtype):to("cuda"):detach()
  local t = accel.randint(0, classes, { count }):to("cuda")
  row("cross_entropy " .. dtype, x:numel() * size, function() return accel.cross_entropy(x, t) end)
  x.requires_grad = true
  local both = seconds(function() accel.grad({ accel.cross_entropy(x, t) }, { x }) end)
  print(("%-34s %9.3f ms %9.1f GB/s"):format("cross_entropy and backward " .. dtype, both * 1e3, 3 * x:numel() * size / both / 1e9))
  collectgarbage()
end
if failed then os.exit(1, true) end
