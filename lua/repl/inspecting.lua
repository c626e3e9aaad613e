-- Commands of a prompt that inspect a training step: statistics of tensors, gradients by parameter, the op that makes a NaN, memory by
-- line, the graph of a loss. Added to those of commands.lua, whose form they have: (session, rest, line, width) -> {ok, lines, message}.
local accel = ...
local show = accel.host_chunk "repl/show"
local tensors = accel.host_chunk "repl/tensors"

local BINS <const>, BARS <const>, MOST <const>, SAMPLE <const> = 12, 40, 40, 1 << 22

local function failed(message) return { ok = false, lines = {}, message = message } end
local function done(lines) return { ok = true, lines = lines } end

local function number(x)
  if math.type(x) == "integer" then return ("%d"):format(x) end
  return x == x and ("%.5g"):format(x) or "nan"
end

local function bytes(n)
  for _, unit in ipairs { { 2 ^ 30, "GiB" }, { 2 ^ 20, "MiB" }, { 2 ^ 10, "KiB" } } do
    if n >= unit[1] then return ("%.1f %s"):format(n / unit[1], unit[2]) end
  end
  return ("%d B"):format(n)
end

-- Rows of text as columns; the first column is left-aligned, others right-aligned, the last one left if it is named in `left`.
local function columns(rows, width)
  local widths, lines = {}, {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell) end
  end
  local rest = 0
  for i = 2, #widths do rest = rest + widths[i] + 2 end
  widths[1] = math.max(12, math.min(widths[1] or 0, width - rest))
  for k, row in ipairs(rows) do
    local parts = {}
    for i, cell in ipairs(row) do
      if i == 1 and #cell > widths[1] then cell = "..." .. cell:sub(#cell - widths[1] + 4) end
      local pad = (" "):rep(widths[i] - #cell)
      parts[i] = i == 1 and cell .. pad or pad .. cell
    end
    lines[k] = (table.concat(parts, "  "):gsub("%s+$", ""))
  end
  return lines
end

-- ---- :stats ----

-- Values of a tensor: n, nan, inf, zero, and of its finite elements min, max, mean, std, and themselves in f64.
local function statistics(t)
  local x = t:detach():to("cpu"):reshape(-1)
  if x.dtype == "bool" then x = x:to "u8" end
  local s = { n = x:numel(), nan = 0, inf = 0, zero = 0 }
  if s.n == 0 then return s end
  x = x:to "f64"
  local finite = x:isfinite()
  local count = finite:to("i64"):sum():item()
  s.nan = x:isnan():to("i64"):sum():item()
  s.inf, s.zero = s.n - count - s.nan, x:eq(0):to("i64"):sum():item()
  s.finite = count == s.n and x or count > 0 and x:masked_select(finite) or nil
  if not s.finite then return s end
  s.min, s.max, s.mean = s.finite:min():item(), s.finite:max():item(), s.finite:mean():item()
  s.std = ((s.finite - s.mean) ^ 2):mean():item() ^ 0.5
  return s
end

-- A histogram of the finite values as lines. Of very many values it takes every k-th.
local function histogram(s, width)
  local lines, x = {}, s.finite
  if not x or s.min == s.max then return lines end
  local stride = math.max(1, x:numel() // SAMPLE)
  if stride > 1 then x = x:narrow(1, 1, x:numel() // stride * stride):view(-1, stride):select(2, 1) end
  local place = ((x - s.min) * (BINS / (s.max - s.min))):floor():clamp(0, BINS - 1)
  local counts, most = {}, 1
  for b = 1, BINS do
    counts[b] = place:eq(b - 1):to("i64"):sum():item()
    most = math.max(most, counts[b])
  end
  local bars = math.max(8, math.min(BARS, width - 34))
  for b = 1, BINS do
    local low = s.min + (s.max - s.min) * (b - 1) / BINS
    local n = counts[b] > 0 and math.max(1, math.floor(counts[b] / most * bars + 0.5)) or 0
    lines[b] = ("%11s  %s %d"):format(("%.4g"):format(low), ("#"):rep(n), counts[b] * stride)
  end
  return lines
end

local function describe(t, width)
  local s = statistics(t)
  local lines = { show.head(t) }
  if s.n == 0 then return lines end
  if s.finite then
    lines[2] = ("min %s  max %s  mean %s  std %s"):format(number(s.min), number(s.max), number(s.mean), number(s.std))
  end
  lines[#lines + 1] = ("%d values, %d NaN, %d infinite, %d zero"):format(s.n, s.nan, s.inf, s.zero)
  return table.move(histogram(s, width), 1, BINS, #lines + 1, lines)
end

local commands = {}

--- :stats EXPR: of a tensor with a histogram, of a module or a table a row per tensor.
function commands.stats(session, rest, line, width)
  if rest == "" then return failed "an expression is missing: :stats EXPR" end
  local r = session:evaluate("return " .. rest, line)
  if not r.ok then return failed(r.message) end
  local list = tensors.of(r[1])
  if #list == 0 then return failed(("it has no tensor, but %s"):format(show.type(r[1]))) end
  return accel.no_grad(function()
    if accel.is_tensor(r[1]) then return done(describe(r[1], width)) end
    local rows = { { "tensor", "min", "max", "mean", "std", "NaN", "inf" } }
    for i, item in ipairs(list) do
      if i > MOST then break end
      local s = statistics(item.tensor)
      local function cell(x) return x and ("%.3g"):format(x) or "" end
      rows[#rows + 1] = { item.name, cell(s.min), cell(s.max), cell(s.mean), cell(s.std), tostring(s.nan), tostring(s.inf) }
    end
    local lines = columns(rows, width)
    if #list > MOST then lines[#lines + 1] = ("... %d more tensors"):format(#list - MOST) end
    return done(lines)
  end)
end

-- ---- :grad ----

--- :grad [EXPR]: the gradients of a module's parameters, of a tensor, or of all modules here.
function commands.grad(session, rest, line, width)
  local value
  if rest ~= "" then
    local r = session:evaluate("return " .. rest, line)
    if not r.ok then return failed(r.message) end
    value = r[1]
    if value == nil then return failed(("%s is nil"):format(rest)) end
  end
  local list = tensors.parameters(session, value)
  if #list == 0 then
    return failed(rest ~= "" and "it has no parameter" or "no module is among the variables here; name one: :grad MODEL")
  end
  return accel.no_grad(function()
    local rows, missing, frozen = { { "parameter", "|grad|", "|param|", "max|grad|", "NaN" } }, {}, 0
    for _, item in ipairs(list) do
      local p = item.tensor
      local g = p.grad
      if not p.requires_grad and p.is_leaf then
        frozen = frozen + 1
      elseif not g then
        missing[#missing + 1] = item.name
      elseif #rows <= MOST and p.device ~= "meta" then
        local d = g:detach():to("f64")
        rows[#rows + 1] = { item.name, ("%.4g"):format(d:norm():item()), ("%.4g"):format(p:detach():to("f64"):norm():item()),
          d:numel() > 0 and number(d:abs():max():item()) or "", ("%d"):format(d:isnan():to("i64"):sum():item()) }
      end
    end
    local lines = #rows > 1 and columns(rows, width) or {}
    if #missing > 0 then
      local names = table.concat(missing, ", ", 1, math.min(6, #missing)) .. (#missing > 6 and (" and %d more"):format(#missing - 6) or "")
      lines[#lines + 1] = ("no gradient: %s"):format(names)
    end
    if frozen > 0 then lines[#lines + 1] = ("frozen: %d"):format(frozen) end
    return done(lines)
  end)
end

-- ---- :nan ----

--- :nan on, :nan off
function commands.nan(_, rest)
  if rest ~= "on" and rest ~= "off" then return failed ":nan takes on or off" end
  accel.console.look.nan(rest == "on")
  if rest == "off" then return done { "ops are no longer looked at" } end
  local where = accel.default_device and accel.default_device() or "cpu"
  return done { "the script stops at the op that makes the first NaN; `inputs` are the op's tensors then",
    where ~= "cpu" and ("results on %s are not looked at"):format(where) or nil }
end

-- ---- :mem ----

local noting = false

--- Lines on live tensors by the script's line that made them, the greatest first. "on", "off": whether lines are noted.
---@return string[] lines
function commands.memory(rest, width)
  local look = accel.console.look
  if rest == "on" or rest == "off" then
    look.sites(rest == "on")
    noting = rest == "on"
    return { rest == "on" and "from here on the lines that make tensors are noted; :mem lists them" or "lines are no longer noted" }
  end
  local by, order = {}, {}
  for _, t in ipairs(look.tensors()) do
    local key = t.site or "not noted"
    if not by[key] then
      by[key] = { site = key, bytes = 0, n = 0, graph = 0, most = 0 }
      order[#order + 1] = by[key]
    end
    local row = by[key]
    row.bytes, row.n, row.graph = row.bytes + t.bytes, row.n + 1, row.graph + (t.graph and t.bytes or 0)
    if t.bytes > row.most then row.most, row.example = t.bytes, ("%s (%s)"):format(t.dtype, t.shape) end
  end
  table.sort(order, function(a, b) return a.bytes > b.bytes or (a.bytes == b.bytes and a.site < b.site) end)
  if #order == 0 then return {} end
  local rows = { { "line", "bytes", "tensors", "for backward", "the greatest" } }
  for i = 1, math.min(#order, 10) do
    local row = order[i]
    rows[#rows + 1] = { row.site, bytes(row.bytes), ("%d"):format(row.n), row.graph > 0 and bytes(row.graph) or "", row.example or "" }
  end
  local lines = columns(rows, width)
  if #order > 10 then lines[#lines + 1] = ("... %d more lines"):format(#order - 10) end
  if not noting then lines[#lines + 1] = ":mem on notes the lines of tensors that are made from then on" end
  return lines
end

-- ---- :graph ----

-- A tree of nodes by depth, each once: lines of "name  line" with two spaces a level.
local function tree(nodes, names, width)
  local lines, seen = {}, {}
  local function walk(i, depth)
    local node = nodes[i]
    if #lines >= MOST then return end
    local leaf = node.leaf and (names[node.leaf] or "a leaf") .. " " .. show.head(node.leaf)
    local text = ("  "):rep(math.min(depth, 20)) .. (leaf or node.name)
      .. (node.site and "  " .. node.site or "") .. (seen[i] and not leaf and #node.edges > 0 and "  (see above)" or "")
    lines[#lines + 1] = #text > width and text:sub(1, width - 3) .. "..." or text
    if seen[i] then return end
    seen[i] = true
    -- a chain of single inputs stays at its depth
    for _, edge in ipairs(node.edges) do walk(edge, depth + (#node.edges > 1 and 1 or 0)) end
  end
  walk(1, 0)
  return lines
end

--- :graph EXPR
function commands.graph(session, rest, line, width)
  if rest == "" then return failed "an expression is missing: :graph LOSS" end
  local r = session:evaluate("return " .. rest, line)
  if not r.ok then return failed(r.message) end
  local t = r[1]
  if not accel.is_tensor(t) then return failed(("it is no tensor, but %s"):format(show.type(t))) end
  local nodes = accel.console.look.graph(t)
  if #nodes == 0 then
    return failed(t.requires_grad and "it is a leaf: it depends on nothing" or "it has no graph: it does not require gradients")
  end
  local parameters, names, reached, leaves = tensors.parameters(session), {}, {}, 0
  for _, item in ipairs(parameters) do names[item.tensor] = item.name end
  for _, v in ipairs(session.frames and session.frames:variables() or {}) do
    if accel.is_tensor(v.value) and not names[v.value] then names[v.value] = v.name end
  end
  for _, node in ipairs(nodes) do
    if node.leaf then
      leaves = leaves + 1
      reached[node.leaf] = true
    end
  end
  local lines = tree(nodes, names, width)
  if #lines >= MOST then lines[#lines + 1] = "..." end
  lines[#lines + 1] = ("%d operations, %d leaves"):format(#nodes - leaves, leaves)
  local missing = {}
  for _, item in ipairs(parameters) do
    if item.tensor.requires_grad and not reached[item.tensor] then missing[#missing + 1] = item.name end
  end
  if #missing > 0 then
    lines[#lines + 1] = ("it does not depend on: %s%s"):format(table.concat(missing, ", ", 1, math.min(8, #missing)),
      #missing > 8 and (" and %d more"):format(#missing - 8) or "")
  end
  return done(lines)
end

return commands
