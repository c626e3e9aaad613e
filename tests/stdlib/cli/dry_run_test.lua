-- accel-run --dry-run against real ranks: the peak of every rank's pool and the bytes of every collective, under DDP and ZeRO stages 1 to 3;
-- what it says of worlds that are not there, of accelerators, of what does not fit, and of scripts that fail.
-- tier: every change
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
local tests = here .. "/../../"
local compare = dofile(tests .. "support/dry_runs.lua")
local script = tests .. "support/dry_run_script.lua"

-- With exact collection nothing but the script decides on the peak: equal to a few small blocks. What a collection at other moments adds is
-- bounded by what lies between two of them, so the model is no larger than it has to be here; the larger ones are in dry_run_worlds_test.
compare { ranks = { 1, 2 }, model = "3 64 2 32", exact = true, within = 0.005 }

local function dry(options, args)
  local told, status, errors = compare.dry(options, script, args or "3 64 2 32")
  return told, status, errors
end

do -- 1,024 ranks: parts of parameters, states and gradients follow the formulas
  local one = dry("--num_processes 1")
  local whole = one.ranks[1].peak.parameters
  local told = dry "--num_processes 1024 --num_machines 128 --plan zero3 --rank 0,5,1023"
  assert(told.size == 1024 and #told.ranks == 3)
  for _, r in ipairs(told.ranks) do
    assert(r.steps == 8 or r.steps == 3)
    for _, c in ipairs(r.collectives) do
      assert(c.ranks == 1024 and (c.kind ~= "all_reduce" or c.sent == 2 * (c.payload // 1024 * 1023 + c.payload % 1024 * 1023 // 1024)))
    end
  end
  -- a part of every unit: equal cuts at multiples of 256 elements
  local two = dry "--num_processes 2 --plan zero1 --rank 0,1"
  for _, r in ipairs(two.ranks) do
    assert(math.abs(r.peak.states / whole - 1) < 0.1, ("states %d, half of two states of %d bytes"):format(r.peak.states, whole))
  end
end

do -- an accelerator has copies of weights in bf16 where the CPU's products round as they read; a CPU with AMX has these copies as well
  local info <close> = io.open "/proc/cpuinfo"
  local amx = info and info:read "a":find "amx_bf16" ~= nil
  local cpu, cuda = dry "--mixed-precision bf16", dry "--mixed-precision bf16 --device cuda"
  local single = dry "--device cuda"
  local copies = cuda.ranks[1].peak.total - cpu.ranks[1].peak.total
  local matrices = 2 * (12 * 64 * 64 * 2) -- of two layers; the embedding is read by rows
  assert(amx and copies == 0 or copies > 0.9 * matrices, ("%d bytes of copies, %d of matrices"):format(copies, matrices))
  assert(single.time == nil and cpu.time.total > 0 and single.limit == 80 << 30)
end

do -- plans of a mesh: from a line, from a configuration file, and what each rank sends and waits for
  local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/mesh")
  local path = folder .. "/s.lua"
  assert(accel.write_file(path, [[
local accel = require "accel"
local a = accel.Accelerator()
local model = accel.models.GPT2 { vocab_size = 64, n_positions = 16, n_embd = 32, n_layer = 4, n_head = 4 }
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
model, optimizer = a:prepare(model, optimizer)
for i = 1, 9 do
  local ids = accel.randint(0, 64, { 8, 16 })
  a:backward(model(ids, { labels = ids }))
  optimizer:step()
  optimizer:zero_grad()
end]]))
  local line = "tp=2,pp=2,micro_batches=4"
  local told, status, errors = compare.dry("--num_processes 8 --num_machines 2 --rank 0,2,7 --plan " .. line, path, "")
  assert(status == 0, errors)
  local first, last = told.ranks[1], told.ranks[3]
  local kinds = {}
  for _, c in ipairs(first.collectives) do
    local key = c.kind .. (c.remote and " remote" or "")
    kinds[key] = (kinds[key] or 0) + c.payload
  end
  -- 8 rows in 4 micro-batches; stages 0 and 1 are on one machine and the other; tensor parallelism stays on one
  assert(kinds["send remote"] == 4 * 2 * 16 * 32 * 4 and kinds["recv remote"] == kinds["send remote"] and not kinds.send)
  assert(kinds.all_reduce > 4 * (4 * 2 + 1) * 2 * 16 * 32 * 4)
  assert(first.pipeline.stages == 2 and first.pipeline.bubble == 0.25 and math.abs(last.time.idle / (last.time.total - last.time.idle) - 0.25) < 1e-9)
  assert(told.time.total == math.max(first.time.total, told.ranks[2].time.total, last.time.total))
  local yaml = folder .. "/c.yaml"
  assert(accel.write_file(yaml, require "accel.cli.plan_config".yaml(require "accel.cli.plan_config".parse(line),
    { num_processes = 8, cpu = true })))
  local again = compare.dry("--config_file " .. yaml .. " --rank 7", path, "")
  assert(again.size == 8 and #again.ranks[1].collectives == #last.collectives and again.ranks[1].flops == last.flops)
  -- a file that asks for the CPU is told of as one that does not
  assert(accel.write_file(yaml, "distributed_type: 'NO'\nuse_cpu: true\nnum_processes: 1\n"))
  assert(compare.dry("--config_file " .. yaml, path, "").ranks[1].peak.parameters == compare.dry("", path, "").ranks[1].peak.parameters)
  local text = compare.text("--num_processes 8 --plan " .. line, path, "")
  assert(text:find "waiting in the pipeline" and text:find "send f32 of 8 ranks" and text:find "time of%s+rank 0%s+rank 7")
  for wrong, why in accel.pairs { ["tp=3"] = "are 3 ranks, which do not divide the 8", ["ppp=2"] = "did you mean 'pp'",
    ["pp=2,zero=3"] = "stages of a pipeline share out states of the optimizer alone", ["tp=x"] = "expected an integer from 1" } do
    local _, bad, said = compare.dry("--num_processes 8 --plan " .. wrong, path, "")
    assert(bad == 2 and said:find(why, 1, true), said)
  end
end

do -- what does not fit, and what would: each suggestion is what a dry run of it says
  local told, status = dry "--num_processes 4 --plan ddp --memory-limit 1M"
  assert(status == 1 and told.fits == false and #told.suggestions >= 3)
  -- On a busy machine a collection may fall elsewhere in one of the two, once in some dozens of runs: each has three tries.
  for i, s in ipairs(told.suggestions) do
    local peak, seen = s.peak, {}
    for _ = 1, 3 do
      seen[#seen + 1] = dry("--num_processes 4 --rank 0 " .. s.label).ranks[1].peak.total
      if seen[#seen] == peak then break end
      peak = dry("--num_processes 4 --plan ddp --memory-limit 1M").suggestions[i].peak
    end
    assert(seen[#seen] == peak or seen[#seen] == s.peak, ("%s: suggested %d, then %d; dry runs of it: %s"):format(s.label, s.peak, peak,
      table.concat(seen, ", ")))
  end
  local text = compare.text("--num_processes 4 --plan ddp --memory-limit 1M", script, "3 64 2 32")
  assert(text:find "does not fit: " and text:find "%-%-plan zero3" and text:find "gradient checkpointing")
  assert(text:find "\n%(rates of /.*rates%.json%)\n", text)
  local fits = compare.text("--num_processes 2", script, "3 64 2 32")
  assert(fits:find "memory of%s+rank 0%s+rank 1" and fits:find "fits: " and fits:find "all_reduce f32 of 2 ranks" and fits:find "GFLOP\n"
    or fits:find "MFLOP\n")
end

do -- values that are not there, scripts without steps, scripts that fail
  -- the script's own folders may be called as the library's
  local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/dry") .. "/accel"
  assert(accel.makedirs(folder))
  local function of(text)
    local path = folder .. "/s.lua"
    assert(accel.write_file(path, text))
    return path
  end
  local told, status = compare.dry("", of [[
local accel = require "accel"
local w = accel.ones(4, { requires_grad = true })
local o = accel.optim.SGD({ w }, { lr = 0.1 })
for i = 1, 9 do
  local loss = (w * accel.randn(4)):sum()
  loss:backward()
  o:step()
  print("loss", loss:item(), w:tolist()[4])
end]], "")
  assert(status == 0 and told.ranks[1].steps == 8)
  assert(table.concat(told.ranks[1].asked, " "):find "item%(%) at .*s.lua:8 tolist%(%) at .*s.lua:8")
  told, status = compare.dry("", of [[local accel = require "accel" local x = accel.ones(1024, 1024) local y = x:matmul(x)]], "")
  assert(status == 0 and told.ranks[1].steps == 0 and told.ranks[1].flops == 2 << 30 and told.ranks[1].peak.total == 8 << 20)
  local _, bad, errors = compare.dry("", of "local accel = require 'accel'\naccel.ones(2):matmul(accel.ones(3))", "")
  assert(bad == 1 and errors:find "s.lua:2: .*cannot be multiplied", errors)
  assert(not errors:find "xpcall" and not errors:find "dry_run.lua", errors)
  -- what real runs left behind stays: no run in a store, no checkpoint, no weights
  told, status, errors = compare.dry("--num_processes 2", of(([[
local accel = require "accel"
local root = "%s"
local accelerator = accel.Accelerator { log_with = { "store", "jsonl" }, project_dir = root .. "/p" }
accelerator:init_trackers("p", { lr = 1 })
local run = accel.track.Run { dir = root .. "/q" }
local model = accel.nn.Linear(4, 4)
local optimizer
model, optimizer = accelerator:prepare(model, accel.optim.SGD(model:parameters(), { lr = 0.1 }))
for step = 1, 9 do
  accelerator:backward(model(accel.randn(2, 4)):sum())
  optimizer:step()
  accelerator:log({ loss = 1 }, step)
  run:log({ loss = 1 }, step)
  assert(accelerator:save_state(root .. "/state") == root .. "/state")
  accelerator:save_model(model, root .. "/model")
  accelerator:save(accelerator:get_state_dict(model), root .. "/b.safetensors")
  assert(accel.save(root .. "/a.safetensors", model:state_dict()))
end]]):format(folder)), "")
  assert(status == 0, errors)
  assert(table.concat(accel.listdir(folder), " ") == "s.lua", table.concat(accel.listdir(folder), " "))
  local names = table.concat(told.ranks[1].unwritten, " ")
  for _, name in ipairs { "/state", "/model", "/a.safetensors", "/b.safetensors" } do assert(names:find(folder .. name, 1, true), names) end
  -- two optimizers that take turns: a step is one of each
  told = compare.dry("--steps 2", of [[
local accel = require "accel"
local a, b = accel.ones(4, { requires_grad = true }), accel.ones(8, { requires_grad = true })
local oa, ob = accel.optim.Adam { a }, accel.optim.Adam { b }
for i = 1, 9 do a:sum():backward() oa:step() b:sum():backward() ob:step() end]], "")
  assert(told.ranks[1].steps == 2)
end

do -- a stream that rank 0 reads for all: every simulated rank reads it, since nobody sends
  local path = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/stream") .. "/s.lua"
  assert(accel.write_file(path, [[
local accel = require "accel"
local Rows = accel.data.IterableDataset:extend "Rows"
function Rows:iterate() return function() return accel.ones(8) end end
local a = accel.Accelerator { split_batches = true }
local model = accel.nn.Linear(8, 2)
local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.1 })
local loader = accel.data.DataLoader(Rows(), { batch_size = 8 })
model, optimizer, loader = a:prepare(model, optimizer, loader)
for batch in loader() do
  assert(batch.shape[1] == 8 // a.num_processes)
  a:backward(model(batch):sum())
  optimizer:step()
  optimizer:zero_grad()
end]]))
  local told, status, errors = compare.dry("--num_processes 4 --rank 0,1,3", path, "")
  assert(status == 0 and #told.ranks == 3, errors)
  for _, r in ipairs(told.ranks) do assert(r.steps >= 2) end
end

for _, case in ipairs { { "--plan zero5", "did you mean 'zero1'" }, { "--num_processes 3 --num_machines 2", "each has equally many" },
  { "--num_processes 0", "--num-processes: expected 1 to 16384 ranks, got 0" },
  { "--rank 2 --num_processes 2", "is not a rank of 2" }, { "--memory-limit much", "is not a size" }, { "--device tpu", "neither cpu nor cuda" } } do
  local _, status, errors = dry(case[1])
  assert(status == 2 and errors:find(case[2], 1, true), case[1] .. ": " .. errors)
end

-- one rank fails, another one still runs: its folder stays until it has ended
do
  local own = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/dry-run-fails")
  local script = own .. "/s.lua"
  assert(accel.write_file(script, ([[
local accel = require "accel"
if accel.dist.get_rank() == 0 then error "a rank that fails" end
os.execute "sleep 1"
local seen = "gone"
for _, name in ipairs(accel.listdir(%q)) do seen = name:find "accel%%-dry%%-run" and "there" or seen end
assert(accel.write_file(%q, seen))]]):format(own, own .. "/seen")))
  local pipe = assert(io.popen(("TMPDIR='%s' '%s' --dry-run --num_processes 2 '%s' 2>&1 </dev/null"):format(own, accel.process.program(), script)))
  local said = pipe:read "a"
  pipe:close()
  assert(said:find("a rank that fails", 1, true) and not said:find("rm:", 1, true), said)
  local f <close> = assert(io.open(own .. "/seen"))
  assert(f:read "a" == "there", said)
  for _, name in ipairs(accel.listdir(own)) do assert(not name:find "accel%-dry%-run", name) end
end
