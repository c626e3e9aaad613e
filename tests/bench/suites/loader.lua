-- The bench of data.DataLoader: what a batch costs without workers, and how a decoding load grows with them, beside
-- PyTorch's loader.
return function(h, suites)
  suites.loader = { about = "data loading: cost of a batch, decoding with 0 to 4 workers", run = function()
    local env = "env OMP_NUM_THREADS=1 ACCEL_NUM_THREADS=1 "
    local function command(program, script)
      return ("%s%s %s%s"):format(env, h.quote(program), h.quote(h.here .. "/sides/" .. script),
        h.quick and " --quick" or "")
    end
    local sides = { { name = "accel", command = command(h.exe, "loader.lua") } }
    local python, why = h.python()
    if python then
      sides[2] = { name = "torch", peer = true, command = command(h.options.python or "python3", "loader.py") }
    elseif h.wants_peers() then
      h.skip("PyTorch", why)
    end
    local got = h.alternate(sides)
    local a, p = got.accel, got.torch or {}
    h.line("batch of a fast set, no workers", "us", a.fast, p.fast, { most = 5 })
    h.line("batch of 8 rows of tensors", "us", a.tensors, p.tensors)
    h.line("  by one worker", "us", a.handed, p.handed)
    h.line("first batch of a pass, 2 workers", "ms", a.start, p.start)
    h.line("decoding load, no workers", "ms", a.decode0, p.decode0)
    for _, n in ipairs { 1, 2, 4 } do
      h.line(("  %d worker%s"):format(n, n > 1 and "s" or ""), "ms", a["decode" .. n], p["decode" .. n])
    end
    local function gain(figures, n)
      local out = {}
      for i, none in ipairs(figures.decode0 or {}) do out[i] = none / figures["decode" .. n][i] end
      return out
    end
    for _, n in ipairs { 1, 2 } do -- starting them counts too
      h.row { what = ("  throughput, %d worker%s / none"):format(n, n > 1 and "s" or ""), unit = "x", ours = gain(a, n),
        peers = { torch = gain(p, n) }, higher = true, goal = n <= h.cores and { least = ({ 0.95, 1.8 })[n] } or nil }
    end
  end }
end
