-- Labels that micro-batches have unequally many of, or none: loss and norm of gradients of a pipeline are those of one call, with the model's
-- own loss and with a loss function, in training and evaluation, for every number of micro-batches and schedule.
--   accel-run tests/stdlib/parallel/empty_micro_batches_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2 } then return end
local A, P = accel.accelerator, ranks.size
local V <const> = 29

--- logits: what the model is given besides ids is for the loss function.
local function net(logits)
  accel.manual_seed(3)
  local model = accel.models.Llama { vocab_size = V, hidden_size = 12, intermediate_size = 20, num_hidden_layers = 2, num_attention_heads = 2,
    num_key_value_heads = 2, max_position_embeddings = 16 }
  local forward = model.forward
  if logits then rawset(model, "forward", function(self, ids) return forward(self, ids) end) end
  return model
end

local g = accel.Generator(5)
local ids = accel.randint(0, V, { 8, 8 }, { generator = g })
local shifted = accel.cat({ ids:narrow(2, 2, 7), accel.full({ 8, 1 }, -100, { dtype = "i64" }) }, 2)

--- The mean over labels by a function of one's own, of which nothing but the call of cross_entropy tells the count.
local function own(output, _, _, labels) return accel.cross_entropy(output:reshape(-1, V), labels:reshape(-1)) end

--- Loss and norm of one call, on one rank.
local function alone(labels)
  local model = net()
  local loss = model(ids, { shift_labels = labels })
  loss:backward()
  return loss:item(), accel.nn.utils.clip_grad_norm_(model:parameters(), 1e9):item()
end

local function masked(rows)
  local labels = shifted:clone()
  for row, kept in accel.pairs(rows) do labels:narrow(1, row, 1):narrow(2, kept + 1, 8 - kept):fill_(-100) end
  return labels
end

local take = ranks.sample.one_of(8)
for what, labels in accel.pairs {
  ["two of four rows"] = masked { 0, 0, 0, 0 }, unequal = masked { 1, 7, 3, 5, [7] = 2 }, ["one label"] = masked { 0, 0, 1, 0, 0, 0, 0, 0 },
  none = masked { 0, 0, 0, 0, 0, 0, 0, 0 },
} do
  local want, norm = alone(labels)
  for _, schedule in ipairs(P > 1 and { "1f1b", "gpipe", "zero_bubble" } or { "1f1b" }) do
    for _, n in ipairs { 1, 2, 4, 8 } do
      for _, loss_fn in ipairs(take() and { false, own } or {}) do
        A.AcceleratorState._reset_state(true)
        local a = P > 1 and accel.Accelerator { parallelism_config = accel.ParallelismConfig { pp_size = P,
          pp_handler = A.PipelineParallelConfig { num_micro_batches = n, schedule = schedule, loss_fn = loss_fn or nil } } }
        local at = ("%s, %s, %d micro-batches%s"):format(what, schedule, n, loss_fn and ", a function" or "")
        local model
        if a then
          model = a:prepare(net(loss_fn))
        else
          local mesh = accel.parallel.init_device_mesh("cpu", { 1 }, { mesh_dim_names = { "pp" } })
          model = accel.nn.parallel.PipelineParallel(net(loss_fn), mesh, { num_micro_batches = n, loss_fn = loss_fn or nil })
        end
        local function run()
          if loss_fn then return model(ids, {}, labels) end
          return model(ids, { shift_labels = labels })
        end
        for call = 1, 2 do -- a second call adds to the gradients of the first
          local loss = run()
          local clip = a and function() return a:clip_grad_norm_(model:parameters(), 1e9) end
            or function() return accel.nn.utils.clip_grad_norm_(model:parameters(), 1e9) end
          if a then a:backward(loss) end
          ranks.close(loss:item(), want, at, 1e-5)
          ranks.close(clip():item(), norm * call, at .. ", norm of gradients", 1e-4 * math.max(norm, 1e-3))
        end
        if not loss_fn then
          model:eval()
          ranks.close(run():item(), want, at .. ", evaluation", 1e-5)
        end
      end
    end
  end
end

-- a loss function that gives sums, with the weight of all; a factor; calls that an update cannot join
if P > 1 then
  local labels = masked { 1, 7, 3, 5, [7] = 2 }
  local count, _, norm = labels:ne(-100):sum(), alone(labels)
  local function sums(output, _, _, own_labels)
    return accel.cross_entropy(output:reshape(-1, V), own_labels:reshape(-1), { reduction = "sum" })
  end
  local function open(n, loss_fn)
    A.AcceleratorState._reset_state(true)
    local a = accel.Accelerator { parallelism_config = accel.ParallelismConfig { pp_size = P,
      pp_handler = A.PipelineParallelConfig { num_micro_batches = n, loss_fn = loss_fn } } }
    return a, a:prepare(net(loss_fn))
  end
  local function norm_of(a, model) return a:clip_grad_norm_(model:parameters(), 1e9):item() end
  local one = ranks.sample.one_of(2)
  for _, n in ipairs { one() and 1 or 4, ranks.sample.full and 4 or nil } do
    local a, model = open(n, sums)
    a:backward(model(ids, {}, labels), { weight = count })
    ranks.close(norm_of(a, model), norm, "sums and their weight", 1e-4 * norm)
    a, model = open(n)
    a:backward(model(ids, { shift_labels = labels }) * count, { weight = count })
    ranks.close(norm_of(a, model), norm, "a mean times its labels", 1e-4 * norm)
    a, model = open(n)
    a:backward(model(ids, { shift_labels = labels }) / 4)
    ranks.close(norm_of(a, model), norm / 4, "a part of a loss", 1e-4 * norm)
    a:backward(model(ids, { shift_labels = labels }))
    ranks.close(norm_of(a, model), norm * 1.25, "a loss behind it", 1e-4 * norm)
    ranks.fails("have different factors", a.backward, a, model(ids, { shift_labels = labels }) * 2)
    ranks.fails("gradient comes too late", a.backward, a, model(ids, { shift_labels = labels }), { gradient = accel.ones(1) })
  end
end
