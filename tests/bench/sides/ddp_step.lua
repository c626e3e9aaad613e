-- Training step of a GPT-2 on several ranks, by turns of the bare model and of one wrapped in DistributedDataParallel,
-- with and without averaging (no_sync): B 2, T 64 on every rank, f32, AdamW. Started by accel-run --num_processes N.
-- Rank 0 prints one JSON object: medians in ms, and the share of the all-reduces' time that lay before the last
-- gradient; before it, with --timeline, the collectives of one backward as a picture.
--   --size 124M|small  --steps N  --bucket MB
local accel = require "accel"
local dist = accel.dist
local o = { size = "124M", steps = 9, bucket = 25 }
for i = 1, #arg do
  local name = arg[i]:match "^%-%-(%w+)$"
  if name == "timeline" then o.timeline = true
  elseif name then o[name] = tonumber(arg[i + 1]) or arg[i + 1] end
end
local rank, B, T = dist.get_rank(), 2, 64
accel.manual_seed(1)
local small = o.size == "small"
local config = {
  vocab_size = small and 8000 or 50257, n_positions = T, n_embd = small and 256 or 768, n_layer = small and 4 or 12,
  n_head = small and 4 or 12, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0,
}
local bare, model = accel.models.GPT2(config), accel.models.GPT2(config)
local ddp = accel.nn.parallel.DistributedDataParallel(model, { bucket_cap_mb = o.bucket })
local bare_optimizer = accel.optim.AdamW(bare:parameters(), { lr = 1e-4 })
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-4 })
local V = config.vocab_size
local x = accel.randint(0, V, { B, T })
local y = accel.cat({ x:narrow(2, 2, T - 1), x:narrow(2, 1, 1) }, 2):reshape(-1)
local clock, last = accel.clock, 0
for _, p in ipairs(model:parameters()) do p:register_post_accumulate_grad_hook(function() last = clock() end) end

--- One step; returns its time, and when the backward began, had its last gradient, and ended.
local function step(how)
  dist.barrier()
  local t0 = clock()
  local _ <close> = how == "alone" and ddp:no_sync() or nil
  local loss = accel.cross_entropy((how == "bare" and bare or ddp)(x):view(-1, V), y)
  local t1 = clock()
  loss:backward()
  local t2 = clock()
  local opt = how == "bare" and bare_optimizer or optimizer
  opt:step()
  opt:zero_grad()
  return (clock() - t0) * 1e3, t1, last, t2
end

local function picture(records, from, to, ended)
  local width = 100
  local function column(t) return math.floor((t - from) / (ended - from) * width + 0.5) end
  print(("%-34s |%s%s| %.1f ms"):format("backward (.: waits for the rest)", ("="):rep(column(to)),
    ("."):rep(width - column(to)), (ended - from) * 1e3))
  for _, r in ipairs(records) do
    local a, b = column(r.began), math.max(column(r.began) + 1, column(r.ended))
    local what = ("%.1f MB, queued at %.1f ms"):format(r.bytes / 2 ^ 20, (r.queued - from) * 1e3)
    print(("%-34s |%s%s%s| %.1f ms"):format(what, (" "):rep(a), ("#"):rep(b - a), (" "):rep(math.max(0, width - b)),
      (r.ended - r.began) * 1e3))
  end
end

local times, shares = { bare = {}, alone = {}, ddp = {} }, {}
for i = 1, o.steps + 2 do
  local b, a = step "bare", step "alone"
  local t, from, to, ended = step "ddp"
  local inside, all, records = 0, 0, {}
  for _, r in ipairs(dist.records(200)) do
    if r.kind == "all_reduce" and r.began >= from and r.ended and r.ended <= ended then
      all = all + r.ended - r.began
      inside = inside + math.max(0, math.min(r.ended, to) - r.began)
      records[#records + 1] = r
    end
  end
  if i > 2 then
    shares[#shares + 1] = inside / all
    for how, ms in pairs { bare = b, alone = a, ddp = t } do table.insert(times[how], ms) end
  end
  if o.timeline and i == o.steps + 2 and rank == 0 then picture(records, from, to, ended) end
end
local function median(v)
  table.sort(v)
  return v[(#v + 1) // 2]
end
if rank == 0 then
  print(accel.json.encode {
    bare = median(times.bare), alone = median(times.alone), ddp = median(times.ddp), inside = median(shares),
  })
end
