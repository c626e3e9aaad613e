-- States of optimizers that earlier versions of accel wrote, when models listed their parameters in the order of their making: names lead
-- each state to its parameter, numbers of a folder of Accelerate's format are counted as they were then, and other numbers are refused.
--   accel-run tests/stdlib/models/former_order_test.lua
local accel = require "accel"
local order = require "accel.models.order"
local torch_state = require "accel.ckpt.torch_state"
local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/order-")

local CONFIG <const> = { hidden_size = 16, intermediate_size = 16, num_hidden_layers = 2, num_attention_heads = 2, image_size = 8,
  patch_size = 4, vision_use_head = false }

-- fn as an earlier version would run it: models in the order of build, states without the number of their order.
local function earlier(fn)
  local apply, out, save = order.apply, torch_state.optimizer_out, accel.optim.Optimizer.state_dict
  order.apply = function() end
  torch_state.optimizer_out = function(...)
    local state = out(...)
    state.param_names = nil
    return state
  end
  rawset(accel.optim.Optimizer, "state_dict", function(self)
    local state = save(self)
    state.numbering = nil
    return state
  end)
  local results = table.pack(pcall(fn))
  order.apply, torch_state.optimizer_out = apply, out
  rawset(accel.optim.Optimizer, "state_dict", save)
  assert(table.unpack(results, 1, results.n))
  return table.unpack(results, 2, results.n)
end

-- A model, and an optimizer whose first moments are numbers of their parameters' names. groups: parameters with and without decay.
local function begin(split, reverse)
  accel.AcceleratorState._reset_state(true)
  accel.manual_seed(1)
  local model, names, groups = accel.models.SiglipVisionModel(CONFIG), {}, { { params = {} }, { params = {}, weight_decay = 0 } }
  for name, p in model:named_parameters() do
    names[#names + 1] = name
    local params = groups[split and p.ndim == 1 and 2 or 1].params
    table.insert(params, reverse and 1 or #params + 1, p)
  end
  if not split then groups[2] = nil end
  local a, o = accel.Accelerator(), accel.optim.AdamW(groups, { lr = 0 })
  return { a = a, model = model, o = o, names = names, prepared = table.pack(a:prepare(model, o)) }
end

local function number_of(name)
  local n = 0
  for i = 1, #name do n = (n * 31 + name:byte(i)) % 65521 end
  return n
end

local function mark(run)
  run.a:backward(run.prepared[1](accel.ones(1, 3, 8, 8)):sum())
  run.prepared[2]:step()
  local _ <close> = accel.no_grad()
  for name, p in run.model:named_parameters() do run.o.state[p].exp_avg:fill_(number_of(name)) end
  return run
end

local function check(run, what)
  for name, p in run.model:named_parameters() do
    assert(run.o.state[p].exp_avg:max():item() == number_of(name), what .. ": " .. name)
  end
end

local function raises(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern, 1, true), ("expected '%s', got: %s"):format(pattern, tostring(err)))
end

for _, split in ipairs { false, true } do
  local function path(kind) return ("%s/%s%s"):format(folder, kind, tostring(split)) end
  local old = earlier(function()
    local run = mark(begin(split))
    run.a:save_state(path "own")
    run.a:save_state(path "accelerate", { format = "accelerate" })
    return { names = run.names, state = run.o:state_dict() }
  end)
  local now = mark(begin(split))
  assert(table.concat(old.names, " ") ~= table.concat(now.names, " "), "the model has had one order")
  now.a:save_state(path "new", { format = "accelerate" })
  local written = now.o:state_dict()
  for _, kind in ipairs { "own", "accelerate", "new" } do
    local run = begin(split)
    run.a:load_state(path(kind))
    check(run, path(kind))
  end
  for _, format in ipairs { "accelerate", "deepspeed", "dcp" } do -- for tools that go by numbers the order must be right, dcp has names
    local convert = require "accel.cli.ckpt_convert"
    now.a:save_state(path "own again" .. format)
    assert(convert(path "own again" .. format, path("now " .. format), "--format", format) == true, format)
    assert((convert(path "own", path("then " .. format), "--format", format) == true) == (format == "dcp"), format)
  end
  local run = begin(split)
  raises("this state counts parameters by number", run.o.load_state_dict, run.o, old.state)
  run.o:load_state_dict(written)
  check(run, "state_dict")
  run = begin(split, true) -- which position a parameter had is known of the model's order alone
  raises("this group has an order of its own", run.a.load_state, run.a, path "accelerate")
  run.a:load_state(path "new")
  check(run, "any order")
end

-- PyTorch's states: counts of steps are f32, and its numbers follow the order of Transformers
do
  local now, state = mark(begin()), nil
  state = now.o:state_dict()
  state.numbering = nil
  for _, entry in accel.pairs(state.state) do entry.step = entry.step:to "f32" end
  local run = begin()
  run.o:load_state_dict(state)
  check(run, "a state of PyTorch")
end
-- models whose order has never changed
do
  local function optimizer() return accel.optim.AdamW(accel.nn.Linear(2, 2):parameters()) end
  local o = optimizer()
  for _, p in ipairs(o.param_groups[1].params) do p.grad = accel.ones_like(p) end
  o:step()
  local state = o:state_dict()
  state.numbering = nil
  optimizer():load_state_dict(state)
end
print "ok"
