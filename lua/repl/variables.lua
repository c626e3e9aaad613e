-- An editor's view of a stopped script: frames of the stack, scopes, and expandable values, one level at a time. Requests of
-- lua/attach/dap.lua, answered in the rank (attached.lua).
local accel = ...

local M = {}

local MOST = 500

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

--- { op = "evaluate_at", text, frame } -> value (text), type, ref: an input in a frame of the stack, for editors.
function M.evaluate(session, q)
  local at = session.frames.at
  session.frames.at = math.max(1, math.min(q.frame or at, #session.frames.list))
  local r = session:evaluate(q.text, q.line)
  session.frames.at = at
  if not r.ok then return { ok = false, lines = {}, message = r.message } end
  local shown = row(session, "", r[1])
  return { ok = true, lines = {}, value = r.n == 0 and "" or shown.value, type = shown.type, ref = shown.ref }
end

return M
