-- The bench of a language model's last layer: a linear layer onto 50257 words and the cross entropy of 1024 tokens,
-- forward and backward; its time, and the memory that it needs beyond inputs and gradients.
return function(h, suites)
  local function one(dtype)
    return function()
      local sizes = h.quick and "--tokens 32 --width 64 --vocab 500" or "--tokens 1024 --width 768 --vocab 50257"
      local data = h.quote(h.shared("cross_entropy", "cross_entropy.lua", sizes))
      local got = h.alternate(h.both("cross_entropy.lua", "cross_entropy",
        ("%s --dtype %s --data %s"):format(sizes, dtype, data), { "eager", "tuned", "chunked", "compile" }))
      local differs = h.losses(got, 1e-3, "losses", "loss, mean |dx|, mean |dW|")
      h.row { what = "linear + cross entropy, " .. dtype, unit = "ms", ours = got.accel.ms, peers = h.peers(got, "ms"),
        differs = differs, goal = { ratio = 2 }, share = got.accel.fused[1] == 1 and "(fused)" or "(as two ops)" }
      local extra = got.accel.extra_mb
      h.row { what = "  extra memory at the peak", unit = "MB", ours = extra, peers = h.peers(got, "extra_mb"),
        differs = differs }
      local logits = got.accel.logits_mb[1]
      h.row { what = "  as a share of the logits", unit = "%", goal = { most = 5 },
        ours = h.map(extra, function(mb) return 100 * mb / logits end) }
    end
  end
  for _, dtype in ipairs { "f32", "bf16" } do
    suites["cross_entropy_" .. dtype] = { group = "cross_entropy", run = one(dtype),
      about = ("linear + cross entropy of 1024 x 768 x 50257, %s"):format(dtype) }
  end
end
