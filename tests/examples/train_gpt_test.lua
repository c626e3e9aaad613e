--- The main example: learns; a run that was stopped and resumed equals an uninterrupted one bit for bit, also
--- with another number of threads; several ranks learn what one does; wrong use is refused.
local accel = require "accel"

local src, build, tmp = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_BUILD", os.getenv "ACCEL_TEST_TMP"

local function run(args, status, threads, ranks)
  local host = ("'%s/bin/accel-run' --num_threads %d"):format(build, threads or 2)
  if ranks then host = host .. " --num_processes " .. ranks end
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

os.execute(("rm -rf '%s'/*"):format(tmp)) -- of an earlier run

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

--- What a checkpoint holds: bits of tensors by object and name, and what the script keeps beside them.
local function open(name)
  local c, bits = assert(accel.ckpt.open(("%s/%s"):format(tmp, name))), {}
  for _, object in ipairs(c:objects()) do
    for _, entry in ipairs(c:tensors(object)) do
      local t = accel.empty(entry.shape, { dtype = entry.dtype })
      assert(c:read(object, entry.name, t))
      bits[object .. "." .. entry.name] = t:to_bytes()
    end
  end
  local progress = accel.decode(assert(c:bytes "custom_checkpoint_0.accel"))
  c:close()
  return bits, progress
end

