--- Examples that read files people have: photographs and sounds in folders, compressed shards, Parquet.
local accel = require "accel"
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local number, run, tmp = examples.number, examples.run, os.getenv "ACCEL_TEST_TMP"

--- Whether a library is loaded here. Otherwise a line tells what is left out.
local function has(name, what)
  for _, l in ipairs(accel.libraries()) do
    if l.name == name and l.version then return true end
  end
  print("left out without " .. name .. ": " .. what)
  return false
end

examples.of("39_photographs", function()
  if not has("jpeg", "39_photographs") then return end
  assert(os.execute(("rm -rf '%s'/photo && mkdir -p '%s/photo'"):format(tmp, tmp)))
  local cwd = require "lfs".currentdir()
  require "lfs".chdir(tmp .. "/photo") -- where it draws
  local out = run "@39_photographs.lua --out ~photo/vit"
  assert(out:find("256 training and 100 validation pictures of checks, clouds, discs, stripes\n", 1, true), out)
  assert(number(out, "epoch 8: loss [%d.]+, accuracy ([%d.]+) %% of 100 pictures") > 70, out)

  -- any number of ranks and workers reads the same pictures: losses differ by rounding
  local function first(args, ranks) return number(run("@39_photographs.lua " .. args, ranks), "epoch 1: loss ([%d.]+)") end
  local alone, other = first "--epochs 1 --num-workers 0", first("--epochs 1 --num-workers 1", 2)
  assert(math.abs(other - alone) < 0.011, ("%g on one rank, %g on two"):format(alone, other))

  -- a trained model and fewer classes
  for _, part in ipairs { "train", "val" } do
    assert(os.execute(("mkdir -p two/%s && cp -r photographs/%s/checks photographs/%s/clouds two/%s"):format(part, part, part, part)))
  end
  out = run("@39_photographs.lua --model ~photo/vit --epochs 2 ~photo/two", 2)
  assert(number(out, "epoch 2: loss [%d.]+, accuracy ([%d.]+) %% of 50 pictures") > 85, out)

  local folder = os.getenv "ACCEL_TEST_SRC" .. "/../shared/reference/families/deit" -- another family, with pictures of its own size
  if accel.listdir(folder) then
    out = run(("@39_photographs.lua --epochs 1 --model '%s' ~photo/two"):format(folder))
    assert(out:find "epoch 1: loss [%d.]+, accuracy [%d.]+ %% of 50 pictures\n", out)
  end

  examples.refused("@39_photographs.lua ~photo/nowhere", "photo/nowhere/train: cannot read the folder: No such file or directory")
  examples.refused("@39_photographs.lua --batch 1000", "option '--batch' must be at most the 256 pictures of photographs/train, got 1000")
  examples.refused("@39_photographs.lua --epochs 0", "option '--epochs' must be 1 or more, got '0'")
  examples.refused("@39_photographs.lua --model ~photo/none", "photo/none: no such folder")
  assert(os.execute "rm -r two/val/clouds")
  examples.refused("@39_photographs.lua ~photo/two", "train has the classes checks, clouds, val has checks; both need the same folders")
  require "lfs".chdir(cwd)
end)

