-- Memory is what is reachable, soon: steady resident memory over many steps, peaks that the meta device predicts, nothing taken
-- away that a script can still reach.
local accel = require "accel"
local nn = accel.nn

local here = arg[0]:match("^(.*)/[^/]*$")
local sanitized = (os.getenv("ACCEL_TEST_SANITIZE") or "") ~= ""
local run = (os.getenv("ACCEL_TEST_BUILD") or "build/dev") .. "/bin/accel-run"

local function child(env, ...)
  local command = env .. " '" .. run .. "' '" .. here .. "/gpt_memory.lua' " .. table.concat({ ... }, " ")
  local p = assert(io.popen(command))
  local peak, live, heap = p:read("n", "n", "n")
  assert(p:close(), "child failed: " .. command)
  return peak, live, heap
end

-- The meta device accounts as the CPU does: the same peak. Exact collection is the ideal. Without it a collection may fall one op
-- later on one of them, as their Lua heaps differ a little: then it holds one more activation, of 1 MiB in the small model.
local ACTIVATION <const> = 1 << 20
for _, size in ipairs { "small", "medium" } do
  for _, dtype in ipairs { "f32", "bf16" } do
    local peak, live, heap = child("", "cpu", dtype, size)
    -- Collections come after results of a multiple of it: modules that a step does not need must not be in it.
    -- About 170 KiB are the checks of arguments, a stand-in for each public function and method.
    assert(heap <= 864, ("Lua's heap of a step has %d KiB"):format(heap))
    local predicted = child("", "meta", dtype, size)
    local exact, exact_live = child("ACCEL_GC=exact", "cpu", dtype, size)
    local what = size .. " " .. dtype
    local exact_predicted = child("ACCEL_GC=exact", "meta", dtype, size)
    assert(math.abs(exact - exact_predicted) <= 0.03 * exact,
      ("%s: exact peak %d, meta predicts %d"):format(what, exact, exact_predicted))
    assert(math.abs(peak - predicted) <= math.max(0.03 * peak, ACTIVATION), ("%s: peak %d, meta predicts %d"):format(what, peak, predicted))
    assert(peak <= 1.15 * exact, ("%s: peak %d, with exact collection %d"):format(what, peak, exact))
    assert(exact_live <= live and exact_live > 0)
  end
end

-- A hundred thousand steps without collectgarbage: flat once the collector has been through its cycles.
do
  local function resident()
    for line in io.lines("/proc/self/status") do
      local kib = line:match("VmRSS:%s*(%d+)")
      if kib then return tonumber(kib) end
    end
  end
  local steps, warm = sanitized and 5000 or 100000, 5000
  accel.manual_seed(1)
  local model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
  local opt = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  local x, y = accel.randn(8, 16), accel.randint(0, 4, { 8 })
  local start, worst
  for step = 1, steps do
    local loss = accel.cross_entropy(model(x), y)
    loss:backward()
    opt:step()
    opt:zero_grad()
    if step == warm then start, worst = resident(), 0 end
    if step > warm and step % 500 == 0 then worst = math.max(worst, math.abs(resident() - start)) end
  end
  if not sanitized then assert(worst <= 1024, ("resident memory moved by %d KiB"):format(worst)) end
end

-- What a forward keeps outside stays usable, through any number of collections.
do
  local kept, last = {}, nil
  local Keeper = nn.Module:extend("Keeper")
  function Keeper:init() self.lin = nn.Linear(64, 64) end
  function Keeper:forward(x)
    local h = self.lin(x)
    if #kept < 20 then kept[#kept + 1] = h end
    last = h
    return h:relu()
  end
  local model = Keeper()
  local x = accel.randn(256, 64)
  local sums = {}
  for step = 1, 400 do
    model(x):sum():backward()
    model:zero_grad()
    if step <= 20 then sums[step] = kept[step]:sum():item() end
    accel.step()
  end
  for i, t in ipairs(kept) do assert(t:sum():item() == sums[i], "a kept tensor changed") end
  assert(last:sum():item() == sums[20])
end

-- Everything that the chunks above made is gone.
accel.collect()
local m = accel.mem_stats()
assert(m.live_tensors == 0 and m.live_bytes == 0, ("%d tensors, %d bytes are left"):format(m.live_tensors, m.live_bytes))
