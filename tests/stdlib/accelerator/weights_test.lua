-- backward with weights: gradients of variable-length batches are those of one big batch, however sequences are spread
-- over ranks and micro-batches, in every precision; with clipping, two optimizers, deterministic = "world", join. The
-- documented example of accumulation, w = 2.04. One rank's overflow. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/weights_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, nn, optim, data = accel.accelerator, accel.nn, accel.optim, accel.data

local said = ranks.start { 1, 2, 3, 4, capture = true }
if said then
  local bits
  for _, n in ipairs { 1, 2, 4 } do
    local now = said[n]:match "bits (%x+)"
    assert(now, ("no bits from %d ranks: %s"):format(n, said[n]))
    assert(now == (bits or now), ('deterministic = "world": other bits with %d ranks'):format(n))
    bits = now
  end
  return
end

local R, P, says = ranks.rank, ranks.size, ranks.fails
local SEQS <const>, LONG <const>, WIDE <const> = 24, 7, 5

local function net(seed)
  accel.manual_seed(seed or 3)
  return nn.Sequential(nn.Linear(WIDE, 8), nn.Tanh(), nn.Linear(8, 1))
end

--- Sequences of 0 to LONG tokens, as one padded tensor each; every length is there, and one is empty.
accel.manual_seed(11)
local inputs, targets = accel.randn(SEQS, LONG, WIDE), accel.randn(SEQS, LONG)
local mask, lengths = accel.zeros(SEQS, LONG), {}
for i = 1, SEQS do
  lengths[i] = i * 5 % (LONG + 1)
  for t = 1, lengths[i] do mask[i][t]:fill_(1) end
end

--- The sum of the losses of the tokens of some sequences (positions from 0, a tensor), and how many tokens these are.
local function sum_of(model, at)
  local x, y, m = inputs:index_select(1, at), targets:index_select(1, at), mask:index_select(1, at)
  local out = model(x:view(-1, WIDE)):view(-1, LONG)
  return (((out - y) ^ 2) * m):sum(), m:sum()
end

local function flat(params, of)
  local list = {}
  for i, p in ipairs(params) do list[i] = (of == "grad" and p.grad or p):detach():clone():view(-1) end
  return accel.cat(list)
end
local function close(got, want, bound, what)
  ranks.close(got, want, what, bound * want:abs():max():item())
end

--- What one big batch gives: the model after a step on sequences [first, last] (from 0), and the gradient.
local function big(model, optimizer, first, last, max_norm)
  local loss, tokens = sum_of(model, accel.arange(first, last + 1))
  optimizer:zero_grad();
  (loss / tokens:item()):backward()
  local norm = nn.utils.clip_grad_norm_(model:parameters(), max_norm or math.huge):item()
  optimizer:step()
  return norm
end

local function fresh(options)
  A.AcceleratorState._reset_state()
  return accel.Accelerator(options)
end