examples.of("40_compressed_shards", function() -- what a kill leaves: tests/fault/shards_kill_test.lua
  assert(os.execute(("rm -rf '%s'/gpt && mkdir -p '%s/gpt'"):format(tmp, tmp)))
  local cwd = require "lfs".currentdir()
  require "lfs".chdir(tmp .. "/gpt") -- where it writes shards
  local one, two = run "@40_compressed_shards.lua --output-dir one", run("@40_compressed_shards.lua --output-dir two", 2)
  assert(number(one, "step 60: loss ([%d.]+)") < 2.2, one)
  local function documents(out) return (out:gsub("loss [%d.]+, ", "")) end
  assert(documents(one) == documents(two) and documents(one):find "step 60: documents %d+ %d+", two)
  assert(math.abs(number(one, "step 20: loss ([%d.]+)") - number(two, "step 20: loss ([%d.]+)")) < 0.01)
  local packed = accel.listdir "shards"
  assert(#packed == 4)
  local err = examples.again("@40_compressed_shards.lua --output-dir one", "gpt/one")
  assert(err:find("accel-run --resume auto", 1, true), err)

  local lines = {}
  for i = 1, 200 do lines[i] = ('{"text": "this is line %d"}\n'):format(i) end
  assert(accel.write_file("own.jsonl", table.concat(lines)))
  local out = run "@40_compressed_shards.lua --output-dir own --steps 2 ~gpt/own.jsonl"
  assert(out:find "^step 1: [^\n]*\nstep 2: [^\n]*\n$", out)
  assert(accel.write_file("few.jsonl", lines[1]) and accel.write_file("other.jsonl", '{"txt": "a"}\n'))
  examples.refused("@40_compressed_shards.lua --output-dir few ~gpt/few.jsonl", "the shards hold fewer than 8 blocks of 64 bytes")
  examples.refused("@40_compressed_shards.lua --output-dir few ~gpt/other.jsonl", 'a line of the shards has no "text"')
  examples.refused("@40_compressed_shards.lua --block 1", "option '--block' must be 2 or more, got '1'")
  require "lfs".chdir(cwd)
end)

examples.of("41_parquet_text", function()
  local out = examples.same "@41_parquet_text.lua"
  assert(out:find("48 pairs to train on, 16 to judge by, 268 words, 2 labels\n", 1, true), out)
  assert(number(out, "epoch 20: loss [%d.]+, accuracy ([%d.]+) %% of 16 pairs") > 80, out)
  examples.refused("@41_parquet_text.lua ~nowhere", "nowhere: cannot read the folder: No such file or directory")
  local csv, set = accel.data.CSV(os.getenv "ACCEL_TEST_SRC" .. "/examples/mrpc/train.csv"), nil
  set = accel.data.Parquet(os.getenv "ACCEL_TEST_SRC" .. "/examples/mrpc/train.parquet")
  for i = 1, math.max(#csv, #set) do -- tests/reference/mrpc_parquet.py made one of the other
    local a, b = csv:get(i), set:get(i)
    assert(a.sentence1 == b.sentence1 and a.sentence2 == b.sentence2 and (a.label == "equivalent") == (b.label == 1), "row " .. i)
  end
end)

examples.of("42_keyword_spotting", function()
  assert(os.execute(("rm -rf '%s'/spot && mkdir -p '%s/spot'"):format(tmp, tmp)))
  local cwd = require "lfs".currentdir()
  require "lfs".chdir(tmp .. "/spot") -- where it writes sounds
  local one, two = run "@42_keyword_spotting.lua", run("@42_keyword_spotting.lua", 2)
  assert(one:find("128 training and 52 test sounds of go, no, stop, yes\n", 1, true), one)
  for _, out in ipairs { one, two } do assert(number(out, "epoch 6: loss [%d.]+, accuracy ([%d.]+) %%") > 90, out) end
  assert(math.abs(number(one, "epoch 2: loss ([%d.]+)") - number(two, "epoch 2: loss ([%d.]+)")) < 0.011, one .. two)

  local sounds = accel.audio.load "sounds/test/go/001.wav"
  assert(accel.audio.save("sounds/test/go/099.wav", sounds, 8000))
  local _, err, code = examples.try "@42_keyword_spotting.lua --epochs 1"
  assert(code == 1 and err:find("go/099.wav has a sample rate of 8000, not 16000; resample it first", 1, true), err)
  examples.refused("@42_keyword_spotting.lua ~spot/nowhere", "spot/nowhere/train: cannot read the folder: No such file or directory")
  examples.refused("@42_keyword_spotting.lua --batch 200", "option '--batch' must be at most the 128 sounds of sounds/train, got 200")
  assert(os.execute "rm -r sounds/test/yes")
  examples.refused("@42_keyword_spotting.lua", "train has the words go, no, stop, yes, test has go, no, stop; both need the same folders")
  require "lfs".chdir(cwd)
end)
