--- accel-run ckpt diff A B: compares tensors by name, then plain data, then the records. Like diff, it exits with 0 if they are the
--- same, otherwise 1.
local accel = require "accel"
local ckpt = require "accel.ckpt"
local command = require "accel.cli.command"
local tensors = require "accel.util.tensors"

local PROGRAM <const>, ROWS <const> = "accel-run ckpt diff", 1 << 20

--- A range of a tensor of a checkpoint, flat: rows of about ROWS elements, so that memory stays small.
local function each_part(shape, fn)
  local rows, width = shape[1] or 1, 1
  for d = 2, #shape do width = width * shape[d] end
  local step = math.max(1, ROWS // math.max(1, width))
  for at = 0, rows - 1, step do
    local n = math.min(step, rows - at)
    local part, offsets = { table.unpack(shape) }, {}
    for d = 1, #shape do offsets[d] = 0 end
    if #shape > 0 then part[1], offsets[1] = n, at end
    local ok, message = fn(part, offsets)
    if not ok then return nil, message end
  end
  return true
end

--- The difference between two tensors: differing elements, and the largest distance. On failure returns nil, message.
local function compare_values(a, b, object, t)
  local differ, most = 0, 0
  local ok, message = each_part(t.shape, function(shape, offsets)
    local x, y = accel.empty(shape, { dtype = t.dtype }), accel.empty(shape, { dtype = t.dtype })
    local good, why = a:read(object, t.name, x, offsets)
    if good then good, why = b:read(object, t.name, y, offsets) end
    if not good then return nil, why end
    local unequal = x:ne(y)
    if tensors.is_floating(t.dtype) then unequal = unequal:logical_and(x:isnan():logical_and(y:isnan()):logical_not()) end
    local n = unequal:to("i64"):sum():item()
    if n > 0 then
      differ = differ + n
      local far = (x:to "f64" - y:to "f64"):abs():max():item()
      if far > most or far ~= far then most = far end
    end
    return true
  end)
  if not ok then return nil, message end
  return differ, most
end

--- Calls fn with the names in only a, in only b, and in both.
local function each_name(a, b, only_a, only_b, both)
  for _, name in ipairs(a.order) do
    if b[name] ~= nil then both(name) else only_a(name) end
  end
  for _, name in ipairs(b.order) do
    if a[name] == nil then only_b(name) end
  end
end

local function by_name(list, key)
  local out = { order = {} }
  for i, entry in ipairs(list) do
    local name = key and entry[key] or entry
    out[name], out.order[i] = entry, name
  end
  return out
end

--- Differences of plain data, by path.
local function compare_plain(path, x, y, say)
  if accel.is_tensor(x) and accel.is_tensor(y) then
    if x.dtype ~= y.dtype or not tensors.same_shape(x, y) or not accel.equal(x, y) then say("%s: tensors differ", path) end
  elseif type(x) == "table" and type(y) == "table" then
    local keys, seen = {}, {}
    for _, t in ipairs { x, y } do
      for key in next, t do
        if not seen[key] then keys[#keys + 1], seen[key] = key, true end
      end
    end
    table.sort(keys, function(p, q) return tostring(p) < tostring(q) end)
    for _, key in ipairs(keys) do compare_plain(path .. "." .. tostring(key), x[key], y[key], say) end
  elseif x ~= y and (x == x or y == y) then
    say("%s: %s, %s", path, accel.inspect(x), accel.inspect(y))
  end
end

return function(...)
  local _, paths = command.parse({
    name = PROGRAM, usage = "CHECKPOINT CHECKPOINT",
    summary = "Compares two checkpoints: names, dtypes, shapes and values of tensors, plain data, records. Exit status 0 if "
      .. "they are the same, otherwise 1.",
  }, 2, 2, ...)
  local a <close>, why = ckpt.open(paths[1])
  if not a then return command.refuse(PROGRAM, "%s", why) end
  local b <close>, why_b = ckpt.open(paths[2])
  if not b then return command.refuse(PROGRAM, "%s", why_b) end
  local same, failed = true, nil
  local function say(fmt, ...)
    same = false
    command.say(fmt, ...)
  end
  local function only(path, what) return function(name) say("%s: only %s has it", what(name), path) end end

  local function compare_object(object)
    local x, message = a:tensors(object)
    local y
    if x then y, message = b:tensors(object) end
    if not x or not y then failed = failed or message return end
    local mine, its = by_name(x, "name"), by_name(y, "name")
    local function shown(name) return object .. " " .. name end
    each_name(mine, its, only(paths[1], shown), only(paths[2], shown), function(name)
      local s, t = mine[name], its[name]
      if s.dtype ~= t.dtype or not tensors.same_shape(s, t) then
        say("%s: %s %s, %s %s", shown(name), s.dtype, tensors.shape_string(s), t.dtype, tensors.shape_string(t))
        return
      end
      local n, most = compare_values(a, b, object, s)
      if not n then failed = failed or most
      elseif n > 0 then say("%s: %d values differ, at most by %g", shown(name), n, most) end
    end)
  end
  local function object_name(name) return "object " .. name end
  each_name(by_name(a:objects()), by_name(b:objects()), only(paths[1], object_name), only(paths[2], object_name), compare_object)

  local function plain(list)
    local files = {}
    for _, file in ipairs(list) do
      if file.name:find "%.accel$" or file.name:find "%.bin$" then files[#files + 1] = file.name end
    end
    return by_name(files)
  end
  local function file_name(name) return "file " .. name end
  each_name(plain(a.manifest.files), plain(b.manifest.files), only(paths[1], file_name), only(paths[2], file_name), function(name)
    local x, message = a:bytes(name)
    local y
    if x then y, message = b:bytes(name) end
    if not x or not y then failed = failed or message return end
    if x == y then return end
    local one, left = pcall(accel.decode, x)
    local other, right = pcall(accel.decode, y)
    if one and other then compare_plain(name, left, right, say) else say("%s: bytes differ", name) end
  end)
  compare_plain("record", a.manifest.state, b.manifest.state, say)
  if failed then return command.refuse(PROGRAM, "%s", failed) end
  return same
end
