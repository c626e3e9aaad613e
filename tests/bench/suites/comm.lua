-- Benches that start several ranks: collectives beside gloo, Open MPI and the bare loop, launching beside torchrun.
return function(h, suites)
  local function ranks(n)
    return function()
      local sides = { { name = "accel", command = ("%s --num_processes %d %s%s"):format(h.quote(h.exe), n,
        h.quote(h.here .. "/sides/allreduce.lua"), h.quick and " --quick" or "") } }
      local function add(name, command) sides[#sides + 1] = { name = name, peer = true, command = command } end
      local loop, no_loop = h.compile("loop_two.c", "cc", "-march=native")
      local mpi, no_mpi
      if loop then add("loop", ("%s %d"):format(h.quote(loop), n)) else h.skip("loop", no_loop) end
      if h.wants_peers() then
        mpi, no_mpi = h.compile("allreduce_mpi.c", "mpicc", "-march=native")
        local root = h.capture "test $(id -u) = 0 && echo root" and "--allow-run-as-root " or ""
        if mpi then
          local bind = n > h.cores and "" or "--bind-to core "
          add("mpi", ("mpirun --oversubscribe %s%s-np %d %s"):format(bind, root, n, h.quote(mpi)))
        else
          h.skip("Open MPI", no_mpi)
        end
      end
      if h.python() then
        -- without and with LOCAL_WORLD_SIZE, which lets newer gloo use shared memory
        for _, with in ipairs { false, true } do
          local script, port = {}, 20000 + os.time() % 20000 + (with and 1 or 0)
          for r = 0, n - 1 do
            local extra = with and ("LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d "):format(r, n) or ""
            script[#script + 1] = ("env RANK=%d WORLD_SIZE=%d MASTER_ADDR=%s MASTER_PORT=%d %s%s %s 2>/dev/null &")
              :format(r, n, "127.0.0.1", port, extra, h.quote(h.options.python or "python3"),
                h.quote(h.here .. "/sides/allreduce_gloo.py"))
          end
          add(with and "gloo_local" or "gloo", "sh -c " .. h.quote(table.concat(script, " ") .. " wait"))
        end
      elseif h.wants_peers() then
        h.skip("gloo", select(2, h.python()))
      end
      local got = h.alternate(sides)
      for _, bytes in ipairs(h.quick and { 4, 1024 } or { 4, 1024, 1 << 20, 64 << 20 }) do
        local label = bytes < 1024 and bytes .. " B" or bytes < 1 << 20 and bytes // 1024 .. " KiB"
          or bytes // (1 << 20) .. " MiB"
        local key = "b" .. bytes
        local function row(what, values, side)
          local theirs = side and got[side] and got[side][key]
          if side and not theirs then return end
          h.row { what = what, unit = "us", ours = values, peers = { [side or "none"] = theirs } }
        end
        row("all_reduce " .. label .. ", shared", got.accel[key])
        for _, side in ipairs { "loop", "mpi", "gloo", "gloo_local" } do
          row("  beside " .. side, got.accel[key], side)
        end
        row("all_reduce " .. label .. ", private", got.accel["p" .. bytes])
        for _, side in ipairs { "mpi", "gloo", "gloo_local" } do
          row("  beside " .. side, got.accel["p" .. bytes], side)
        end
      end
    end
  end
  for _, n in ipairs { 2, 4 } do
    suites["comm_" .. n] = { group = "comm", run = ranks(n),
      about = ("all-reduce of %d ranks against gloo, Open MPI, a bare loop"):format(n) }
  end

  -- Two ranks through a first barrier, beside one process that ends at once, and beside torchrun.
  suites.launch = { about = "two ranks through a barrier against torchrun", run = function()
    local exe = h.quote(h.exe) .. " -e " .. h.quote "require('accel').dist.barrier()"
    local sides = {
      { name = "one", command = h.timed(exe) },
      { name = "two", command = h.timed((exe:gsub(" %-e ", " --num_processes 2 -e ", 1))) },
    }
    if h.python() then
      sides[3] = { name = "torchrun", peer = true,
        command = h.timed("torchrun --nproc-per-node 2 " .. h.quote(h.here .. "/sides/barrier_gloo.py")) }
    elseif h.wants_peers() then
      h.skip("torchrun", select(2, h.python()))
    end
    local got = h.alternate(sides, h.options.rounds * (sides[3] and 1 or 4))
    local function ms(v) return h.map(v, function(us) return us / 1000 end) end
    local more = {}
    for i, us in ipairs(got.two.us) do more[i] = (us - got.one.us[i]) / 1000 end
    h.line("one process", "ms", ms(got.one.us))
    h.row { what = "two ranks through a barrier", unit = "ms", ours = ms(got.two.us),
      peers = { torchrun = got.torchrun and ms(got.torchrun.us) } }
    h.line("  beyond a single start", "ms", more, nil, { most = 10 })
  end }
end
