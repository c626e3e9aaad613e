-- Curves of a GPT's training step, f32: over batch, length, layers, threads and ranks, beside PyTorch and beside the limit of the machine.
-- The limit is the larger of two times: the step's flops at the rate of multiply-add instructions alone (peak.c), and its least bytes at the
-- rate of a copy (memory.c). Each curve is a table, and with --plots a PNG. With --save, points that the file has from this commit are
-- not measured again, so that a run that was stopped continues.
local history = require "history"
local machine = require "machine"
local plot_png = require "plot_png"
local accel = require "accel"

local BASE <const> = { batch = 4, seq = 64, layers = 6, width = 384, heads = 6, vocab = 256 }
local AXES <const> = {
  { "batch", "T 64", { 1, 2, 4, 8, 16, 32, 64 } },
  { "seq", "batch 1", { 64, 128, 256, 512, 1024, 2048, 4096, 8192 }, { batch = 1 }, "tokens of a sequence" },
  { "layers", "batch 4, T 64", { 6, 12, 24, 48 } },
  { "threads", "batch 4, T 64", { 1, 2 } },
  { "ranks", "batch 4 of a rank, T 64, 1 thread each", { 1, 2, 4, 8 } },
}
local QUICK <const> = { batch = 1, seq = 16, layers = 1, width = 32, heads = 2, vocab = 65 }
local BYTES <const> = 28 + 12 -- of a parameter: AdamW's reads and writes. Read forward and backward, its gradient written

--- The flops of a step, and the bytes that it cannot avoid. Products: 2 flops a weight and token forward, twice that backward. Attention is
--- causal, half of T x T.
local function work(o)
  local products = o.layers * 12 * o.width ^ 2 + o.vocab * o.width
  local tokens = o.batch * o.seq
  local flops = 6 * products * tokens + 6 * o.layers * o.batch * o.seq ^ 2 * o.width
  return flops, BYTES * (products + o.seq * o.width)
end

-- Bytes of a step's memory: parameters, gradients and two moments. Of a token, each layer keeps 16 widths (both norms' inputs and results,
-- q, k, v, the attention's result, four of the MLP before and four after its activation) and a log-sum-exp of each head.
local function formula(o)
  local parameters = o.layers * 12 * o.width ^ 2 + (o.vocab + o.seq) * o.width
  return 16 * parameters + 4 * o.batch * o.seq * (o.layers * (16 * o.width + o.heads) + 2 * o.width + o.vocab)
end

