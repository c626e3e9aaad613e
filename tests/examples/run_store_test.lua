--- The run store by examples: 30_run_store has the same values on 1 and 2 ranks, train_gpt.lua logs what it prints.
local accel = require "accel"
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local tmp = os.getenv "ACCEL_TEST_TMP"
local version, message = require "accel.track.core".sqlite()
if not version then
  print("skip: " .. message)
  os.exit(77)
end

local function runs_of(dir)
  local store = accel.track.Store(tmp .. "/" .. dir)
  local out = {}
  for _, run in ipairs(store:runs()) do
    local series = {}
    for _, s in ipairs(store:series(run)) do series[s.tag] = { s.n, s.last_step, s.last and ("%.4g"):format(s.last) } end
    out[run.name:match "^[%a_]+"] = { run = run, series = series, alerts = #store:records(run, "alert"), images = #store:records(run, "image"),
      config = store:config(run), texts = store:records(run, "text") }
  end
  store:close()
  return out
end

examples.of("30_run_store", function()
  for ranks = 1, 2 do
    local dir = "runs" .. ranks .. "_" .. os.time()
    local out = examples.run("@30_run_store.lua --out ~" .. dir, ranks)
    assert(out:find("too-fast: train/loss diverges", 1, true) and out:find("train/loss\n", 1, true) and out:find("steady\tfinished", 1, true), out)
    local got = runs_of(dir)
    local steady, fast = got.steady, got.too
    assert(steady.run.status == "finished" and steady.alerts == 0 and steady.images == 3 and fast.alerts >= 1)
    assert(steady.series["train/loss"][1] == 60 and steady.series["train/loss"][2] == 60 and steady.series.slope[3]:find "^1%.[45]")
    assert(steady.config.lr == 0.1 and fast.config.lr == 1.15)
  end
end)

examples.of("train_gpt", function()
  local dir = "gpt_" .. os.time()
  local options = "--steps 40 --layers 1 --width 16 --heads 2 --batch 4 --block 16 --sample 20"
  local out = examples.run(("@train_gpt.lua %s --out ~%s --track ~%s"):format(options, dir .. "_out", dir))
  local got = runs_of(dir).train_gpt
  assert(got.run.status == "finished" and got.config.width == 16 and got.config.ranks == 1)
  assert(got.series["train/loss"][1] == 4 and got.series["train/loss"][2] == 40 and got.texts[1].tag == "sample")
  local shown = out:match "validation: ([%d.]+)"
  assert(math.abs(tonumber(shown) - tonumber(got.series["val/loss"][3])) < 1e-3, shown)
end)
