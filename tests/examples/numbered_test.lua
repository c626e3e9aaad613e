--- The numbered examples run and print what they promise; what is wrong with their arguments or files is said in
--- one line.
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local read, try, run, refused = examples.read, examples.try, examples.run, examples.refused
local tmp = os.getenv "ACCEL_TEST_TMP"

--- The run fails over a file, which is status 1; what is wrong with arguments is 2.
local function broken(args, message) refused(args, message, nil, 1) end

local function write(name, text)
  local file = assert(io.open(tmp .. "/" .. name, "wb"))
  file:write(text)
  file:close()
end

examples.of("01_tensors", function()
  local out = run "@01_tensors.lua"
  assert(out:find("minimum found at\ttensor([ 3.0000, -2.0000]", 1, true), out)
  assert(out:find("derivatives of x^3 at 2:\t12.0\t12.0", 1, true), out)
end)

examples.of("02_mlp", function()
  local out = run "@02_mlp.lua --epochs 60"
  assert(tonumber(out:match "right answers: ([%d.]+)") > 98, out)
end)

examples.of("33_qlora", function()
  local out = run "@33_qlora.lua --steps 30 --out ~adapter"
  local before, after = tonumber(out:match "unquantised base: ([%d.]+)"), tonumber(out:match "with the adapter: ([%d.]+)")
  assert(after < before - 0.02, out)
  assert(read(tmp .. "/adapter/adapter_config.json"):find('"peft_type": "LORA"', 1, true))
  refused("@33_qlora.lua --steps 0", "option '--steps' must be positive, got 0")
  broken("@33_qlora.lua ~nowhere.txt", "cannot be read")
end)

examples.of("34_fp8", function()
  for _, n in ipairs { 1, 2 } do
    local out, recipes = run("@34_fp8.lua --steps 30 --width 32", n), 0
    for off in out:gmatch "([%d.]+) %% from bf16" do
      recipes = recipes + 1
      assert(tonumber(off) < 3, out)
    end
    assert(recipes == 3, out)
  end
  refused("@34_fp8.lua --width 40", "option '--width' must be a multiple of 16, got 40")
  broken("@34_fp8.lua ~nowhere.txt", "cannot be read")
end)

