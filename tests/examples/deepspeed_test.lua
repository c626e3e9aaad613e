--- Examples 27 and 28: a JSON of DeepSpeed at stages 2 and 3 trains to the numbers of one rank; a model that is created in parts ends as
--- files that merge-weights and save_model write alike.
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local accel = require "accel"
local tmp, build = os.getenv "ACCEL_TEST_TMP", os.getenv "ACCEL_TEST_BUILD"

examples.of("27_deepspeed", function()
  local want
  for _, run in ipairs { { 1, "zero2" }, { 2, "zero2" }, { 2, "zero3" } } do
    local out = examples.run(("@27_deepspeed.lua --epochs 2 --deepspeed-config-file '%s/examples/deepspeed/%s.json' --output-dir ~weights")
      :format(os.getenv "ACCEL_TEST_SRC", run[2]), run[1])
    local norm = tonumber(out:match "epoch 1: perplexity [%d.]+, rate [%d.]+, norm of the last gradient ([%d.]+)")
    local loss = tonumber(out:match "epoch 2: perplexity ([%d.]+)")
    assert(loss and norm and loss < 28 and out:find("ZeRO stage " .. run[2]:match "%d", 1, true), out)
    want = want or norm
    assert(math.abs(norm - want) < 0.2, out)
    assert(accel.load(tmp .. "/weights/model.safetensors")["transformer.wte.weight"].shape[2] == 64)
  end
  examples.refused("@27_deepspeed.lua --deepspeed-config ~x", "unknown option '--deepspeed-config'")
  examples.refused("@27_deepspeed.lua ~nowhere.csv", "nowhere.csv: cannot open: No such file or directory")
end)

examples.of("28_zero3", function()
  local last
  os.execute(("rm -rf '%s/zero3'"):format(tmp))
  for _, ranks in ipairs { 1, 2 } do
    local out = examples.run("@28_zero3.lua --layers 2 --width 64 --steps 20 --output-dir ~zero3", ranks)
    local share, loss = out:match "this rank holds (%d+) %%", out:match "step 20: loss ([%d.]+)"
    assert(ranks == 1 or tonumber(share) < 60, out)
    last = last or loss
    assert(math.abs(loss - last) < 1e-3, out)
    assert(os.execute(("'%s/bin/accel-run' merge-weights '%s/zero3/state' '%s/zero3/merged' >/dev/null"):format(build, tmp, tmp)))
    local a, b = accel.load(tmp .. "/zero3/model.safetensors"), accel.load(tmp .. "/zero3/merged/model.safetensors")
    for name, t in pairs(a) do assert(accel.equal(t, b[name]), name) end
    examples.again("@28_zero3.lua --layers 2 --width 64 --steps 20 --output-dir ~zero3", "zero3", ranks)
    os.execute(("rm -rf '%s/zero3'"):format(tmp))
  end
  examples.refused("@28_zero3.lua --batch 3", "--batch 3 cannot be cut into 2 equal parts", 2)
end)
