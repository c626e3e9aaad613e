-- Every option of every program of accel-run (accel.cli), as the programs describe them for help and completion, set to a value that is
-- not its default: what is printed, the exit status or a file is another, or a warning names it, or it is refused. A new option without a
-- case fails. Configurations and flags of launch: config_test.lua; options of accel-run itself: tests/host/app/options_test.lua.
--   accel-run tests/options/cli_test.lua [PROGRAM]
-- tier: slow
local accel = require "accel"
local command = require "accel.cli.command"
local case = {} -- by program and action
local here = arg[0]:match "^.*/" or ""
local ONLY <const> = arg[1]
local support = dofile(here .. "../lua/attach/support.lua")

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/cli-"))
local function shell(fmt, ...) assert(os.execute(fmt:format(...))) end
local function write(name, text) assert(accel.write_file(root .. "/fixture/" .. name, text)) end

-- ---- what the programs are tried on: copied anew for each run ----
shell("mkdir -p '%s/fixture'", root)
local fixture = root .. "/fixture"
local open -- a run that is under way
do
  local tok = accel.text.train_bpe({ "the cat sat on the mat and the dog ran to the door" }, { vocab_size = 275,
    special_tokens = { "<|endoftext|>", "<user>", "<bot>", "<system>" } })
  tok.eos_token = "<|endoftext|>"
  tok.chat_template = "{{ mood }}{% for m in messages %}<{{ 'bot' if m.role == 'assistant' else m.role }}>{{ m.content }}{% endfor %}<bot>"
  accel.manual_seed(5)
  local model = accel.models.GPT2 { vocab_size = tok:id_limit(), n_positions = 128, n_embd = 64, n_layer = 2, n_head = 2, eos_token_id = 0 }
  do
    local _ <close> = accel.no_grad()
    for _, p in ipairs(model:parameters()) do p:add_(accel.randn_like(p) * 0.2) end
  end
  assert(model:save_pretrained(fixture .. "/m") and tok:save_pretrained(fixture .. "/m"))
  write("a.txt", "the cat. it sat.\n\nthe dog ran\n")
  write("a.jsonl", '{"text": "the cat. it\\nsat.", "title": "mat"}\n{"text": "the dog ran", "title": "door"}\n')
  write("lines.txt", "the cat\na dog\n")

  local a = accel.Accelerator { project_config = accel.accelerator.ProjectConfiguration { project_dir = fixture .. "/p",
    automatic_checkpoint_naming = true } }
  local other = a:prepare(accel.nn.Linear(8, 8), accel.nn.Linear(4, 4))
  for _ = 1, 3 do a:save_state() end
  assert(other)
  local torch = { model = { w = accel.ones(2, 2) } }
  assert(accel.save(fixture .. "/one.safetensors", torch.model))
  shell("mkdir '%s/one' && mv '%s/one.safetensors' '%s/one/model.safetensors'", fixture, fixture, fixture)

  for k = 1, 2 do
    local run = accel.track.Run { dir = fixture, name = "run" .. k, project = "project" .. k, system = false, config = { lr = k } }
    for i = 1, 30 do run:log({ loss = k / i + (i % 3) / 10, other = i, ["system/load"] = i % 4 }, i) end
    if k == 2 then run:log({ loss = 0.5 }, 400) end
    run:finish()
  end
  open = accel.track.Run { dir = fixture, name = "open", system = false }
  open:log({ x = 1 }, 1)
  write("fsdp.yaml", "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_offload_params: true\n")
  write("two.yaml", "distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\nmixed_precision: bf16\n")
  write("sweep.yaml", "script: s.lua\nparameters: {x: [1]}\n")
  write("s.lua", "local run = require('accel').track.Run { dir = 'x', system = false } run:log({ loss = 1 }, 1) run:finish()")
  write("wrong.yaml", "mixed_precisoin: bf16\n")
  write("t.lua", [[
local accel = require "accel"
local a = accel.Accelerator {}
local m = accel.nn.Linear(64, 64)
local o = accel.optim.AdamW(m:parameters(), { lr = 0.1 })
m, o = a:prepare(m, o)
for i = 1, 12 do
  print("a line of the script", i)
  a:backward(m(accel.ones(i == 3 and 4096 or 8, 64)):sum())
  o:step()
  o:zero_grad()
end
]])
end

