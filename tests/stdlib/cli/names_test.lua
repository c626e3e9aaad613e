-- Names from others in what a terminal gets: a name with an escape sequence, a newline, a control character of Latin-1, a mark that turns the
-- direction of writing, and a byte that is not UTF-8 goes through every command that shows names, and through messages of errors.
--   accel-run tests/stdlib/cli/names_test.lua
local accel = require "accel"
local lfs = require "lfs"

local EVIL <const> = "n\27[31m\27]0;t\7\nINJECTED\u{202e}\u{9b}2J"
local FILE <const> = EVIL .. "\xff"
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/names-"))
local program = accel.process.program()

local function quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
local function run(...)
  local words = { quoted(program) }
  for i, word in ipairs { ... } do words[i + 1] = quoted(word) end
  local pipe <close> = assert(io.popen(("cd %s && timeout 60 %s 2>&1 < /dev/null"):format(quoted(root), table.concat(words, " "))))
  return pipe:read "a"
end

local n = 0
local function clean(text, what)
  n = n + 1
  assert(not text:find "[\0-\8\11-\31\127]", ("%s writes a control character: %q"):format(what, text))
  assert(utf8.len(text), ("%s writes what is not UTF-8: %q"):format(what, text))
  for _, code in utf8.codes(text) do
    assert(not (code >= 0x80 and code < 0xA0 or code >= 0x202A and code <= 0x202E or code >= 0x2066 and code <= 0x2069),
      ("%s writes U+%04X: %q"):format(what, code, text))
  end
  assert(not ("\n" .. text):find "\nINJECTED", ("%s writes a line of the name's own: %q"):format(what, text))
  return text
end
local function shows(part, ...)
  local what = table.concat({ ... }, " ")
  local text = clean(run(...), what)
  assert(text:find(part, 1, true), ("%s does not show %s: %q"):format(what, part, text))
end

-- Runs.
for i = 1, 2 do
  local r = accel.track.Run { dir = root, name = EVIL .. i, project = EVIL, config = { [EVIL] = EVIL, lr = i } }
  r:log({ [EVIL] = 1 + i }, 1)
  r:log({ [EVIL] = 2 }, 2)
  r:alert(EVIL, EVIL)
  r:finish()
end
local SHOWN <const> = "n\\x1b[31m"
shows(SHOWN, "runs", "ls")
shows(SHOWN, "runs", "show", "last")
shows(SHOWN, "runs", "diff", "last", "last~1")
shows(SHOWN, "runs", "plot", "last")
shows(SHOWN, "runs", "tail", "last")
shows(SHOWN, "runs", "show", EVIL .. "3")
shows(SHOWN, "runs", "export", "last", "--format", "tensorboard", "--out", EVIL .. "out")
shows(SHOWN, "runs", "sync", EVIL)
shows(SHOWN, "runs", "rm", "last")

-- Checkpoints: folders, objects, files, states.
local a = accel.Accelerator { project_dir = root }
local model = a:prepare(accel.nn.Linear(2, 2))
assert(model)
local states = root .. "/states" .. FILE
for i = 1, 2 do a:save_state(states .. "/checkpoint_" .. i) end
shows("checkpoint_1", "ckpt", "ls", states)
shows("states" .. SHOWN, "ckpt", "show", states .. "/checkpoint_1")
shows("states" .. SHOWN, "ckpt", "verify", states .. "/checkpoint_1")
shows("states" .. SHOWN, "ckpt", "verify", states .. "/checkpoint_9")
shows("states" .. SHOWN, "ckpt", "prune", "--keep", "1", states)
shows(SHOWN, "ckpt", "ls", EVIL)
shows(SHOWN, "ckpt", "diff", EVIL, EVIL)
clean(run("ckpt", "diff", states .. "/checkpoint_2", states .. "/checkpoint_2"), "ckpt diff")

-- Tensors.
assert(accel.save(root .. "/t.safetensors", { [EVIL] = accel.ones(2) }, { [EVIL] = EVIL }))
shows("n\\27[31m", "-e", "print(require('accel').inspect((require('accel').load 't.safetensors')))")
shows("n\\27[31m", "-e", "local e = " .. ("%q"):format(EVIL) .. " print(require('accel').inspect { [e] = e })")

-- Every command with such a name in the place of a file, and a script that raises with it.
for _, words in ipairs {
  { FILE }, { "--no-such" .. FILE }, { "runs", FILE }, { "ckpt", FILE }, { "quantize", FILE, FILE }, { "merge-weights", FILE, FILE },
  { "to-fsdp2", "--config_file", FILE }, { "gguf", "show", FILE }, { "estimate-memory", FILE }, { "generate", FILE, "x" },
  { "config", "validate", FILE }, { "launch", "--config_file", FILE, "x.lua" }, { "launch", FILE }, { "launch", "--policy", FILE, "x.lua" },
  { "plan", "--config_file", FILE, "x" }, { "preprocess", "--input", FILE, "--output-prefix", "o", "--tokenizer-model", FILE },
  { "attach", FILE }, { "top", FILE }, { "stacks", FILE }, { "help", FILE }, { "-e", "error(" .. ("%q"):format(FILE) .. ", 0)" },
  { "-e", "require('accel').load(" .. ("%q"):format(FILE) .. "):x()" }, { "-e", "assert(require('accel').load(" .. ("%q"):format(FILE) .. "))" },
  { "-e", "require('accel').nn.Linear(1, 1)[" .. ("%q"):format(FILE) .. "]()" },
} do
  local text = run(table.unpack(words))
  -- an error that a script raises keeps its lines
  if words[1] == "-e" then text = text:gsub("\nINJECTED", " INJECTED") end
  clean(text, table.concat(words, " "))
end

-- A job whose script is called so.
local dir = root .. "/" .. EVIL
assert(lfs.mkdir(dir))
assert(accel.write_file(dir .. "/" .. EVIL .. ".lua", "local t = require('accel').clock() + 30 while require('accel').clock() < t do end"))
local id = assert(io.popen(("cd %s && %s %s > /dev/null 2>&1 & echo $!"):format(quoted(dir), quoted(program), quoted(EVIL .. ".lua")))):read "n"
local seen = false
for _ = 1, 100 do
  seen = run("ps"):find("x1b", 1, true) ~= nil
  if seen then break end
  require "accel.track.core".pause(0.1)
end
for _, command in ipairs { "ps", "top", "stacks" } do
  local text = clean(run(command, command ~= "ps" and tostring(id) or nil), command)
  assert(not seen or text:find("x1b", 1, true) or command == "top", command .. " shows no script: " .. text)
end
os.execute(("kill %d"):format(id))
os.execute("rm -rf " .. quoted(root))
assert(seen, "ps never showed the job")
print(("%d outputs"):format(n))
