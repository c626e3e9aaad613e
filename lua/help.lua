-- accel-run help [TOPIC], and :doc at a prompt: the matching part of the reference pages (help/pages.lua): an op, a
-- function, a class or its method, a module, an option or parameter of accel-run, an example (help/topics.lua), the guides
-- and a search for words (help/guides.lua).
local accel = ...
local guides = accel.host_chunk "help/guides"
local layout = accel.host_chunk "help/layout"
local pages = accel.host_chunk "help/pages"
local search = accel.host_chunk "help/search"
local topics = accel.host_chunk "help/topics"

local M = {}

local MOST_OTHERS <const> = 8 -- entries of the same name, and places beside an answer
local MOST_FOUND <const> = 12

local function append(lines, more) return table.move(more, 1, #more, #lines + 1, lines) end

local function titled(name) return { name, ("-"):rep(#name) } end

local function first_sentence(lines)
  local words = {}
  for _, line in ipairs(lines) do
    if line:find "^```" or line:find "^%- " or line == "" and #words > 0 then break end
    if line ~= "" then words[#words + 1] = line end
  end
  local all = table.concat(words, " ")
  return all:match "^(.-[^%s.]%.)%s" or all -- " .. " is a range, no end
end

-- Names of modules and entries below a name: nn.functional.glu.
local function below(p, name)
  local list = {}
  for _, full in ipairs(p.modules[name:match "^[^.]+"] and p.modules[name:match "^[^.]+"].names or {}) do
    if full:sub(1, #name + 1) == name .. "." then list[#list + 1] = full end
  end
  return list
end

local function module_lines(p, name, width)
  local lines = layout.plain(p.modules[name].about, width)
  append(lines, { "" })
  return append(lines, layout.columns(p.modules[name].names, width))
end

-- A class lists its methods with their first sentences. The full text appears under the method's own name.
local function entry_lines(p, entry, topic, others, width)
  local lines, page = titled(entry.name), {}
  if entry.call then append(page, { "```lua", entry.call, "```", "" }) end
  append(page, entry.lines)
  if #entry.methods > 0 then append(page, { "", "Methods:", "" }) end
  for _, m in ipairs(entry.methods) do page[#page + 1] = ("- %s: %s"):format(m.call, first_sentence(m.lines)) end
  if entry.inheritance then append(append(page, { "" }), entry.inheritance) end
  local names = below(p, entry.name)
  append(lines, layout.plain(page, width))
  if #names > 0 then append(append(lines, { "" }), layout.columns(names, width)) end
  local more = {}
  for i, other in ipairs(others) do more[i] = other.name end
  if topic:find "^[%a_][%w_]*$" then append(more, pages.methods(p, topic)) end
  for i = #more, 1, -1 do
    if i > MOST_OTHERS or more[i] == entry.name then table.remove(more, i) end
  end
  if #more > 0 then
    append(append(lines, { "" }), layout.wrap("See also: " .. table.concat(more, ", "), width, "  "))
  end
  return lines
end

-- The message for missing reference pages, and on its own line the command that writes them.
local function missing_lines(what, width)
  local why, command = pages.missing()
  local lines = layout.wrap(("%s: %s%s"):format(what, why, command and ". This writes them:" or "."), width)
  table.insert(lines, 1, "")
  return command and append(lines, { "", "    " .. command }) or lines
end

local function overview(width)
  local lines = {
    "accel-run help TOPIC, or :help TOPIC at the prompt of accel-run repl.",
    "TOPIC can be:",
    "",
    "  an op, function, class or method         matmul  nn.Linear  Module:train",
    "  a name of PyTorch or Transformers        torch.nn.Linear  F.relu  Tensor.numpy",
    "  a module                                 nn  optim.lr_scheduler  ops  core ...",
    "  a command, an option or a parameter      env  --num-processes  ACCEL_TIMEOUT",
    "  guide, or guide NAME                     the list of guides, or one of them",
    "  examples, or a number                    the list of examples, or one of them",
    "  embed                                    the C API",
    "  any other words                          early stopping: searches all of these",
  }
  local p = pages.load()
  if p then
    append(lines, { "", "Modules:" })
    append(lines, layout.columns(p.order, width))
  else
    append(lines, missing_lines("Here are the guides and examples alone", width))
  end
  return lines
end

-- The kind of a word that only names methods.
local function methods_lines(p, topic, width)
  local list = pages.methods(p, topic)
  if #list == 0 then return nil end
  if #list == 1 then
    local entry, others = pages.find(p, list[1])
    return entry_lines(p, entry, list[1], others, width)
  end
  local lines = layout.wrap(("%s is a method of several classes:"):format(topic), width)
  append(append(lines, { "" }), layout.columns(list, width))
  return append(lines, { "", "help CLASS:" .. topic .. " shows one." })
end

-- The replacement for a name of Accelerate or PyTorch that accel lacks, for a method (Tensor.numpy) or for the module that
-- contains a Python name (torch.cuda). nil: none of these.
local function instead_of(topic)
  local explain = require "accel.util.absent".explain
  local name = pages.of_python(topic) or topic
  local owner, member = name:match "^(%a+)[.:]([%w_]+)$"
  local class = owner and (#owner == 1 and "Tensor" or owner:sub(1, 1):upper() .. owner:sub(2))
  return explain(topic) or class and explain(class .. ":" .. member) or name ~= topic and (member and explain(member) or owner and explain(owner))
    or nil
end

-- The same of a command, "accel-run launch".
local function instead_of_command(word)
  local command = "accel-run " .. word
  local text = require "accel.util.absent".explain(command)
  return text and text:find(command, 1, true) and text or nil
end

-- An op that the program of this host registered: no page has it, and its signature is all that is known.
local function registered(topic)
  local name = topic:match "^accel%.([%w_]+)$" or topic:match "^Tensor[.:]([%w_]+)$" or topic
  for _, op in ipairs(accel.ops()) do
    if op.name == name and not op.hidden then
      return append(titled(name), { "", op.signature, "", ("An op, registered by the program. %s"):format(
        op.differentiable and "It has a gradient." or "It has no gradient.") })
    end
  end
end

-- The exact match of a name: a guide, a module, an entry of the pages or an entry of topics.lua.
local function named(p, topic, width)
  if p then
    local module = topic:gsub("^accel%.", "")
    if p.modules[module] then return module_lines(p, module, width) end
    local entry, others = pages.find(p, topic)
    if entry then return entry_lines(p, entry, topic, others, width) end
  end
  return topics.lua(topic, width) or topics.parameter(topic, width) or topics.example(topic, width)
    or p and topic:find "^[%a_][%w_]*$" and methods_lines(p, topic, width) or topics.option(topic) or registered(topic)
end

-- Pages with words that nothing is named after; nil and what the topic may have meant.
local function unknown(p, topic, width)
  local near = select(2, topics.parameter(topic, width)) or p and pages.nearest(p, topic)
  local rows, all, query = search.find(p, topic)
  local places = not (near and topic:find "%w[.:]%w") and search.lines(rows, width, MOST_FOUND)
  if places then
    local what = query ~= topic and ("Nothing is named '%s'. Pages with '%s':"):format(topic, query)
      or not all and ("No page has all words of '%s'. Some of them occur in:"):format(topic)
      or near and not topic:find " " and ("Nothing is named '%s'; did you mean %s? The word occurs in:"):format(topic, near)
      or topic:find " " and ("Pages with '%s':"):format(topic) or ("Nothing is named '%s'. The word occurs in:"):format(topic)
    local lines = append(append(layout.wrap(what, width), { "" }), places)
    return p and lines or append(lines, missing_lines("More is not here", width))
  end
  local why = ("nothing is known of '%s'%s"):format(accel.console.visible(topic), near and ("; did you mean %s?"):format(near)
    or p and "; accel-run help lists all topics" or "")
  if p then return nil, why end
  local reason, command = pages.missing()
  return nil, ("%s: %s%s"):format(why, reason, command and "; " .. command .. " writes them" or "")
end

-- Names of the library in a text that have a page of their own, as lines; then places for the words.
local function see_also(p, topic, text, words, width)
  local lines, seen = {}, {}
  for name in p and text:gmatch "[%a_][%w_]*[%w_.]*[%w_]" or function() end do
    local entry = name:find "%." and pages.find(p, name)
    if entry and not seen[entry.name] then
      seen[entry.name], lines[#lines + 1] = true, "  help " .. entry.name
    end
  end
  for _, line in ipairs(search.lines(search.find(p, words), width, MOST_OTHERS) or {}) do
    local other = line:match "^  help (%S+)"
    if other ~= topic and not seen[other] then lines[#lines + 1] = line end
  end
  return lines
end

--- Lines about a topic. nil and the reason if there are none.
---@return string[]?
---@return string?
function M.lines(topic, width)
  width = width or 80
  if topic == nil or topic == "" then return overview(width) end
  if topic == "examples" or topic == "example" then return topics.examples(width) end
  if topic:find "^%-" then
    local lines, near = topics.option(topic)
    if lines then return lines end
    return nil, ("no option %s; %s"):format(topic, near and ("did you mean --%s?"):format(near)
      or "accel-run --help lists them")
  end
  if topic:find "^:" then
    for _, row in ipairs(accel.host_chunk("repl/commands").help) do
      if (" " .. row[1] .. " "):find(topic .. "%W") then return { ("%s: %s"):format(row[1], row[2]) } end
    end
  end
  local p = pages.load()
  local guide = topic:match "^guides?%f[^%l]%s*(.*)$"
  if guide then
    if guide == "" then return guides.list(p, width) end
    return guides.show(p, guide, width)
  end
  local ours, last = pages.of_python(topic)
  local lines = named(p, topic, width) or ours and named(p, ours, width)
  if not lines and last and last ~= "" and not instead_of(topic) then lines = named(p, last, width) end
  local about, words = topics.command(topic, width), topic
  if about then
    words = "accel-run " .. topic
  else
    local instead = instead_of_command(topic) or not lines and instead_of(topic)
    about = instead and layout.wrap(instead, width)
  end
  if lines then return about and append(append(lines, { "" }), about) or lines end
  if about then
    local found = see_also(p, topic, table.concat(about, " "), words, width)
    return #found > 0 and append(append(about, { "", "See also:" }), found) or about
  end
  return unknown(p, ours or topic, width)
end

--- Keys of the option table of a function or class, from its page, for completion, and what the page has of each by key:
--- "number = 1e-3: learning rate".
---@return string[] keys
---@return table<string, string> texts
function M.option_keys(topic)
  local p, keys, texts = pages.load(), {}, {}
  local entry = p and pages.find(p, topic)
  for _, line in ipairs(entry and entry.lines or {}) do
    local key, text = line:match "^  %- `([%a_][%w_]*)%??`:?%s*(.*)$"
    if key then keys[#keys + 1], texts[key] = key, text end
  end
  return keys, texts
end

-- ---- writing ----

local function rows()
  local _, n = accel.term_width()
  return n and n > 0 and n or 24
end

local function write(lines)
  local text = table.concat(lines, "\n") .. "\n"
  io.stdout:flush()
  if accel.isatty(1) and accel.isatty(0) and #lines >= rows() then
    local pager = os.getenv "PAGER"
    if pager == nil or pager == "" then pager = os.execute "command -v less >/dev/null 2>&1" and "less -FRX" or "" end
    local pipe = pager ~= "" and pager ~= "cat" and io.popen(pager, "w")
    if pipe then
      pipe:write(text)
      pipe:close()
      return
    end
  end
  io.stdout:write(text)
  io.stdout:flush()
end

--- Shows a topic at a prompt. false: there is none, which it prints.
function M.show(topic, width)
  local lines, why = M.lines(topic, width)
  write(lines or { why })
  return lines ~= nil
end

--- Prints the replacement of a command of Accelerate's. false: it is not one.
function M.instead_of_command(word)
  local text = instead_of_command(word)
  if text then io.stderr:write("accel-run: ", accel.console.visible(text, true), "\n") end
  return text ~= nil
end

--- accel-run help [TOPIC], which may be several words
function M.run(...)
  local topic = table.concat({ ... }, " ")
  local lines, why = M.lines(topic, math.max(40, math.min(80, require "accel.util.terminal".width())))
  if lines then write(lines) else io.stderr:write("accel-run: ", accel.console.visible(why, true), "\n") end
  return lines ~= nil
end

return M
