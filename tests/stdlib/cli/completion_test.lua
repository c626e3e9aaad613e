--- Completion of shells: commands, actions, options in both spellings, their values, shells and topics of help, as bash answers; and that
--- zsh and fish have the same.
local accel = require "accel"
local tmp = os.getenv "ACCEL_TEST_TMP"

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  pipe:close()
  return text
end

local program = accel.process.program()
local function script(shell) return output(("'%s' completion %s"):format(program, shell)) end

local bash = script "bash"
assert(#bash > 1000, "no script for bash")
local file <close> = assert(io.open(tmp .. "/comp.bash", "w"))
file:write(bash, [[

c() { COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); _accel_run; echo "${COMPREPLY[*]}"; }
]])
file:close()

local function completes(words, want)
  local got = output(("cd '%s' && bash -c '. ./comp.bash; c accel-run %s'"):format(tmp, words))
  for word in want:gmatch "%S+" do
    assert((" " .. got:gsub("\n", " ")):find(" " .. word .. " ", 1, true), ("accel-run %s: no %s in %s"):format(words, word, got:sub(1, 200)))
  end
end

completes("st", "stacks")
completes("--num", "--num-processes --num-machines")
completes("--num_p", "--num_processes")
completes("launch --num_p", "--num_processes")
completes("--mixed-precision f", "fp16 fp8")
completes("launch --mixed_precision f", "fp16 fp8")
completes('ckpt ""', "ls show verify diff convert prune")
completes('completion ""', "bash zsh fish")
completes("help nn.Lin", "nn.Linear")
completes("help data.Data", "data.DataLoader")

local zsh, fish = script "zsh", script "fish"
for _, text in ipairs { "--num-processes", "--num_processes", "nn.Linear", "bash zsh fish", "prune" } do
  assert(zsh:find(text, 1, true), "zsh: no " .. text)
  assert(fish:find((text:gsub("^%-%-", "-l ")), 1, true), "fish: no " .. text)
end
