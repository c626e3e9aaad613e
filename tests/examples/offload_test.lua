--- The examples of models that do not fit: their smaller forms run within their memory and compute what whole models compute.
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local run, refused = examples.run, examples.refused
local tmp = os.getenv "ACCEL_TEST_TMP"

examples.of("25_big_model_inference", function()
  os.execute(("rm -rf '%s/llama'"):format(tmp))
  local args = "@25_big_model_inference.lua --layers 6 --width 256 --tokens 4 --memory %s --host %s --compare ~llama"
  local out = run(args:format("10MB", "0MB")) -- 17 MB
  assert(out:find "made .*: %d+ files, 17 MB", out)
  assert(out:find "the same tokens as from memory: true", out)
  assert(tonumber(out:match "on disk: (%d+)") > 0 and tonumber(out:match "(%d+) MB used") + tonumber(out:match "(%d+) MB read") > 10, out)
  assert(tonumber(out:match "peak of device memory: ([%d.]+)") < 13, out)
  local tokens = out:match "tokens: ([%d ]+)"
  out = run(args:format("10MB", "20MB"))
  assert(tonumber(out:match "on the cpu: (%d+)") > 0 and out:match "tokens: ([%d ]+)" == tokens, out)
  assert(out:find "the same tokens as from memory: true", out)
  refused("@25_big_model_inference.lua --layer 2 ~llama", "unknown option '--layer'")
  os.execute(("rm -rf '%s/llama'"):format(tmp))
end)

examples.of("26_train_in_less_memory", function()
  local losses = {}
  for _, where in ipairs { "none", "cpu", "nvme" } do
    local out = run(("@26_train_in_less_memory.lua --small --steps 4 --offload %s --folder %s @26_train_in_less_memory.lua"):format(where, tmp))
    local list = {}
    for loss in out:gmatch "loss ([%d.]+)" do list[#list + 1] = loss end
    assert(#list == 4 and tonumber(list[4]) < tonumber(list[1]), out)
    losses[where] = table.concat(list, " ")
  end
  assert(losses.cpu == losses.none and losses.nvme == losses.none, losses.none .. "\n" .. losses.cpu .. "\n" .. losses.nvme)
  local two = run(("@26_train_in_less_memory.lua --small --steps 2 --offload nvme --folder %s"):format(tmp), 2)
  local whole = run("@26_train_in_less_memory.lua --small --steps 2 --offload none", 2)
  assert(two:match "loss [%d.]+" == whole:match "loss [%d.]+" and two:find "step 2", two)
  refused("@26_train_in_less_memory.lua --offload tape", "'--offload' must be nvme, cpu or none, got 'tape'")
end)
