-- join_uneven_inputs: several epochs in which ranks have different numbers of batches, with optimizers that remember,
-- schedules, accumulation, weights and loss scaling, against the same training written out on every rank alone; and
-- that ranks then agree in everything that decides what comes next. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/join_test.lua
local accel = require "accel"
local A, data, dist, nn, optim = accel.accelerator, accel.data, accel.dist, accel.nn, accel.optim
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")

if ranks.start { 1, 2, 3 } then return end

local P = ranks.size
local EPOCHS <const> = 3

local makers = {
  momentum = function(params) return optim.SGD(params, { lr = 0.1, momentum = 0.9 }) end,
  adamw = function(params) return optim.AdamW(params, { lr = 0.02 }) end,
}

local function net()
  accel.manual_seed(2)
  return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)):to "f64"
end

accel.manual_seed(5)
local inputs = accel.randn(40, 3, { dtype = "f64" })

local function flat(model)
  local list = {}
  for i, p in ipairs(model:parameters()) do list[i] = p:detach():flatten() end
  return accel.cat(list)
end

local function close(got, want, what) ranks.close(got, want, what, 1e-12) end

local function alike(value, what)
  for r, other in ipairs(dist.all_gather_object(value)) do
    if other ~= value then error(("%s: %s, on rank %d %s"):format(what, value, r - 1, other), 2) end
  end
end

--- The same training on this rank alone. A round that is the last of some rank ends the update; one that is the last
--- of all does with sync_with_dataloader.
local function written_out(make, n, size, steps, with_loader)
  local model = net()
  local optimizer = make(model:parameters())
  local schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
  local counted, total = 0, P * size
  for _ = 1, EPOCHS do
    for first = 0, n - 1, total do
      local own, later = 0, 0
      for r = 0, P - 1 do
        local from = first + r * size
        if from < n then
          own = own + 1
          later = later + (from + total < n and 1 or 0)
          local x = inputs:narrow(1, from + 1, math.min(size, n - from))
          local loss = (model(x) ^ 2):mean()
          loss = loss / (steps * P)
          loss:backward()
        end
      end
      counted = counted + 1
      local sync = counted % steps == 0
      if later < own and (later > 0 or with_loader) then counted, sync = 0, true end
      if sync then
        optimizer:step()
        schedule:step()
        optimizer:zero_grad()
      end
    end
  end
  return flat(model), optimizer.param_groups[1].lr
end

local function joined(make, n, size, steps, with_loader)
  local accelerator = accel.Accelerator {
    dataloader_config = A.DataLoaderConfiguration { even_batches = P == 1 },
    gradient_accumulation_plugin = A.GradientAccumulationPlugin {
      num_steps = steps, sync_with_dataloader = with_loader,
    },
  }
  local model = net()
  local optimizer = make(model:parameters())
  local schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
  local loader = data.DataLoader(data.TensorDataset(inputs:narrow(1, 1, n)), { batch_size = size })
  model, optimizer, loader, schedule = accelerator:prepare(model, optimizer, loader, schedule)
  for _ = 1, EPOCHS do
    accelerator:join_uneven_inputs({ model }, function()
      for batch in loader() do
        accelerator:accumulate(model, function()
          accelerator:backward((model(batch[1]) ^ 2):mean())
          optimizer:step()
          schedule:step()
          optimizer:zero_grad()
        end)
      end
    end)
    alike(table.concat(flat(model):tolist(), " "), "parameters")
    alike(optimizer.applied, "updates")
    alike(schedule.last_epoch, "place of the schedule")
    alike(accelerator.gradient_state.step, "micro-steps")
  end
  return flat(model), optimizer.param_groups[1].lr
end

for name, make in accel.pairs(makers) do
  for _, shape in ipairs { { 7, 1 }, { 11, 2 }, { 13, 2 }, { 12, 2 }, { 2, 1 }, { 17, 3 } } do
    for steps = 1, 3 do
      for _, with_loader in ipairs { true, false } do
        local n, size = shape[1], shape[2]
        local what = ("%s, %d samples by %d, %d steps%s"):format(name, n, size, steps, with_loader and "" or ", apart")
        local got, rate = joined(make, n, size, steps, with_loader)
        local want, wanted_rate = written_out(make, n, size, steps, with_loader)
        close(got, want, what)
        assert(math.abs(rate - wanted_rate) < 1e-15, what .. ": learning rate")
      end
    end
  end
end

