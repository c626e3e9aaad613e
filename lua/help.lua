-- accel-run help [TOPIC], and :doc at a prompt: the reference pages that the build writes (lua/gen/reference.lua),
-- cut to what is asked for: an op, a function, a class or its method, a module, an option or parameter of accel-
-- run, an example.
local accel = ...

local M = {}

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

-- Where the library lies, "share/lua/5.4"; nil: not found.
local function library()
  local init = package.searchpath("accel", package.path)
  return init and init:match "^(.*)/accel/init%.lua$"
end

-- The first of these folders beside the library that has the file: in a build, in an installation, in a source
-- tree.
local function folder(file, places)
  local base = library()
  for _, place in ipairs(base and places or {}) do
    local path = base .. "/" .. place
    if read(path .. "/" .. file) then return path end
  end
end

local function pages_folder()
  return folder("index.md", { "../../../reference", "../../doc/accel/reference", "../build/dev/reference",
    "../build/release/reference" })
end

local function examples_folder()
  return folder("01_tensors.lua", { "accel/../../examples", "../../doc/accel/examples" })
end

-- ---- pages ----

-- {modules = {name = {about = lines, names = {...}}}, entries = {name = {module =, lines =}}}
local cache
local function pages()
  if cache then return cache end
  local root = pages_folder()
  if not root then return nil end
  cache = { modules = {}, entries = {}, order = {} }
  for name in read(root .. "/index.md"):gmatch "%]%(([%w_]+)%.md%)" do
    local text = not cache.modules[name] and read(root .. "/" .. name .. ".md")
    if text then
      local module = { about = {}, names = {} }
      local into, entry = module.about, nil
      cache.modules[name] = module
      cache.order[#cache.order + 1] = name
      for line in text:gmatch "([^\n]*)\n" do
        local heading = line:match "^### (%S+)$"
        local field = line:match "^%- `x%.([%w_]+)`: "
        if heading then
          entry = { module = name, name = heading, lines = {} }
          into = entry.lines
          if not cache.entries[heading] then cache.entries[heading] = entry end
          module.names[#module.names + 1] = heading
        elseif line:match "^## " then
          into = entry and {} or module.about
        else
          into[#into + 1] = line
          if field and name == "core" then
            cache.entries["Tensor." .. field] = { module = name, name = "Tensor." .. field, lines = { line } }
          end
        end
      end
    end
  end
  return cache
end

-- Markdown as a terminal shows it: code set in, words broken at `width` columns.
local function plain(lines, width)
  local out, code, blank = {}, false, true
  local function put(line)
    if line == "" and blank then return end
    blank = line == ""
    out[#out + 1] = line
  end
  local function wrap(text, indent)
    local line = nil
    for word in text:gmatch "%S+" do
      if line and #line + 1 + #word > width then
        put(line)
        line = nil
      end
      line = line and line .. " " .. word or (out.started and indent or "") .. word
      out.started = true
    end
    if line then put(line) end
  end
  local held = {}
  local function flush()
    if #held == 0 then return end
    local text = table.concat(held, " ")
    held = {}
    out.started = false
    wrap(text, text:find "^%- " and "  " or "")
    out.started = nil
  end
  for _, line in ipairs(lines) do
    if line:find "^```" then
      flush()
      code = not code
    elseif code then
      put("    " .. line)
    else
      local text = line:gsub("%[([^%]]*)%]%([^)]*%)", "%1"):gsub("`", ""):gsub("^#+ ", "")
      if text == "" or text:find "^%- " or text:find "^%s" then flush() end
      if text == "" then put "" else held[#held + 1] = text end
    end
  end
  flush()
  while out[#out] == "" do out[#out] = nil end
  return out
end

local function entry_lines(entry, width)
  local lines = { entry.name, ("-"):rep(#entry.name) }
  return table.move(plain(entry.lines, width), 1, 10000, #lines + 1, lines)
end

local function columns(names, width)
  local lines, line = {}, " "
  for _, name in ipairs(names) do
    if #line + 1 + #name > width then
      lines[#lines + 1] = line
      line = " "
    end
    line = line .. " " .. name
  end
  if line ~= " " then lines[#lines + 1] = line end
  return lines
end

local function module_lines(name, width)
  local module = pages().modules[name]
  local lines = plain(module.about, width)
  lines[#lines + 1] = ""
  return table.move(columns(module.names, width), 1, 10000, #lines + 1, lines)
end

-- ---- what is no page ----

local function first_line(path)
  for line in (read(path) or ""):gmatch "([^\n]*)\n" do
    local text = line:match "^%-%-%-? ?(.*)$"
    if text and text ~= "" then return (text:gsub("%s%s+accel%-run.*$", ""):gsub(":$", "")) end
    if not text and not line:find "^#!" then return "" end
  end
  return ""
end

local function example_names(root)
  local names = {}
  local pipe <close> = io.popen(("ls '%s'"):format((root:gsub("'", "'\\''"))))
  for name in pipe:lines() do
    if name:find "%.lua$" then names[#names + 1] = name end
  end
  return names
end

local function examples(width)
  local root = examples_folder()
  if not root then return { "the examples are not installed" } end
  local lines, names, longest = { "Examples, in " .. root .. ":", "" }, example_names(root), 0
  for _, name in ipairs(names) do longest = math.max(longest, #name) end
  for _, name in ipairs(names) do
    local text, room = first_line(root .. "/" .. name), width - longest - 4
    if #text > room then text = text:sub(1, room - 3) .. "..." end
    lines[#lines + 1] = ("  %-" .. longest .. "s  %s"):format(name, text)
  end
  lines[#lines + 1] = ""
  lines[#lines + 1] = "help NAME shows how one begins."
  return lines
end

local function example(topic)
  local root = examples_folder()
  local file = topic:find "%.lua$" and topic or topic .. ".lua"
  local text = root and file:find "^[%w_.-]+$" and read(root .. "/" .. file)
  if not text then return nil end
  local lines = {}
  for line in text:gmatch "([^\n]*)\n" do
    if not line:find "^%-%-" then break end
    lines[#lines + 1] = line:match "^%-%-%-? ?(.*)$"
  end
  return lines
end

-- Rows of accel-run --help about an option.
local function option(topic)
  local program = accel.process.program()
  if not program then return nil end
  local pipe <close> = io.popen(("'%s' --help"):format((program:gsub("'", "'\\''"))))
  local want, lines = topic:gsub("^%-+", ""):gsub("_", "-"), nil
  for line in pipe:lines() do
    local name = line:match "^  %-?%w?,?%s*%-%-([%w-]+)"
    if name then
      if lines then break end
      if name == want then lines = { line } end
    elseif lines and line:find "^%s%s%s%s+" then
      lines[#lines + 1] = line
    elseif lines then
      break
    end
  end
  return lines
end

local function parameter(topic)
  for _, p in ipairs((accel.params())) do
    if p.name == topic or p.name == "ACCEL_" .. topic then
      return { ("%s: %s%s [%s]"):format(p.name, p.help, p.allowed and (" (%s)"):format(p.allowed) or "",
        p.default ~= "" and p.default or "none") }
    end
  end
end

local function overview(width)
  local lines = {
    "accel-run help TOPIC, or :help TOPIC at the prompt of accel-run repl. A topic is",
    "",
    "  an op, a function, a class or method     matmul  nn.Linear  Module:train",
    "  a module                                 nn  optim  data  dist  ops  core ...",
    "  an option or parameter of accel-run      --num-processes  ACCEL_TIMEOUT",
    "  examples                                 what they show; help 02_mlp for one",
  }
  local p = pages()
  if p then
    lines[#lines + 1] = ""
    lines[#lines + 1] = "Modules:"
    table.move(columns(p.order, width), 1, 100, #lines + 1, lines)
  else
    lines[#lines + 1] = ""
    lines[#lines + 1] = "The reference pages are missing here: the build target `reference` writes them."
  end
  return lines
end

-- ---- finding ----

local function find_entry(p, topic)
  local name = topic:gsub("^accel%.", ""):gsub("%(%)?$", "")
  if p.entries[name] then return p.entries[name] end
  local owner, member = name:match "^([%w_.]+)[:.]([%w_]+)$"
  if owner and (#owner == 1 or owner == "Tensor" or owner == "tensor") then -- x:sum, t.shape
    local own = p.entries["Tensor:" .. member] or p.entries["Tensor." .. member]
    if own or p.entries[member] then return own or p.entries[member] end
  end
  if p.entries["Tensor:" .. name] or p.entries["Tensor." .. name] then
    return p.entries["Tensor:" .. name] or p.entries["Tensor." .. name]
  end
  local found
  for _, fold in ipairs { function(s) return s end, string.lower } do
    for _, module in ipairs(p.order) do
      for _, full in ipairs(p.modules[module].names) do
        local last = full:match "[.:]([^.:]+)$" or full
        if not found and (fold(last) == fold(name) or fold(full) == fold(name)) then found = p.entries[full] end
      end
    end
    if found then return found end
  end
  if owner then -- a method of a class: the line of its page
    local class = find_entry(p, owner)
    for _, line in ipairs(class and class.lines or {}) do
      if line:find("^%- `[:.]" .. member .. "%(") then
        return { name = class.name .. ":" .. member, lines = { line } }
      end
    end
  end
end

local function nearest(p, topic)
  local names, full = {}, {}
  for name in next, p.entries do
    for _, form in ipairs { name, name:match "[.:]([^.:]+)$" or name } do
      names[#names + 1], full[form] = form, full[form] or name
    end
  end
  for name in next, p.modules do
    names[#names + 1], full[name] = name, name
  end
  table.sort(names)
  local near = accel.nearest(topic:gsub("^accel%.", ""), names)
  return near and full[near]
end

--- Lines about a topic; nil and why not.
---@return string[]?
---@return string?
function M.lines(topic, width)
  width = width or 80
  if topic == nil or topic == "" then return overview(width) end
  if topic == "examples" or topic == "example" then return examples(width) end
  if topic:find "^%-" then
    local lines = option(topic)
    if lines then return lines end
    return nil, ("no option %s; accel-run --help lists them"):format(topic)
  end
  if topic:find "^:" then
    for _, row in ipairs(accel.host_chunk("repl/commands").help) do
      if (" " .. row[1] .. " "):find(topic .. "%W") then return { ("%s: %s"):format(row[1], row[2]) } end
    end
  end
  local p = pages()
  if p then
    local module = topic:gsub("^accel%.", "")
    if p.modules[module] then return module_lines(module, width) end
    local entry = find_entry(p, topic)
    if entry then return entry_lines(entry, width) end
  end
  local other = parameter(topic) or example(topic) or option(topic)
  if other then return other end
  if not p then return nil, "the reference pages are missing here: the build target `reference` writes them" end
  local near = nearest(p, topic)
  return nil, ("nothing is known of '%s'%s"):format(topic, near and ("; did you mean %s?"):format(near)
    or "; accel-run help lists what there is")
end

--- Keys of the table of options that a function or class takes, as its page tells; for completion.
---@return string[]
function M.option_keys(topic)
  local p, keys = pages(), {}
  local entry = p and find_entry(p, topic)
  for _, line in ipairs(entry and entry.lines or {}) do
    local kind = line:match "^%- `opt%a*%??`: (.*)$"
    if kind and kind:find "^table " then
      for key in kind:sub(7):gmatch "[%a_][%w_]*" do keys[#keys + 1] = key end
    else
      for key in (kind or ""):gmatch "([%a_][%w_]*): " do keys[#keys + 1] = key end
    end
  end
  return keys
end

-- ---- writing ----

local function rows()
  local pipe <close> = io.popen "stty size 2>/dev/null"
  return tonumber(pipe and (pipe:read "a" or ""):match "^(%d+)") or 24
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

--- Shows a topic at a prompt; false: there is nothing, which it says.
function M.show(topic, width)
  local lines, why = M.lines(topic, width)
  write(lines or { why })
  return lines ~= nil
end

--- accel-run help [TOPIC]
function M.run(topic)
  local lines, why = M.lines(topic, math.max(40, math.min(80, require "accel.util.terminal".width())))
  if lines then write(lines) else io.stderr:write("accel-run: ", why, "\n") end
  return lines ~= nil
end

return M
