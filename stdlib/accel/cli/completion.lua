--- accel-run completion bash|zsh|fish: a script for the shell, made from the schema of configurations. It completes commands, the flags of
--- launch and their values.
---   eval "$(accel-run completion bash)"
local command = require "accel.cli.command"
local schema = require "accel.config.schema"

local NAME <const> = "accel-run completion"

local COMMANDS <const> = { "repl", "help", "bench", "config", "launch", "test", "doctor", "env", "ckpt", "merge-weights", "to-fsdp2" }

local function flags()
  local out = {}
  for name, row in next, schema.by_flag do
    local words = {}
    for i, word in ipairs(row.type ~= "switch" and row.allowed or {}) do words[i] = tostring(word) end
    out[#out + 1] = { flag = "--" .. name:gsub("_", "-"), help = row.help:gsub("['%[%]:]", ""), words = words }
  end
  table.sort(out, function(a, b) return a.flag < b.flag end)
  return out
end

local shells = {}

function shells.bash()
  local names, cases = {}, {}
  for _, f in ipairs(flags()) do
    names[#names + 1] = f.flag
    if #f.words > 0 then
      cases[#cases + 1] = ("    %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return;;"):format(f.flag, table.concat(f.words, " "))
    end
  end
  return table.concat({
    "_accel_run() {", "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}", "  case $prev in", table.concat(cases, "\n"),
    "  esac", ("  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '%s' -- \"$cur\"))"):format(table.concat(names, " ")),
    ("  elif [[ $COMP_CWORD == 1 ]]; then COMPREPLY=($(compgen -W '%s' -- \"$cur\") $(compgen -f -- \"$cur\"))"):format(
      table.concat(COMMANDS, " ")),
    "  else COMPREPLY=($(compgen -f -- \"$cur\")); fi", "}", "complete -F _accel_run accel-run", "" }, "\n")
end

function shells.zsh()
  local lines = { "#compdef accel-run", "_accel_run() {", "  _arguments \\" }
  for _, f in ipairs(flags()) do
    local value = #f.words > 0 and (":value:(%s)"):format(table.concat(f.words, " ")) or ""
    lines[#lines + 1] = ("    '%s[%s]%s' \\"):format(f.flag, f.help, value)
  end
  lines[#lines + 1] = ("    '1:command or script:(%s)' '*:file:_files'"):format(table.concat(COMMANDS, " "))
  lines[#lines + 1] = "}\ncompdef _accel_run accel-run\n"
  return table.concat(lines, "\n")
end

function shells.fish()
  local lines = { ("complete -c accel-run -n '__fish_is_first_arg' -a '%s'"):format(table.concat(COMMANDS, " ")) }
  for _, f in ipairs(flags()) do
    local value = #f.words > 0 and (" -x -a '%s'"):format(table.concat(f.words, " ")) or ""
    lines[#lines + 1] = ("complete -c accel-run -l %s -d '%s'%s"):format(f.flag:sub(3), f.help, value)
  end
  return table.concat(lines, "\n") .. "\n"
end

return function(...)
  local _, words = command.parse({ name = NAME, usage = "bash|zsh|fish", summary = "Prints a script that completes flags in a shell." },
    1, 1, ...)
  local make = shells[words[1]]
  if not make then return command.refuse(NAME, "'%s' is none of bash, zsh, fish", words[1]) end
  io.stdout:write(make())
  return true
end
