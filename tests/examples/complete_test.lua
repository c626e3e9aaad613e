--- Examples 17 and 18, the complete ones: the same on 1, 2 and 4 ranks, in every precision, and right in most cases.
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local same, number, refused = examples.same, examples.number, examples.refused
local src, tmp = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_TMP"

local function write(name, text)
  local file = assert(io.open(tmp .. "/" .. name, "wb"))
  file:write(text)
  file:close()
end

examples.of("17_nlp", function() -- the pairs beside the script
  local out = same "@17_nlp.lua"
  assert(out:find("48 pairs to train on, 16 to judge by", 1, true), out)
  assert(number(out, "epoch 24: loss ([%d.]+)") < 0.3, out)
  assert(number(out, "training pairs classified correctly: ([%d.]+)") > 0.95, out)
  for _, precision in ipairs { "fp16", "bf16" } do
    out = examples.run("@17_nlp.lua --accumulate 3 --mixed-precision " .. precision, 2)
    assert(number(out, "training pairs classified correctly: ([%d.]+)") > 0.8, out)
  end
  -- saved inside an epoch and inside an update, and taken up again on one rank and on two; numbers go to a file
  local options = "@17_nlp.lua --epochs 3 --accumulate 2 "
  assert(os.execute(("rm -rf '%s/out'"):format(tmp)))
  local whole = examples.run(options .. "--checkpointing-steps 4 --output-dir ~out --with-tracking --project-dir ~out/logs")
  local last = whole:match "epoch  3[^\n]*.*"
  examples.again(options .. "--checkpointing-steps 4 --output-dir ~out", "out", 2)
  for ranks = 1, 2 do
    for _, step in ipairs { 4, 8 } do
      out = examples.run(options .. "--resume-from-checkpoint ~out/step_" .. step, ranks)
      assert(out:find(("continues after batch %d\n"):format(step), 1, true) and out:sub(-#last) == last, out .. whole)
    end
  end
  local lines = examples.read(tmp .. "/out/logs/nlp.jsonl")
  assert(lines:find '^{"config":{' and select(2, lines:gsub('"train_loss"', "")) == 3, lines)
  refused("@17_nlp.lua --checkpointing-steps x", "option '--checkpointing-steps' must be a number of batches or 'epoch', got 'x'")
  refused("@17_nlp.lua --mixed-precision fp8", "option '--mixed-precision' must be one of no, fp16, bf16, got 'fp8'")
  refused("@17_nlp.lua ~nowhere", "nowhere/train.csv: cannot open: No such file or directory", 2)
  assert(os.execute(("mkdir -p '%s/bad' '%s/other'"):format(tmp, tmp)))
  write("bad/train.csv", "label,text\nequivalent,a\n")
  refused("@17_nlp.lua ~bad", "expected the columns label,sentence1,sentence2, it has label,text")
  write("other/train.csv", "label,sentence1,sentence2\nequivalent,a,b\nsame,a,b\n")
  refused("@17_nlp.lua ~other", "label 'same' of row 2 is neither equivalent nor not_equivalent")
  local real = io.open(src .. "/../shared/data/mrpc/train.csv")
  if real then -- a few pairs of the corpus itself
    real:close()
    out = examples.run(("@17_nlp.lua --epochs 5 '%s/../shared/data/mrpc'"):format(src), 2)
    assert(out:find "classified correctly", out)
  end
end)

examples.of("18_cv", function()
  local out = same "@18_cv.lua"
  assert(number(out, "epoch 4: .* accuracy ([%d.]+), learning") > 0.92, out)
  out = examples.run("@18_cv.lua --epochs 1 --mixed-precision bf16", 2)
  assert(number(out, "epoch 1: .* accuracy ([%d.]+)") > 0.8, out)
  assert(os.execute(("rm -rf '%s/cv'"):format(tmp)))
  local whole = examples.run "@18_cv.lua --epochs 2 --checkpointing-steps epoch --output-dir ~cv"
  out = examples.run("@18_cv.lua --epochs 2 --resume-from-checkpoint ~cv/epoch_0", 2)
  assert(out:match "epoch 2[^\n]*" == whole:match "epoch 2[^\n]*", out .. whole)
  examples.again("@18_cv.lua --epochs 2 --checkpointing-steps epoch --output-dir ~cv", "cv")
  refused("@18_cv.lua --width 12", "option '--width' must be a multiple of 8, got 12")
  refused("@18_cv.lua ~nowhere", "nowhere/train-images-idx3-ubyte: cannot open: No such file or directory", 2)
end)
