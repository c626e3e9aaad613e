-- The bench of one model over several ranks: a step of a GPT-2 under tensor parallelism, with sequence parallelism, and as a pipeline,
-- beside torch's parallelize_module with loss_parallel and its pipeline schedules over gloo.
return function(h, suites)
  local function ours(n, mode, size, data)
    return ("%s --num_processes %d --num_threads 1 %s --mode %s --size %s --data %s%s"):format(h.quote(h.exe), n,
      h.quote(h.here .. "/sides/parallel_step.lua"), mode, size, h.quote(data), h.quick and " --quick" or "")
  end

  local function torch(n, mode, size, data)
    local script = { ("export WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d OMP_NUM_THREADS=1;"):format(n,
      20000 + os.time() % 20000) }
    for r = 0, n - 1 do
      script[#script + 1] = ("RANK=%d %s -B %s --mode %s --size %s --data %s%s 2>/dev/null &"):format(r,
        h.quote(h.options.python or "python3"), h.quote(h.here .. "/sides/parallel_torch.py"), mode, size, h.quote(data),
        h.quick and " --steps 2 --drop 1" or "")
    end
    return "sh -c " .. h.quote(table.concat(script, " ") .. " wait")
  end

  local shapes = { char = "4x128, V128", small = "4x256, V8000", ["124M"] = "124M, V50304, head not tied" }
  local named = { tp = "tensor parallel", sp = "with sequence parallel", pp = "pipeline, 1F1B" }
  for _, n in ipairs { 2, 4 } do
    for _, size in ipairs { "char", "small", "124M" } do
      suites[("parallel_%s_%d"):format(size:lower(), n)] = { group = "parallel_" .. n,
        about = ("step of a GPT-2 that %d ranks hold together against torch's"):format(n), run = function()
          local used = h.quick and "char" or size
          local python, why = h.python()
          if not python and h.wants_peers() then h.skip("torch", why) end
          local data = h.shared("parallel_" .. used, "parallel_step.lua", "--size " .. used)
          h.note("GPT-2 %s, B8 T64 f32; stages of the pipeline: accel's by cost, torch's equal", shapes[used])
          for _, mode in ipairs { "tp", "sp", "pp" } do
            local sides = { { name = "accel", command = ours(n, mode, used, data) } }
            if python then sides[2] = { name = "torch", peer = true, command = torch(n, mode, used, data) } end
            local got = h.alternate(sides)
            h.row { what = "  " .. named[mode], unit = "ms", ours = got.accel.ms, peers = h.peers(got, "ms"), goal = { ratio = 3 },
              differs = h.losses(got, 1e-3) }
          end
        end }
    end
  end
end