-- ---- running ----
local HOME <const> = root .. "/home"
-- Output and status in a copy of the fixture, with what files became; without what differs from run to run.
local function run(words, env)
  shell("rm -rf '%s/run' '%s' && cp -r '%s' '%s/run' && mkdir '%s'", root, HOME, fixture, root, HOME)
  local pipe = assert(io.popen(("cd '%s/run' && env HOME='%s' COLUMNS= LC_ALL=C.UTF-8 ACCEL_NUM_THREADS=1 %s '%s' %s 2>&1; echo status $?; "
    .. "find . '%s' -type f ! -name '*-shm' | sort | xargs cksum"):format(root, HOME, env or "", accel.process.program(), words, HOME)))
  local text = pipe:read "a"
  pipe:close()
  text = text:gsub("[^\n]*is given twice[^\n]*\n", ""):gsub("%d+%.%d+ s%f[%W]", ""):gsub("at [%d.]+ a second", "")
  text = text:gsub(root:gsub("%p", "%%%0") .. "[%w._/-]*", "")
  return (text:gsub("[%d.]+ [num]s%f[%W]", ""))
end

-- ---- cases: [program action] = { base = words, [option] = "value" or true or { value, base = , env = , said = } } ----
local GENERATE <const> = "m 'the cat' --max-new-tokens 12 --ignore-eos"
local PLAN <const> = "tiny:gpt2 --num-processes 2 --memory 1G --device cpu --tries 1"
local DRY <const> = "--num-processes 2 --rates rates.json"
case["ckpt ls"] = { base = "p", json = true }
case["ckpt show"] = { base = "p/checkpoints/checkpoint_0", json = true }
case["ckpt convert"] = { base = "p/checkpoints/checkpoint_0 converted", pickle = true, format = "dcp" }
case["ckpt prune"] = { base = "--keep 2 p", keep = "1", dry_run = true }
case["runs ls"] = { base = "", store = "m", project = "project1", status = "finished", limit = "1", json = true }
case["runs show"] = { base = "run1", store = "m", json = true }
case["runs diff"] = { base = "run1 run2", store = "m", json = true }
case["runs plot"] = { base = "run1", store = "m", metric = "loss", x = "time", smooth = "0.9", log = true, system = true,
  height = "5", width = "40", ascii = true, svg = { "x.svg", base = "run1 --metric loss" } }
case["runs tail"] = { base = "run1", store = "m", lines = "2", follow = true, metric = "loss", system = true }
case["runs rm"] = { base = "run1", store = "m", force = { true, base = "open" }, pack = true }
case["runs export"] = { base = "run1", store = "m", format = "jsonl", out = { "d", base = "run1 --format tensorboard" } }
case["runs sync"] = { base = "", seconds = "-1" }
case["merge-weights"] = { base = "p/checkpoints/checkpoint_0 out", max_shard_size = "100B", object = "model_1",
  remove_checkpoint_dir = true, unsafe_serialization = true }
case["estimate-memory"] = { base = "m", dtypes = "int4", library_name = "timm", trust_remote_code = true, json = true }
case.plan = { base = PLAN, num_processes = "4", num_machines = "2", memory = "2G", class = "GPT2LMHeadModel", device = "cuda", mixed_precision = "no",
  global_batch_size = "32", seq_length = "16", micro_batch_size = "2", tp = "2", pp = "2", cp = "2", ep = "2", zero = "1", flops = "0.5",
  local_bandwidth = "0.01", bandwidth = { "0.1", base = PLAN .. " --num-machines 2" }, tries = "3", output = "c.yaml", json = true }
case.preprocess = { base = "--input a.txt --output-prefix o --tokenizer-model m", input = "a.jsonl", output_prefix = "q", tokenizer_model = "p",
  json_keys = { "title", base = "--input a.jsonl --output-prefix o --tokenizer-model m" }, split_sentences = true, keep_newlines =
  { true, base = "--input a.jsonl --output-prefix o --tokenizer-model m --split-sentences" }, append_eod = true }
case["data ls"] = { base = "a.jsonl", count = true, json = true, limit = { "1", base = "a.jsonl --count" } }
case["data head"] = { base = "a.jsonl", rows = "1", columns = "title", limit = "1" }
case["data stats"] = { base = "a.jsonl", rows = "1", columns = "title", json = true, limit = "1" }
case["data convert"] = { base = "a.jsonl o.jsonl", columns = "title", rows = "1", limit = "1" }
case["data tokenize"] = { base = "a.jsonl --tokenizer m --output o", tokenizer = "p", output = "q", column = "title", append_eod = true,
  force = true, limit = "1" }
