--- A small GPT on text of a Markov chain with two next tokens for each, trained in a precision by an Accelerator: of the tests of fp8.
---@param o table steps, precision, recipe, width, layers; opts: more of the Accelerator's; seen(step, loss, accelerator): after each step
---@return number[] losses, accel.Accelerator a, accel.nn.Module model, any optimizer
return function(o)
  local accel = require "accel"
  accel.AcceleratorState._reset_state(true)
  local opts = { mixed_precision = o.precision, kwargs_handlers = o.recipe and { o.recipe } or nil }
  for key, value in accel.pairs(o.opts or {}) do opts[key] = value end
  local a = accel.Accelerator(opts)
  accel.manual_seed(7)
  local V, T, B = 64, 32, 8
  local model = accel.models.GPT2LMHeadModel { vocab_size = V, n_positions = T, n_embd = o.width, n_layer = o.layers, n_head = 4,
    resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 2e-3 })
  local net, opt = a:prepare(model, optimizer)
  local next_of = accel.randint(0, V, { V, 2 }, { generator = accel.Generator(1) }):tolist()
  local losses = {}
  for step = 1, o.steps do
    local rows = {}
    local choice = accel.randint(0, V, { B, T }, { generator = accel.Generator(1000 + step) }):tolist()
    for b = 1, B do
      local row = { choice[b][1] }
      for t = 2, T do row[t] = next_of[row[t - 1] + 1][choice[b][t] % 2 + 1] end
      rows[b] = row
    end
    local share = B // a.num_processes
    local x = accel.tensor(rows, { dtype = "i64" }):narrow(1, 1 + share * a.process_index, share)
    local loss = net(x, { labels = x })
    a:backward(loss)
    opt:step()
    opt:zero_grad()
    losses[step] = loss:item()
    if o.seen then o.seen(step, losses[step], a) end
  end
  return losses, a, model, optimizer
end