--- The tensors of two checkpoints have the same bits; their losses, too.
local function same_checkpoint(a, b)
  local x, p = open(a)
  local y, q = open(b)
  local n = 0
  for name, bits in pairs(x) do
    n = n + 1
    assert(y[name] == bits, a .. ", " .. b .. ": " .. name)
  end
  for name in pairs(y) do assert(x[name], name) end
  assert(n > 30)
  for _, which in ipairs { "train", "val" } do
    local h, k = p.history[which].y, q.history[which].y
    assert(#h == #k and #h > 3)
    for i, v in ipairs(h) do assert(v == k[i], ("%s, %s: %s loss %d"):format(a, b, which, i)) end
  end
end

do
  local whole = run(small .. ("--out '%s/a' '%s'"):format(tmp, text), 0)
  local first, last = whole:match "trigram baseline %(Kneser%-Ney%): ([%d.]+)",
    whole:match "validation: ([%d.]+) nats"
  assert(tonumber(first) > 0.5 and tonumber(last) < 2.9, whole)
  run(small .. ("--stop 23 --out '%s/b' '%s'"):format(tmp, text), 0, 1)
  local resumed = run(("--resume --stop 41 --sample 20 --out '%s/b' '%s'"):format(tmp, text), 0)
  assert(resumed:find "resumed from .* at step 23")
  resumed = run(("--resume --sample 20 --out '%s/b' '%s'"):format(tmp, text), 0, 4)
  assert(resumed:match "validation: [^\n]*" == whole:match "validation: [^\n]*", resumed)
  same_checkpoint("a", "b")
  local sample = "checkpoint: [^\n]*\n\n(.*)$"
  assert(whole:match(sample) == resumed:match(sample))
end

do -- files are taken as they are; --paragraphs joins the lines of each, and drops rules
  local words, raw = "some words of a paragraph that was filled", {}
  for i = 1, 40 do raw[i] = "   " .. words:gsub(" of ", "\n      of ") .. "\n\n   ------\n" end
  local path = tmp .. "/indented.txt"
  local f = assert(io.open(path, "wb"))
  f:write(table.concat(raw))
  f:close()
  local tiny = "--layers 1 --width 8 --heads 1 --block 8 --batch 1 --steps 1 --sample 0 "
  local function characters(more)
    os.execute(("rm -rf '%s/p'"):format(tmp))
    local out = run(tiny .. ("%s --out '%s/p' '%s'"):format(more, tmp, path), 0)
    local a, b = out:match "(%d+) characters to train on, (%d+) to validate"
    return a + b
  end
  assert(characters "" == #table.concat(raw))
  assert(characters "--paragraphs" == 40 * (#words + 1))
end

local function read(name)
  local f = assert(io.open(tmp .. "/" .. name, "rb"))
  local bytes = f:read "a"
  f:close()
  return bytes
end

local function exists(name)
  local f = io.open(tmp .. "/" .. name, "rb")
  if f then f:close() end
  return f ~= nil
end

do -- a fresh run refuses the checkpoint that it finds, or keeps it, and says so
  local out = ("--out '%s/a' '%s'"):format(tmp, text)
  local before = read "a/MANIFEST.json"
  local _, err = run("--layers 1 --width 8 --heads 1 --block 8 --batch 1 --steps 1 --sample 0 " .. out, 1)
  assert(err:find("a holds a checkpoint of another run; to continue it add --resume", 1, true), err)
  assert(read "a/MANIFEST.json" == before and not exists "a.bak")
  out = "--on-existing beside " .. out
  local said = run("--layers 1 --width 8 --heads 1 --block 8 --batch 1 --steps 1 --sample 0 " .. out, 0)
  assert(said:find("a exists: it will be kept as ", 1, true), said)
  assert(said:find "1 layer x 8, 1 head," and said:find "after 1 step,", said)
  assert(read "a.bak/MANIFEST.json" == before and read "a/MANIFEST.json" ~= before)
  assert(os.execute(("rm -r '%s/a'; mv '%s/a.bak' '%s/a'"):format(tmp, tmp, tmp)))
end

do -- --recompute changes no bit, with dropout
  run(small .. ("--recompute --out '%s/lean' '%s'"):format(tmp, text), 0)
  same_checkpoint("a", "lean")
end

do -- several ranks: the same losses within rounding
  local shared = "--layers 1 --width 16 --heads 2 --block 16 --batch 8 --dropout 0.1 --steps 60 --sample 20 "
  local function train(name, ranks, more)
    os.execute(("rm -rf '%s/%s'"):format(tmp, name))
    return run(shared .. ("%s --out '%s/%s' '%s'"):format(more or "", tmp, name, text), 0, 1, ranks)
  end
  local function losses(name)
    return select(2, open(name)).history.train.y
  end
  local whole = train("one")
  for _, n in ipairs { 2, 4 } do
    local out = train("some", n)
    assert(out:find(("1 thread on each of %d ranks"):format(n), 1, true), out)
    for i, v in ipairs(losses "some") do
      local want = losses "one"[i]
      assert(math.abs(v - want) <= 1e-5 * want, ("%d ranks: loss %d is %.9g, not %.9g"):format(n, i, v, want))
    end
    assert(out:match "validation: [%d.]+" == whole:match "validation: [%d.]+", out)
  end
  -- the same bits, when all cut the batch into the same pieces; also where a run goes on with other ranks
  local pieces = "--deterministic world --micro 2"
  train("one", 1, pieces)
  for _, n in ipairs { 2, 4 } do
    train("some", n, pieces)
    same_checkpoint("one", "some")
  end
  train("some", 2, pieces .. " --stop 23")
  run(("--resume --stop 41 --out '%s/some' '%s'"):format(tmp, text), 0, 1, 4)
  run(("--resume --sample 20 --out '%s/some' '%s'"):format(tmp, text), 0, 1, 1)
  same_checkpoint("one", "some")
  local _, err = run(shared .. "--batch 9 '" .. text .. "'", 2, 1, 2)
  assert(err:find "%-%-batch 9 cannot be cut into equal parts of 1 window on 2 ranks", err)
  _, err = run(shared .. ("--deterministic world --micro 1 --batch 12 '%s'"):format(text), 1, 1, 2)
  assert(err:find "takes 1, 2, 4, 8, ... micro%-batches on each of 2 ranks, got 6", err)
end

do -- a run that diverges says where, and what was there stays
  local before = read "a/MANIFEST.json"
  local out = ("--on-existing beside --out '%s/a' '%s'"):format(tmp, text)
  local _, err = run(small .. "--lr 1e30 " .. out, 1)
  assert(err:find "^train_gpt.lua: loss is NaN at step %d+; nothing was saved; a lower %-%-lr may help\n$",
    err)
  assert(read "a/MANIFEST.json" == before and not exists "a.bak")
  os.execute(("rm -rf '%s/c'"):format(tmp))
  run(small .. ("--lr 3e4 --stop 1 --out '%s/c' '%s'"):format(tmp, text), 0)
  _, err = run(("--resume --steps 60 --out '%s/c' '%s'"):format(tmp, text), 1)
  assert(err:find "loss is %a+ at step %d+; the last good checkpoint is .*c, of step 1;", err)
end

do -- what cannot end well is refused before the training
  local function refuses(args, status, pattern)
    local started = accel.clock()
    local out, err = run(args .. (" '%s'"):format(text), status)
    assert(err:find(pattern) and not err:find "traceback" and out == "", err)
    assert(accel.clock() - started < 100)
  end
  refuses("--temperature -1", 2, "'%-%-temperature' must not be negative, got %-1")
  refuses("--lr -1", 2, "'%-%-lr' must be positive, got %-1")
  refuses("--dropout 2", 2, "'%-%-dropout' must lie in")
  refuses("--steps 0", 2, "'%-%-steps' must be positive, got 0")
  refuses("--steps -5", 2, "'%-%-steps' must be positive, got %-5")
  refuses("--steps 3 --seconds 3", 2, "%-%-steps or %-%-seconds, not both")
  refuses("--sample -1", 2, "'%-%-sample' must not be negative")
  refuses(("--out '%s'"):format(tmp), 1, "^train_gpt.lua: cannot write [^\n]*: it is there, and no checkpoint\n$")
  refuses(("--out '%s/none/x'"):format(tmp), 1, "^train_gpt.lua: cannot write [^\n]*/none/x: No such file")
  refuses(("--svg '%s'"):format(tmp), 1, "cannot write [^\n]*: Is a directory\n$")
  refuses(("--svg '%s/none/x.svg'"):format(tmp), 1, "cannot write [^\n]*/none/x.svg: No such file")
  refuses(("--svg '%s/new.svg' --resume --out '%s/none.st'"):format(tmp, tmp), 3, "cannot resume: .*none.st")
  assert(not exists "new.svg" and not exists "none.st.probe")
end

for _, ranks in ipairs { "", "--num_processes 2" } do -- a signal ends between two steps: saved, said, and resumable
  local script = tmp .. "/signal.sh"
  local f = assert(io.open(script, "wb"))
  f:write(([[
cd '%s'
rm -rf out.txt d
'%s/bin/accel-run' %s '%s/examples/train_gpt.lua' %s --seconds 60 --out d sums.txt \
  >out.txt 2>err.txt &
p=$!
n=0
until grep -q trigram out.txt || [ $n -ge 2000 ]; do sleep 0.1; n=$((n + 1)); done
sleep 1
kill -INT $p
wait $p
]]):format(tmp, build, ranks, src, (small:gsub("%-%-steps %d+", ""))))
  f:close()
  local _, how, code = os.execute(("sh '%s'"):format(script))
  assert(how == "exit" and code == 130, code .. read "err.txt")
  assert(read("err.txt"):find "train_gpt.lua: saving; Ctrl%-C again stops at once\n$", read "err.txt")
  assert(read("out.txt"):find "stopped at step %d+; saved in d, %-%-resume continues\n$")
  open "d"
end

do -- the quick start explains itself without installing or building anything
  local pipe = assert(io.popen(("sh '%s/examples/quickstart.sh' --help"):format(src)))
  local said = pipe:read "a"
  assert(pipe:close() and said:find "quickstart.sh %[arguments" and said:find "%-%-help names", said)
  assert(not said:find("==", 1, true), said)
end

do -- --model writes a folder that accel-run generate and quantize take; a sample longer than the context warns of nothing
  local out, err = run(small:gsub("sample 20", "sample 50") .. ("--out '%s/m' --model '%s/model' '%s'"):format(tmp, tmp, text), 0)
  assert(out:find("model: " .. tmp .. "/model\n", 1, true) and not err:find "warning", out .. err)
  assert(#out:match "\nmodel: [^\n]*\n\n(.*)\n$" == 50, out)
  local function command(words)
    local pipe = assert(io.popen(("cd '%s' && '%s/bin/accel-run' %s 2>&1"):format(tmp, build, words)))
    local said = pipe:read "a"
    assert(pipe:close() and not said:find "warning", said)
    return said
  end
  local said = command 'generate model "1 plus" --seed 3'
  assert(#said > 1 and not said:find "[^%w. \n]", said)
  command(("'%s/examples/loss_picture.lua' m model picture.svg"):format(src)) -- the README's picture
  local svg = assert(io.open(tmp .. "/picture.svg")):read "a"
  assert(svg:find "validation loss" and svg:find "accel%-run generate" and #svg < 60000, svg)
  command "quantize model model8 --int8"
  assert(#command 'generate model8 "1 plus"' > 1)
  local tok = assert(accel.text.Tokenizer.from_pretrained(tmp .. "/model"))
  assert(tok:decode(tok:encode("12 plus 3\n").ids) == "12 plus 3\n")
  local _
  _, err = run(small .. ("--out '%s/m2' --model '%s/model/config.json' '%s'"):format(tmp, tmp, text), 1)
  assert(err:find "cannot write [^\n]*config.json", err)
end

do -- what does not fit is refused
  local _, err = run(("--resume --width 32 --out '%s/a' '%s'"):format(tmp, text), 3)
  assert(err:find "was made with %-%-width 16", err)
  _, err = run(("--resume --out '%s/none' '%s'"):format(tmp, text), 3)
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
