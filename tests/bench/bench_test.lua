-- accel-run bench from outside, and the table's arithmetic. Nothing here is a timed pass or fail.
local accel = require "accel"

local src = os.getenv "ACCEL_TEST_SRC" or (arg[0]:match "^(.*)/tests/" or ".")
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local run = accel.process.program()
local QUICK <const> = "bench dispatch --quick --rounds 1 --peers none --no-idle-gate"

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
local function read(name)
  local file <close> = io.open(tmp .. "/" .. name, "rb")
  return file and file:read "a" or ""
end
local function start(words)
  local command = ("export TMPDIR=%s; cd / && exec %s %s > %s 2> %s"):format(quote(tmp .. "/t"), quote(run), words,
    quote(tmp .. "/out"), quote(tmp .. "/err"))
  return accel.process.spawn("/bin/sh", { "sh", "-c", command }, {})
end
-- Status, stdout, stderr; from another folder, without a terminal.
local function try(words)
  local p <close> = start(words)
  local how, number
  repeat how, number = p:wait(1) until how
  return how == "exit" and number or how .. number, read "out", read "err"
end
assert(accel.makedirs(tmp .. "/t"))

-- What there is.
local status, out, err = try "bench --list"
assert(status == 0 and err == "", err)
local names = {}
for line in out:gmatch "[^\n]+" do
  if not line:find "^groups:" then names[line:match "^%S+"] = true end
end
for _, name in ipairs { "dispatch", "gemm_f32", "attention_bf16", "gpt_small_f32", "gpt_124m_t64_bf16",
  "gpt_124m_t256_f32", "mlp", "char_gpt_bf16", "resnet18_f32", "adamw", "cross_entropy_f32", "bandwidth_f32", "loader",
  "tokenizers", "track", "start", "memory", "ddp", "shard_124m", "fsdp2_124m", "parallel_124m_4", "offload_disk",
  "offload_model", "offload_step", "comm_2", "accelerator", "conv_f32", "launch", "size",
  "cuda_gpt_124m_t1024_bf16", "cuda_attention_bf16" } do assert(names[name], "not listed: " .. name) end