examples.of("03_digits_cnn", function() -- the digits beside the script
  local out = run "@03_digits_cnn.lua --epochs 2 --svg ~digits.svg --out ~digits.safetensors"
  assert(tonumber(out:match "test accuracy: ([%d.]+) %%") > 85, out)
  assert(read(tmp .. "/digits.svg"):find "^<svg" and #read(tmp .. "/digits.safetensors") > 10000)
  broken("@03_digits_cnn.lua ~nowhere", "No such file or directory")
  refused("@03_digits_cnn.lua --epoch 2", "unknown option '--epoch'")
  refused("@03_digits_cnn.lua --epochs 0", "option '--epochs' must be positive, got 0")
  assert(os.execute(("mkdir -p '%s/cut'"):format(tmp)))
  write("cut/train-images-idx3-ubyte", "\0\0\8\3\0\0\0\2\0\0\0\4\0\0\0\4" .. ("x"):rep(31))
  broken("@03_digits_cnn.lua ~cut", "the header promises 2 x 4 x 4 of u8, the file holds 31 bytes")
end)

--- Texts of three topics, 5 words each, some of them the topic's own; quoted where a comma is in them.
local function topics(n, pairs_too)
  local common = { "the", "a", "of", "and", "some", "with", "then", "so" }
  local own = {
    sea = { "wave", "sail", "harbour", "tide", "anchor" }, forest = { "oak", "moss", "fern", "deer", "pine" },
    kitchen = { "pan", "salt", "oven", "butter", "knife" },
  }
  local names, lines, state = { "sea", "forest", "kitchen" }, { pairs_too and "label,text,pair" or "label,text" }, 7
  local function below(k)
    state = (state * 1103515245 + 12345) % 2147483648
    return (state >> 16) % k + 1
  end
  for i = 1, n do
    local name, words = names[i % 3 + 1], {}
    for k = 1, 5 + below(4) do words[k] = k % 2 == 1 and own[name][below(5)] or common[below(8)] end
    local text = table.concat(words, " ", 1, 4) .. ", " .. table.concat(words, " ", 5)
    lines[#lines + 1] = ('%s,"%s"%s'):format(name, text, pairs_too and "," .. own[name][below(5)] or "")
  end
  return table.concat(lines, "\n") .. "\n"
end

examples.of("04_text_classifier", function() -- csv files that the test writes, with clear topics
  write("train.csv", topics(300))
  write("test.csv", topics(90))
  local small = "@04_text_classifier.lua --epochs 12 --lr 5e-3 --width 32 --layers 1 --dropout 0.1 "
  local out = run(small .. "--svg ~topics.svg --out ~topics ~train.csv ~test.csv")
  assert(out:find("300 training texts, 90 test texts, 3 classes", 1, true), out)
  assert(tonumber(out:match "test accuracy: ([%d.]+) %%") > 90, out)
  assert(read(tmp .. "/topics.svg"):find "^<svg")
  assert(read(tmp .. "/topics/config.json"):find('"forest"', 1, true))
  assert(#read(tmp .. "/topics/model.safetensors") > 1000)

  write("pairs.csv", topics(200, true))
  out = run(small .. "~pairs.csv")
  assert(out:find("160 training texts, 40 test texts, 3 classes", 1, true), out)
  assert(tonumber(out:match "test accuracy: ([%d.]+) %%") > 90, out)

  broken("@04_text_classifier.lua ~missing.csv", "missing.csv: cannot open: No such file or directory")
  broken("@04_text_classifier.lua --play ~missing.txt", "missing.txt: No such file or directory")
  refused("@04_text_classifier.lua --epoch 2 ~train.csv", "unknown option '--epoch'")
  refused("@04_text_classifier.lua --dropout 1 ~train.csv", "option '--dropout' must lie in 0 .. 1")
  refused("@04_text_classifier.lua --width 30 ~train.csv", "--width must be a multiple of --heads")
  write("bad.csv", "label,text\nsea,wave\nsea,wave,tide\n")
  broken("@04_text_classifier.lua ~bad.csv", "bad.csv:3: 3 fields, expected 2 (label, text)")
  write("open.csv", 'label,text\nsea,"wave\n')
  broken("@04_text_classifier.lua ~open.csv", "open.csv:2: the quote that opens here is never closed")
  write("other.csv", "topic,text\nsea,wave\n")
  broken("@04_text_classifier.lua ~other.csv", "expected the columns label,text or label,text,text; found topic,text")
  write("one.csv", "label,text\n" .. ("sea,wave\n"):rep(20))
  broken("@04_text_classifier.lua ~one.csv", "all texts are of one class, 'sea'")
  write("new.csv", "label,text\ndesert,sand\n")
  broken("@04_text_classifier.lua ~train.csv ~new.csv", "'desert' is a class of the test texts only")
end)

examples.of("05_ranks", function() -- one and two ranks learn the same
  local one, two = run "@05_ranks.lua --steps 50", run("@05_ranks.lua --steps 50", 2)
  local loss = one:match "loss after 50 steps: ([%d.]+)"
  assert(tonumber(loss) < 0.5 and loss == two:match "loss after 50 steps: ([%d.]+)", one .. two)
  assert(two:find("2 ranks over shm; the sum of 2^rank is 3", 1, true) and two:find "difference of a weight between ranks: 0\n", two)
  local _, err, code = try("@05_ranks.lua", 3)
  assert(code == 1 and err:find("cannot be cut into 3 equal parts", 1, true), err)
end)

examples.of("21_data_workers", function() -- workers read the same batches
  local out = run "@21_data_workers.lua --work 2 --num-workers 3"
  assert(out:find("23 batches of 64 pictures; the same with 3 workers: true", 1, true), out)
  refused("@21_data_workers.lua ~nowhere", "No such file or directory")
end)
