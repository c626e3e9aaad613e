-- The training library has one direction: a file of stdlib/accel must only use folders to the left of its own.
--   lua lua_order.lua <source tree>
-- Prints one line per violation and exits 1, or prints how much was checked. A use is every string in the code that
-- names a file of stdlib: in a require at load time or inside a function, in package.loaded[...], in a table given to a
-- helper (util/lazy), in a path "accel." .. name. A field of the root table (accel.optim, accel.Accelerator) is a use of the
-- layer that it loads. Only the root's init.lua and accelerator/init.lua may name any layer: they re-export names, loaded on
-- first use.

-- Units on one line share a layer and must not use each other.
local LAYERS = {
  "util", "functional", "dist", "config", "text", "data", "autograd", "linalg fft func special", "nn", "compile graph", "amp ckpt",
  "models metrics vision audio onnx", "peft", "offload", "shard", "optim", "parallel", "fp8 track profiler", "deepspeed", "elastic",
  "launch", "accelerator", "quant", "cli",
}
local RE_EXPORTS = { ["init.lua"] = true, ["accelerator/init.lua"] = true }
-- Files that load modules by names that are data: entries of a package's table; what a script hands to a worker.
local COMPUTED = { ["init.lua"] = true, ["util/lazy.lua"] = true, ["dist/worker.lua"] = true }

local rank = {} -- unit -> number of its layer
for i, layer in ipairs(LAYERS) do
  for unit in layer:gmatch "%S+" do rank[unit] = i end
end

local root = assert(arg[1], "usage: lua_order.lua <source tree>")
local base = root .. "/stdlib/accel/"
local violations, n_files, n_uses = 0, 0, 0

local function violation(file, line, text, ...)
  violations = violations + 1
  io.write(("stdlib/accel/%s:%d: %s\n"):format(file, line, text:format(...)))
end

local files, known = {}, {} -- in order; every path
for path in assert(io.popen(("cd '%s' && find . -name '*.lua' | LC_ALL=C sort"):format(base))):lines() do
  files[#files + 1] = path:sub(3)
  known[files[#files]] = true
end

-- The unit of a file: its folder, or the name of a file at the root (compile_function belongs to compile).
local function unit_of(file)
  return file:match "^([%w_]+)/" or (file:gsub("%.lua$", ""):gsub("_function$", ""))
end

-- The file that a string names: "accel.nn.module" -> "nn/module.lua".
local function file_of(name)
  local path = name:match "^accel%.([%w_.]+)$"
  path = path and path:gsub("%.", "/")
  if not path then return nil end
  return known[path .. ".lua"] and path .. ".lua" or known[path .. "/init.lua"] and path .. "/init.lua" or nil
end

local function read(file)
  local handle = io.open(base .. file)
  if not handle then return "" end
  local text = handle:read "a"
  handle:close()
  return text
end

-- Tokens of Lua without comments, as a list of { kind = "string", "name" or "op", text, line }.
local function tokens(source)
  local list, at, line = {}, 1, 1
  local function long(position)
    local level = source:match("^%[(=*)%[", position)
    if not level then return nil end
    local _, stop = source:find("]" .. level .. "]", position + #level + 2, true)
    stop = stop or #source
    return source:sub(position + #level + 2, stop - #level - 2), stop + 1
  end
  while at <= #source do
    local first, kind, text, after, _ = source:sub(at, at), nil, nil, nil, nil
    if source:find("^%-%-", at) then
      text, after = long(at + 2)
      after = after or source:find("\n", at, true) or #source + 1
    elseif first == '"' or first == "'" then
      after = at + 1
      while source:sub(after, after) ~= first and after <= #source do
        after = after + (source:sub(after, after) == "\\" and 2 or 1)
      end
      kind, text, after = "string", source:sub(at + 1, after - 1), after + 1
    elseif source:find("^%[=*%[", at) then
      kind = "string"
      text, after = long(at)
    elseif first:find "[%a_]" then
      kind, text = "name", source:match("^[%w_]+", at)
      after = at + #text
    else
      _, after = source:find("^%s+", at)
      if not after then kind, text, after = "op", first, at end
      after = after + 1
    end
    if kind then list[#list + 1] = { kind = kind, text = text, line = line } end
    local _, breaks = source:sub(at, after - 1):gsub("\n", "")
    at, line = after, line + breaks
  end
  return list
end

-- Names that a file gives values in its tables and assignments.
local function assigned(file)
  local found, list = {}, tokens(read(file))
  for i = 2, #list do
    if list[i].text == "=" and list[i - 1].kind == "name" then found[list[i - 1].text] = true end
  end
  return found
end
local of_root, of_accelerator = assigned "init.lua", assigned "accelerator/init.lua"

-- The file that a field of the root table loads, nil for names of the native module.
local function file_of_field(name)
  if known[name .. "/init.lua"] then return name .. "/init.lua" end
  if known[name .. ".lua"] then return name .. ".lua" end
  if of_root[name] and of_accelerator[name] then return "accelerator/init.lua" end
end

local function check(file)
  local unit, list = unit_of(file), tokens(read(file))
  if file == "init.lua" then return end
  if not rank[unit] then return violation(file, 1, "%s has no place in the order of layers; give it one in this check", unit) end
  n_files = n_files + 1

  local function use(line, target, by)
    n_uses = n_uses + 1
    local other = unit_of(target)
    if other == unit or target == "init.lua" or RE_EXPORTS[file] or not rank[other] then return end
    if rank[other] == rank[unit] then
      violation(file, line, "%s and %s share a layer and must not use each other (%s)", unit, other, by)
    elseif rank[other] > rank[unit] then
      violation(file, line, "%s must not use %s, which is to its right (%s)", unit, other, by)
    end
  end
  local function text(i) return list[i] and list[i].text end

  for i, token in ipairs(list) do
    if token.kind == "string" then
      local target = file_of(token.text)
      if target then use(token.line, target, token.text) end
      if token.text:find "^accel%.[%w_.]*%.?$" and text(i + 1) == "." and text(i + 2) == "." and not COMPUTED[file] then
        -- a name that is put together: the folder that its beginning names
        local folder = token.text:match "^accel%.([%w_]+)%."
        if folder and known[folder .. "/init.lua"] then
          use(token.line, folder .. "/init.lua", token.text .. "..")
        elseif token.text == "accel." and text(i - 1) == "(" and text(i - 2) == "require" then
          violation(file, token.line, "a module's name must not be put together from 'accel.' and a variable")
        end
      end
      if token.text == "accel" and text(i - 1) == "require" and text(i + 1) == "." and text(i + 2) ~= "." then
        local field = file_of_field(text(i + 2))
        if field then use(token.line, field, "accel." .. text(i + 2)) end
      end
    elseif token.text == "accel" and token.kind == "name" and text(i - 1) ~= "." and text(i - 1) ~= ":" then
      local name = text(i + 1) == "." and text(i + 2) ~= "." and text(i + 2)
        or text(i + 1) == "[" and list[i + 2].kind == "string" and text(i + 2)
      local target = name and file_of_field(name)
      if target then use(token.line, target, "accel." .. name) end
    end
  end
end

for _, file in ipairs(files) do check(file) end
if violations > 0 then
  io.write(("%d violations of the order of layers\n"):format(violations))
  os.exit(1)
end
assert(n_files > 0, "no files found below " .. base)
io.write(("%d uses in %d files point left\n"):format(n_uses, n_files))
