-- The suite of tests/bench/run.lua for data.DataLoader: what a batch costs without workers, and how a decoding load
-- grows with them, beside PyTorch's loader. h: the harness of run.lua.
return function(h, suites)
  function suites.loader()
    local env = "env OMP_NUM_THREADS=1 ACCEL_NUM_THREADS=1 "
    local sides = { { name = "ours", command = ("%s%s %s"):format(env, h.quote(h.exe),
      h.quote(h.here .. "/sides/loader.lua")) } }
    if h.capture "python3 -c 'import torch' 2>/dev/null && echo yes" then
      sides[2] = { name = "peer",
        command = env .. "python3 " .. h.quote(h.here .. "/sides/loader.py") .. " 2>/dev/null" }
    end
    local got = h.alternate(sides, h.options.rounds)
    local a, p = got.ours, got.peer or {}
    h.line("batch of a fast data set, no workers", "us", a.fast, p.fast, "5 us")
    h.line("batch of 8 rows of tensors", "us", a.tensors, p.tensors)
    h.line("  by one worker", "us", a.handed, p.handed)
    h.line("first batch of a pass, 2 workers", "ms", a.start, p.start)
    h.line("decoding load, no workers", "ms", a.decode0, p.decode0)
    for _, n in ipairs { 1, 2, 4 } do
      h.line(("  %d worker%s"):format(n, n > 1 and "s" or ""), "ms", a["decode" .. n], p["decode" .. n])
    end
  end
end
