-- Plans of one model over several ranks: what real ranks send in a step, what accel-run --dry-run foretells, and what the formulas of
-- accel.parallel.traffic say are the same bytes, kind by kind; peaks of their pools agree.
-- tier: sampled
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
local tests = here .. "/../../"
local runs = dofile(tests .. "support/dry_runs.lua")
local sample = dofile(tests .. "support/sample.lua")
local traffic = require "accel.parallel.traffic"

local cases = {
  { 2, tp = 2 }, { 2, tp = 2, sequence = 1 }, { 2, pp = 2 }, { 2, pp = 2, micro_batches = 4 }, { 2, pp = 2, schedule = "gpipe" },
  { 2, cp = 2 }, { 2, cp = 2, ring = 1 }, { 2, sp = 2 }, { 2, dp = 2, zero = 3 }, { 2, dp = 2, zero = 2 }, { 2, dp = 2 },
  { 4, tp = 4 }, { 4, pp = 4, micro_batches = 4 }, { 4, tp = 2, pp = 2 }, { 4, tp = 2, pp = 2, sequence = 1 },
  { 4, pp = 2, tp = 2, virtual_stages = 2, schedule = "interleaved" }, { 4, tp = 2, dp = 2 }, { 4, tp = 2, dp = 2, zero = 3 },
  { 4, pp = 2, dp = 2 }, { 4, pp = 2, dp = 2, zero = 3 }, { 4, cp = 2, dp = 2 }, { 4, cp = 2, tp = 2 }, { 4, cp = 4, ring = 1 },
  { 4, cp = 2, pp = 2 }, { 4, sp = 2, pp = 2 }, { 4, sp = 2, tp = 2 },
  { 2, tp = 2, model = "llama" }, { 2, tp = 2, sequence = 1, model = "llama" }, { 2, pp = 2, model = "llama" },
  { 2, cp = 2, ring = 1, model = "llama" }, { 2, dp = 2, zero = 3, model = "llama" }, { 4, tp = 2, pp = 2, model = "llama" },
  { 4, pp = 2, dp = 2, zero = 3, model = "llama" }, { 4, cp = 2, tp = 2, model = "llama" }, { 3, pp = 3, layers = 5, micro_batches = 4 },
  { 4, pp = 2, dp = 2, late = 1 }, -- a loss function, which tells its labels when it is called
}
--- Mixtures of experts: of balanced routers bytes are exact; with a router that learns its ranks send more and less, as `spread` bounds.
for _, case in ipairs {
  { 2, dp = 2, ep = 2 }, { 2, dp = 2, ep = 2, capacity = 50 }, { 2, dp = 2, ep = 2, capacity = 125 }, { 2, dp = 2, capacity = 75 },
  { 4, dp = 4, ep = 2 }, { 4, dp = 4, ep = 4, experts = 8 }, { 4, dp = 2, tp = 2, ep = 2 }, { 4, dp = 2, tp = 2, ep = 2, sequence = 1 },
  { 4, dp = 4, ep = 2, zero = 3 }, { 4, dp = 4, ep = 2, zero = 2 }, { 4, cp = 2, dp = 2, ep = 4 }, { 4, dp = 2, pp = 2, ep = 2 },
  { 4, sp = 2, dp = 2, ep = 2 }, { 8, dp = 4, ep = 2, pp = 2, zero = 3 }, { 4, pp = 4, micro_batches = 4 },
  { 4, pp = 2, tp = 2, virtual_stages = 2, schedule = "interleaved" },
} do
  case.model, case.balanced, cases[#cases + 1] = "mixtral", 1, case
end
cases[#cases + 1] = { 2, dp = 2, ep = 2, model = "mixtral" }
cases[#cases + 1] = { 4, dp = 4, ep = 2, zero = 3, model = "mixtral", capacity = 125 }

local function spelled(case)
  local parts = {}
  for key, value in accel.pairs(case) do
    if key ~= 1 then parts[#parts + 1] = key .. "=" .. value end
  end
  return table.concat(parts, ",")
end

local function mixtral(case)
  return { layers = 4, hidden = 64, kv = 32, inner = 128, gated = true, biased = false, vocab = 512, positions = 0, tied = false,
    experts = case.experts or 4, k = 2, capacity = case.capacity and case.capacity / 100, balances = true }
end

local function sums(list)
  local totals, lines = {}, {}
  for i, c in ipairs(list) do
    totals[c.kind] = (totals[c.kind] or 0) + c.payload
    lines[i] = ("%s %s %d"):format(c.kind, c.kind ~= "barrier" and c.dtype or "u8", c.payload)
  end
  totals.barrier = nil
  return totals, table.concat(lines, "\n")
end

local function text(totals)
  local parts = {}
  for kind, bytes in accel.pairs(totals) do parts[#parts + 1] = kind .. " " .. bytes end
  return table.concat(parts, ", ")
end

--- Where a rank stands: dimensions as the mesh orders them, the last one fastest.
local function place(case, rank)
  local tp = case.tp or 1
  return rank // ((case.dp or 1) * (case.cp or 1) * (case.sp or 1) * tp), rank % tp
end

local script = tests .. "support/plan_script.lua"
local take = sample.one_of(27)
for _, case in ipairs(cases) do
  if take() then
    local n, spec = case[1], spelled(case)
    local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/plans")
    local real_errors, failed = runs.real(n, script, ("%s '%s'"):format(spec, folder), "ACCEL_GC=exact")
    assert(failed == 0, real_errors)
    local all = {}
    for r = 0, n - 1 do all[r + 1] = tostring(r) end
    local told, status, errors = runs.dry(("%s --num_processes %d --rank %s --steps 3"):format(runs.RATES, n, table.concat(all, ",")), script, spec,
      "env ACCEL_GC=exact")
    assert(status == 0, errors)
    local d = case.model == "llama" and { layers = 4, hidden = 64, kv = 32, inner = 128, gated = true, biased = false, vocab = 512,
      positions = 0, tied = false }
      or { layers = case.layers or 4, hidden = 64, kv = 64, inner = 256, gated = false, biased = true, vocab = 512, positions = 16, tied = true }
    for r, played in ipairs(told.ranks) do
      local what = ("rank %d of %d, %s"):format(r - 1, n, spec)
      local real = runs.result(folder, r - 1)
      local counted, lines = sums(real.collectives)
      local _, foretold = sums(played.collectives)
      local uneven = case.model == "mixtral" and not case.balanced
      if uneven then -- the rows that ranks exchange, four times a layer
        local told_rows, share, sent = assert(played.experts), sums(played.collectives).all_to_all, counted.all_to_all
        local exchanged = share - 4 * 8 * told_rows.experts -- of layers, with the counts
        assert(sent <= share + exchanged * (told_rows.most - told_rows.rows) / told_rows.rows and sent > 0, what .. ": beyond what is told")
        lines, foretold = lines:gsub("all_to_all f32 %d+", "all_to_all"), foretold:gsub("all_to_all f32 %d+", "all_to_all")
        counted.all_to_all = share
      end
      assert(lines == foretold, ("%s: foretold\n%s\nmade\n%s"):format(what, foretold, lines))
      local d = case.model == "mixtral" and mixtral(case) or d
      local m = case.pp and (case.micro_batches or 2) or 1
      local stage, tp_rank = place(case, r - 1)
      local wanted = traffic.of(d, { tp = case.tp, pp = case.pp, cp = case.cp, sp = case.sp, dp = case.dp, ep = case.ep, zero = case.zero,
        units = "model",
        sequence = case.sequence == 1, ring = case.ring == 1, micro_batches = m, virtual_stages = case.virtual_stages,
        rows = 4 // m, tokens = 16, stage = stage, tp_rank = tp_rank })
      if case.late then wanted.all_reduce = wanted.all_reduce - 8 * m end -- nothing is counted before
      assert(text(wanted) == text(counted), ("%s: the formulas say %s, made were %s"):format(what, text(wanted), text(counted)))
      -- one small model: what is there beside its tensors, and a micro-batch more or less at the peak
      assert(math.abs(played.peak.total - real.peak) <= (uneven and 0.1 or 0.03) * real.peak, ("%s: peak %d, foretold %d"):format(what, real.peak,
        played.peak.total))
    end
  end
end
