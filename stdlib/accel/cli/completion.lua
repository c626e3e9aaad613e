--- accel-run completion bash|zsh|fish: a script for the shell. It completes commands, their actions and options, the flags of launch, and
--- the words that an option takes. All of them come from the descriptions that --help prints: no list of them is kept here.
---   eval "$(accel-run completion bash)"
local accel = require "accel"
local command = require "accel.cli.command"
local schema = require "accel.config.schema"

local NAME <const> = "accel-run completion"

local SHELLS <const> = { "bash", "zsh", "fish" }

local M = {}

local function spelt(name) return "--" .. name:gsub("_", "-") end

--- Options of launch, which are also keys of a configuration.
local function of_launch()
  local out = {}
  for name, row in next, schema.by_flag do
    local words = {}
    for i, word in ipairs(row.type ~= "switch" and row.allowed or {}) do words[i] = tostring(word) end
    out[#out + 1] = { flag = spelt(name), help = row.help, words = words }
  end
  return out
end

--- Options as a program of accel.cli declares them.
local function of_program(declared)
  local out = {}
  for i, spec in ipairs(declared) do
    out[i] = { flag = spelt(spec[1]), help = spec[5], words = type(spec[2]) == "table" and spec[2] or {} }
  end
  return out
end

local function module_of(name)
  local path = "accel.cli." .. name:gsub("-", "_")
  return package.searchpath(path, package.path) and require(path)
end

--- What help takes: modules and the names in them, guides, commands. Modules name their entries without loading them.
local function topics(commands)
  local out = { "guide", "examples", "embed" }
  local function of_module(prefix, module)
    local meta = getmetatable(module)
    local names = {}
    for name in next, meta and meta.__names or {} do names[name] = true end
    for name, value in next, module do
      if type(name) == "string" and type(value) == "function" then names[name] = true end
    end
    for name in accel.pairs(names) do
      if not name:find "^_" then out[#out + 1] = prefix .. name end
    end
  end
  for name in accel.pairs(getmetatable(accel).__names) do
    out[#out + 1] = name
    local module = package.searchpath("accel." .. name, package.path) and accel[name]
    if type(module) == "table" then of_module(name .. ".", module) end
  end
  return table.move(commands, 1, #commands, #out + 1, out)
end

--- Possible words after accel-run: { at = "" for its own options and those of launch, "plan", "ckpt ls", flags = }, in order, and the
--- commands.
---@return { at: string, flags: { flag: string, help: string, words: string[] }[] }[]
---@return string[]
function M.all()
  local usage, places, names = accel.host_chunk("help/topics").usage(), {}, {}
  local own = of_launch()
  for name, lines in accel.pairs(usage.options) do
    if #name > 2 and not schema.by_flag[name:gsub("-", "_")] then
      own[#own + 1] = { flag = spelt(name), help = lines[1]:match "%s%s+(%S[^-].*)$" or "", words = {} }
    end
  end
  local dry_run = of_program(command.describe(require "accel.cli.dry_run", "--dry-run")[1].options)
  for _, f in ipairs(dry_run) do
    local known = false
    for _, other in ipairs(own) do known = known or other.flag == f.flag end
    if not known then own[#own + 1] = f end
  end
  places[1] = { at = "", flags = own }
  for name in accel.pairs(usage.commands) do
    names[#names + 1] = name
    local program = name ~= "launch" and name ~= "completion" and module_of(name)
    for _, found in ipairs(program and command.describe(program, name) or {}) do
      places[#places + 1] = { at = table.concat(found.words, " "), flags = of_program(found.options) }
    end
  end
  places[#places + 1] = { at = "launch", flags = of_launch() }
  places[#places + 1] = { at = "completion", flags = {}, words = SHELLS }
  places[#places + 1] = { at = "help", flags = {}, words = topics(names) }
  for _, place in ipairs(places) do
    table.sort(place.flags, function(a, b) return a.flag < b.flag end)
    for _, f in ipairs(place.flags) do f.help = f.help:gsub("['%[%]:]", "") end
  end
  return places, names
end

-- Both spellings of an option, --num-processes and --num_processes.
local function spellings(flag)
  local other = "--" .. flag:sub(3):gsub("-", "_")
  return other ~= flag and { flag, other } or { flag }
end

local function flags_of(place)
  local list = {}
  for i, f in ipairs(place.flags) do list[i] = f.flag end
  return table.concat(list, " ")
end

--- Actions by command: { ckpt = { "ls", ... } }.
local function actions_of(places)
  local out = {}
  for _, place in ipairs(places) do
    if place.words then out[place.at] = place.words end
    local name, action = place.at:match "^(%S+) (%S+)$"
    if name then
      out[name] = out[name] or {}
      table.insert(out[name], action)
    end
  end
  return out
end

local shells = {}

function shells.bash(places, names)
  local values, flags, actions = {}, {}, {}
  for _, place in ipairs(places) do
    local name, action = place.at:match "^(%S*) ?(%S*)$"
    for _, f in ipairs(place.flags) do
      if #f.words > 0 then
        values[#values + 1] = ("    %s:%s:%s) words='%s';;"):format(name == "" and "*" or name, action == "" and "*" or action, f.flag,
          table.concat(f.words, " "))
      end
    end
    flags[#flags + 1] = ("    %s:%s) flags='%s';;"):format(name == "" and "*" or name, action == "" and "*" or action, flags_of(place))
  end
  for name, list in accel.pairs(actions_of(places)) do
    actions[#actions + 1] = ("    %s) words='%s';;"):format(name, table.concat(list, " "))
  end
  local function reversed(list) -- the catch-all comes last
    table.insert(list, table.remove(list, 1))
    return table.concat(list, "\n")
  end
  local own = {}
  for i = #values, 1, -1 do
    if values[i]:find "^    %*:%*:" then table.insert(own, 1, table.remove(values, i)) end
  end
  table.move(own, 1, #own, #values + 1, values)
  return table.concat({ "_accel_run() {",
    "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} name=${COMP_WORDS[1]} action=${COMP_WORDS[2]} words= flags=",
    "  [[ $prev == --* ]] && prev=${prev//_/-}",
    '  case "$name:$action:$prev" in', table.concat(values, "\n"), "  esac",
    '  case "$name:$action" in', reversed(flags), "  esac",
    '  if [[ -z $words && $COMP_CWORD == 2 && $cur != -* ]]; then case "$name" in', table.concat(actions, "\n"), "  esac; fi",
    '  if [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$cur"))',
    '  elif [[ $cur == --*_* ]]; then COMPREPLY=($(compgen -W "$(sed "s/\\([a-z]\\)-/\\1_/g" <<<"$flags")" -- "$cur"))',
    '  elif [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$cur"))',
    ("  elif [[ $COMP_CWORD == 1 ]]; then COMPREPLY=($(compgen -W '%s' -- \"$cur\") $(compgen -f -- \"$cur\"))"):format(table.concat(names, " ")),
    '  else COMPREPLY=($(compgen -f -- "$cur")); fi', "}", "complete -F _accel_run accel-run", "" }, "\n")
end

function shells.zsh(places, names)
  local lines = { "#compdef accel-run", "_accel_run() {", "  local at=\"$words[2] $words[3]\"", "  case \"$at\" in" }
  local function arguments(place)
    local out = { "      _arguments" }
    for _, f in ipairs(place.flags) do
      local value = #f.words > 0 and (":value:(%s)"):format(table.concat(f.words, " ")) or ""
      for _, flag in ipairs(spellings(f.flag)) do out[#out + 1] = ("'%s[%s]%s'"):format(flag, f.help, value) end
    end
    if place.at == "" then out[#out + 1] = ("'1:command or script:(%s)'"):format(table.concat(names, " ")) end
    out[#out + 1] = "'*:file:_files'"
    return table.concat(out, " \\\n        ")
  end
  for i = 2, #places do
    local place = places[i]
    if not place.words then
      lines[#lines + 1] = ("    '%s'%s)\n%s ;;"):format(place.at, place.at:find " " and "" or "' '*", arguments(place))
    end
  end
  for name, list in accel.pairs(actions_of(places)) do
    lines[#lines + 1] = ("    '%s '*) _arguments '2:action:(%s)' ;;"):format(name, table.concat(list, " "))
  end
  -- a folder of completions reads the file as the function itself; eval makes the function known
  lines[#lines + 1] = ("    *)\n%s ;;\n  esac\n}\n"
    .. "if [[ $funcstack[1] == _accel-run ]]; then _accel_run; else compdef _accel_run accel-run; fi\n"):format(arguments(places[1]))
  return table.concat(lines, "\n")
end

function shells.fish(places, names)
  local lines = { ("complete -c accel-run -n '__fish_is_first_arg' -a '%s'"):format(table.concat(names, " ")) }
  for name, list in accel.pairs(actions_of(places)) do
    lines[#lines + 1] = ("complete -c accel-run -n '__fish_seen_subcommand_from %s' -a '%s'"):format(name, table.concat(list, " "))
  end
  for _, place in ipairs(places) do
    local last = place.at:match "%S+$"
    local where = last and (" -n '__fish_seen_subcommand_from %s'"):format(last) or ""
    for _, f in ipairs(place.flags) do
      local value = #f.words > 0 and (" -x -a '%s'"):format(table.concat(f.words, " ")) or ""
      for _, flag in ipairs(spellings(f.flag)) do
        lines[#lines + 1] = ("complete -c accel-run%s -l %s -d '%s'%s"):format(where, flag:sub(3), f.help, value)
      end
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

--- The program.
---@param ... string
function M.run(...)
  local _, words = command.parse({ name = NAME, usage = "bash|zsh|fish",
    summary = "Prints a script that completes commands and options in a shell." }, 1, 1, ...)
  local make = shells[words[1]]
  if not make then return command.refuse(NAME, "'%s' is not one of %s", words[1], table.concat(SHELLS, ", ")) end
  io.stdout:write(make(M.all()))
  return true
end

return setmetatable(M, { __call = function(_, ...) return M.run(...) end })
