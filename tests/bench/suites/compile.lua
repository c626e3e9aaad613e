-- The bench of accel.compile: chains of elementwise operations and reductions as one pass over memory, beside the same calls one by one, forward
-- and backward; a deep model by regions beside it as a whole; training steps of compiled models beside those of plain ones.
return function(h, suites)
  suites.compile = { about = "maps, reductions and training steps with accel.compile", run = function()
    local got = h.alternate { h.accel("compile.lua", "") }
    local chains = {
      { "five", "five maps" }, { "eleven", "eleven maps" }, { "loss", "mean of squares" }, { "columns", "sum over rows" },
      { "softmax", "softmax" }, { "layer_norm", "layer norm" },
    }
    for _, chain in ipairs(chains) do
      local key, what = table.unpack(chain)
      h.line(what, "ms", got.accel[key .. "_compiled"], got.accel[key .. "_single"], { ratio = 1.15 })
      h.line(what .. ", backward", "ms", got.accel[key .. "_grad_compiled"], got.accel[key .. "_grad_single"], { ratio = 1 })
    end
    -- blocks that repeat, compiled each: as fast a step, of fewer kernels
    local deep = h.alternate { h.accel("compile_regions.lua", h.quick and "--layers 3 --width 32 --batch 2 --seq 16" or "") }
    h.line("deep GPT, regions to whole", "ms", deep.accel.regions, deep.accel.whole, { ratio = 1 })
    h.line("deep GPT, regions to plain", "ms", deep.accel.regions, deep.accel.plain, { ratio = 1 })
    -- whole training steps: the same losses, and never slower
    local function step(what, script, made, sizes, steps, drop)
      local args = ("%s --dtype f32 --steps %d --drop %d --data %s"):format(sizes, steps, drop, h.quote(h.shared(made, script, sizes)))
      local both = h.alternate { h.accel(script, args .. " --compile"), { name = "plain", command = h.ours(script, args), peer = true } }
      h.row { what = "training step, " .. what, unit = "ms", ours = both.accel.ms, peers = h.peers(both, "ms"),
        differs = h.losses(both, 1e-6), goal = { ratio = 1 } }
    end
    if h.quick then
      step("GPT", "gpt.lua", "gpt", "--layers 2 --width 32 --heads 2 --vocab 65 --batch 2 --seq 16", 3, 1)
      step("ResNet-18", "resnet18.lua", "resnet18", "--batch 2 --width 8", 2, 1)
    else
      step("GPT 6x384 B8 T256", "gpt.lua", "gpt", "--layers 6 --width 384 --heads 6 --vocab 256 --batch 8 --seq 256", 12, 3)
      step("ResNet-18 B64", "resnet18.lua", "resnet18", "--batch 64 --width 64", 10, 2)
    end
  end }
end
