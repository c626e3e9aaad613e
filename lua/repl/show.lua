-- Values as lines of text for a prompt: tensors by shape, dtype, statistics, gradient and corner values, tables by
-- accel.inspect. Never more lines than the screen has. Used by prompt.lua, server.lua, commands.lua.
local accel = ...
local names = accel.host_chunk "repl/names"

local M = {}

local MOST_LINES, LARGE = 60, 1 << 24

local function number(x)
  if math.type(x) == "integer" then return ("%d"):format(x) end
  return x == x and ("%.5g"):format(x) or "nan" -- its sign has no meaning
end

function M.shape(t)
  local dims = {}
  for i, n in ipairs(t.shape) do dims[i] = ("%d"):format(n) end
  return "(" .. table.concat(dims, ", ") .. ")"
end

local function is_float(t) return t.dtype:find "^b?f" ~= nil end

-- "min 0 max 1 mean 0.5 std 0.1", with values that are not finite counted separately.
local function statistics(t)
  local n = t:numel()
  if t.device == "meta" or n < 2 then return nil end
  local x = t:detach()
  if t.dtype == "bool" then return ("%d true of %d"):format(x:to("i64"):sum():item(), n) end
  local parts = {}
  if is_float(t) then
    local nans = x:isnan():to("i64"):sum():item()
    local infs = x:isinf():to("i64"):sum():item()
    if nans > 0 then parts[#parts + 1] = ("%d nan"):format(nans) end
    if infs > 0 then parts[#parts + 1] = ("%d inf"):format(infs) end
  end
  parts[#parts + 1] = ("min %s max %s"):format(number(x:min():item()), number(x:max():item()))
  if n <= LARGE then
    local d = x:to "f64"
    local mean = d:mean()
    parts[#parts + 1] = ("mean %s std %s"):format(number(mean:item()), number(((d - mean) ^ 2):mean():item() ^ 0.5))
  else
    parts[#parts + 1] = "mean " .. number(x:mean():item())
  end
  return table.concat(parts, " ")
end

local function gradient(t)
  local parts = {}
  if t.requires_grad then
    parts[1] = t.is_leaf and "requires_grad" or "grad_fn " .. tostring(t.grad_fn):gsub("^grad_fn ?", "")
  end
  local g = t.grad
  if g then
    parts[#parts + 1] = ("grad %s %s, |grad| %s"):format(g.dtype, M.shape(g), number(g:to "f64":norm():item()))
  elseif t.requires_grad and t.is_leaf then
    parts[#parts + 1] = "no grad"
  end
  return #parts > 0 and table.concat(parts, ", ") or nil
end

--- One line: "f32 (2, 3) cpu".
function M.head(t)
  return ("%s %s %s"):format(t.dtype, M.shape(t), t.device)
end

local function split(text, lines, indent)
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = (indent or "") .. line end
end

local function add_wrapped(lines, line, part, width)
  if not part then return line end
  if #line + 2 + #part <= width then return line .. "  " .. part end
  lines[#lines + 1] = line
  return "  " .. part
end

--- A tensor as lines of at most `width` columns, as far as its values let them be.
---@return string[]
function M.tensor(t, width)
  local ok, head = pcall(M.head, t)
  if not ok then return { "tensor(released)" } end
  local lines = {}
  local done, stats = pcall(accel.no_grad, statistics, t)
  local _, grad = pcall(accel.no_grad, gradient, t)
  local line = add_wrapped(lines, head, done and stats or nil, width)
  line = add_wrapped(lines, line, grad, width)
  lines[#lines + 1] = line
  if t.device ~= "meta" and t:numel() > 0 then split(tostring(t:detach()), lines) end
  return lines
end

--- How a value is called: "f32 tensor (2, 3)", "nn.Linear", "integer", "function (a, b) at train.lua:3".
function M.type(x)
  if accel.is_tensor(x) then
    local ok, head = pcall(M.head, x)
    return ok and "tensor " .. head or "tensor, released"
  end
  if type(x) == "number" then return math.type(x) end
  if type(x) == "function" then
    x = require "accel.util.checked".original(x)
    local info, params = debug.getinfo(x, "Su"), {}
    if info.what == "C" then return "function of C" end
    for i = 1, info.nparams do params[i] = debug.getlocal(x, i) end
    if info.isvararg then params[#params + 1] = "..." end
    return ("function (%s) at %s:%d"):format(table.concat(params, ", "), info.short_src, info.linedefined)
  end
  if type(x) == "table" then
    local class = require "accel.util.class"
    if class.isclass(x) and rawget(x, "__name") then return "class " .. tostring(x.__name) end
    local library = names.module(x)
    if library then return "module " .. library end
    local of = class.of(x)
    if of then return tostring(of.__name) end
    local n = 0
    for _ in next, x do n = n + 1 end
    return ("table of %d"):format(n)
  end
  local meta = debug.getmetatable(x)
  return meta and type(meta.__name) == "string" and meta.__name or type(x)
end

-- "module accel.nn: 150 names, TAB shows them; :help nn"
local function module(x, name)
  local n, topic = 0, name:gsub("^accel%.?", "")
  for key in next, names.of(x) do
    if not key:find "^_" then n = n + 1 end
  end
  local page = topic == "" and ":help core, :help ops" or ":help " .. topic
  local known = topic == "" or accel.host_chunk("help").lines(topic) ~= nil
  return ("module %s: %d names, TAB shows them%s"):format(name, n, known and "; " .. page or "")
end

--- Any value as lines.
---@return string[]
function M.value(x, width)
  if accel.is_tensor(x) then return M.tensor(x, width) end
  local lines = {}
  local meta = debug.getmetatable(x)
  local name, text = names.module(x), nil
  if name then
    text = module(x, name)
  elseif type(x) ~= "string" and meta and meta.__tostring then
    text = tostring(x)
  elseif type(x) == "function" then
    text = M.type(x)
  else
    text = accel.inspect(x, { width = width, depth = 4, items = 30 })
  end
  split(text, lines)
  if #lines > MOST_LINES then
    local more = #lines - MOST_LINES
    for i = #lines, MOST_LINES + 1, -1 do lines[i] = nil end
    lines[#lines + 1] = ("... %d more lines"):format(more)
  end
  return lines
end

--- Whether nothing is shown of results: none, a nil, or the file that io.write gives back.
function M.is_nothing(list) return list.n == 0 or (list.n == 1 and (list[1] == nil or list[1] == io.stdout)) end

--- The values 1 .. n of a list as lines: short ones side by side.
---@return string[]
function M.values(list, width)
  local parts, flat, used = {}, true, 0
  for i = 1, list.n do
    local ok, lines = pcall(M.value, list[i], width)
    parts[i] = ok and lines or { "(cannot be shown: " .. tostring(lines) .. ")" }
    flat, used = flat and #parts[i] == 1, used + #parts[i][1] + 2
  end
  if flat and list.n > 0 and used - 2 <= width then
    for i, part in ipairs(parts) do parts[i] = part[1] end
    return { table.concat(parts, "  ") }
  end
  local lines = {}
  for _, part in ipairs(parts) do table.move(part, 1, #part, #lines + 1, lines) end
  return lines
end

return M