--- Backwards with weights: an update is the mean over all its rows, also where it ends early.
for _, shape in ipairs { { 9, 2, 2, true }, { 11, 2, 3, false }, { 14, 2, 2, false } } do
  local n, size, steps, with_loader = table.unpack(shape)
  local accelerator = accel.Accelerator {
    dataloader_config = A.DataLoaderConfiguration { even_batches = P == 1 },
    gradient_accumulation_plugin = A.GradientAccumulationPlugin {
      num_steps = steps, sync_with_dataloader = with_loader,
    },
  }
  local model, alone = net(), net()
  local optimizer, loader
  model, optimizer, loader = accelerator:prepare(model, makers.momentum(model:parameters()),
    data.DataLoader(data.TensorDataset(inputs:narrow(1, 1, n)), { batch_size = size }))
  local own = makers.momentum(alone:parameters())
  local counted, group, total = 0, {}, P * size
  for _ = 1, EPOCHS do
    accelerator:join_uneven_inputs({ model }, function()
      for batch in loader() do
        accelerator:accumulate(model, function()
          accelerator:backward((model(batch[1]) ^ 2):sum(), { weight = batch[1].shape[1] })
          accelerator:clip_grad_norm_(model:parameters(), 0.2)
          optimizer:step()
          optimizer:zero_grad()
        end)
      end
    end)
    for first = 0, n - 1, total do
      for i = first, math.min(first + total, n) - 1 do group[#group + 1] = i end
      counted = counted + 1
      local ends = first + total >= n and with_loader
      for r = 0, P - 1 do -- a rank has its last batch in this round, and another goes on
        if first + r * size < n and first + total + r * size >= n and first + total < n then ends = true end
      end
      if ends or counted % steps == 0 then
        if ends then counted = 0 end
        local loss = (alone(inputs:index_select(1, accel.tensor(group, { dtype = "i64" }))) ^ 2):mean()
        loss:backward()
        nn.utils.clip_grad_norm_(alone:parameters(), 0.2)
        own:step()
        own:zero_grad()
        group = {}
      end
    end
  end
  close(flat(model), flat(alone), ("weights, %d samples"):format(n))
end

do -- fp16: what the ranks that came last found lowers the scale of all
  accel.AcceleratorState._reset_state()
  local accelerator = accel.Accelerator {
    mixed_precision = "fp16", dataloader_config = A.DataLoaderConfiguration { even_batches = P == 1 },
    kwargs_handlers = { A.GradScalerKwargs { init_scale = 8, growth_interval = 3 } },
  }
  accel.manual_seed(3)
  local model = nn.Linear(3, 1)
  local optimizer = optim.SGD(model:parameters(), { lr = 0.01 })
  local set = data.TensorDataset(inputs:narrow(1, 1, 4 * P + 1):to "f32")
  local loader
  model, optimizer, loader = accelerator:prepare(model, optimizer, data.DataLoader(set, { batch_size = 1 }))
  for epoch = 1, 2 do
    accelerator:join_uneven_inputs({ model }, function()
      local k = 0
      for batch in loader() do
        k = k + 1
        local loss = (model(batch[1]) ^ 2):mean()
        accelerator:backward(k == 5 and epoch == 1 and loss * math.huge or loss)
        optimizer:step()
        optimizer:zero_grad()
      end
    end)
    alike(accelerator.scaler:get_scale(), "scale")
    alike(optimizer.skipped, "steps left out")
    assert(optimizer.skipped == 1 and optimizer.applied == 5 * epoch - 1, "one of the first epoch was left out")
  end
  assert(accelerator.scaler:get_scale() == 16, "8, 16 after three, 8 for the overflow, 16 after three")
  alike(table.concat(flat(model):tolist(), " "), "parameters, fp16")
end

do -- two models: a rank that waits does not know whose mean comes next, and one rank waits for nobody
  A.AcceleratorState._reset_state(true)
  local a, ran = A.Accelerator {}, false
  local one, two = a:prepare(nn.Linear(1, 1), nn.Linear(1, 1))
  local ok, why = pcall(a.join_uneven_inputs, a, { one, two }, nil, function() ran = true end)
  assert(ok == (P == 1) and ran == ok and (ok or tostring(why):find "one model at a time"), tostring(why))
  ran = false
  a:join_uneven_inputs(a:prepare(net()), nil, function() ran = true end) -- a model itself, which has children at [1]
  assert(ran)
end
