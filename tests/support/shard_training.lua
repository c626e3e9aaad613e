-- Training of small models on rows of one global batch, alone or on several ranks that share it: of the tests of sharding. Made by
--   dofile "support/shard_training.lua"(models, rows, steps)      models: name -> { function that makes it, function(generator) -> x }
-- whose outputs are logits of 11 classes.
local accel = require "accel"

return function(made, B, STEPS)
  local M = {}

  local optimizers = {
    adamw = function(p) return accel.optim.AdamW(p, { lr = 1e-2 }) end,
    sgd = function(p) return accel.optim.SGD(p, { lr = 0.1, momentum = 0.9 }) end,
  }

  --- Trains one case; returns the losses of this rank, one a step, and the wrapped model.
  -- c: {model, optimizer, accumulate, whole (no_sync), clip, autocast, twice, early}. wrap: makes the model that is trained. Rows of
  -- micro-batch k of this rank: consecutive in the global batch of rank 0's, so that one rank sees the same micro-batches.
  function M.train(c, wrap, size, rank)
    accel.manual_seed(5)
    local model = made[c.model][1]()
    local params, make = model:parameters(), optimizers[c.optimizer or "adamw"]
    local early = c.early and make(params)
    local wrapped = wrap(model)
    local optimizer, losses = early or make(wrapped:parameters()), {}
    local K = c.accumulate or 1
    local rows = B // (size * K)
    for step = 1, STEPS do
      local g = accel.Generator(step)
      local x, y = made[c.model][2](g), accel.randint(0, 11, { B, 5 }, { generator = g })
      local total = 0
      for k = 0, K - 1 do
        local at = (rank * K + k) * rows
        accel.micro_batch(at)
        local _ <close> = size > 0 and wrapped ~= model and c.whole and k < K - 1 and wrapped:no_sync() or nil
        local _ <close> = accel.autocast { enabled = c.autocast ~= nil, dtype = c.autocast or "bf16" }
        local part, want = x:narrow(1, at + 1, rows), y:narrow(1, at + 1, rows)
        local out = wrapped(part, c.model == "either" and (c.mixed and rank % 2 == 1) or nil)
        if c.twice then out = out + wrapped(part, nil) end
        if out.ndim == 2 then want = want:narrow(2, 1, 1):squeeze(2) end
        local loss = out:float():view(-1, 11):cross_entropy(want:reshape(-1))
        ;(c.world and loss or loss / K):backward()
        total = total + loss:item() / K
      end
      if c.clip then accel.nn.utils.clip_grad_norm_(wrapped:parameters(), c.clip) end
      optimizer:step()
      optimizer:zero_grad()
      losses[step] = total
    end
    return losses, wrapped
  end

  function M.mean_over_ranks(losses)
    local t = accel.tensor(losses, { dtype = "f64" })
    accel.dist.all_reduce(t, "avg")
    return t:tolist()
  end

  function M.state_of(model)
    local out = {}
    for name, t in pairs(model:state_dict()) do out[name] = t:detach():clone() end
    return out
  end

  function M.far(a, b)
    local most = 0
    for i = 1, #a do most = math.max(most, math.abs(a[i] - b[i])) end
    return most
  end

  return M
end
