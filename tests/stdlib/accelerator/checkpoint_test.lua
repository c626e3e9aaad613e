-- accelerator:save_state and load_state: a run that is taken up again has every bit of one that was not interrupted, inside an epoch
-- and inside an update, with loss scaling, several models and optimizers; what is registered; names and limits. On 1 to 3 ranks.
--   accel-run tests/stdlib/accelerator/checkpoint_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2, 3 } then return end
local support = dofile(ranks.tests .. "support/checkpoints.lua")
local nn, optim, data, dist = accel.nn, accel.optim, accel.data, accel.dist
local same, fails, P = ranks.same, ranks.fails, ranks.size
local tmp = support.folder("checkpoint" .. P)

do -- Accelerate's own: two epochs, save, one more in new objects, equal three straight
  local function epochs(run, n)
    local seen = {}
    for _ = 1, n do seen[#seen + 1] = support.train(run) end
    return seen
  end
  local straight = support.run {}
  local seen = epochs(straight, 3)
  local first = support.run {}
  epochs(first, 2)
  local path = tmp .. "/parity"
  same(first.a:save_state(path), path, "save_state returns the folder")
  local second = support.run { seed = 99 }
  same(second.a:load_state(path), path, "load_state returns the folder")
  same(second.loader.iteration, 2, "passes that were finished")
  same(epochs(second, 1)[1], seen[3], "the third epoch")
  same(support.state(second), support.state(straight), "the state after it")
end

--- Interrupts a run after every batch of an epoch and a half, goes on in new objects, and compares with `whole`.
local function interrupted_everywhere(what, options, at)
  local path = tmp .. "/everywhere"
  local whole = support.run(options())
  local seen = { support.train(whole), support.train(whole) }
  local expected = support.state(whole)
  for k = 1, #seen[1] do
    if not at or at(k) then
      local run = support.run(options())
      support.train(run, nil, function(_, step)
        if step == k then run.a:save_state(path) end
      end)
      local other = options()
      other.seed = 1000 + k
      local again = support.run(other)
      again.a:load_state(path)
      local label = ("%s, saved behind batch %d of %d"):format(what, k, #seen[1])
      if k < #seen[1] then
        same(#again.loader, #seen[1] - k, label .. ": batches that are left")
        same(support.train(again), table.move(seen[1], k + 1, #seen[1], 1, {}), label .. ": the rest of the epoch")
      end
      same(again.loader.iteration, 1, label)
      same(support.train(again), seen[2], label .. ": the next epoch")
      same(support.state(again), expected, label)
    end
  end
end

interrupted_everywhere("one update per batch", function() return { n = 12 } end)
interrupted_everywhere("updates of three batches", function()
  return { n = 16, opts = { gradient_accumulation_steps = 3 } }
end)
interrupted_everywhere("fp16", function()
  return { n = 12, opts = { mixed_precision = "fp16", gradient_accumulation_steps = 2, kwargs_handlers = {
    accel.GradScalerKwargs { growth_interval = 2, init_scale = 1024 } } } }
end, function(k) return k % 2 == 1 end)
for _, name in ipairs { "SGD", "Adafactor", "ASGD", "RMSprop", "NAdam" } do
  interrupted_everywhere(name, function() return { n = 8, optimizer = name } end, function(k) return k == 1 end)
end

do -- weights of losses, in an update that is under way
  local function run_of(seed)
    local run = support.run { seed = seed, n = 12, dropout = 0, opts = { gradient_accumulation_steps = 2 } }
    function run.step(batch)
      local _ <close> = run.a:accumulate(run.model)
      local loss = nn.functional.mse_loss(run.model(batch[1]), batch[2], { reduction = "sum" })
      run.a:backward(loss, { weight = 1 + batch[3]:sum():item() % 3 })
      run.optimizer:step()
      run.optimizer:zero_grad()
    end
    return run
  end
  local path, run, expected = tmp .. "/weights", run_of(1), nil
  local k = 0
  for batch in run.loader() do
    k = k + 1
    run.step(batch)
    if k == 1 then run.a:save_state(path) end
    if k == 2 then break end
  end
  expected = support.bits(run.model:state_dict())
  local again = run_of(7)
  again.a:load_state(path)
  for batch in again.loader() do
    again.step(batch)
    break
  end
  same(support.bits(again.model:state_dict()), expected, "an update with weights")
end

do -- several models and optimizers, tied parameters, one that belongs to no model, a nested state of an optimizer
  local Tied = nn.Module:extend "Tied"
  function Tied:init()
    self.embedding = nn.Embedding(5, 3)
    self.out = nn.Linear(3, 5, { bias = false })
    self.out.weight = self.embedding.weight
  end
  function Tied:forward(x) return self.out(self.embedding(x)) end
  local function make(seed)
    accel.set_seed(seed)
    local a = accel.Accelerator()
    local one, two, free = Tied(), nn.Linear(2, 2), nn.Parameter(accel.randn(3))
    local both = optim.Adam({ { params = one:parameters() }, { params = two:parameters(), lr = 0.5 } }, { lr = 0.1 })
    local other = optim.SGD({ free }, { lr = 0.1, momentum = 0.9 })
    local nested = { param_groups = { { params = {} } }, inner = { { m = accel.randn(2), deep = { n = 3, x = 0.1 } } } }
    function nested:step() end -- luacheck: ignore
    function nested:zero_grad() end -- luacheck: ignore
    function nested:state_dict() return { inner = self.inner, count = 7 } end
    function nested:load_state_dict(state) self.inner = state.inner end
    local o = { a = a, free = free, nested = nested }
    o.one, o.two, o.both, o.other, o.wrapped = a:prepare(one, two, both, other, nested)
    return o
  end
  local function train(o)
    local ids = accel.tensor({ 0, 1, 2, 3, 4 }, { dtype = "i64" })
    o.a:backward(o.one(ids):pow(2):mean() + o.two(accel.ones(1, 2)):sum() * 0.5 + (o.free * o.free):sum())
    o.both:step()
    o.other:step()
    o.both:zero_grad()
    o.other:zero_grad()
  end
  local function state(o)
    return support.bits { o.a:get_state_dict(o.one), o.a:get_state_dict(o.two), o.both:state_dict(), o.other:state_dict(),
      o.free, o.nested.inner }
  end
  local o, path = make(3), tmp .. "/several"
  for _ = 1, 3 do train(o) end
  o.a:save_state(path)
  local c = assert(require "accel.ckpt".open(path))
  local names = {}
  for _, t in ipairs(c:tensors "model") do names[#names + 1] = t.name end
  same(names, { "embedding.weight" }, "a tied parameter is stored once")
  names = {}
  for _, t in ipairs(c:tensors "optimizer") do names[#names + 1] = t.name end
  table.sort(names)
  same(table.concat(names, " "), "state.embedding.weight.exp_avg state.embedding.weight.exp_avg_sq "
    .. "state.embedding.weight.step state.model_1.bias.exp_avg state.model_1.bias.exp_avg_sq state.model_1.bias.step "
    .. "state.model_1.weight.exp_avg state.model_1.weight.exp_avg_sq state.model_1.weight.step", "by parameter name")
  same(c:tensors "optimizer_1"[1].name, "state.param_0_0.momentum_buffer", "a parameter of no model")
  local record = c.manifest.state
  same({ record.step, record.world.num_processes, record.objects.models }, { 3, P, { "Tied", "accel.nn.Linear" } }, "record")
  c:close()
  local again = make(4)
  again.free:detach():copy_(o.free:detach()) -- a parameter that no model holds is the script's
  again.a:load_state(path)
  same(state(again), state(o), "several models")
  train(o)
  train(again)
  same(state(again), state(o), "several models, a step later")
end

do -- objects that are registered
  local a = accel.Accelerator()
  fails("at these positions, counted from 0, have not both state_dict and load_state_dict: 0 (5), 1 ('x')",
    a.register_for_checkpointing, a, 5, "x", nn.Linear(1, 1), optim.SGD(accel.ones(1)))
  local Counter = {}
  Counter.__index = Counter
  function Counter:state_dict() return { n = self.n, t = self.t } end
  function Counter:load_state_dict(state) self.n, self.t = state.n, state.t end
  local function counter(n) return setmetatable({ n = n, t = accel.full({ 2 }, n) }, Counter) end
  local one, path = counter(3), tmp .. "/custom"
  a:register_for_checkpointing(one, counter(4))
  a:save_state(path)
  local b, two = accel.Accelerator(), counter(0)
  b:register_for_checkpointing(two)
  fails("2 objects were registered for checkpointing when it was saved, here are 1", b.load_state, b, path)
  b:register_for_checkpointing(counter(1))
  b:load_state(path)
  same({ two.n, two.t:tolist() }, { 3, { 3, 3 } }, "a registered object")
end

do -- names, numbers and limits
  local project = tmp .. "/project"
  local function make(o)
    o = o or {}
    o.project_dir, o.automatic_checkpoint_naming = project, true
    return support.run { n = 4, opts = { project_config = accel.ProjectConfiguration(o) } }
  end
  local run = make { total_limit = 2 }
  for i = 0, 10 do
    same(run.a.save_iteration, i, "the number of the next one")
    same(run.a:save_state "ignored", ("%s/checkpoints/checkpoint_%d"):format(project, i), "the name")
  end
  same(support.names(project .. "/checkpoints"), { "checkpoint_10", "checkpoint_9" }, "eleven saves with a limit of 2")
  local again = make()
  same(again.a:load_state(), project .. "/checkpoints/checkpoint_10", "the newest")
  same(again.a.save_iteration, 11, "numbers go on")
  fails("checkpoint_9 exists already", function()
    again.a.project_configuration.iteration = 9
    again.a:save_state()
  end)
  again.a.project_configuration.iteration = 11
  again.a:save_state()
  -- the newest that is whole: those that are not are passed over, and are no number that is free
  dist.barrier()
  if ranks.rank == 0 then
    os.execute(("rm '%s/checkpoints/checkpoint_11/dl_state_dict.accel'"):format(project))
    os.execute(("mkdir -p '%s/checkpoints/checkpoint_12.tmp-0123456789abcdef'"):format(project))
  end
  dist.barrier()
  local third = make()
  same(third.a:load_state(), project .. "/checkpoints/checkpoint_10", "the newest whole one")
  same(third.a.save_iteration, 12, "the next free number")
  local plain = support.run { n = 4 }
  fails("which folder?", plain.a.save_state, plain.a)
  fails("which folder?", plain.a.load_state, plain.a)
  fails("nowhere is not a folder", plain.a.load_state, plain.a, tmp .. "/nowhere")
  fails("the folder must be a string, got 5", plain.a.save_state, plain.a, 5)
  fails("unknown option 'asynchronus'", plain.a.save_state, plain.a, tmp .. "/x", { asynchronus = true })
  fails("map_location", plain.a.load_state, plain.a, tmp .. "/x", { map_location = "gpu" })
  fails("needs a project_dir", function()
    accel.Accelerator { project_config = accel.ProjectConfiguration { automatic_checkpoint_naming = true } }:save_state()
  end)
  -- a folder that is given is replaced, never written to in place
  local path = tmp .. "/same"
  plain.a:save_state(path)
  support.train(plain)
  plain.a:save_state(path)
  local seen = support.train(plain) -- what buffers are, rank 0 says with a forward
  local expected, loaded = support.state(plain), support.run { n = 4 }
  loaded.a:load_state(path)
  same(support.train(loaded), seen, "the second one of one name")
  same(support.state(loaded), expected, "the second one of one name")
end

do -- the state of loaders counts as first batches where the script leaves them out as well
  local path, order = tmp .. "/skip", nil
  local run = support.run { n = 12 * P }
  order = support.train(run, nil, function(_, k)
    if k == 2 then run.a:save_state(path) end
  end)
  for _, skipped in ipairs { 2, 4 } do
    local again = support.run { n = 12 * P, seed = 3 }
    again.a:load_state(path)
    local rest = again.a:skip_first_batches(again.loader, skipped)
    same(#rest, 6 - skipped, "batches that are left")
    local k = skipped
    for batch in rest() do
      k = k + 1
      same(batch[3]:tolist(), order[k].samples, "the rest of the epoch")
    end
    same(k, 6, "all of them")
    same(#again.loader, 6, "the next epoch is whole")
  end
end
