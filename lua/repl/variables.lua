-- An editor's view of a stopped script: frames of the stack, scopes, and expandable values, one level at a time. Requests of
-- lua/attach/dap.lua, answered in the rank (attached.lua).
local accel = ...

local M = {}

local MOST <const>, MOST_PARTS <const>, MOST_BYTES <const> = 500, 20, 1 << 16

local function one_line(value)
  local text = accel.inspect(value, { depth = 1, width = 100, items = 8 }):gsub("%s*\n%s*", " ")
  return #text > 200 and text:sub(1, 197) .. "..." or text
end

--- { op = "stack" } -> frames = { { name, path, line }, ... }, the innermost first. at: the selected one.
function M.stack(session)
  local list = {}
  for i, frame in ipairs(session.frames.list) do
    list[i] = { name = frame.what == "main" and "main chunk" or frame.name or ("function <%s:%d>"):format(frame.source, frame.defined),
      path = frame.path, line = frame.line, library = frame.library }
  end
  return { ok = true, lines = {}, frames = list, at = session.frames.at }
end

-- The children of a value: {name, value} in order. nil: none.
local function children(value)
  local list = {}
  local function add(name, x)
    if #list < MOST then list[#list + 1] = { name = name, value = x } end
  end
  if accel.is_tensor(value) then
    add("shape", { table.unpack(value.shape) })
    add("dtype", value.dtype)
    add("device", value.device)
    add("requires_grad", value.requires_grad)
    if value.grad then add("grad", value.grad) end
    if value.device ~= "meta" and value:numel() > 0 and value.dtype:find "^[fb]" and value.dtype ~= "bool" then
      accel.no_grad(function()
        local x = value:detach():to "f32"
        add("min", x:min():item())
        add("max", x:max():item())
        add("mean", x:mean():item())
        add("finite", x:isfinite():all():item())
      end)
    end
    if value.device ~= "meta" and value.ndim > 0 then -- its parts, which open in turn
      for i = 1, math.min(#value, MOST_PARTS) do add(("[%d]"):format(i), value.ndim > 1 and value[i] or value[i]:item()) end
      if #value > MOST_PARTS then add("...", ("%d more"):format(#value - MOST_PARTS)) end
    end
    return list
  end
  if type(value) ~= "table" then return nil end
  for key, x in accel.pairs(value) do add(type(key) == "string" and key or ("[%s]"):format(tostring(key)), x) end
  local meta = getmetatable(value)
  if type(meta) == "table" and next(value) == nil then add("(metatable)", meta) end
  return #list > 0 and list or nil
end

-- A row of an editor's list. ref expands it.
local function row(session, name, value)
  local opens = accel.is_tensor(value) or (type(value) == "table" and next(value) ~= nil)
  local ref
  if opens then
    session.refs = session.refs or {}
    session.refs[#session.refs + 1] = value
    ref = #session.refs
  end
  return { name = tostring(name), value = one_line(value), type = accel.is_tensor(value) and "tensor" or type(value), ref = ref }
end

--- { op = "variables", frame = number, scope = "local" | "upvalue" | "global" } or { op = "variables", ref = number } -> variables
function M.list(session, q)
  local rows = {}
  if q.ref then
    local value = session.refs and session.refs[q.ref]
    for _, child in ipairs(children(value) or {}) do rows[#rows + 1] = row(session, child.name, child.value) end
  elseif q.scope == "global" then
    for key, value in accel.pairs(_G) do
      if not session.before[key] and #rows < MOST then rows[#rows + 1] = row(session, key, value) end
    end
  else
    local at = session.frames.at
    session.frames.at = math.max(1, math.min(q.frame or at, #session.frames.list))
    for _, v in ipairs(session.frames:variables()) do
      if v.kind == q.scope then rows[#rows + 1] = row(session, v.name, v.value) end
    end
    session.frames.at = at
  end
  return { ok = true, lines = {}, variables = rows }
end

-- f() with a frame of the stack selected.
local function at_frame(session, frame, f)
  local at = session.frames.at
  session.frames.at = math.max(1, math.min(frame or at, #session.frames.list))
  local r = f()
  session.frames.at = at
  return r
end

--- { op = "set_variable", name, text, frame or ref } -> value, type, ref: assigns to a variable of a frame, or to an entry of a table.
function M.set(session, q)
  local r = at_frame(session, q.frame, function()
    if q.ref then return session:evaluate("return " .. q.text, q.line) end
    if not q.name:find "^[%a_][%w_]*$" or session:lookup(q.name) == nil and not session.frames:get(q.name) then
      return { ok = false, message = ("there is no variable '%s' here"):format(q.name) }
    end
    return session:evaluate(("%s = %s\nreturn %s"):format(q.name, q.text, q.name), q.line)
  end)
  if not r.ok then return { ok = false, lines = {}, message = r.message } end
  if q.ref then
    local parent = session.refs and session.refs[q.ref]
    if type(parent) ~= "table" then
      return { ok = false, lines = {}, message = "only entries of tables can be set; for a tensor evaluate t:fill_(x)" }
    end
    local key = q.name:match "^%[(.*)%]$"
    local ok, why = pcall(function() parent[key and (tonumber(key) or key) or q.name] = r[1] end)
    if not ok then return { ok = false, lines = {}, message = tostring(why) } end
  end
  local shown = row(session, q.name, r[1])
  return { ok = true, lines = {}, value = shown.value, type = shown.type, ref = shown.ref }
end

--- { op = "complete_at", text, word, frame } -> lines
function M.complete(session, q)
  return at_frame(session, q.frame, function()
    return { ok = true, lines = accel.host_chunk "repl/complete".words(session, q.text, q.word) }
  end)
end

--- { op = "bytes", ref, offset, count } -> data (base 64), bytes: how many the tensor has. Elements in row-major order, of this machine's
--- byte order. Only the elements that the bytes belong to are copied.
function M.bytes(session, q)
  local x = session.refs and session.refs[q.ref]
  if not accel.is_tensor(x) or x.device == "meta" then return { ok = false, lines = {}, message = "only tensors with data have bytes" } end
  local size, each = x:numel() * x:element_size(), x:element_size()
  local first = math.max(0, math.min(q.offset, size))
  local last = math.max(first, math.min(q.offset + q.count, size, first + MOST_BYTES))
  local data = ""
  if last > first then
    local from, to = first // each, (last + each - 1) // each
    local part = accel.no_grad(function() return x:detach():reshape(-1):narrow(1, from + 1, to - from):to "cpu":contiguous() end)
    data = part:to_bytes():sub(first - from * each + 1, last - from * each)
  end
  return { ok = true, lines = {}, data = require("accel.util.base64").encode(data), bytes = size }
end

--- { op = "sources" } -> paths
function M.sources(session)
  return { ok = true, lines = {}, paths = accel.host_chunk "repl/places".files(session.frames) }
end

--- { op = "evaluate_at", text, frame } -> value (text), type, ref: an input in a frame of the stack, for editors.
function M.evaluate(session, q)
  local r = at_frame(session, q.frame, function() return session:evaluate(q.text, q.line) end)
  if not r.ok then return { ok = false, lines = {}, message = r.message } end
  local shown = row(session, "", r[1])
  return { ok = true, lines = {}, value = r.n == 0 and "" or shown.value, type = shown.type, ref = shown.ref }
end

return M
