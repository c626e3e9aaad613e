--- Regional compilation: blocks that repeat are compiled once for all of them, by counts of kernels, programs and collections, whatever the
--- depth; what is beside them apart; names of states stay; losses are those of a plain model.
-- tier: every change, memory
local accel = require "accel"
local compile = require "accel.compile"
local core = require "accel.fuse.core"
local A, nn = accel.accelerator, accel.nn
local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"
local tmp = os.getenv "ACCEL_TEST_TMP"
local N <const> = 256

local Block = nn.Module:extend "Block"
function Block:init(n)
  self.lin, self.weight = nn.Linear(n, n), nn.Parameter(accel.ones(n))
end
function Block:forward(x)
  local d = x - x:mean(-1, true)
  local h = d * ((d * d):mean(-1, true) + 1e-5):rsqrt() * self.weight
  return x + (self.lin(h) * 1.5):gelu() * 0.5
end
local Net = nn.Module:extend "Net"
function Net:init(depth, wide)
  self.first, self.last = nn.Linear(N, N), nn.Linear(N, 1)
  self.h = nn.ModuleList()
  for i = 1, depth do self.h:append(Block(N)) end
  if wide then self.h[2].lin.bias = nil end -- a block of another structure
end
function Net:forward(x)
  x = self.first(x):tanh() * 2
  for _, block in ipairs(self.h) do x = block(x) end
  return self.last(x:tanh() - 0.5)
end
local function net(depth, wide)
  accel.manual_seed(2)
  return Net(depth, wide)
end

if arg[1] then -- a child: one training of a deep model
  local how, depth = arg[1], tonumber(arg[2])
  local model = net(depth)
  if how == "regions" then A.compile_regions(model) elseif how == "whole" then accel.compile(model) end
  local x, losses, first, best = accel.randn(600, N, { generator = accel.Generator(1) }), {}, nil, math.huge
  for step = 1, 5 do
    local t = accel.clock()
    local loss = model(x):square():mean()
    loss:backward()
    for _, p in ipairs(model:parameters()) do
      accel.no_grad(function() p:sub_(p.grad * 0.01) end)
      p.grad = nil
    end
    losses[step] = ("%.17g"):format(loss:item())
    t = accel.clock() - t
    first = first or t
    best = math.min(best, t)
  end
  print(table.concat(losses, " "))
  print("times", first * 1e3, best * 1e3)
  return
end

