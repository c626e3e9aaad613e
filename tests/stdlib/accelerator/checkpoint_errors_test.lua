-- What does not load, and what cannot be saved: one error, which names file, tensor or rank; models, optimizers, generators, loaders
-- and the checkpoint before stay as they were. Hooks, and saves that go on beside training. On 1 and 2 ranks.
--   accel-run tests/stdlib/accelerator/checkpoint_errors_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2 } then return end
local support = dofile(ranks.tests .. "support/checkpoints.lua")
local nn, optim, dist = accel.nn, accel.optim, accel.dist
local same, fails, P, rank = ranks.same, ranks.fails, ranks.size, ranks.rank
local tmp = support.folder("checkpoint_errors" .. P)

local function barrier()
  if P > 1 then dist.barrier() end
end
local function on_first(fn, ...)
  barrier()
  if rank == 0 then fn(...) end
  barrier()
end

-- A checkpoint inside of an epoch, and a run that has gone on in other ways, to which nothing may happen.
local path = tmp .. "/good"
local run = support.run { n = 24 }
support.train(run, 3, function(_, k)
  if k == 3 then run.a:save_state(path) end
end)
local other = support.run { seed = 8, n = 24 }
local best = { n = 5 }
function best:state_dict() return { n = self.n } end -- luacheck: ignore
function best:load_state_dict(state) self.n = state.n end -- luacheck: ignore
support.train(other, 5)
local function refuses(part, from, a)
  local before = support.state(other)
  local message = tostring(fails(part, (a or other.a).load_state, a or other.a, from))
  same(support.state(other), before, "after: " .. part)
  return message
end

--- A copy of the good one that is changed by a shell command.
local function changed(command)
  local copy = tmp .. "/changed"
  on_first(os.execute, ("rm -rf '%s'; cp -r '%s' '%s'; cd '%s' && %s"):format(copy, path, copy, copy, command))
  return copy
end
local weights = P == 1 and "model.safetensors" or "model/shard-00002-model-00001-of-00001.safetensors"
local states = P == 1 and "optimizer.safetensors" or "optimizer/shard-00001-model-00001-of-00001.safetensors"
for _, file in ipairs { weights, states, "optimizer.accel", "scheduler.accel", "dl_state_dict.accel",
  ("random_states_%d.accel"):format(P - 1) } do
  local name = file:gsub("%-", "%%-")
  refuses(file, changed(("rm '%s'"):format(file)))
  refuses(file, changed(("truncate -s -1 '%s'"):format(file)))
  local last = changed(("dd if=/dev/zero of='%s' bs=1 count=8 conv=notrunc seek=$(($(stat -c %%s '%s') - 8)) 2>/dev/null")
    :format(file, file))
  assert(refuses(file, last):find(name), "the file is named")
end
refuses("MANIFEST.json", changed "rm MANIFEST.json")
case "states that are damaged"
refuses("MANIFEST.json", changed "sed -i 's/\"step\": 3/\"step\": 4/' MANIFEST.json")

do -- of another run: every name that is missing or unexpected and every shape, in one error
  accel.set_seed(4)
  local a = accel.Accelerator()
  local Net = nn.Module:extend "Net"
  function Net:init()
    self["0"], self["2"] = nn.Linear(4, 9), nn.BatchNorm1d(8)
    self.head = nn.Linear(8, 2)
  end
  local net = Net()
  local loader = accel.data.DataLoader(accel.data.TensorDataset(accel.ones(24, 1)), { batch_size = 2 })
  local sgd = optim.AdamW(net:parameters())
  a:prepare(net, sgd, loader, optim.lr_scheduler.StepLR(sgd, 1))
  local text = refuses("missing 'head.weight', 'head.bias'", path, a)
  assert(text:find("unexpected '4.bias', '4.weight'", 1, true) and text:find("'0.weight' has shape (8, 4), here it is (9, 4)", 1,
    true) and text:find(path, 1, true), text)
  local b = accel.Accelerator()
  local linear = nn.Linear(1, 1)
  b:prepare(linear)
  refuses("1 optimizers are stored, 0 are prepared here", path, b)
  local c = support.run { optimizer = "SGD", n = 24 }
  refuses("optimizer 0 is stored as accel.optim.AdamW, here it is accel.optim.SGD", path, c.a)
  local d = support.run { n = 22 }
  refuses("from a pass over 24 samples, but the data has 22", path, d.a)
end

do -- an object whose load fails behind the others: all of them get back what they had
  other.a:register_for_checkpointing(best)
  local bad = { fails = true }
  function bad:state_dict() return { 1 } end -- luacheck: ignore
  function bad:load_state_dict() if self.fails == true then self.fails = false error "cannot take that" end end
  other.a:register_for_checkpointing(bad)
  local with = tmp .. "/objects"
  other.a:save_state(with)
  best.n = 6
  support.train(other, 2)
  refuses("cannot take that", with)
  same(best.n, 6, "an object that was loaded before")
  other.a:load_state(with)
  same(best.n, 5, "the second time")
end

