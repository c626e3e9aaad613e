--- The main example: learns; a run that was stopped and resumed equals an uninterrupted one bit for bit, also
--- with another number of threads; wrong use is refused.
local accel = require "accel"

local src, build, tmp = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_BUILD", os.getenv "ACCEL_TEST_TMP"

local function run(args, status, threads)
  local host = ("'%s/bin/accel-run' --num_threads %d"):format(build, threads or 2)
  local script = ("'%s/examples/train_gpt.lua'"):format(src)
  local command = ("%s %s %s >'%s/out.txt' 2>'%s/err.txt'"):format(host, script, args, tmp, tmp)
  local _, _, code = os.execute(command)
  local function read(name)
    local file = assert(io.open(tmp .. "/" .. name, "rb"))
    local text = file:read "a"
    file:close()
    return text
  end
  local out, err = read "out.txt", read "err.txt"
  assert(code == status, ("%s: status %s, wanted %d\n%s%s"):format(command, code, status, out, err))
  return out, err
end

-- A text with some structure: sums written out, so that a few steps already pay.
local random, lines = accel.util.Random(11), {}
for i = 1, 1500 do
  local a, b = random:below(50), random:below(50)
  lines[i] = ("%d plus %d makes %d."):format(a, b, a + b)
end
local text = tmp .. "/sums.txt"
local file = assert(io.open(text, "wb"))
file:write(table.concat(lines, "\n"))
file:close()

local small = "--layers 1 --width 16 --heads 2 --block 16 --batch 4 --dropout 0.1 --steps 60 --sample 20 "

do
  local whole = run(small .. ("--out '%s/a.safetensors' '%s'"):format(tmp, text), 0)
  local first, last = whole:match "trigram baseline %(Kneser%-Ney%): ([%d.]+)",
    whole:match "validation: ([%d.]+) nats"
  assert(tonumber(first) > 0.5 and tonumber(last) < 2.9, whole)
  run(small .. ("--stop 23 --out '%s/b.safetensors' '%s'"):format(tmp, text), 0, 1)
  local resumed = run(("--resume --stop 41 --sample 20 --out '%s/b.safetensors' '%s'"):format(tmp, text), 0)
  assert(resumed:find "resumed from .* at step 23")
  resumed = run(("--resume --sample 20 --out '%s/b.safetensors' '%s'"):format(tmp, text), 0, 4)
  assert(resumed:match "validation: [^\n]*" == whole:match "validation: [^\n]*", resumed)
  local a, b = assert(accel.load(tmp .. "/a.safetensors")), assert(accel.load(tmp .. "/b.safetensors"))
  local n = 0
  for name, t in pairs(a) do
    n = n + 1
    assert(b[name] and t:eq(b[name]):to("i64"):sum():item() == t:numel(), name)
  end
  for name in pairs(b) do assert(a[name], name) end
  assert(n > 30)
  local sample = "checkpoint: [^\n]*\n\n(.*)$"
  assert(whole:match(sample) == resumed:match(sample))
end

do -- what does not fit is refused
  local _, err = run(("--resume --width 32 --out '%s/a.safetensors' '%s'"):format(tmp, text), 3)
  assert(err:find "was made with %-%-width 16", err)
  _, err = run(("--resume --out '%s/none.safetensors' '%s'"):format(tmp, text), 3)
  assert(err:find "cannot resume")
  _, err = run("--stepz 3", 2)
  assert(err:find "unknown option '%-%-stepz'; did you mean '%-%-steps'")
  _, err = run("--heads 3 '" .. text .. "'", 2)
  assert(err:find "multiple of %-%-heads")
  _, err = run("'" .. tmp .. "/missing.txt'", 1)
  assert(err:find "missing.txt")
  local bad = assert(io.open(tmp .. "/bad.txt", "wb"))
  bad:write "abc\xff"
  bad:close()
  _, err = run("'" .. tmp .. "/bad.txt'", 1)
  assert(err:find "bad.txt: not valid UTF%-8 at byte 4")
  local out = run("--help", 0)
  assert(out:find "Usage: train_gpt.lua" and out:find "%-%-resume")
end
