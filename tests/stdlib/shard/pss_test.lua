-- Memory of a machine, as the kernel counts it: with ZeRO 3 the proportional set sizes of 2 and 4 ranks, added up, hold the parameters
-- once, and after steps of AdamW also gradients and states once, however many ranks there are; without shared memory and cutting
-- each rank holds its own.
--   accel-run tests/stdlib/shard/pss_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn

local file = io.open "/proc/self/smaps_rollup"
if not file then
  print "skipped: this kernel has no /proc/self/smaps_rollup"
  return
end
file:close()
if ranks.sample.sanitized then return end -- shadow memory is counted, too

if ranks.start { 2, 4 } then return end

local R, P <const>, LAYERS <const>, WIDTH <const> = ranks.rank, ranks.size, 12, 896

local function pss()
  collectgarbage()
  accel.empty_cache()
  accel.dist.barrier()
  local text <close> = assert(io.open "/proc/self/smaps_rollup")
  local all = text:read "a"
  -- not the pages of files: libraries, whose share changes with what else runs here
  local own = tonumber(all:match "\nPss_Anon:%s+(%d+) kB") + tonumber(all:match "\nPss_Shmem:%s+(%d+) kB")
  local t = accel.full({ 1 }, own * 1024, { dtype = "f64" })
  accel.dist.all_reduce(t)
  return t:item()
end

do -- what is loaded on first use counts for nobody
  local net = nn.Linear(WIDTH, WIDTH)
  net(accel.ones(1, WIDTH)):pow(2):mean():backward()
  accel.optim.AdamW(net:parameters()):step()
end

local function build()
  accel.manual_seed(1)
  local list = {}
  for i = 1, LAYERS do list[i] = nn.Linear(WIDTH, WIDTH) end
  return nn.Sequential(table.unpack(list))
end

local n = LAYERS * (WIDTH + 1) * WIDTH * 4
local wrap = { kind = "lambda", fn = function(m) return #m:children() == 0 and #m:parameters() > 0 end }

--- Bytes of all ranks, in units of the model's: of parameters, and after steps.
local function measure(o)
  local before = pss()
  local net = (R == 0 or o.zero_stage == 0) and build() or accel.device("meta", build)
  o.auto_wrap_policy = wrap
  local model = nn.parallel.FullyShardedDataParallel(net, o)
  local parameters = (pss() - before) / n
  local adam = accel.optim.AdamW(model:parameters())
  for step = 1, 3 do
    model(accel.ones(1, WIDTH)):pow(2):mean():backward()
    adam:step()
    if step < 3 then adam:zero_grad() end
  end
  local all = (pss() - before) / n
  return parameters, all, model
end

local parameters, all, model = measure { zero_stage = 3 }
assert(parameters > 0.95 and parameters < 1.25, parameters)
-- and gradients, and two states, each once; gradients of two units are whole for a moment, in memory that each rank's heap keeps
assert(all > 3.9 and all < 4.3 + P * 5 / LAYERS, all)
model = nil -- luacheck: ignore
parameters = measure { zero_stage = 0, share_memory = false }
assert(parameters > 0.75 * P, parameters) -- what the first model left in the heaps is used again