do -- one rank cannot save: all say which one and why, nothing is left, the one before is whole
  local again = support.run { n = 24 }
  local object, project = { bad = false }, tmp .. "/one_rank"
  function object:state_dict() return { self.bad and rank == P - 1 and print or 1 } end
  function object:load_state_dict() end -- luacheck: ignore
  again.a:register_for_checkpointing(object)
  again.a.project_configuration.automatic_checkpoint_naming = true
  again.a.project_configuration:set_directories(project)
  again.a:save_state()
  object.bad = true
  local message = tostring(fails("function", again.a.save_state, again.a))
  if P > 1 then assert(message:find(("save_state: rank %d: "):format(P - 1), 1, true), message) end
  same(again.a.save_iteration, 1, "the number is free")
  object.bad = false
  barrier()
  same(support.names(project .. "/checkpoints"), { "checkpoint_0" }, "nothing is left")
  again.a:save_state()
  same(support.names(project .. "/checkpoints"), { "checkpoint_0", "checkpoint_1" }, "and it goes on")
  again.a:load_state(project .. "/checkpoints/checkpoint_0")
  -- a bit of the newest has changed on the disk: the one before is taken
  on_first(os.execute, ("cd '%s/checkpoints/checkpoint_1' && dd if=/dev/zero of='%s' bs=1 count=8 conv=notrunc seek=$(($(stat -c "
    .. "%%s '%s') - 8)) 2>/dev/null"):format(project, weights, weights))
  same(again.a:load_state(), project .. "/checkpoints/checkpoint_0", "the newest whose bytes are right")
  same(again.a.save_iteration, 2, "the next number")
end

do -- a folder that cannot be written to
  local again = support.run { n = 24 }
  local state = support.state(again)
  fails("/proc", again.a.save_state, again.a, "/proc/nowhere/x")
  same(support.state(again), state, "a save that fails")
  on_first(os.execute, ("mkdir -p '%s/mine'; echo precious > '%s/mine/file'"):format(tmp, tmp))
  fails("mine exists and is not a checkpoint", again.a.save_state, again.a, tmp .. "/mine") -- not a checkpoint: it is not ours to replace
  local file <close> = assert(io.open(tmp .. "/mine/file"))
  same(file:read "l", "precious", "a folder that is not a checkpoint")
end

do -- hooks: what they write belongs to the checkpoint, what they take out is theirs
  local again, calls = support.run { n = 24 }, {}
  local a, folder = again.a, tmp .. "/hooks"
  local save = a:register_save_state_pre_hook(function(models, states, to)
    calls[#calls + 1] = ("save %d %d"):format(#models, #states)
    if rank == 0 then
      accel.save(to .. "/mine.safetensors", states[1])
      local f <close> = assert(io.open(to .. "/note.txt", "w"))
      f:write "hello"
    end
    table.remove(states)
  end)
  a:save_state(folder)
  local c = assert(require "accel.ckpt".open(folder))
  same({ c:bytes "note.txt", c.manifest.state.hooked }, { "hello", { 0 } }, "files of a hook")
  assert(c:verify() and not c:bytes(weights))
  c:close()
  fails("a hook saved model 0, and no load hook takes it", a.load_state, a, folder)
  local expected = support.bits(a:get_state_dict(again.model))
  local load = a:register_load_state_pre_hook(function(models, from)
    calls[#calls + 1] = ("load %d"):format(#models)
    local model = table.remove(models)
    a:unwrap_model(model):load_state_dict(accel.load(from .. "/mine.safetensors"))
  end)
  support.train(again, 2)
  a:load_state(folder)
  same(support.bits(a:get_state_dict(again.model)), expected, "a model that hooks save and load")
  save.remove()
  load.remove()
  a:save_state(folder)
  a:load_state(folder)
  same(calls, { "save 1 1", "load 1" }, "calls")
end

do -- beside training: what is saved is what was there, an error comes at the next step
  local again, folder = support.run { n = 24 }, tmp .. "/beside"
  support.train(again, 2)
  local expected = support.bits { again.a:get_state_dict(again.model), again.optimizer:state_dict() }
  same(again.a:save_state(folder, { asynchronous = true }), folder, "the folder")
  support.train(again, 4)
  again.a:wait_for_save()
  again.a:wait_for_save()
  local loaded = support.run { seed = 3, n = 24 }
  loaded.a:load_state(folder)
  local got = support.bits { loaded.a:get_state_dict(loaded.model), loaded.optimizer:state_dict() }
  if rank == 0 then same(got, expected, "the state when it was saved") end
  -- several in a row, and the end of the training, wait
  for i = 1, 3 do again.a:save_state(folder .. i, { asynchronous = true }) end
  again.a:end_training()
  for i = 1, 3 do assert(require "accel.ckpt".open(folder .. i)):close() end
  -- the folder goes away while it is written: named with its step, once
  on_first(os.execute, ("mkdir -p '%s/gone'"):format(tmp))
  local step = again.optimizer.applied
  again.a:save_state(tmp .. "/gone/x", { asynchronous = true })
  local pending = again.a._checkpointing.pending
  pending.save.wait = function() return nil, "the disk is gone", "io" end -- what the disk does is not ours to break here
  pending.save.done = function() return true end
  fails(("gone/x of step %d: the disk is gone"):format(step), function() support.train(again, 1) end)
  support.train(again, 1)
end