-- ---- every split of 24 sequences over ranks and micro-batches ----
local bounds = { no = 3e-6, bf16 = 2e-2, fp16 = 3e-3 }
for _, precision in ipairs { "no", "bf16", "fp16" } do
  for _, rows in ipairs { 1, 2, 3, 4, 6, 8, 12, 24 } do
    local batches = SEQS // (rows * P)
    for _, steps in ipairs(SEQS % (rows * P) == 0 and { batches, batches + 1, (batches + 1) // 2 } or {}) do
      local what = ("%s, %d rows, %d batches, %d of them an update"):format(precision, rows, batches, steps)
      local accelerator = fresh {
        mixed_precision = precision, gradient_accumulation_steps = steps,
        kwargs_handlers = { A.GradScalerKwargs { init_scale = 256 } },
      }
      local plain, model = net(), net()
      local sgd = optim.SGD(plain:parameters(), { lr = 0.5 })
      local optimizer, loader
      model, optimizer, loader = accelerator:prepare(model, optim.SGD(model:parameters(), { lr = 0.5 }),
        data.DataLoader(data.TensorDataset(accel.arange(SEQS)), { batch_size = rows }))
      local clip, done, first = rows % 2 == 0 and 0.3 or nil, 0, 0
      for batch in loader() do
        local _ <close> = accelerator:accumulate(model)
        local loss, tokens = sum_of(model, batch[1])
        accelerator:backward(loss, { weight = rows % 3 == 0 and tokens:item() or tokens })
        local norm = clip and accelerator:clip_grad_norm_(model:parameters(), clip)
        optimizer:step()
        optimizer:zero_grad()
        done = done + rows * P
        if accelerator.sync_gradients then
          local wanted = big(plain, sgd, first, done - 1, clip)
          if clip then assert(math.abs(norm:item() / wanted - 1) < bounds[precision] * 4, what .. ": norm") end
          first = done
        end
      end
      assert(first == SEQS, what)
      assert(not optimizer.step_was_skipped, what)
      close(flat(model:parameters()), flat(plain:parameters()), bounds[precision], what)
    end
  end
end

-- ---- deterministic = "world" ----
for _, precision in ipairs { "no", "bf16", "fp16" } do
  for _, count in ipairs { 1, 2, 4, 8 } do
    local rows = SEQS // (P * count)
    if SEQS % (P * count) == 0 then
      local accelerator = fresh {
        mixed_precision = precision, gradient_accumulation_steps = count,
        kwargs_handlers = {
          A.DistributedDataParallelKwargs { deterministic = "world" }, A.GradScalerKwargs { init_scale = 64 },
        },
      }
      local plain, model = net(), net()
      local sgd = optim.SGD(plain:parameters(), { lr = 0.5 })
      local optimizer
      model, optimizer = accelerator:prepare(model, optim.SGD(model:parameters(), { lr = 0.5 }))
      for turn = 1, 2 do
        for i = 1, count do
          local _ <close> = accelerator:accumulate(model)
          local from = (R * count + i - 1) * rows
          local loss, tokens = sum_of(model, accel.arange(from, from + rows))
          accelerator:backward(loss, { weight = tokens })
          accelerator:clip_grad_norm_(model:parameters(), 0.4)
          optimizer:step()
          optimizer:zero_grad()
        end
        big(plain, sgd, 0, SEQS - 1, 0.4)
        close(flat(model:parameters()), flat(plain:parameters()), bounds[precision] * 2,
          ("world, %s, %d micro-batches, update %d"):format(precision, count, turn))
      end
      if precision == "no" and count * P == 8 and R == 0 then
        local bytes = flat(model:parameters()):to_bytes()
        print("bits " .. bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
      end
      if count == 2 then -- means: the reducer divides, and nothing else does
        accelerator:accumulate(model, function() accelerator:backward((model(accel.ones(1, WIDE)) * 0 + 3):sum()) end)
        accelerator:accumulate(model, function() accelerator:backward(model(accel.ones(1, WIDE)):sum()) end)
        accelerator:unscale_gradients()
        local bias = model:parameters()[4].grad:item()
        assert(math.abs(bias - 0.5) < 1e-6, bias)
      end
    end
  end
end

-- ---- w = 2.04 ----
for count = 1, 4 do
  for _, weighted in ipairs { false, true } do
    if weighted or 8 % (P * count) == 0 then
      local accelerator = fresh { gradient_accumulation_steps = count }
      local model = nn.Linear(1, 1, { bias = false })
      accel.no_grad(function() model.weight:zero_() end)
      local optimizer
      model, optimizer = accelerator:prepare(model, optim.SGD(model:parameters(), { lr = 0.02 }))
      local share = (8 + P * count - 1) // (P * count) -- the last parts are short, or empty
      for i = 1, count do
        local _ <close> = accelerator:accumulate(model)
        local from = math.min((R * count + i - 1) * share, 8)
        local x = accel.arange(1, 9):to "f32":narrow(1, from + 1, math.min(share, 8 - from)):view(-1, 1)
        local loss = (model(x) - 2 * x) ^ 2
        if weighted then
          accelerator:backward(loss:sum(), { weight = #x })
        else
          accelerator:backward(loss:mean())
        end
        optimizer:step()
        optimizer:zero_grad()
      end
      local w = model:parameters()[1]:item()
      assert(math.abs(w - 2.04) < 1e-6, ("%d micro-batches, rank %d of %d: w = %.9g"):format(count, R, P, w))
    end
  end
end

-- ---- a mean in a short last group counts less, as documented; a backward of its own gradient ----
do
  local accelerator = fresh { gradient_accumulation_steps = 2 }
  local w = accel.ones(2, { requires_grad = true })
  accelerator:backward(w * 3, { gradient = accel.tensor { 1.0, 2 }, retain_graph = true })
  assert(accel.equal(w.grad, accel.tensor { 1.5, 3 }))
  says("did you mean 'weight'", function() accelerator:backward(w:sum(), { wight = 1 }) end)
end

-- ---- several optimizers on one update, and one after another ----
do
  local accelerator = fresh {}
  local left, right = net(1), net(2)
  local a, b = optim.SGD(left:parameters(), { lr = 1 }), optim.SGD(right:parameters(), { lr = 1 })
  left, right, a, b = accelerator:prepare(left, right, a, b)
  local one, other = net(1), net(2)
  local sa, sb = optim.SGD(one:parameters(), { lr = 1 }), optim.SGD(other:parameters(), { lr = 1 })
  local share = SEQS // P
  local mine = accel.arange(R * share, (R + 1) * share)

  local la, tokens = sum_of(left, mine)
  accelerator:backward(la + sum_of(right, mine), { weight = tokens })
  a:step()
  b:step()
  big(one, sa, 0, SEQS - 1)
  big(other, sb, 0, SEQS - 1)
  close(flat(left:parameters()), flat(one:parameters()), 1e-5, "first of two")
  close(flat(right:parameters()), flat(other:parameters()), 1e-5, "second of two")
  a:zero_grad()
  b:zero_grad()

  accelerator:backward((sum_of(left, mine)), { weight = tokens })
  a:step()
  a:zero_grad()
  accelerator:backward((sum_of(right, mine)) * 3, { weight = tokens * 3 })
  b:step()
  b:zero_grad()
  big(one, sa, 0, SEQS - 1)
  big(other, sb, 0, SEQS - 1)
  close(flat(left:parameters()), flat(one:parameters()), 1e-5, "alternating, first")
  close(flat(right:parameters()), flat(other:parameters()), 1e-5, "alternating, second")

  -- What is dropped has no weight any more.
  accelerator:backward((sum_of(left, mine)), { weight = 1000 })
  a:zero_grad()
  accelerator:backward((sum_of(left, mine)), { weight = tokens })
  a:step()
  big(one, sa, 0, SEQS - 1)
  close(flat(left:parameters()), flat(one:parameters()), 1e-5, "after dropping")
  a:zero_grad()

  accelerator:backward((sum_of(left, mine)), { weight = tokens })
  says("with and without weight", function() accelerator:backward((sum_of(right, mine))) end)
  says("at least 0", function() accelerator:backward(la, { weight = -1 }) end)
  says("one element", function() accelerator:backward(la, { weight = accel.ones(2) }) end)
  a:zero_grad()
  b:zero_grad()
  accelerator:backward((sum_of(left, mine))) -- dropped by both: it may be another kind
  a:zero_grad()
  b:zero_grad()

  -- No tokens on any rank.
  local before = flat(left:parameters())
  accelerator:backward((sum_of(left, mine)) * 0, { weight = 0 })
  a:step()
  assert(accel.equal(flat(left:parameters()), before), "no tokens")
end

-- ---- an update that is left by break counts for nothing ----
for _, deterministic in ipairs { "no", "world" } do
  local accelerator = fresh {
    gradient_accumulation_steps = 2,
    kwargs_handlers = deterministic == "world" and { A.DistributedDataParallelKwargs { deterministic = "world" } } or {},
  }
  local plain, model = net(), net()
  local sgd = optim.SGD(plain:parameters(), { lr = 0.5 })
  local optimizer, loader
  model, optimizer, loader = accelerator:prepare(model, optim.SGD(model:parameters(), { lr = 0.5 }),
    data.DataLoader(data.TensorDataset(accel.arange(SEQS)), { batch_size = SEQS // (2 * P) }))
  for pass = 1, 3 do
    for batch in loader() do
      local _ <close> = accelerator:accumulate(model)
      local loss, tokens = sum_of(model, batch[1])
      accelerator:backward(loss * (pass == 2 and 100 or 1), { weight = tokens * pass })
      if pass == 2 then break end
      optimizer:step()
      optimizer:zero_grad()
    end
    if pass ~= 2 then
      local loss, tokens = sum_of(plain, accel.arange(SEQS))
      sgd:zero_grad();
      (loss / (tokens:item() * pass)):backward()
      sgd:step()
    end
  end
  close(flat(model:parameters()), flat(plain:parameters()), 1e-5, "after break, " .. deterministic)
end

-- ---- clipping with weights and a scale is clipping without ----
do
  local results = {}
  for _, scaled in ipairs { false, true } do
    local accelerator = fresh { mixed_precision = scaled and "fp16" or "no", gradient_accumulation_steps = 2 }
    local model = net() -- not prepared: it computes in f32
    accelerator:prepare(optim.SGD(model:parameters(), { lr = 1 }))
    local norms = {}
    for i = 1, 2 do
      local _ <close> = accelerator:accumulate()
      local loss, tokens = sum_of(model, accel.arange(12 * (i - 1), 12 * i))
      accelerator:backward(loss, { weight = tokens })
      norms[i] = accelerator:clip_grad_norm_(model:parameters(), 0.05, 1)
      accelerator:clip_grad_value_(model:parameters(), 0.001)
    end
    assert(norms[1] == nil)
    results[#results + 1] = { norms[2]:item() * 1.0, flat(model:parameters(), "grad") }
  end
  assert(math.abs(results[1][1] / results[2][1] - 1) < 1e-6)
  close(results[2][2], results[1][2], 1e-6, "clipped")
end

-- ---- ranks with different numbers of batches ----
if P > 1 then
  local accelerator = fresh {}
  local model, plain = net(), net()
  local optimizer
  model, optimizer = accelerator:prepare(model, optim.SGD(model:parameters(), { lr = 0.5 }))
  local sgd = optim.SGD(plain:parameters(), { lr = 0.5 })
  do
    local _ <close> = accelerator:join_uneven_inputs({ model })
    for i = 0, R + 1 do
      local loss, tokens = sum_of(model, accel.arange(R * 4 + i, R * 4 + i + 2))
      accelerator:backward(loss, { weight = tokens })
      optimizer:step()
      optimizer:zero_grad()
    end
  end
  for i = 0, P do
    local total, all = 0, 0
    for r = math.max(i - 1, 0), P - 1 do
      local loss, tokens = sum_of(plain, accel.arange(r * 4 + i, r * 4 + i + 2))
      total, all = total + loss, all + tokens:item()
    end
    sgd:zero_grad();
    (total / all):backward()
    sgd:step()
  end
  close(flat(model:parameters()), flat(plain:parameters()), 1e-5, "join")
end

-- ---- an overflow on one rank is one of all, averaged or not ----
for _, wrapped in ipairs { true, false } do
  local accelerator = fresh {
    mixed_precision = "fp16", kwargs_handlers = { A.GradScalerKwargs { init_scale = 256 } },
  }
  local model = net()
  local optimizer = accelerator:prepare(optim.SGD(model:parameters(), { lr = 0.5 }))
  if wrapped then model = accelerator:prepare(model) end
  for _, bad in ipairs { false, true, false } do
    local loss, tokens = sum_of(model, accel.arange(R, R + 2))
    accelerator:backward(loss * ((bad and R == P - 1) and 0 / 0 or 1), { weight = tokens })
    optimizer:step()
    optimizer:zero_grad()
    assert(optimizer.step_was_skipped == bad, "skipped")
  end
  assert(accelerator.scaler:get_scale() == 128, "scale")
end
