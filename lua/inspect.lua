-- accel.inspect(x [, {depth =, width =, items =}]): any value as text for people. Tables are nested, in sorted order,
-- with cycles marked. Tensors appear as shape, dtype and statistics.
local accel = ...

local KEYWORDS = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then
  true until while]]):gmatch("%a+") do KEYWORDS[word] = true end

local function number(x, format)
  if math.type(x) == "integer" then return ("%d"):format(x) end
  return x == x and (format or "%.6g"):format(x) or "nan" -- its sign has no meaning
end

local function tensor(t)
  local ok, shape = pcall(function() return t.shape end)
  if not ok then return "tensor(released)" end
  local dims = {}
  for i, n in ipairs(shape) do dims[i] = ("%d"):format(n) end
  local parts = { ("%s (%s)"):format(t.dtype, table.concat(dims, ", ")) }
  if t.device ~= "cpu" then parts[#parts + 1] = "on " .. t.device end
  local n = t:numel()
  if t.device ~= "meta" and n == 1 then
    local value = t:item()
    parts[#parts + 1] = "= " .. (type(value) == "number" and number(value) or tostring(value))
  elseif t.device ~= "meta" and n > 0 and t.dtype ~= "bool" then
    local done, stats = pcall(accel.no_grad, function()
      local x = t:detach():to("f64")
      local mean = x:mean():item()
      local std = (x - mean):mul(x - mean):mean():item() ^ 0.5
      local min, max = x:min():item(), x:max():item()
      return ("min %s max %s mean %s std %s"):format(number(min), number(max), number(mean), number(std))
    end)
    if done then parts[#parts + 1] = stats end
  end
  if t.requires_grad then
    parts[#parts + 1] = t.is_leaf and "requires_grad" or "grad_fn=" .. tostring(t.grad_fn)
  end
  return "tensor<" .. table.concat(parts, ", ") .. ">"
end

local function key_text(key, show)
  if type(key) == "string" and key:match("^[%a_][%w_]*$") and not KEYWORDS[key] then return key end
  return "[" .. show(key) .. "]"
end

return function(value, options)
  options = options or {}
  for key in next, options do
    if key ~= "depth" and key ~= "width" and key ~= "items" then
      error(("inspect: no option '%s'; use depth, width or items"):format(tostring(key)), 2)
    end
  end
  local max_depth, width, max_items = options.depth or 6, options.width or 100, options.items or 100
  local path = {}
  local show

  local function table_text(t, indent, depth)
    local meta = debug.getmetatable(t)
    local name = meta and type(meta.__name) == "string" and meta.__name .. " " or ""
    if path[t] then return "<cycle>" end
    if next(t) == nil then return name .. "{}" end
    if depth >= max_depth then return name .. "{...}" end
    path[t] = true
    local items, n, inner = {}, 0, indent .. "  "
    local length = rawlen(t)
    for i = 1, math.min(length, max_items) do items[#items + 1] = show(rawget(t, i), inner, depth + 1) end
    if length > max_items then items[#items + 1] = ("... %d more"):format(length - max_items) end
    local keys = {}
    for key in next, t do
      if not (math.type(key) == "integer" and key >= 1 and key <= length) then keys[key] = true end
    end
    for key in accel.pairs(keys) do
      n = n + 1
      if n > max_items then
        items[#items + 1] = "..."
        break
      end
      items[#items + 1] = key_text(key, function(k) return show(k, inner, depth + 1) end) .. " = "
        .. show(rawget(t, key), inner, depth + 1)
    end
    path[t] = nil
    local flat = name .. "{ " .. table.concat(items, ", ") .. " }"
    if #flat + #indent <= width and not flat:find("\n", 1, true) then return flat end
    return name .. "{\n" .. inner .. table.concat(items, ",\n" .. inner) .. "\n" .. indent .. "}"
  end

  function show(x, indent, depth)
    local kind = type(x)
    if kind == "string" then return accel.console.visible((("%q"):format(x):gsub("\\\n", "\\n"))) end
    if kind == "number" then return number(x, "%.14g") end
    if kind == "table" then return table_text(x, indent, depth) end
    if accel.is_tensor(x) then return tensor(x) end
    if kind == "function" then
      local info = debug.getinfo(x, "S")
      if info.what == "C" then return "<C function>" end
      return ("<function %s:%d>"):format(info.short_src, info.linedefined)
    end
    if x == accel.json.null then return "null" end
    return tostring(x)
  end

  return show(value, "", 0)
end
