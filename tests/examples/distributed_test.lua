--- Examples that run on ranks: what they print is the same on 1, 2 and 4 of them and makes sense.
local accel = require "accel"
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local same, number, refused, tmp = examples.same, examples.number, examples.refused, os.getenv "ACCEL_TEST_TMP"

examples.of("13_local_sgd", function()
  local out = same "@13_local_sgd.lua --steps 100"
  assert(out == "100 steps, weights averaged after every 8 (12 times) and at the end\ntest accuracy: 100.0 %\n"
    .. "same weights on all ranks: yes\n", out)
  refused("@13_local_sgd.lua --local-steps 2", "unknown option '--local-steps'; did you mean '--local-sgd-steps'?", 2)
end)

examples.of("14_ddp_comm_hook", function() -- a plain all-reduce, and every hook
  local out = same "@14_ddp_comm_hook.lua --epochs 10"
  assert(out == "hook bf16: test accuracy 100.0 % after 80 steps\nsame weights on all ranks: yes\n", out)
  local sent = {}
  for _, hook in ipairs { "no", "fp16", "int8", "int4", "power_sgd", "batched_power_sgd" } do
    out = examples.run(("@14_ddp_comm_hook.lua --epochs 10 --bytes --hook %s"):format(hook), 2)
    assert(out:find(("hook %s: test accuracy 100.0 %% after 80 steps\n"):format(hook), 1, true), out)
    assert(out:find("same weights on all ranks: yes\n", 1, true), out)
    sent[hook] = number(out, "bytes sent by the main rank: ([%d.]+) KiB")
  end
  assert(sent.fp16 < 0.6 * sent.no and sent.power_sgd < sent.no, accel.json.encode(sent))
  refused("@14_ddp_comm_hook.lua --hook bf8", "option '--hook' must be one of no, fp16, bf16")
end)

examples.of("15_schedule_free", function()
  local out = same "@15_schedule_free.lua"
  assert(number(out, "epoch 10: .* ([%d.]+) of their average") > 0.88, out)
end)

