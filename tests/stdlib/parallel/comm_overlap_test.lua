-- tp_comm_overlap: forward's products in parts beside what is gathered and summed. Losses and parameters of every family as without it, in
-- every combination with sequence parallelism and enable_async_tp, the same bits in a second run; bytes are the same, in several
-- collectives; and in a timeline communication lies inside of the time that the products take together.
--   accel-run tests/stdlib/parallel/comm_overlap_test.lua
-- tier: sampled
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")
local dist, nn = accel.dist, accel.nn

local list, take = {}, ranks.sample.one_of(8)
for _, name in ipairs(cases.names) do
  for _, P in ipairs { 2, 4 } do
    for _, sp in ipairs(name == "vit" and { "-" } or { "-", "sp" }) do
      for _, late in ipairs { "-", "late" } do
        if take() then list[#list + 1] = { P = P, args = table.concat({ "model", name, sp, late, #list % 3 == 0 and "again" or "-" }, " ") } end
      end
    end
  end
end

if not ranks.launched then
  for _, c in ipairs(list) do ranks.run(c.P, { args = c.args }) end
  ranks.run(2, { args = "layers" })
  ranks.run(2, { args = "timeline" })
  return
end

local mesh = accel.parallel.init_device_mesh("cpu", { ranks.size }, { mesh_dim_names = { "tp" } })

local function train(name, o, overlaps)
  local model = cases.model(name, 2, 0.1)
  if o.again then model:gradient_checkpointing_enable() end
  accel.parallel.parallelize_module(model, mesh, nil,
    { sequence_parallel = o.sp, enable_async_tp = o.late, tp_comm_overlap = overlaps })
  local optimizer, losses = accel.optim.SGD(model:parameters(), { lr = 1e-2 }), {}
  for step = 1, 3 do
    local args = cases.batch(name, step, model)
    local out = table.pack(model(table.unpack(args, 1, name == "vit" and 2 or args.n)))
    local loss = cases.loss(name)(out.n == 1 and out[1] or out, table.unpack(args, 1, args.n))
    loss:backward()
    losses[step] = loss:item()
    optimizer:step()
    optimizer:zero_grad()
  end
  return losses, model:parameters()
end

local function check(what, got, want, equal)
  assert(#want > 0)
  for i = 1, #want do
    local p = want[i]
    local off = (got[i]:detach() - p:detach()):abs():max():item()
    if equal then assert(off == 0, what)
    else assert(off <= 1e-5 * math.max(1, p:detach():abs():max():item()), ("%s: %d differs by %g"):format(what, i, off)) end
  end
end

--- Collectives that were started with async_op, and bytes that all sent, of what fn does.
local function traffic(fn)
  local before, async, bytes = dist.records(1)[1].number, 0, 0
  fn()
  for _, r in ipairs(dist.records(200)) do
    if r.number > before then async, bytes = async + (r.async and 1 or 0), bytes + r.bytes end
  end
  return async, bytes
end

if arg[1] == "model" then
  require "accel.parallel.chunks".least_rows(1)
  local o = { sp = arg[3] == "sp", late = arg[4] == "late", again = arg[5] == "again" }
  local what = table.concat(arg, " ")
  local losses, p = train(arg[2], o, false)
  local got, q = train(arg[2], o, true)
  ranks.close(got, losses, what .. ": losses", 1e-5)
  check(what, q, p)
  local again, r = train(arg[2], o, true)
  ranks.same(again, got, what .. ": losses of a second run")
  check(what .. ": a second run", r, q, true)
elseif arg[1] == "layers" then
  -- two layers of a feed-forward block, by rows and by parts of the sequence
  local function block()
    accel.manual_seed(5)
    return nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 24))
  end
  local plan = { ["0"] = "colwise", ["2"] = "rowwise" }
  for _, sp in ipairs { false, true } do
    local plain, parts = block(), block()
    accel.parallel.parallelize_module(plain, mesh, plan, { sequence_parallel = sp })
    accel.parallel.parallelize_module(parts, mesh, plan, { sequence_parallel = sp, tp_comm_overlap = true })
    local x = accel.randn(4, 24, 24, { generator = accel.Generator { seed = 2 + (sp and ranks.rank or 0) } })
    local function run(model)
      local own = x:clone():requires_grad_(true)
      local y
      local n, bytes = traffic(function() y = model(own) end)
      y:pow(2):sum():backward()
      return y:detach(), own.grad, n, bytes
    end
    local y, dx, none, sent = run(plain)
    local z, dz, n, also = run(parts)
    ranks.same({ none, n, also }, { 0, sp and 8 or 4, sent }, "collectives begun, and bytes")
    check("result", { z }, { y })
    check("gradient", { dz }, { dx })
    for i, p in ipairs(plain:parameters()) do check("gradient of a weight", { parts:parameters()[i].grad }, { p.grad }) end
    do -- without gradients, and of a length that does not divide into parts
      local _ <close> = accel.no_grad()
      check("without gradients", { parts(x) }, { y })
      local short = x:narrow(2, 1, 23):contiguous()
      check("23 positions", { parts(short) }, { plain(short) })
    end
  end
else
  -- the sums of all parts but the last are on their way while the next part is multiplied: the time of the collectives reaches into that
  -- between the first product and the last
  local layer = nn.Sequential(nn.Linear(512, 1024))
  accel.parallel.parallelize_module(layer, mesh, { ["0"] = "rowwise" }, { tp_comm_overlap = true })
  local x, share = accel.randn(4, 256, 256), 0
  local _ <close> = accel.no_grad()
  local tries = 0
  repeat -- until the thread of the collectives was given a processor in time
    tries = tries + 1
    local prof = accel.profiler.profile {}
    layer(x)
    prof:stop()
    local first, last, sums = nil, nil, {}
    for _, e in ipairs(prof:events()) do
      if e.name == "linear" then first, last = first or e.start, e.stop end
      if e.kind == "collective" then sums[#sums + 1] = e end
    end
    ranks.same(#sums, 4, "sums")
    local inside = 0
    for _, e in ipairs(sums) do
      assert(e.thread == 1, "a sum that the script waits for")
      inside = inside + math.max(0, math.min(e.stop, last) - math.max(e.start, first))
    end
    share = inside / (last - first)
    local most = accel.tensor { share }
    dist.all_reduce(most, { op = "max" })
    share = most:item()
  until share > 0.05 or tries == 50
  assert(share > 0.05, "communication inside of the products' time")
end
