-- Every decoder family on two ranks, each with tensor parallelism, a pipeline, context parallelism, FSDP 2 and ZeRO-3: the losses of three
-- steps are those of one rank within 1e-5 relative. A family or layout that cannot be cut raises, and is counted by name.
--   accel-run tests/stdlib/parallel/families_test.lua [FAMILY]
-- tier: slow
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local decoders = dofile(here .. "../../support/decoders.lua")

local STEPS <const>, V <const> = 3, decoders.vocabulary
local LAYOUTS <const> = { "tp", "pp", "cp", "fsdp2", "zero3" }

local model_of = decoders.model_of

local function batch(step)
  return accel.randint(4, V, { 4, 8 }, { generator = accel.Generator(step) })
end

local function alone(kind)
  local model, losses = model_of(kind), {}
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3, eps = 1e-4 })
  for step = 1, STEPS do
    local ids = batch(step)
    local loss = model(ids, { labels = ids })
    loss:backward()
    optimizer:step()
    optimizer:zero_grad()
    losses[step] = loss:item()
  end
  return losses
end

--- One family and layout against one rank; why it is refused, or nil.
local function one(kind, layout)
  local want = alone(kind)
  local out = ranks.run(2, { args = ("'%s' '%s'"):format(kind, layout), capture = true })
  local why = out:match "refused ([^\n]*)"
  if why then return why end
  local steps = 0
  for step, loss in out:gmatch "step (%d+) (%S+)\n" do
    steps = steps + 1
    local w, got = want[tonumber(step)], tonumber(loss)
    if not (math.abs(got - w) <= 1e-5 * math.abs(w)) then error(("step %s: %.9g, on one rank %.9g"):format(step, got, w), 0) end
  end
  if steps ~= STEPS then error(out, 0) end
end

if not ranks.launched then
  local tried, refused, wrong = 0, {}, {}
  for _, layout in ipairs(LAYOUTS) do
    for kind in accel.pairs(decoders.classes) do
      if (not arg[1] or arg[1] == kind) and (not arg[2] or arg[2] == layout) then
        local ran, why = pcall(one, kind, layout)
        if not ran then
          wrong[#wrong + 1] = ("%s %s: %s"):format(kind, layout, why)
        elseif why then
          refused[#refused + 1] = ("%s %s: %s"):format(kind, layout, why)
        else
          tried = tried + 1
        end
      end
    end
  end
  for _, line in ipairs(refused) do print("refused " .. line) end
  for _, line in ipairs(wrong) do print("FAIL " .. line) end
  print(("%d families and layouts run, %d refused, %d failed"):format(tried, #refused, #wrong))
  if #wrong > 0 then os.exit(1, true) end
  return
end

local kind, layout = arg[1], arg[2]
local model = model_of(kind)
local function say(step, loss)
  if ranks.rank == 0 then print(("step %d %.9g"):format(step, loss:item())) end
end

local ok, err = pcall(function()
  local Accelerator, acc = accel.Accelerator, nil
  if layout == "fsdp2" then
    acc = Accelerator { fsdp_plugin = accel.FullyShardedDataParallelPlugin { fsdp_version = 2, auto_wrap_policy = "transformer_based_wrap",
      transformer_cls_names_to_wrap = model._no_split_modules } }
  elseif layout == "zero3" then
    acc = Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 3, gradient_clipping = 1e9 } }
  else
    acc = Accelerator { parallelism_config = accel.ParallelismConfig { [layout .. "_size"] = 2 } }
  end
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3, eps = 1e-4 })
  model, optimizer = acc:prepare(model, optimizer)
  for step = 1, STEPS do
    local ids = batch(step)
    local loss
    if layout == "fsdp2" or layout == "zero3" then
      local mine = ids:narrow(1, ranks.rank * 2 + 1, 2)
      loss = model(mine, { labels = mine })
      acc:backward(loss)
      loss = acc:reduce(loss:detach(), "mean")
    elseif layout == "cp" then
      local shifted = accel.cat({ ids:narrow(2, 2, 7), accel.full({ 4, 1 }, -100, { dtype = "i64" }) }, 2)
      local _ <close> = acc:maybe_context_parallel { buffers = { ids, shifted }, buffer_seq_dims = { 2, 2 } }
      loss = model(ids, { shift_labels = shifted })
      acc:backward(loss)
      loss = acc:reduce(loss:detach(), "mean")
    else
      loss = model(ids, { labels = ids })
      acc:backward(loss)
    end
    optimizer:step()
    optimizer:zero_grad()
    say(step, loss)
  end
end)
if not ok then
  local text = tostring(err):match "^[^\n]*"
  if text:find "does not run on" or text:find "no plan" or text:find "cannot" or text:find "is not supported" then
    if ranks.rank == 0 then print("refused " .. text) end
  else
    error(err, 0)
  end
end
