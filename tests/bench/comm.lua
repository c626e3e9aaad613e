-- The suites of tests/bench/run.lua that start several ranks: collectives beside gloo, Open MPI and the bare loop, launching beside
-- torchrun. h: the harness of run.lua.
return function(h, suites)
  local function tool(source, compiler, flags)
    local path = os.tmpname()
    local ok, text = h.capture(("%s -O3 -march=native %s -o %s %s 2>&1"):format(compiler, flags or "", h.quote(path),
      h.quote(h.here .. "/sides/" .. source)))
    if ok then return path end
    os.remove(path)
    return nil, text
  end

  local mpi_flags = "--oversubscribe --bind-to core " .. (h.capture "test $(id -u) = 0 && echo root" and "--allow-run-as-root " or "")

  local function ranks(n)
    return function()
      local loop, mpi = tool("loop_two.c", "cc"), tool("allreduce_mpi.c", "mpicc")
      local sides = { { name = "accel", command = ("%s --num_processes %d %s"):format(h.quote(h.exe), n,
        h.quote(h.here .. "/sides/allreduce.lua")) } }
      local function add(name, command) sides[#sides + 1] = { name = name, command = command } end
      if loop then add("loop", ("%s %d"):format(h.quote(loop), n)) end
      local flags = n > h.cores and mpi_flags:gsub("%-%-bind%-to core", "") or mpi_flags
      if mpi then add("mpi", ("mpirun %s-np %d %s 2>/dev/null"):format(flags, n, h.quote(mpi))) end
      if h.have_torch then
        -- without and with LOCAL_WORLD_SIZE, which lets newer gloo use shared memory
        for _, with in ipairs { false, true } do
          local script, port = {}, 20000 + os.time() % 20000 + (with and 1 or 0)
          for r = 0, n - 1 do
            script[#script + 1] = ("env RANK=%d WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d %spython3 %s 2>/dev/null &"):format(r, n,
              port, with and ("LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d "):format(r, n) or "", h.quote(h.here .. "/sides/allreduce_gloo.py"))
          end
          add(with and "gloo_local" or "gloo", table.concat(script, " ") .. " wait")
        end
      end
      local got = h.alternate(sides, h.options.rounds)
      for _, bytes in ipairs { 4, 1024, 1 << 20, 64 << 20 } do
        local label = bytes < 1024 and bytes .. " B" or bytes < 1 << 20 and bytes // 1024 .. " KiB" or bytes // (1 << 20) .. " MiB"
        local key = "b" .. bytes
        h.line(("all_reduce %s, shared memory"):format(label), "us", got.accel[key])
        h.line(("all_reduce %s, private memory"):format(label), "us", got.accel["p" .. bytes])
        for _, side in ipairs { "loop", "mpi", "gloo", "gloo_local" } do
          local v = got[side] and got[side][key]
          if v then
            print(("  %-10s %10.4g us: shared %6.2fx, private %6.2fx"):format(side, h.median(v), h.median(v) / h.median(got.accel[key]),
              h.median(v) / h.median(got.accel["p" .. bytes])))
          end
        end
      end
      if loop then os.remove(loop) end
      if mpi then os.remove(mpi) end
    end
  end
  suites.comm_2, suites.comm_4 = ranks(2), ranks(4)

  -- Two ranks through a first barrier, beside one process that ends at once, and beside torchrun.
  function suites.launch()
    local function timed(command)
      return ("sh -c 's=$(date +%%s%%N); %s >/dev/null 2>&1; e=$(date +%%s%%N); echo \"{\\\"us\\\": $(( (e - s) / 1000 )).0}\"'"):format(command)
    end
    local barrier = [=["require([[accel]]).dist.barrier()"]=]
    local exe = '"' .. h.exe .. '"'
    local sides = {
      { name = "one", command = timed(exe .. " -e " .. barrier) },
      { name = "two", command = timed(exe .. " --num_processes 2 -e " .. barrier) },
    }
    if h.have_torch then
      sides[3] = { name = "torchrun", command = timed('torchrun --nproc-per-node 2 "' .. h.here .. '/sides/barrier_gloo.py"') }
    end
    local got = h.alternate(sides, h.options.rounds * (h.have_torch and 1 or 4))
    local function ms(v)
      local r = {}
      for i, x in ipairs(v or {}) do r[i] = x / 1000 end
      return v and r
    end
    h.line("one process", "ms", ms(got.one.us))
    h.line("two ranks through a barrier", "ms", ms(got.two.us), got.torchrun and ms(got.torchrun.us), "10 ms more than one")
    print(("  beyond a single start: %.1f ms"):format((h.median(got.two.us) - h.median(got.one.us)) / 1000))
  end
end
