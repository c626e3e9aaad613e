-- The bench of a small network, which is all overhead: 784-128-10, 32 rows, a whole training step.
return function(h, suites)
  suites.mlp = { about = "step of an MLP 784-128-10, 32 rows: SGD, AdamW", run = function()
    local args = "--data " .. h.quote(h.shared("mlp", "mlp.lua"))
    local got = h.alternate(h.both("mlp.lua", "mlp", args, { "eager", "tuned", "single", "compile" }))
    for _, kind in ipairs { "sgd", "adamw" } do
      local differs = h.losses(got, 1e-3, kind .. "_losses", "losses with " .. kind)
      h.row { what = kind == "sgd" and "step, SGD with momentum" or "step, AdamW", unit = "us",
        ours = got.accel[kind .. "_us"], peers = h.peers(got, kind .. "_us"), differs = differs, goal = { ratio = 4 } }
    end
  end }
end
