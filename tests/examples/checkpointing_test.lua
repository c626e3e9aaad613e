--- Example 24: a run that is taken up again, by --resume auto and by a folder that is named, on other numbers of ranks, prints
--- what one that nobody interrupted prints.
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local tmp = os.getenv "ACCEL_TEST_TMP"

examples.of("24_checkpointing", function()
  os.execute(("rm -rf '%s/a' '%s/b' '%s/c'"):format(tmp, tmp, tmp))
  local whole = examples.run "@24_checkpointing.lua --output-dir ~a"
  local last = whole:match "epoch 3: loss [%d.]+"
  assert(last, whole)
  for ranks = 1, 2 do
    os.execute(("rm -rf '%s/b'"):format(tmp))
    local options = "@24_checkpointing.lua --output-dir ~b --checkpointing-steps 20"
    local out = examples.run(options .. " --stop 61", ranks)
    assert(out:find "batch 60: saved" and not out:find "epoch 3", out)
    local names = require "accel".listdir(tmp .. "/b/checkpoints")
    table.sort(names)
    assert(table.concat(names, " ") == "checkpoint_1 checkpoint_2", "the last two are kept")
    out = examples.run("@24_checkpointing.lua --output-dir ~c --checkpointing-steps 1000 --resume-from-checkpoint "
      .. "~b/checkpoints/checkpoint_1", 3 - ranks)
    assert(out:find "continues after batch 40\n" and out:find(last, 1, true), out)
    local err = examples.again(options, "b", ranks)
    assert(err:find("optimizer:step(): ", 1, true) and err:find("load_state()", 1, true) and err:find("--resume auto", 1, true)
      and err:find('on_existing = "beside"', 1, true), err)
  end
  examples.refused("@24_checkpointing.lua --checkpointing-steps 0", "must be a number of batches or 'epoch', got '0'")
end)
