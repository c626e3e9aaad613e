-- The benches of sharding: the time of a training step on two ranks at every stage beside data parallelism; its time and memory at stage 3
-- beside torch's FSDP2 over gloo; and the same with parameters, gradients and states in host memory (offload_step).
return function(h, suites)
  local function threads() return math.max(1, math.min(h.options.threads, h.cores // 2)) end
  local function ours(size, ranks, more)
    return ("%s --num_processes %d --num_threads %d %s --size %s%s%s"):format(h.quote(h.exe), ranks, threads(),
      h.quote(h.here .. "/sides/shard_step.lua"), size, h.quick and " --steps 1" or "", more or "")
  end

  local function fsdp2(size, more)
    local script, port = {}, 20000 + os.time() % 20000
    for r = 0, 1 do
      local env = ("env RANK=%d WORLD_SIZE=2 MASTER_ADDR=%s MASTER_PORT=%d OMP_NUM_THREADS=%d"):format(r, "127.0.0.1", port, threads())
      script[#script + 1] = ("%s %s %s --size %s --threads %d%s%s 2>/dev/null &"):format(env, h.quote(h.options.python or "python3"),
        h.quote(h.here .. "/sides/fsdp2_step.py"), size, threads(), h.quick and " --steps 1" or "", more or "")
    end
    return "sh -c " .. h.quote(table.concat(script, " ") .. " wait")
  end

  local function with_fsdp2(sides, size, more)
    if h.python() then sides[#sides + 1] = { name = "fsdp2", peer = true, command = fsdp2(size, more) }
    elseif h.wants_peers() then h.skip("fsdp2", select(2, h.python())) end
    return sides
  end

  local function percent(shares) return h.map(shares, function(share) return share * 100 end) end

  for _, size in ipairs { "small", "124M" } do
    local name, shown = size:lower(), h.quick and "small" or size
    suites["shard_" .. name] = { group = "shard", about = "step of a GPT-2 at ZeRO's stages, 2 ranks, against DDP", run = function()
      local got = h.alternate { { name = "accel", command = ours(shown, 2) } }
      h.line(("GPT-2 %s B2 T64, DDP"):format(size), "ms", got.accel.ddp)
      for stage = 1, 3 do
        local how, over = "zero" .. stage, {}
        for i, ms in ipairs(got.accel[how]) do over[i] = ms / got.accel.ddp[i] end
        h.line(("  stage %d"):format(stage), "ms", got.accel[how])
        h.line(("  stage %d / DDP"):format(stage), "x", over, nil, { most = stage == 3 and 1.10 or 1.03 })
      end
      h.line("  stage 2, hidden reductions", "%", percent(got.accel.inside), nil, { least = 70 })
    end }

    suites["fsdp2_" .. name] = { group = "shard", about = "step and memory of a GPT-2 at stage 3 against FSDP2", run = function()
      local got = h.alternate(with_fsdp2({ { name = "accel", command = ours(shown, 2, " --only zero3") } }, shown))
      h.row { what = ("GPT-2 %s B2 T64, stage 3"):format(size), unit = "ms", ours = got.accel.step,
        peers = { fsdp2 = got.fsdp2 and got.fsdp2.step }, goal = { ratio = 3 } }
      h.line("  bytes of a rank", "MB", got.accel.bytes)
      h.row { what = "  memory of both ranks", unit = "MB", ours = got.accel.pss, peers = { fsdp2 = got.fsdp2 and got.fsdp2.pss },
        goal = { ratio = 4 } }
    end }
  end

  suites.offload_step = { group = "offload", about = "step of a GPT-2 with states in host memory against FSDP2", run = function()
    local size = h.quick and "small" or "124M"
    local got = h.alternate(with_fsdp2({ { name = "accel", command = ours(size, 2, " --only offload") },
      { name = "alone", command = ours(size, 1, " --only offload") } }, size, " --offload"))
    h.row { what = "GPT-2 124M B2 T64, 2 ranks", unit = "ms", ours = got.accel.step, peers = { fsdp2 = got.fsdp2 and got.fsdp2.step },
      goal = { ratio = 3 } }
    h.line("  AdamW hidden, 1 rank", "%", percent(got.alone.hidden), nil, { least = 70 })
  end }
end
