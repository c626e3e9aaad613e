-- Every model family under products of tensor, sequence and pipeline parallelism with every schedule, dropout and recompute: the
-- losses of 20 steps are those of one rank within 1e-5 relative, and a second run has the same bits.
--   accel-run tests/stdlib/parallel/layouts_test.lua
-- tier: sampled
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")
local parallel = accel.parallel

local STEPS <const>, LAYERS <const>, P_DROP <const> = 20, 4, 0.2

-- tp, pp, sequence parallelism, schedule, chunks, micro-batches, recompute
local layouts = {
  { 2, 1 }, { 2, 1, sp = true }, { 4, 1 }, { 4, 1, sp = true }, { 1, 2, "1f1b", 4 }, { 1, 2, "gpipe", 2 },
  { 1, 2, "interleaved", 4, chunks = 2 }, { 1, 4, "1f1b", 4 }, { 1, 4, "gpipe", 8, recompute = true },
  { 2, 2, "1f1b", 4, sp = true }, { 2, 2, "interleaved", 4, chunks = 2, sp = true, recompute = true },
  { 1, 4, "zero_bubble", 8 }, { 1, 2, "zero_bubble", 2, recompute = true }, { 2, 2, "zero_bubble", 4, sp = true },
  { 2, 4, "1f1b", 8 }, { 4, 2, "1f1b", 2, sp = true, recompute = true },
}

local list, take = {}, ranks.sample.one_of(32)
for _, name in ipairs(cases.names) do
  for i, layout in ipairs(layouts) do
    if take() then list[#list + 1] = { name = name, i = i, layout = layout } end
  end
end

local function key(c) return ("%s %d"):format(c.name, c.i) end

if not ranks.launched then
  local wanted = {}
  for _, c in ipairs(list) do
    local micros = c.layout[4] or 1
    local n, at = c.layout[1] * c.layout[2], key(c)
    local one = cases.alone(c.name, LAYERS, P_DROP, STEPS, micros)
    local function run()
      local lines = {}
      for line in ranks.run(n, { args = ("'%s' %d"):format(c.name, c.i), capture = true }):gmatch "step [^\n]*\n" do
        lines[#lines + 1] = line
      end
      return table.concat(lines)
    end
    local first = run()
    local again = c.i % 4 == 0 and run() or first
    assert(first == again, at .. ": another run has other bits")
    local steps = 0
    for step, loss in first:gmatch "step (%d+) (%S+)\n" do
      steps = steps + 1
      local want, got = one[tonumber(step)], tonumber(loss)
      assert(math.abs(got - want) <= 1e-5 * math.abs(want), ("%s, step %s: %.9g, on one rank %.9g"):format(at, step, got, want))
    end
    assert(steps == STEPS, at .. ": " .. first)
    wanted[#wanted + 1] = at
  end
  assert(#wanted >= 3)
  return
end

local name, layout = arg[1], layouts[tonumber(arg[2])]
local tp, pp = layout[1], layout[2]
local model = cases.model(name, LAYERS, P_DROP)
local mesh = parallel.init_device_mesh("cpu", { pp, tp }, { mesh_dim_names = { "pp", "tp" } })
if layout.recompute then model:gradient_checkpointing_enable() end
if tp > 1 then parallel.parallelize_module(model, mesh, nil, { sequence_parallel = layout.sp and name ~= "vit" }) end
local loss_fn, run = cases.loss(name), nil
if pp > 1 then
  run = accel.nn.parallel.PipelineParallel(model, mesh, {
    num_micro_batches = layout[4], schedule = layout[3], virtual_stages = layout.chunks or 1, loss_fn = loss_fn,
  })
end
local optimizer = accel.optim.AdamW((run or model):parameters(), { lr = 1e-3 })
for step = 1, STEPS do
  local args, loss = cases.batch(name, step, model), nil
  if run then
    loss = run(table.unpack(args, 1, args.n))
  else
    accel.micro_batch(0)
    local out = table.pack(model(table.unpack(args, 1, name == "vit" and 2 or args.n)))
    loss = loss_fn(out.n == 1 and out[1] or out, table.unpack(args, 1, args.n))
    loss:backward()
  end
  optimizer:step()
  optimizer:zero_grad()
  if ranks.rank == 0 then print(("step %d %.9g"):format(step, loss:item())) end
end
