-- Benches of a GPT's training step: forward, backward, clipping and AdamW, from the same weights over the same tokens.
local MODELS <const> = { -- name, what, arguments, steps, dropped, what of --quick, goals by dtype
  { "gpt_small", "6x384 B8 T256 V256", "--layers 6 --width 384 --heads 6 --vocab 256 --batch 8 --seq 256", 12, 3,
    { f32 = 1.15, bf16 = 2 } },
  { "gpt_124m_t64", "124M B4 T64", "--layers 12 --width 768 --heads 12 --vocab 50304 --batch 4 --seq 64", 9, 3,
    { f32 = 1.15, bf16 = 1.8 } },
  { "gpt_124m_t256", "124M B4 T256", "--layers 12 --width 768 --heads 12 --vocab 50304 --batch 4 --seq 256", 7, 2,
    { f32 = 1.15, bf16 = 2.2 } },
  { "char_gpt", "4x128 B12 T64 V65", "--layers 4 --width 128 --heads 4 --vocab 65 --batch 12 --seq 64", 60, 10,
    { f32 = 2, bf16 = 4 } },
}
local QUICK <const> = "--layers 2 --width 32 --heads 2 --vocab 65 --batch 2 --seq 16"

-- Relative difference of the losses of all steps. Four batches return by turns, so that weights which did not change,
-- or changed otherwise, show.
local TOLERANCE <const> = 1e-3

return function(h, suites)
  local function one(model, dtype)
    local name, what, sizes, steps, drop, goals = table.unpack(model)
    return function()
      if h.quick then sizes, steps, drop = QUICK, 3, 1 end
      local args = ("%s --dtype %s --steps %d --drop %d --data %s"):format(sizes, dtype, steps, drop,
        h.quote(h.shared("gpt", "gpt.lua", sizes)))
      local configs = { "eager", "tuned", "compile" }
      if name == "char_gpt" then table.insert(configs, 3, "single") end
      if name:find "124m" then table.insert(configs, 3, "chunked") end
      local got = h.alternate(h.both("gpt.lua", "gpt", args, configs))
      local differs = h.losses(got, TOLERANCE)
      local function row(label, key, goal)
        return h.row { what = label, unit = key == "peak_mb" and "MB" or "ms", ours = got.accel[key],
          peers = h.peers(got, key), differs = differs, goal = goal }
      end
      local best = row(("step %s %s"):format(what, dtype), "ms", { ratio = goals[dtype] }).best_peer
      local function part(label, key) -- beside the peer of the whole step
        local peer = best and got[best][key]
        h.row { what = label, unit = "ms", ours = got.accel[key], peers = peer and { [best] = peer } or {},
          differs = differs }
      end
      part("  forward", "forward_ms")
      part("  backward", "backward_ms")
      part("  clip and AdamW", "update_ms")
      if name:find "124m" then
        row("  peak resident memory", "peak_mb", dtype == "bf16" and { ratio = 1 / 0.75 } or nil)
      end
    end
  end
  for _, model in ipairs(MODELS) do
    for _, dtype in ipairs { "f32", "bf16" } do
      suites[model[1] .. "_" .. dtype] = { group = model[1] == "char_gpt" and "char_gpt" or "gpt",
        run = one(model, dtype),
        about = ("training step of a GPT %s, %s"):format(model[2], dtype) }
    end
  end
end