examples.of("16_tracking", function() -- to standard output, and appended to a file
  local out = same "@16_tracking.lua --epochs 2"
  local lines = {}
  for line in out:gmatch "[^\n]+" do lines[#lines + 1] = accel.json.decode(line) end
  assert(#lines == 3 and lines[1].config.epochs == 2 and lines[1].config.batch == 32, out)
  assert(lines[2].step == 44 and lines[3].step == 88 and lines[3].values.epoch == 2, out)
  assert(lines[3].values.accuracy > 0.75 and lines[3].values.train_loss < lines[2].values.train_loss, out)
  os.remove(tmp .. "/run.jsonl")
  for _ = 1, 2 do assert(examples.run("@16_tracking.lua --epochs 2 --log ~run.jsonl", 2) == "") end
  assert(examples.read(tmp .. "/run.jsonl") == out .. out)
  refused("@16_tracking.lua --log ~nowhere/run.jsonl", "nowhere/run.jsonl: No such file or directory", 2)
end)

examples.of("32_profiler", function() -- what is counted is the same on any number of ranks, each has its trace
  local out = examples.run("@32_profiler.lua --traces ~traces", 2)
  local alone = examples.run "@32_profiler.lua"
  local calls = alone:gsub(", [%d.]+ MFLOP", "")
  assert(calls == "cycle 1: 2 steps recorded, 4 calls of linear\ncycle 2: 2 steps recorded, 4 calls of linear\n2 cycles recorded\n", alone)
  assert(out:gsub(", [%d.]+ MFLOP", "") == calls, out)
  local products = 2 * 3 * 2 * 64 * (64 * 256 + 256 * 10) / 1e6 -- of two steps; the first layer's input needs no gradient
  local got = number(alone, "cycle 1: .* ([%d.]+) MFLOP")
  assert(got < products and got > 0.6 * products, got .. " of " .. products)
  for rank = 0, 1 do
    local trace = accel.json.decode(examples.read(("%s/traces/profile_%d.json"):format(tmp, rank)))
    assert(trace.distributedInfo.rank == rank and #trace.traceEvents > 50)
  end
end)

examples.of("19_distributed_inference", function() -- more ranks than prompts, too
  local out = same "@19_distributed_inference.lua"
  assert(out == [[
     abc | defghi
     xyz | abcdef
   hello | pqrstu
       m | nopqrs
   qrstu | vwxyza
     lua | bcdefg
   zebra | bcdefg
7 prompts
]], out)
  assert(same "@19_distributed_inference.lua --tokens 2 xy" == "      xy | za\n1 prompts\n")
  refused("@19_distributed_inference.lua abc a1", "prompt 'a1' has to be made of small letters", 2)
end)

examples.of("20_variable_length", function() -- cut one way and the other
  local out = same "@20_variable_length.lua"
  local whole, pieces = out:match "^32 sequences: +([^\n]+)\n4 x 8 sequences: +([^\n]+)\n$"
  assert(whole and whole == pieces, out)
  local first, last = whole:match "epoch: ([%d.]+) .- ([%d.]+)$"
  assert(tonumber(last) < 0.6 * tonumber(first), out)
  local means = examples.run "@20_variable_length.lua --means"
  assert(means:sub(1, #out) == out and not means:find("of means: +" .. whole:gsub("%p", "%%%0")), means)
end)

examples.of("35_diffusion", function() -- pictures come of many roundings, the losses are compared
  local out = examples.run "@35_diffusion.lua --steps 600 --width 128 --digits 07"
  local losses = out:gsub("\n[^s].*", "")
  assert(select(2, losses:gsub("step", "")) == 5 and number(losses, "step  600  loss ([%d.]+)") < 0.2, out)
  local lines = select(2, out:gsub("\n", "\n"))
  assert(lines == 5 + 8 + 1 and out:find("[.:+#]"), out)
  assert(number(out, "own digit: (%d+) %% of drawn ones, 92 %% of the training pictures") > 70, out)
  for _, ranks in ipairs { 2, 4 } do
    local other = examples.run("@35_diffusion.lua --steps 600 --width 128 --digits 07", ranks)
    assert(other:sub(1, #losses) == losses, other)
  end
  refused("@35_diffusion.lua --digits 1a", "option '--digits' must be digits, got '1a'")
  refused("@35_diffusion.lua --levels 0", "option '--levels' must be positive, got 0")
  refused("@35_diffusion.lua --batch 3", "option '--batch' must be a multiple of 2 ranks, got 3", 2)
  refused("@35_diffusion.lua ~nowhere", "No such file or directory")
end)

examples.of("31_model_parallel", function() -- the same on every mesh
  local one = examples.run "@31_model_parallel.lua"
  local loss = number(one, "step 20: loss ([%d.]+)")
  assert(loss < 2.5 and one:find("whole: wte 32 x 32\n", 1, true), one)
  for _, mesh in ipairs { { 2, "--tp 2 --sequence-parallel" }, { 2, "--pp 2" }, { 4, "--tp 2 --dp 2" } } do
    local out = examples.run("@31_model_parallel.lua " .. mesh[2], mesh[1])
    assert(number(out, "step 20: loss ([%d.]+)") == loss and out:find("whole: wte 32 x 32\n", 1, true), out)
  end
  -- in Megatron-LM's words, on what accel-run preprocess writes
  local lines = {}
  for i = 1, 200 do lines[i] = ("the cat sat on the mat %d times"):format(i % 9) end
  assert(accel.write_file(tmp .. "/cats.txt", table.concat(lines, "\n")))
  local tok = accel.text.train_bpe({ "the cat sat on the mat" }, { vocab_size = 280, special_tokens = { "<|endoftext|>" } })
  assert(tok:save(tmp .. "/tokenizer.json"))
  assert(os.execute(("'%s' preprocess --input '%s/cats.txt' --output-prefix '%s/cats' --tokenizer-model '%s' --append-eod >'%s/said' 2>&1")
    :format(accel.process.program(), tmp, tmp, tmp, tmp)))
  local indexed = "@31_model_parallel.lua --data ~cats_text_document --vocab-size 280 "
  refused(indexed .. "--dp 2", "--tp 1, --pp 1 and --dp 2 need 2 processes, not 1")
  one = examples.run(indexed)
  assert(number(one, "step 20: loss ([%d.]+)") < 3.5 and number(one, "valid: loss ([%d.]+) of 2 batches") < 3.5, one)
  for _, mesh in ipairs { { 2, "--tp 2" }, { 2, "--dp 2" }, { 2, "--pp 2" } } do
    local out = examples.run(indexed .. mesh[2], mesh[1])
    assert(out:gsub("^mesh[^\n]*\n", "") == one:gsub("^mesh[^\n]*\n", ""), out)
  end
end)

examples.of("38_nd_parallel", function() -- every mesh has one rank's losses, and a checkpoint of one goes on on another
  local function losses(out) return (out:gsub("^mesh[^\n]*\n", ""):gsub("model: [^\n]*\n", "")) end
  local one = examples.run "@38_nd_parallel.lua"
  assert(number(one, "step 20: loss ([%d.]+)") < 2.5 and one:find("mesh: DeviceMesh()", 1, true), one)
  for _, mesh in ipairs { { 2, "--cp-size 2" }, { 4, "--dp-shard-size 2 --tp-size 2 --async-tp" } } do
    local out = examples.run("@38_nd_parallel.lua " .. mesh[2], mesh[1])
    assert(losses(out) == losses(one), out)
  end
  local saved = "@38_nd_parallel.lua --save-dir ~nd --checkpoint-frequency 10 "
  os.execute(("rm -rf '%s/nd'"):format(tmp))
  examples.run(saved .. "--dp-replicate-size 2 --dp-shard-size 2", 4)
  examples.again(saved .. "--dp-replicate-size 2", "nd", 2)
  assert(examples.read(tmp .. "/nd/model/model.safetensors"):find("model.layers.1.mlp.up_proj.weight", 1, true))
  local out = examples.run("@38_nd_parallel.lua --tp-size 2 --resume ~nd/checkpoint-10", 2)
  assert(out:find("continues after step 10\n", 1, true) and losses(one):sub(-#out:match "step 15.*$") == out:match "step 15.*$", out)
  refused("@38_nd_parallel.lua --num-steps 0", "--num-steps must be 1 or more", 2)
end)

examples.of("36_ulysses", function() -- parts of sequences of several lengths, with tokens that do not count
  local function losses(out) return (out:gsub("^loader.-\n(batch)", "%1"):gsub("[^\n]*ranks of sp[^\n]*\n", "")) end
  for _, variable in ipairs { "", " --variable" } do
    local one = examples.run("@36_ulysses.lua" .. variable)
    assert(number(one, "batch 12: .* loss ([%d.]+)") < 3.5 and one:find("batch 1: 64 tokens, 192 count", 1, true), one)
    assert(losses(examples.run("@36_ulysses.lua --sp-size 2" .. variable, 2)) == losses(one))
    local out = examples.run("@36_ulysses.lua --sp-size 2 --dp-shard-size 2" .. variable, 4)
    assert(losses(out) == losses(one) and out:find("loader: 24 batches\nprepared: 12 batches\n", 1, true), out)
  end
  refused("@36_ulysses.lua --sequence-length 6 --sp-size 2", "--sequence-length 6 must divide by 2 x --sp-size 2", 2)
end)

examples.of("37_pipeline_inference", function()
  for _, name in ipairs { "gpt2", "llama", "bert", "t5" } do
    local out = examples.run("@37_pipeline_inference.lua --model " .. name, 2)
    assert(out:find("equal to the whole model's: yes\n", 1, true) and out:find("ranks with the output: 1 of 2\n", 1, true), out)
  end
  local out = examples.run("@37_pipeline_inference.lua --gather-output --split h.1 --num-chunks 5", 2)
  assert(out:find("ranks with the output: 2 of 2\n", 1, true), out)
  local first, second = out:match "on each rank: (%d+), (%d+)\n"
  assert(tonumber(first) == 14 and tonumber(second) == 39, out) -- two embeddings and a block; three blocks, a norm and the tied head
  local err = select(2, examples.try("@37_pipeline_inference.lua --split h.9", 2))
  assert(err:find("split_points: 'h.9' is not a block of the model", 1, true), err)
  refused("@37_pipeline_inference.lua --model vit", "--model must be gpt2, llama, bert or t5, got vit", 2)
end)

examples.of("43_lose_a_rank", function() -- the rank that dies, first, in the middle and last, changes no bit
  local whole = same "@43_lose_a_rank.lua --updates 8 --kill-at 0"
  assert(whole:find "^8 updates, weights %x+\n$", whole)
  for _, at in ipairs { 1, 5, 8 } do
    local script = os.getenv "ACCEL_TEST_SRC" .. "/examples/43_lose_a_rank.lua"
    local pipe = assert(io.popen(("'%s' --num-machines 1:1 --nproc-per-node 3 --num-threads 1 '%s' --updates 8 --kill-at %d 2>&1")
      :format(accel.process.program(), script, at)))
    local out = pipe:read "a"
    local ok = pipe:close()
    assert(ok and out:find(whole, 1, true) and out:find "killed by signal 9" and out:find("2 rank(s) continue at update " .. at, 1, true), out)
  end
end)