for _, words in ipairs { "bench --help", "bench --list" } do
  for line in select(2, try(words)):gmatch "[^\n]+" do assert(#line <= 80, line) end
end

-- Misuse.
local function misuse(words, message)
  local code, _, said = try(words)
  assert(code == 2 and said:find(message, 1, true), ("%s: %s\n%s"):format(words, code, said))
end
misuse("bench gtp", "no bench 'gtp'; did you mean 'gpt'?")
misuse("bench zzzzzzzz", "no bench 'zzzzzzzz'; --list tells what there is")
misuse("bench --ruonds 3", "did you mean '--rounds'?")
misuse("bench --rounds 0", "--rounds must be 1 or more")
misuse("bench --peers tunde size", "no peer 'tunde'; did you mean 'tuned'?")
misuse("--num_processes 2 bench size", "bench runs on no ranks")

-- One bench: the table, and the file.
status, out, err = try(QUICK .. " --json " .. quote(tmp .. "/bench.json"))
assert(status == 0 and err == "", ("%s\n%s\n%s"):format(status, out, err))
assert(out:find "\n%-%- dispatch: " and out:find "\nadd, 1 element +[%d.]+ ns\n", out)
for line in out:gmatch "[^\n]+" do assert(#line <= 80, line) end
local data = assert(accel.json.decode(read "bench.json"))
assert(data.complete and data.machine.cpus >= 1 and data.options.rounds == 1 and data.options.quick)
local suite = data.suites[1]
assert(suite.name == "dispatch" and #suite.rows == 5 and suite.rounds == 1)
assert(suite.rows[1].unit == "ns" and #suite.rows[1].ours.values == 1)
assert(suite.raw[1].side == "accel" and suite.raw[1].figures.add[1] == suite.rows[1].ours.median)

-- The smallest curve: rows with the limit, the picture, and points that the file of --save has are not measured again.
do
  local words = QUICK:gsub("dispatch", "scale_layers") .. (" --plots %s --save %s"):format(quote(tmp .. "/curves"), quote(tmp .. "/kept.json"))
  local function figures(text) return text:match "\nlayers 6 +([%d.]+) ms", text:match "\nlayers 12 +([%d.]+) ms" end
  status, out, err = try(words)
  assert(status == 0 and err == "", ("%s\n%s\n%s"):format(status, out, err))
  local first, second = figures(out)
  assert(first and second, out)
  if out:find "curves: " then
    local picture = assert(accel.vision.io.read_image(tmp .. "/curves/scale_layers.png"))
    assert(picture.shape[1] == 3 and picture.shape[2] == 560 and picture.shape[3] == 900)
    local blue = picture[1]:eq(31):logical_and(picture[2]:eq(119)):sum():item() -- accel's curve, from one side to the other
    assert(blue > 700 and picture[1]:eq(255):sum():item() > 400000, blue)
  else
    assert(out:find "left out: curves", out)
  end
  local kept = assert(accel.json.decode(read "kept.json"))
  local row = kept.rows["scale_layers: layers 6"]
  assert(row and row.quick and #row.values == 1)
  if row.commit ~= "unknown" then
    row.values[1] = 12345
    assert(accel.write_file(tmp .. "/kept.json", accel.json.encode(kept)))
    status, out, err = try(words)
    assert(status == 0 and out:find "\nlayers 6 +12345 ms", ("%s\n%s\n%s"):format(status, out, err))
  end
end

-- Without a GPU its benches are left out, and say why.
if accel.features().devices.cuda.count == 0 then
  status, out, err = try(QUICK:gsub("dispatch", "cuda_adamw"))
  assert(status == 0 and err == "" and out:find("left out: GPU: ", 1, true), ("%s\n%s\n%s"):format(status, out, err))
end

-- Ctrl-C: sides end, what was measured is told, nothing stays behind.
do
  local p <close> = start((QUICK:gsub("rounds 1", "rounds 100000")))
  repeat assert(not p:wait(0.1), "it ended by itself") until read "out":find "%-%- dispatch"
  p:wait(0.5)
  p:signal(2)
  local how, number
  repeat how, number = p:wait(1) until how
  out = read "out"
  assert(how == "exit" and number == 130, ("%s %s\n%s%s"):format(how, number, out, read "err"))
  assert(out:find("stopped: 0 of 1 benches measured", 1, true), out)
  if out:find "stopped after" then assert(out:find "add, 1 element +[%d.]+ ns", out) end
end
local left = assert(io.popen("ls -A " .. quote(tmp .. "/t")))
assert(left:read "a" == "", "files stay behind")
left:close()

-- The arithmetic of rows.
package.path = src .. "/tests/bench/?.lua;" .. package.path
local report = require "report"
local lines = {}
local real = print
local function row(r)
  lines = {}
  rawset(_G, "print", function(text) lines[#lines + 1] = text end)
  local ok, kept = pcall(report.row, r)
  rawset(_G, "print", real)
  assert(ok, kept)
  for _, line in ipairs(lines) do assert(#line <= 80, line) end
  return kept, table.concat(lines, "\n")
end
local ours <const>, theirs <const> = { 10, 12, 11 }, { eager = { 30, 30, 30 }, tuned = { 22, 20, 23 } }
local kept, text = row { what = "step", unit = "ms", ours = ours, peers = theirs, goal = { ratio = 1.8 } }
assert(kept.best_peer == "tuned" and kept.ratio == 2 and math.abs(kept.worst - 20 / 12) < 1e-9 and kept.met)
assert(text:find("11.00 ms", 1, true) and text:find("22.00 tuned", 1, true) and text:find("2.00x", 1, true)
  and text:find("goal 1.80x  met", 1, true) and text:find("[10.00, 12.00]", 1, true), text)
kept, text = row { what = "step", unit = "ms", ours = ours, peers = theirs, goal = { ratio = 2.5 } }
assert(kept.met == false and text:find("missed by 20 %", 1, true), text)
kept, text = row { what = "step", unit = "ms", ours = ours, peers = theirs, goal = { ratio = 1.95 } }
assert(kept.met == false and text:find("goal 1.95x  unsteady", 1, true), text) -- its worst round is below 0.9 of it
kept, text = row { what = "step", unit = "ms", ours = ours, peers = theirs, goal = { ratio = 1 },
  differs = { tuned = "why" } }
assert(not kept.ratio and kept.met == false and text:find("NOT COMPARABLE", 1, true), text)
kept, text = row { what = "rate", unit = "GB/s", ours = { 80 }, peers = { tuned = { 20 }, eager = { 40 } },
  higher = true, goal = { least = 100 } }
assert(kept.best_peer == "eager" and kept.ratio == 2 and text:find("goal >= 100.0 GB/s  missed by 20 %", 1, true), text)
kept, text = row { what = "call", unit = "ns", ours = { 100 }, goal = { most = 120 } }
assert(kept.met and text:find("goal <= 120.0 ns  met", 1, true), text)
for value, shown in pairs { [123456] = "123456", [1234.5] = "1234", [123.45] = "123.5", [1.2345] = "1.234",
  [0.01234] = "0.0123" } do
  assert(report.number(value) == shown, report.number(value))
end

-- Losses: which sides differ.
rawset(_G, "print", function() end)
local differs = report.losses({ accel = { losses = { { 2, 1 } } }, tuned = { losses = { { 2.001, 1.0005 } } },
  eager = { losses = { { 2, 1.1 } } }, compile = { losses = { { 2 } } } }, 1e-3)
rawset(_G, "print", real)
assert(not differs.tuned and differs.eager and differs.compile)
print "ok"