case.generate = { base = GENERATE, max_new_tokens = "5", do_sample = true, temperature = "3", top_k = "7", top_p = "0.9", min_p = "0.01",
  typical_p = "0.9", seed = { "9", base = GENERATE .. " --top-k 20" }, num_beams = { "5", base = "m 'dog' --max-new-tokens 40 --ignore-eos" },
  length_penalty = { "-9", base = "m 'dog' --max-new-tokens 60 --num-beams 5" }, num_return_sequences = { "2", base = GENERATE .. " --top-k 20" },
  repetition_penalty = "9", no_repeat_ngram_size = "1", stop = ",",
  ignore_eos = { true, base = "m 'the cat' --top-k 300 --temperature 9 --seed 4 --max-new-tokens 100" }, chat = true,
  system = { "x", base = GENERATE .. " --chat" }, template_var = { "mood=dog", base = GENERATE .. " --chat" },
  lines = { true, base = "m --max-new-tokens 5 <lines.txt" }, class = "NoSuchClass",
  dtype = { "bf16", base = GENERATE .. " --top-k 50 --max-new-tokens 100" },
  cache_dtype = { "int8", base = GENERATE .. " --top-k 50 --max-new-tokens 100" }, assistant = "nowhere", adapter = "nowhere",
  adapter_weight = { "x", base = GENERATE .. " --adapter nowhere" }, lookup = "0", echo = true, json = true,
  stats = true }
case["gguf export"] = { base = "m o.gguf", type = "q8_0", name = "x", class = "NoSuchClass", no_tokenizer = true }
case["gguf import"] = { base = "m.gguf out", dtype = "bf16" }
case.quantize = { base = "m out", fp4 = true, int8 = true, double_quant = true, dtype = "fp32", head = "int8", class = "NoSuchClass",
  skip = "c_attn" }
case.config = { base = "--yes", config_file = "x.yaml", yes = { true, base = "</dev/null" } }
case["config default"] = { base = "", config_file = "x.yaml", mixed_precision = "bf16" }
case["config update"] = { base = "", config_file = "two.yaml" }
case["config show"] = { base = "--num_processes 3", origin = true, diff = true }
case["config validate"] = { base = "", config_file = "wrong.yaml" }
case["to-fsdp2"] = { base = "--config_file fsdp.yaml", config_file = "two.yaml", output_file = "new.yaml", overwrite = true }
case.test = { base = "", config_file = "nowhere.yaml", num_processes = "1" }
case["--dry-run"] = { base = DRY, num_processes = "4", num_machines = "2", rank = "1", plan = "zero3", mixed_precision = "bf16",
  config_file = { "two.yaml", base = "--rates rates.json" }, device = "cuda", memory_limit = "1K", steps = "2", bandwidth = "1",
  rates = "nowhere.json", json = true, verbose = true }
case.sweep = { base = "sweep.yaml --list", parallel = { "0", base = "sweep.yaml --list" }, store = { "sub/nowhere", base = "sweep.yaml" },
  list = { true, base = "sweep.yaml" }, json = true }
case.ui = { filter = "lr>1", base = "<nothing", port = "99999", token = "short", wait = { true, base = "nowhere", said = "status 124" } }
case.top = { base = "", interval = "0.5", count = { "2", base = "--interval 0.05" }, hosts = "no.such.host.invalid", job = "deep" }
case.stacks = { base = "", all = true, hosts = "no.such.host.invalid", job = "deep" }
local BENCH <const> = "--rounds 1 --threads 1 --no-idle-gate" -- the base of each names a bench of less than a second
case.bench = { base = BENCH .. " --quick --peers none start", rounds = "2", threads = "2", peers = "eager", json = "o.json", save = "o.json",
  against = "nowhere.json", list = true, quick = { true, base = BENCH .. " --peers none start" }, only = "size",
  no_idle_gate = { true, base = "--rounds 1 --threads 1 --quick --peers none start" },
  python = { "nowhere", base = BENCH .. " --quick --peers eager start" } }
case.attach = { base = "<ask", rank = "1", hosts = "no.such.host.invalid", job = "slow" }

