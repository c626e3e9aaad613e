-- What a profile costs a GPT's training step: steps without one, with one, and with one of every option take turns.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { layers = 6, width = 384, heads = 6, vocab = 256, batch = 8, seq = 256, steps = 30 }

accel.manual_seed(1)
local model = accel.models.GPT2 { vocab_size = o.vocab, n_positions = o.seq, n_embd = o.width, n_layer = o.layers, n_head = o.heads }
local params = model:parameters()
local opt = accel.optim.AdamW(params, { lr = 1e-4 })
local x = accel.randint(0, o.vocab, { o.batch, o.seq })

local function step()
  local loss = accel.cross_entropy(model(x):reshape(-1, o.vocab), x:reshape(-1))
  loss:backward()
  accel.nn.utils.clip_grad_norm_(params, 1.0)
  opt:step()
  opt:zero_grad()
end

local ALL <const> = { record_shapes = true, profile_memory = true, with_flops = true, with_stack = true, with_modules = true }
local kinds = { off = false, plain = {}, all = ALL }
local times, spans = { off = {}, plain = {}, all = {} }, 0
for _ = 1, 2 do step() end
for _ = 1, o.steps do
  for name, options in accel.pairs(kinds) do
    local prof = options and accel.profiler.profile(options)
    local t = accel.clock()
    step()
    side.sync()
    table.insert(times[name], (accel.clock() - t) * 1e3)
    if prof then
      prof:stop()
      spans = math.max(spans, #prof:events())
    end
  end
end
side.finish { off = side.median(times.off), plain = side.median(times.plain), all = side.median(times.all), spans = spans }
