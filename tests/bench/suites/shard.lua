-- The bench of sharding: the time of a training step on two ranks at every stage beside data parallelism, the memory of stage 3, and
-- both beside torch's FSDP2 over gloo.
return function(h, suites)
  local function ours(size, threads, more)
    return ("%s --num_processes 2 --num_threads %d %s --size %s%s%s"):format(h.quote(h.exe), threads,
      h.quote(h.here .. "/sides/shard_step.lua"), size, h.quick and " --steps 1" or "", more or "")
  end

  local function fsdp2(size, threads)
    local script, port = {}, 20000 + os.time() % 20000
    for r = 0, 1 do
      script[#script + 1] = ("env RANK=%d WORLD_SIZE=2 MASTER_ADDR=%s MASTER_PORT=%d OMP_NUM_THREADS=%d %s %s --size %s --threads %d%s 2>/dev/null &")
        :format(r, "127.0.0.1", port, threads, h.quote(h.options.python or "python3"), h.quote(h.here .. "/sides/fsdp2_step.py"), size,
          threads, h.quick and " --steps 1" or "")
    end
    return "sh -c " .. h.quote(table.concat(script, " ") .. " wait")
  end

  suites.shard = { about = "step of a GPT-2 at ZeRO's stages, 2 ranks, beside FSDP2", run = function()
    local threads = math.max(1, math.min(h.options.threads, h.cores // 2))
    for _, size in ipairs(h.quick and { "small" } or { "small", "124M" }) do
      local sides = { { name = "accel", command = ours(size, threads) },
        { name = "zero3", command = ours(size, threads, " --only zero3") } }
      if h.python() then sides[#sides + 1] = { name = "fsdp2", peer = true, command = fsdp2(size, threads) }
      elseif h.wants_peers() then h.skip("fsdp2", select(2, h.python())) end
      local got = h.alternate(sides)
      h.line(("GPT-2 %s B2 T64, DDP"):format(size), "ms", got.accel.ddp)
      for stage = 1, 3 do
        local name, over = "zero" .. stage, {}
        for i, ms in ipairs(got.accel[name]) do over[i] = ms / got.accel.ddp[i] end
        h.line(("  stage %d"):format(stage), "ms", got.accel[name])
        h.line(("  stage %d / DDP"):format(stage), "x", over, nil, { most = stage == 3 and 1.10 or 1.03 })
      end
      local inside = {}
      for i, share in ipairs(got.accel.inside) do inside[i] = share * 100 end
      h.line("  stage 2, hidden reductions", "%", inside, nil, { least = 70 })
      h.line("  stage 3, bytes of a rank", "MB", got.zero3.bytes)
      h.row { what = "  stage 3 beside FSDP2", unit = "ms", ours = got.accel.zero3, peers = { fsdp2 = got.fsdp2 and got.fsdp2.step },
        goal = { ratio = 3 } }
      h.row { what = "  stage 3, memory of both", unit = "MB", ours = got.zero3.pss, peers = { fsdp2 = got.fsdp2 and got.fsdp2.pss },
        goal = { ratio = 4 } }
    end
  end }
end
