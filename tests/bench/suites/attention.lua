-- The bench of causal attention at GPT-2's head size: forward, and forward with backward.
return function(h, suites)
  local function one(dtype)
    return function()
      local lengths = h.quick and "16,32" or "256,1024"
      local args = ("--dtype %s --lengths %s --data %s"):format(dtype, lengths,
        h.quote(h.shared("attention", "attention.lua", "--lengths " .. lengths)))
      local got = h.alternate(h.both("attention.lua", "attention", args, { "tuned" }))
      local differs = h.losses(got, dtype == "f32" and 1e-4 or 1e-3, "means", "means of |y|, |dq|, |dk|, |dv|")
      for length in lengths:gmatch "%d+" do
        local function row(what, key)
          key = key .. length
          h.row { what = what:format(length), unit = "ms", ours = got.accel[key], peers = h.peers(got, key),
            differs = differs, share = ("%.0f GFLOP/s"):format(h.median(got.accel["gflops_" .. key])) }
        end
        row("causal B4 H12 T%s D64", "f")
        row("  forward and backward", "b")
      end
    end
  end
  for _, dtype in ipairs { "f32", "bf16" } do
    suites["attention_" .. dtype] = { group = "attention", run = one(dtype),
      about = ("causal attention, B4 H12 D64 at T 256 and 1024, %s"):format(dtype) }
  end
end
