-- Training step of a GPT-2 on several ranks, by turns under data parallelism and under stages 1, 2 and 3 of ZeRO with a unit for
-- each block: B 2, T 64 on every rank, f32, AdamW. Started by accel-run --num_processes N. Rank 0 prints one JSON object: medians in
-- ms and the share of the reductions' time that lay before the last gradient at stage 2. With --only, of that one way the median, the
-- bytes that a rank holds between two steps and the sum of the ranks' proportional set sizes, in MB; of `offload`, which is stage 3 with
-- parameters, gradients and states in host memory and the update in a thread beside the backward, the share of the update that no step
-- waited for.
--   --size 124M|small  --steps N  --only zero3|offload
local accel = require "accel"
local dist = accel.dist
local o = { size = "124M", steps = 5 }
for i = 1, #arg do
  local name = arg[i]:match "^%-%-(%w+)$"
  if name then o[name] = tonumber(arg[i + 1]) or arg[i + 1] end
end
local rank, B, T = dist.get_rank(), 2, 64
local small = o.size == "small"
local config = {
  vocab_size = small and 8000 or 50257, n_positions = T, n_embd = small and 256 or 768, n_layer = small and 4 or 12,
  n_head = small and 4 or 12, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0,
}
local V, clock = config.vocab_size, accel.clock
accel.manual_seed(1)
local x = accel.randint(0, V, { B, T })
local y = accel.cat({ x:narrow(2, 2, T - 1), x:narrow(2, 1, 1) }, 2):reshape(-1)

local function wrap(how)
  accel.manual_seed(1)
  local model, parallel = accel.models.GPT2(config), accel.nn.parallel
  if how == "ddp" then model = parallel.DistributedDataParallel(model)
  else
    model = parallel.FullyShardedDataParallel(model, { zero_stage = math.tointeger(how:match "%d") or 3,
      auto_wrap_policy = { kind = "transformer", classes = { "GPT2Block" } },
      offload = how == "offload" and { parameters = "host", optimizer = "host", overlap = true } or nil })
  end
  return { model = model, optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-4 }), times = {}, last = 0 }
end

--- One step: its time, and when its backward began, had its last gradient and ended.
local function step(side)
  dist.barrier()
  local t0 = clock()
  local loss = accel.cross_entropy(side.model(x):view(-1, V), y)
  local t1 = clock()
  loss:backward()
  local t2 = clock()
  side.optimizer:step()
  side.optimizer:zero_grad()
  return (clock() - t0) * 1e3, t1, side.last, t2
end

local function pss()
  local file = io.open "/proc/self/smaps_rollup"
  local kb = file and tonumber(file:read "a":match "\nPss:%s+(%d+) kB") or 0
  if file then file:close() end
  local t = accel.full({ 1 }, kb * 1024, { dtype = "f64" })
  dist.all_reduce(t)
  return t:item()
end

local function median(v)
  table.sort(v)
  return v[(#v + 1) // 2]
end

local out = {}
if o.only then
  local before = pss()
  local side = wrap(o.only)
  for _ = 1, 2 do step(side) end
  for i = 1, o.steps do side.times[i] = (step(side)) end
  local tier = side.model.reducer.tier
  out.step, out.hidden = median(side.times), tier and tier:stats().update.hidden
  collectgarbage()
  accel.empty_cache()
  out.bytes = accel.mem_stats("cpu").live_bytes / 2 ^ 20
  out.pss = (pss() - before) / 2 ^ 20
else
  local sides, shares = {}, {}
  local names = { "ddp", "zero1", "zero2", "zero3" }
  for _, how in ipairs(names) do sides[how] = wrap(how) end
  for _, p in ipairs(sides.zero2.model:parameters()) do
    p:register_post_accumulate_grad_hook(function() sides.zero2.last = clock() end)
  end
  for i = 1, o.steps + 2 do
    for _, how in ipairs(names) do
      local ms, from, to, ended = step(sides[how])
      if i > 2 then table.insert(sides[how].times, ms) end
      if how == "zero2" and i > 2 then
        local inside, all = 0, 0
        for _, r in ipairs(dist.records(200)) do
          if r.kind == "reduce_scatter" and r.began >= from and r.ended and r.ended <= ended then
            all = all + r.ended - r.began
            inside = inside + math.max(0, math.min(r.ended, to) - r.began)
          end
        end
        if all > 0 then shares[#shares + 1] = inside / all end
      end
    end
  end
  for _, how in ipairs(names) do out[how] = median(sides[how].times) end
  out.inside = #shares > 0 and median(shares) or 0
end
if rank == 0 then print(accel.json.encode(out)) end
