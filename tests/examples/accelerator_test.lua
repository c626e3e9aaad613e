--- Examples 06 to 12: what they print is the same on 1, 2 and 4 ranks and makes sense; wrong arguments are told in a
--- line.
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local same, number, refused = examples.same, examples.number, examples.refused

examples.of("06_accelerator", function()
  local out = same "@06_accelerator.lua"
  assert(number(out, "epoch 8: loss [%d.]+, ([%d.]+) %% of 360") > 88, out)
  assert(out:find("last learning rate: 0\n", 1, true), out) -- the schedule ends with the last update
  for _, ranks in ipairs { 1, 2 } do
    refused("@06_accelerator.lua --epoch 2", "06_accelerator.lua: unknown option '--epoch'; did you mean '--epochs'?",
      ranks)
    refused("@06_accelerator.lua ~nowhere", "nowhere/train-images-idx3-ubyte: cannot open: No such file or directory", ranks)
  end
end)

examples.of("07_gradient_accumulation", function()
  -- 179 whole micro-batches of 8 in 1437 pictures are 44 groups of four and one of three
  local out = same "@07_gradient_accumulation.lua"
  assert(out:find("epoch 1: 179 micro-batches, 45 updates so far", 1, true), out)
  assert(out:find("epoch 2: 179 micro-batches, 90 updates so far", 1, true), out)
  assert(number(out, "epoch 10: .* accuracy ([%d.]+)") > 0.88, out)
end)

examples.of("08_automatic_gradient_accumulation", function() -- what fits decides how a step is cut, not what it learns
  local out = same "@08_automatic_gradient_accumulation.lua"
  assert(out:find("16 rows fit at once; a step takes 4 such micro-batches", 1, true), out)
  assert(number(out, "accuracy ([%d.]+)") > 0.88, out)
  local other = examples.run "@08_automatic_gradient_accumulation.lua --fits 8"
  assert(other:find("8 rows fit at once; a step takes 8", 1, true), other)
  assert(number(other, "accuracy ([%d.]+)") == number(out, "accuracy ([%d.]+)"), out .. other)
end)

examples.of("09_memory", function() -- pretended, and real
  local out = same "@09_memory.lua"
  assert(out == "tried: 128 115 103 92 82 73 65 58\n58 rows fit; more than 85 % of the test pictures right: yes\n", out)
  out = examples.run "--memory-limit 24M @09_memory.lua --width 8192 --epochs 1 --fits 0 --start 256"
  local tried = number(out, "(%d+) rows fit")
  assert(tried < 256 and tried >= 8, out)
end)

examples.of("10_multi_process_metrics", function() -- 357 pictures, each once
  local out = same "@10_multi_process_metrics.lua"
  for _, epoch in ipairs { 1, 2 } do
    local accuracy, right, n, masked = out:match(("epoch %d: accuracy ([%%d.]+)"
      .. ".-by gather_for_metrics: (%%d+) right of (%%d+); by mask: (%%d+)"):format(epoch))
    assert(n == "357" and right == masked, out)
    assert(math.abs(tonumber(accuracy) - right / n) < 1e-6 and right / n > 0.5 + 0.15 * epoch, out)
  end
end)

examples.of("11_cross_validation", function()
  local out = same "@11_cross_validation.lua"
  local folds, held_out = 0, 0
  for share, n in out:gmatch "trained on %d+, ([%d.]+) of the (%d+) held out right" do
    folds, held_out = folds + 1, held_out + n
    assert(tonumber(share) > 0.8, out)
  end
  assert(folds == 3 and held_out == 1437, out)
  assert(number(out, "all folds together: ([%d.]+) of 360") > 0.88, out)
  refused("@11_cross_validation.lua --folds 1", "option '--folds' must be at least 2", 2)
end)

examples.of("12_early_stopping", function() -- stops by itself
  local out = same "@12_early_stopping.lua"
  local stopped = number(out, "no lower loss in 2 epochs: stopped after (%d+) of 40")
  local losses = {}
  for loss in out:gmatch "test loss ([%d.]+)" do losses[#losses + 1] = tonumber(loss) end
  assert(#losses == stopped and stopped > 3 and stopped < 40, out)
  assert(losses[stopped] >= losses[stopped - 2] and losses[stopped - 1] >= losses[stopped - 2], out)
end)
