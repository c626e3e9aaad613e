-- The bench of data parallelism: the time of a training step on two ranks that average gradients, beside the same work
-- on each of them alone.
return function(h, suites)
  -- One thread per rank where cores are few, as ranks share them.
  local function step(n, size, threads)
    return ("%s --num_processes %d --num_threads %d %s --size %s%s"):format(h.quote(h.exe), n, threads,
      h.quote(h.here .. "/sides/ddp_step.lua"), size, h.quick and " --steps 1" or "")
  end

  suites.ddp = { about = "GPT-2 step on 2 ranks against no_sync and the bare model", run = function()
    local threads = math.max(1, math.min(h.options.threads, h.cores // 2))
    for _, size in ipairs(h.quick and { "small" } or { "small", "124M" }) do
      local got = h.alternate({ { name = "accel", command = step(2, size, threads) } }).accel
      h.line(("GPT-2 %s B2 T64 f32, bare"):format(size), "ms", got.bare)
      h.line("  in the wrapper, no_sync", "ms", got.alone)
      h.line("  averaging over 2 ranks", "ms", got.ddp)
      local over, wraps, inside = {}, {}, {}
      for i, ms in ipairs(got.ddp) do
        over[i], wraps[i], inside[i] = ms / got.alone[i], ms / got.bare[i], got.inside[i] * 100
      end
      h.line("  averaging / no_sync", "x", over, nil, { most = 1.06 })
      h.line("  averaging / bare", "x", wraps, nil, { most = 1.06 })
      h.line("  reduced before the last", "%", inside, nil, { least = 70 })
    end
    if h.quick then return end
    h.note("%s", h.capture(step(2, "124M", threads) .. " --steps 2 --timeline") or "the timeline failed")
  end }
end
