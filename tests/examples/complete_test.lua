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
  assert(number(out, "pairs of training told rightly: ([%d.]+)") > 0.95, out)
  for _, precision in ipairs { "fp16", "bf16" } do
    out = examples.run("@17_nlp.lua --accumulate 3 --mixed-precision " .. precision, 2)
    assert(number(out, "pairs of training told rightly: ([%d.]+)") > 0.8, out)
  end
  refused("@17_nlp.lua --mixed-precision fp8", "option '--mixed-precision' must be one of no, fp16, bf16, got 'fp8'")
  refused("@17_nlp.lua ~nowhere", "nowhere/train.csv: No such file or directory", 2)
  assert(os.execute(("mkdir -p '%s/bad' '%s/other'"):format(tmp, tmp)))
  write("bad/train.csv", "label,text\nequivalent,a\n")
  refused("@17_nlp.lua ~bad", "expected the columns label,sentence1,sentence2, it has label,text")
  write("other/train.csv", "label,sentence1,sentence2\nequivalent,a,b\nsame,a,b\n")
  refused("@17_nlp.lua ~other", "label 'same' of row 2 is neither equivalent nor not_equivalent")
  local real = io.open(src .. "/../shared/data/mrpc/train.csv")
  if real then -- a few pairs of the corpus itself
    real:close()
    out = examples.run(("@17_nlp.lua --epochs 5 '%s/../shared/data/mrpc'"):format(src), 2)
    assert(out:find "told rightly", out)
  end
end)

examples.of("18_cv", function()
  local out = same "@18_cv.lua"
  assert(number(out, "epoch 4: .* accuracy ([%d.]+), learning") > 0.92, out)
  out = examples.run("@18_cv.lua --epochs 1 --mixed-precision bf16", 2)
  assert(number(out, "epoch 1: .* accuracy ([%d.]+)") > 0.8, out)
  refused("@18_cv.lua --width 12", "option '--width' must be a multiple of 8, got 12")
  refused("@18_cv.lua ~nowhere", "nowhere/train-images-idx3-ubyte: No such file or directory", 2)
end)