-- ---- what is compiled ----
local model = net(6)
local names = {}
for name in accel.pairs(model:state_dict()) do names[#names + 1] = name end
assert(A.compile_regions(model) == model and A.compile_regions(model) == model)
local regions, programs = compile.regions_of(model)
assert(#regions == 8 and programs == 3) -- six blocks of one kind, and two linear layers of two
assert(not A.is_compiled_module(model) and A.has_compiled_regions(model) and rawget(model, "forward") == nil)
for _, block in ipairs(model.h) do assert(A.is_compiled_module(block) and not A.is_compiled_module(block.lin)) end
local i = 0
for name in accel.pairs(model:state_dict()) do
  i = i + 1
  assert(name == names[i])
end
assert(i == #names)
assert(select(2, compile.regions_of(A.compile_regions(net(6, true)))) == 4)
local whole = A.compile_regions(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) -- no ModuleList: as a whole
assert(A.is_compiled_module(whole) and #compile.regions_of(whole) == 0)
local apart = A.compile_regions(nn.ModuleList { nn.Linear(2, 2), nn.Tanh() }) -- of two classes: nothing repeats
assert(A.is_compiled_module(apart))
assert(not pcall(A.compile_regions, 5) and not pcall(A.compile_regions, net(2), { mode = "fast" }))

-- ---- what blocks keep ----
-- Blocks of one structure need not keep the same: one has a hook, or a field of its own.
local Keeper = nn.Module:extend "Keeper"
function Keeper:init() self.lin, self.act = nn.Linear(N, N), nn.Tanh() end
function Keeper:forward(x)
  local h = self.act(x * 0.5) + 1 -- read by chains alone
  if self.keeps then self.last = h end
  return self.lin(h + x)
end
local Keepers = nn.Module:extend "Keepers"
function Keepers:init() self.h = nn.ModuleList { Keeper(), Keeper(), Keeper() } end
function Keepers:forward(x)
  for _, block in ipairs(self.h) do x = block(x) end
  return x
end
local cases <const> = {
  hook = function(m, x)
    local last
    m.h[3].act:register_forward_hook(function(_, _, y) last = y end)
    return function() return m(x):sum():item(), last:sum():item() end
  end,
  field = function(m, x)
    m.h[3].keeps = true
    return function() return m(x):sum():item(), m.h[3].last:sum():item() end
  end,
}
for what, prepare in pairs(cases) do
  local values = {}
  for _, how in ipairs { "plain", "whole", "regions" } do
    accel.manual_seed(3)
    local m, x = Keepers(), accel.randn(600, N)
    local call = prepare(m, x)
    if how == "regions" then A.compile_regions(m) elseif how == "whole" then accel.compile(m) end
    local list = {}
    for i = 1, 4 do list[i] = accel.no_grad(function() return table.concat(table.pack(call()), " ") end) end
    values[how] = table.concat(list, " ")
  end
  assert(values.plain == values.whole and values.plain == values.regions, what .. ": " .. values.plain .. "\n" .. values.regions)
end

-- It is looked for in the first calls alone.
do
  local n, own, m = 0, collectgarbage, A.compile_regions(net(3))
  collectgarbage = function(...) -- luacheck: ignore
    if select("#", ...) == 0 then n = n + 1 end
    return own(...)
  end
  local function call()
    accel.no_grad(function() return m(accel.randn(600, N)) end)
    return n
  end
  assert(call() > 0 and n <= 2 * #compile.regions_of(m) and n == call())
  collectgarbage = own -- luacheck: ignore
end

-- ---- unwrapping, settings ----
local function made(opts)
  accel.AcceleratorState._reset_state(true)
  return accel.Accelerator(opts)
end
local acc = made { dynamo_plugin = accel.TorchDynamoPlugin { backend = "inductor", use_regional_compilation = true } }
local plain = net(4)
local prepared = acc:prepare(plain)
assert(not A.is_compiled_module(plain) and A.has_compiled_regions(plain) and #compile.regions_of(plain) == 6)
local kept = acc:unwrap_model(prepared)
assert(kept == plain and A.has_compiled_regions(plain))
acc:unwrap_model(prepared, { keep_torch_compile = false })
assert(not A.has_compiled_regions(plain) and rawget(plain.h[1], "forward") == nil)
local both = accel.compile(A.compile_regions(net(2)))
A.extract_model_from_parallel(both, { keep_fp32_wrapper = false }) -- is compiled both ways again
assert(A.is_compiled_module(both) and A.is_compiled_module(both.h[1]) and #compile.regions_of(both) == 4)
A.extract_model_from_parallel(both, { keep_torch_compile = false })
assert(not A.has_compiled_regions(both) and rawget(both, "forward") == nil and rawget(both.h[1], "forward") == nil)
A.patch_environment({ ACCELERATE_DYNAMO_BACKEND = "INDUCTOR", ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION = "true" }, function()
  local other = net(4)
  made():prepare(other)
  assert(#compile.regions_of(other) == 6)
end)
accel.AcceleratorState._reset_state(true)

-- ---- losses and kernels ----
local function sh(command)
  local p <close> = assert(io.popen(command .. " 2>&1"))
  return p:read "a"
end
local function child(how, depth)
  local folder = tmp .. "/regions_" .. how .. depth
  sh(("rm -rf '%s'"):format(folder))
  local said = sh(("ACCEL_COMPILE_CACHE='%s' ACCEL_DEVICE=cpu '%s' '%s' %s %d"):format(folder, run, arg[0], how, depth))
  local losses = assert(said:match "^[%d%.e%-]+ [^\n]*", said)
  return losses, select(2, sh(("ls '%s' 2> /dev/null"):format(folder)):gsub("%.so", ""))
end
local want = child("plain", 6)
local losses, kernels = child("regions", 6)
assert(want == losses and want == child("whole", 6))
if sh("command -v cc"):match "^/" then
  local _, deeper = child("regions", 16)
  local _, all = child("whole", 16)
  assert(kernels > 0 and deeper == kernels and deeper <= all, ("%d %d %d"):format(kernels, deeper, all))
end
local _, _, _, waiting = core.counts()
assert(waiting == 0)