return function(h, suites)
  --- GFLOP/s and GB/s that n threads reach, or nil where there is no compiler.
  local function rates(n)
    local peak, memory = h.compile("peak.c", "cc", "-pthread"), h.compile("memory.c", "cc", "-march=native -pthread")
    if not peak or not memory then return nil end
    local seconds, size = h.quick and 0.01 or 0.3, h.quick and 4 or 256
    local a = h.capture(("%s %d %g"):format(h.quote(peak), n, seconds))
    local b = h.capture(("%s %d %d"):format(h.quote(memory), n, size))
    if not a or not b then return nil end
    local copies = accel.json.decode(b)
    return accel.json.decode(a).f32, math.max(copies.copy, copies.copy_nt)
  end

  -- Rows of the file of --save that this commit measured with the same settings.
  local function kept()
    local path = h.options.save and history.file(h.options.save, history.kind(machine.facts()))
    local data = path and history.read(path)
    local id = data and history.commit(h.here)
    return function(name)
      local row = data and data.rows[name]
      return row and row.commit == id and row.quick == h.options.quick and row.threads == h.options.threads and #row.values >= h.options.rounds
        and row or nil
    end
  end

  local function curve(axis, where, values, more, xlabel)
    local suite = "scale_" .. axis
    suites[suite] = { group = "scale", resumable = true, about = ("GPT step by %s: %s"):format(axis, where), run = function()
      local known, points, limits, gb, flops_s = kept(), {}, {}, nil, nil
      if h.quick then values = { values[1], values[2] } end
      for i, value in ipairs(values) do
        local o = setmetatable({}, { __index = h.quick and QUICK or BASE })
        for key, v in next, more or {} do o[key] = v end
        local on = axis == "threads" and value or axis == "ranks" and 1 or h.options.threads
        if axis ~= "threads" and axis ~= "ranks" then o[axis] = h.quick and QUICK[axis] * value // values[1] or value end
        h.bar = ("[%s%s] %d/%d "):format(("#"):rep(i - 1), ("."):rep(#values - i + 1), i, #values)
        local args = ("--layers %d --width %d --heads %d --vocab %d --batch %d --seq %d"):format(o.layers, o.width, o.heads, o.vocab, o.batch,
          o.seq)
        local steps = h.quick and " --steps 2 --drop 1" or o.batch * o.seq * o.layers > 6 * 2048 and " --steps 3 --drop 1" or " --steps 9 --drop 3"
        local label = ("%s %d"):format(axis == "seq" and "T" or axis, value)
        local ours, peers, peak = nil, nil, nil
        local row, memory_row = known(suite .. ": " .. label), known(suite .. ": memory, " .. label)
        if row then
          ours, peers, peak = row.values, row.peers, memory_row and memory_row.values
        else
          local was = h.options.threads
          h.options.threads = on
          h.start(h.here, h.exe, h.options)
          local sides
          if axis == "ranks" then
            sides = { { name = "accel", command = ("%s --num_processes %d --num_threads 1 %s %s%s"):format(h.quote(h.exe), value,
              h.quote(h.here .. "/sides/scale_ranks.lua"), args, steps) } }
          else
            local folder = h.shared(("gpt_%s_%d"):format(axis, value), "gpt.lua", args)
            sides = h.both("gpt.lua", "gpt", ("%s%s --data %s"):format(args, steps, h.quote(folder)), { "eager", "tuned" })
          end
          local ok, got = pcall(h.alternate, sides)
          h.options.threads = was
          h.start(h.here, h.exe, h.options)
          if not ok then error(got, 0) end
          if h.stopped then error(h.stopped, 0) end -- its rounds are not whole
          ours, peers, peak = got.accel.ms, h.peers(got, "ms"), got.accel.peak_mb
        end
        local cores = axis == "ranks" and math.min(value, h.cores) or on
        if i == 1 or axis == "threads" or axis == "ranks" then flops_s, gb = rates(cores) end
        local limit
        if flops_s then
          local flops, bytes = work(o)
          local parts = axis == "ranks" and value or 1
          limit = math.max(parts * flops / flops_s / 1e6, parts * bytes / gb / 1e6)
          limits[#limits + 1] = { value, limit }
        end
        h.row { what = label, unit = "ms", ours = ours, peers = peers,
          share = limit and ("limit %.3g ms, %.0f %%"):format(limit, 100 * limit / h.median(ours)), goal = not h.quick and peers and next(peers)
            and { ratio = 1 } or nil }
        if axis == "seq" and peak then
          h.row { what = "  memory, " .. label, unit = "MB", ours = peak, share = ("formula %.0f MB"):format(formula(o) / 1e6),
            goal = value >= 8192 and { most = 1.3 * formula(o) / 1e6 } or nil }
        end
        points[#points + 1] = { value, h.median(ours), peers or {} }
      end
      h.bar = nil
      if not h.options.plots then return end
      local series, by = { { name = "accel", x = {}, y = {} } }, {}
      for _, p in ipairs(points) do
        table.insert(series[1].x, p[1])
        table.insert(series[1].y, p[2])
        for name, v in accel.pairs(p[3]) do
          if not by[name] then
            by[name] = { name = "torch " .. name, x = {}, y = {} }
            series[#series + 1] = by[name]
          end
          table.insert(by[name].x, p[1])
          table.insert(by[name].y, h.median(v))
        end
      end
      if #limits > 0 then
        local s = { name = "limit", x = {}, y = {} }
        for i, p in ipairs(limits) do s.x[i], s.y[i] = p[1], p[2] end
        series[#series + 1] = s
      end
      assert(accel.makedirs(h.options.plots))
      local path = ("%s/%s.png"):format(h.options.plots, suite)
      local size = h.quick and QUICK or BASE
      local ok, why = plot_png.write(path, ("gpt %dx%d f32, step by %s, %s"):format(size.layers, size.width, axis, where), series,
        xlabel or axis, "ms")
      if ok then h.note("  curves: %s", path) else h.skip("curves", why) end
    end }
  end
  for _, axis in ipairs(AXES) do curve(table.unpack(axis)) end
end
