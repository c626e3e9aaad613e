-- Benches on the first GPU, beside PyTorch there: a GPT-2's training step by tokens and model flops, attention, the
-- cross entropy of a large vocabulary, AdamW, and the bandwidth of what only moves memory against copying in the same run.
local accel = require "accel"

local COPY <const> = 80 -- per cent of copying that maps, norms, softmax and optimizers are to reach
-- bf16 products of dense matrices, in flop/s, by a part of the chip's name (NVIDIA's data sheets)
local PEAK <const> = { H100 = 989.4e12, H200 = 989.4e12, A100 = 312e12 }

return function(h, suites)
  local state = accel.features().devices.cuda.state
  local emulated = state:find "emulated" ~= nil

  local function bench(name, about, run)
    suites["cuda_" .. name] = { group = "cuda", about = about .. ", on a GPU", run = function()
      if accel.features().devices.cuda.count == 0 then return h.skip("GPU", state) end
      if emulated then h.note "  the device is emulated: figures mean nothing" end
      run()
    end }
  end
  local function both(script, what, args, configs) return h.both(script, what, "--device cuda " .. args, configs) end

  bench("gpt_124m_t1024_bf16", "training step of GPT-2 124M, B16 T1024, bf16", function()
    local layers, width, vocab, batch, seq = 12, 768, 50304, 16, 1024
    if h.quick then layers, width, vocab, batch, seq = 1, 32, 65, 2, 16 end
    local sizes = ("--layers %d --width %d --heads %d --vocab %d --batch %d --seq %d"):format(layers, width,
      math.max(2, width // 64), vocab, batch, seq)
    local args = ("%s --dtype bf16 --steps %d --drop %d --data %s"):format(sizes, h.quick and 2 or 20,
      h.quick and 1 or 5, h.quote(h.shared("gpt", "gpt.lua", sizes)))
    local got = h.alternate(both("gpt.lua", "gpt", args, { "eager", "tuned", "compile" }))
    local differs = h.losses(got, 2e-3)
    local tokens = batch * seq
    -- the weights of products once forward and twice backward, and attention's two products (PaLM, appendix B)
    local flops = 6 * (12 * layers * width * width + vocab * width) + 12 * layers * width * seq
    local peak
    for chip, rate in accel.pairs(PEAK) do
      if state:find(chip, 1, true) then peak = rate end
    end
    h.row { what = "step, 124M B16 T1024 bf16", unit = "ms", ours = got.accel.ms, peers = h.peers(got, "ms"),
      differs = differs }
    local eager = got.eager and { eager = h.map(got.eager.ms, function(ms) return tokens / ms end) } or {}
    h.row { what = "  thousand tokens/s, to eager", unit = "k/s", higher = true, peers = eager, differs = differs,
      goal = { ratio = 1 }, ours = h.map(got.accel.ms, function(ms) return tokens / ms end) }
    local function used(ms) return 100 * flops * tokens / ms * 1e3 / peak end
    local peers = {}
    for name, values in accel.pairs(h.peers(got, "ms")) do peers[name] = peak and h.map(values, used) end
    if peak then
      h.row { what = "  model flops utilisation", unit = "%", higher = true, peers = peers, differs = differs,
        ours = h.map(got.accel.ms, used) }
    end
    h.row { what = "  peak of live tensors", unit = "MB", ours = got.accel.peak_mb, peers = h.peers(got, "peak_mb"),
      differs = differs }
  end)

  bench("attention_bf16", "causal attention, B4 H12 D64, bf16", function()
    local lengths = h.quick and "16,32" or "1024,4096"
    local args = ("--dtype bf16 --lengths %s --data %s"):format(lengths,
      h.quote(h.shared("attention", "attention.lua", "--lengths " .. lengths)))
    local got = h.alternate(both("attention.lua", "attention", args, { "tuned" }))
    local differs = h.losses(got, 2e-3, "means", "means of |y|, |dq|, |dk|, |dv|")
    for length in lengths:gmatch "%d+" do
      for _, way in ipairs { { "causal B4 H12 T%s D64", "f" }, { "  forward and backward", "b" } } do
        local key = way[2] .. length
        h.row { what = way[1]:format(length), unit = "ms", ours = got.accel[key], peers = h.peers(got, key),
          differs = differs, goal = { ratio = 0.5 },
          share = ("%.0f Tflop/s"):format(h.median(got.accel["gflops_" .. key]) / 1e3) }
      end
    end
  end)

  bench("cross_entropy_bf16", "linear + cross entropy, 8192 x 50257, bf16", function()
    local sizes = h.quick and "--tokens 32 --width 64 --vocab 500" or "--tokens 8192 --width 768 --vocab 50257"
    local args = ("%s --dtype bf16 --data %s"):format(sizes,
      h.quote(h.shared("cross_entropy", "cross_entropy.lua", sizes)))
    local got = h.alternate(both("cross_entropy.lua", "cross_entropy", args, { "tuned", "compile" }))
    local differs = h.losses(got, 2e-3, "losses", "loss, mean |dx|, mean |dW|")
    h.row { what = "linear + cross entropy", unit = "ms", ours = got.accel.ms, peers = h.peers(got, "ms"), differs = differs }
    h.row { what = "  extra memory at the peak", unit = "MB", ours = got.accel.extra_mb, peers = h.peers(got, "extra_mb"),
      differs = differs }
  end)

  local function against_copy(name, values, peers, copy)
    h.row { what = name, unit = "GB/s", ours = values, peers = peers, higher = true,
      goal = { least = COPY / 100 * h.median(copy) }, share = ("%.0f %% of copy"):format(100 * h.median(values) / h.median(copy)) }
  end

  for _, dtype in ipairs { "f32", "bf16" } do
    bench("bandwidth_" .. dtype, ("maps, reductions, norms of 256M %s"):format(dtype), function()
      local got = h.alternate(both("bandwidth.lua", "bandwidth",
        ("--dtype %s --elements %d"):format(dtype, h.quick and 4096 or 256 << 20), { "tuned" }))
      for name, v in accel.pairs(got.accel) do against_copy(name, v, h.peers(got, name), got.accel.copy_) end
    end)
  end

  bench("adamw", "AdamW over 124M parameters", function()
    local sizes = h.quick and "--layers 1 --width 64 --vocab 500" or "--layers 12 --width 768 --vocab 50304"
    local args = ("%s --data %s"):format(sizes, h.quote(h.shared("adamw", "adamw.lua", sizes)))
    local got = h.alternate(both("adamw.lua", "adamw", args, { "eager", "tuned" }))
    h.row { what = "AdamW step, 124M f32", unit = "ms", ours = got.accel.ms, peers = h.peers(got, "ms"),
      differs = h.losses(got, 1e-4, "sums", "sums of |parameters|") }
    local n = got.accel.parameters[1]
    h.row { what = "  bandwidth, 28 bytes each", unit = "GB/s", higher = true,
      ours = h.map(got.accel.ms, function(ms) return 28 * n / ms / 1e6 end) }
  end)
end