-- Options that give the same on purpose, and those that accel-run hands itself.
local EXCEPTED <const> = {
  ["attach --here"] = "waits for a breakpoint: tests/lua/attach/stops_test.lua", ["attach --serve"] = "accel-run starts itself with it",
  ["attach --tunnel"] = "accel-run starts itself with it", ["preprocess --workers"] = "the same files by any number of threads",
  ["preprocess --log-interval"] = "the same files by any number of documents at a time", ["quantize --nf4"] = "names the default",
  ["data tokenize --force"] = "tests/stdlib/cli/data_test.lua: it needs an earlier run",
}

--- The options of bench, which declares them in tests/bench/run.lua: by the text of its help.
local function bench_options()
  local list = {}
  for name in run("bench --help"):gmatch "\n  %-%-([%w-]+)" do list[#list + 1] = { (name:gsub("-", "_")) } end
  assert(#list > 5)
  return { { words = { "bench" }, options = list } }
end

local totals, silent = { options = 0, effect = 0, warn = 0, raise = 0, excepted = 0 }, {}
local bases = {}
local function shown(v) return v == true and "" or " '" .. v .. "'" end

local function try(name, spec, c)
  local option = "--" .. spec[1]:gsub("_", "-")
  local title = name .. " " .. option
  totals.options = totals.options + 1
  if EXCEPTED[title] then
    totals.excepted = totals.excepted + 1
    return
  end
  local given = c[spec[1]]
  assert(given ~= nil, "an option without a case in tests/options/cli_test.lua: " .. title)
  local value = type(given) == "table" and given[1] or given
  local base = type(given) == "table" and given.base or c.base
  local env = c.job and ("XDG_RUNTIME_DIR='%s' timeout 20"):format(support.env.XDG_RUNTIME_DIR) or name == "ui" and "timeout 3" or nil
  local program = name
  local key = program .. " " .. base
  local function words(with)
    if name == "--dry-run" then return ("--dry-run %s %s t.lua"):format(base, with) end
    return ("%s %s %s"):format(program, base, with)
  end
  bases[key] = bases[key] or run(words "", env)
  local after = run(words(option .. shown(value)), env)
  local refused = after:find "status 2\n" and not bases[key]:find "status 2\n"
  local kind = after:find("warning: " .. option, 1, true) and "warn" or refused and "raise" or "effect"
  if after == bases[key] or type(given) == "table" and given.said and not after:find(given.said, 1, true) then
    silent[#silent + 1] = ("accel-run %s:\n%s"):format(words(option .. shown(value)), after:match "^(.*)status %d+\n" or after)
  else
    totals[kind] = totals[kind] + 1
  end
end

-- ---- files that programs made ----
write("nothing", "")
write("ask", "rank\n:detach\n")
shell("cd '%s' && '%s' gguf export m m.gguf", fixture, accel.process.program())
shell([[cd '%s' && '%s' --dry-run --num-processes 2 --json t.lua > report.json]], fixture, accel.process.program())
do
  local file <close> = assert(io.open(fixture .. "/report.json"))
  write("rates.json", accel.json.encode(accel.json.decode(file:read "a").rates))
end
shell("rm '%s/report.json'", fixture)

local started = accel.clock()
for _, name in ipairs { "ckpt", "runs", "merge-weights", "estimate-memory", "preprocess", "data", "generate", "gguf", "quantize", "config",
  "to-fsdp2", "test", "ui", "sweep", "ps", "top", "stacks", "attach", "dap", "doctor", "completion", "plan", "bench", "--dry-run" } do
  local module = name == "--dry-run" and "dry_run" or name:gsub("-", "_")
  local chosen = not ONLY or ONLY == name
  for _, found in ipairs(chosen and (name == "bench" and bench_options() or command.describe(require("accel.cli." .. module), name)) or {}) do
    local at = table.concat(found.words, " ")
    local c = case[at]
    assert(c or #found.options == 0, "a program without cases in tests/options/cli_test.lua: " .. at)
    if c and c.job then
      support.start(("--num-processes 3 '%s' 1000000 %s"):format(support.case, c.job))
      support.wait("the job", function() return support.ps()[1] and support.ps()[1].step >= 5 end)
    end
    for _, spec in ipairs(found.options) do try(at, spec, c) end
    if c and c.job then
      shell("kill -9 %d", support.ps()[1].pid)
      support.wait("its end", function() return not support.ps()[1] end)
    end
  end
end
open:finish()
print(("%d options of commands: %d act, %d warn, %d raise, %d excepted, %d silent; %.0f s"):format(totals.options, totals.effect, totals.warn,
  totals.raise, totals.excepted, #silent, accel.clock() - started))
assert(#silent == 0, table.concat(silent, "\n"))
