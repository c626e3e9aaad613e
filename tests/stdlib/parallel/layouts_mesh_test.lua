-- The generated matrix through accelerator:prepare: every model family under the products of tp, pp, dp, sequence parallelism, cp, sp and ep
-- that there are on up to 8 ranks and that the family takes: the losses of 20 steps are those of one rank within 1e-5 relative, a second run
-- of some has the same bits. layouts_test.lua has tensor and pipeline parallelism by themselves, with every schedule.
--   accel-run tests/stdlib/parallel/layouts_mesh_test.lua
-- tier: sampled
-- parts: bert gpt2 llama mixtral t5 vit
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")
local A = accel.accelerator

local STEPS <const>, LAYERS <const>, ROWS <const> = 20, 4, 8
local MOST <const> = 8

--- What ranks of cp or sp take parts of, and what has experts.
local CUT <const> = { gpt2 = true, llama = true, mixtral = true }

--- All products for a family: tables of sizes. With seq the ranks of tp have parts of sequences.
local function products(name)
  local list = {}
  for _, tp in ipairs { 1, 2, 4 } do
    for _, pp in ipairs { 1, 2, 4 } do
      for _, dp in ipairs { 1, 2 } do
        for _, how in ipairs { "", "cp", "sp" } do
          local cut = how ~= "" and 2 or 1
          local n, data = tp * pp * dp * cut, dp * cut
          -- heads: 4, of which each rank has at least one
          local fits = n <= MOST and n > 1 and (cut == 1 or CUT[name]) and not (how == "sp" and tp == 4)
          for _, ep in ipairs(fits and (name == "mixtral" and data > 1 and { 1, data } or { 1 }) or {}) do
            for _, seq in ipairs(tp > 1 and cut == 1 and name ~= "vit" and { false, true } or { false }) do
              local plain = cut == 1 and dp == 1 -- layouts_test.lua has these
              if not plain then list[#list + 1] = { tp = tp, pp = pp, dp = dp, how = how, ep = ep, seq = seq, n = n } end
            end
          end
        end
      end
    end
  end
  return list
end

local function text(name, p)
  return ("%s tp %d pp %d dp %d %s ep %d%s"):format(name, p.tp, p.pp, p.dp, p.how, p.ep, p.seq and " seq" or "")
end

--- Micro-batches of a pipeline, of which every rank has two rows at least.
local function micros_of(p) return p.pp > 1 and math.min(p.pp, ROWS // p.dp) or 1 end

local function arguments(name, step, model, cuts)
  local args = cases.batch(name, step, model)
  if not cuts then return args end
  local ids = args[1]
  return table.pack(ids, { shift_labels = accel.cat({ ids:narrow(2, 2, 7), ids:narrow(2, 1, 1) }, 2) })
end

--- Rows of two batches behind one another, in tensors and tables of them.
local function both(a, b)
  if accel.is_tensor(a) then return accel.cat({ a, b }, 1) end
  if type(a) ~= "table" then return a end
  local out = {}
  for key, value in next, a do out[key] = both(value, b[key]) end
  return out
end

--- What one rank does with the micro-batches that all ranks have, one after the other.
local function alone(name, p)
  local micros = micros_of(p)
  local per = ROWS // p.dp // micros
  return cases.alone(name, LAYERS, 0, STEPS, micros,
    function(_, step, model) return arguments(name, step, model, p.how ~= "") end,
    function(args, m)
      local first, second = cases.rows(args, (m - 1) * per + 1, per), p.dp == 2 and cases.rows(args, (micros + m - 1) * per + 1, per)
      return second and both(first, second) or first
    end)
end

local function train(name, p)
  local cuts, loss_fn, micros = p.how ~= "", cases.loss(name), micros_of(p)
  local a = accel.Accelerator { parallelism_config = accel.ParallelismConfig { tp_size = p.tp, pp_size = p.pp, dp_shard_size = p.dp,
    cp_size = p.how == "cp" and 2 or 1, sp_size = p.how == "sp" and 2 or 1, ep_size = p.ep,
    tp_handler = p.tp > 1 and A.TorchTensorParallelConfig { sequence_parallel = p.seq } or nil,
    pp_handler = p.pp > 1 and A.PipelineParallelConfig { num_micro_batches = micros, loss_fn = loss_fn } or nil } }
  local model = cases.model(name, LAYERS, 0)
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  model, optimizer = a:prepare(model, optimizer)
  local dp, data = a._parallel:axis "dp", a._parallel:axis "data"
  local n = ROWS // dp.size
  for step = 1, STEPS do
    local args = cases.rows(arguments(name, step, a:unwrap_model(model), cuts), dp.rank * n + 1, n)
    local loss
    local function run()
      if p.pp > 1 then
        loss = model(table.unpack(args, 1, args.n))
      else
        local out = table.pack(model(table.unpack(args, 1, name == "vit" and 2 or args.n)))
        loss = loss_fn(out.n == 1 and out[1] or out, table.unpack(args, 1, args.n))
      end
      a:backward(loss)
    end
    if cuts then
      args[1], args[2].shift_labels = args[1]:clone(), args[2].shift_labels:clone()
      a:maybe_context_parallel({ buffers = { args[1], args[2].shift_labels }, buffer_seq_dims = { 2, 2 } }, run)
    else
      run()
    end
    optimizer:step()
    optimizer:zero_grad()
    local total = loss:detach():clone()
    if data.size > 1 then accel.dist.all_reduce(total, { group = data.group, op = "mean" }) end
    if ranks.rank == 0 then print(("step %d %.9g"):format(step, total:item())) end
  end
end

if ranks.launched then return train(arg[1], products(arg[1])[tonumber(arg[2])]) end

local part, count = os.getenv "ACCEL_TEST_PART", 0
local take = ranks.sample.one_of(36)
for _, name in ipairs(cases.names) do
  for i, p in ipairs((part == nil or part == name) and products(name) or {}) do
    if take() then
      local at, want, steps = text(name, p), alone(name, p), 0
      local said = ranks.run(p.n, { args = ("%s %d"):format(name, i), capture = true })
      for step, loss in said:gmatch "step (%d+) (%S+)\n" do
        steps = steps + 1
        local w, got = want[tonumber(step)], tonumber(loss)
        assert(math.abs(got - w) <= 1e-5 * math.abs(w), ("%s, step %s: %.9g, on one rank %.9g"):format(at, step, got, w))
      end
      assert(steps == STEPS, at .. ": " .. said)
      if i % 7 == 0 then assert(ranks.run(p.n, { args = ("%s %d"):format(name, i), capture = true }) == said, at .. ": other bits") end
      count = count + 1
    end
  end
end
assert(count >= 3)
