--- The table of key_averages(), column for column as PyTorch lays it out.

local WIDTH <const>, SPACING <const> = 12, 2

local function time(us)
  if us >= 1e6 then return ("%.3fs"):format(us / 1e6) end
  if us >= 1e3 then return ("%.3fms"):format(us / 1e3) end
  return ("%.3fus"):format(us)
end

local function share(part, whole)
  if whole == 0 then return part == 0 and "NaN" or "inf%" end
  return ("%.2f%%"):format(part * 100 / whole)
end

local function bytes(n)
  for _, unit in ipairs { { 1 << 30, "GB" }, { 1 << 20, "MB" }, { 1 << 10, "KB" } } do
    if math.abs(n) >= unit[1] then return ("%.2f %s"):format(n / unit[1], unit[2]) end
  end
  return ("%d B"):format(n)
end

local function cut(text, width) return #text > width and text:sub(1, math.max(width - 3, 0)) .. "..." or text end

local UNITS <const> = { [0] = "FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs" }

--- The unit of the largest row. (PyTorch takes the smallest one's. Here sums of a few numbers count as well.)
local function flops_unit(rows)
  local most = 0
  for _, row in ipairs(rows) do most = math.max(most, row.flops) end
  if most == 0 then return nil end
  local k = math.max(0, math.min(#UNITS, math.floor(math.log(most, 10) / 3)))
  return 1000.0 ^ k, "Total " .. UNITS[k]
end

local function widest(rows, field, most)
  local width = WIDTH - 4
  for _, row in ipairs(rows) do width = math.max(width, #(row[field] or "")) end
  return math.min(width, most) + 4
end

--- Columns to drop on a narrow terminal, in this order. All others stay.
local LEAST <const> = { "CPU time avg", "CPU total %", "CPU Mem", "FLOPs", "Self CPU Mem", "Self CPU %", "CPU total", "# of Calls" }

--- Drops columns until all fit into o.width. Finally the names are cut.
local function fit(columns, o)
  local function excess()
    local width = 0
    for _, c in ipairs(columns) do width = width + c.width + SPACING end
    return width - o.width
  end
  for _, title in ipairs(LEAST) do
    if excess() <= 0 then return end
    for i, c in ipairs(columns) do
      if c.title == title or (title == "FLOPs" and c.title:find "FLOPs") then
        table.remove(columns, i)
        break
      end
    end
  end
  local name = columns[1]
  local most = math.max(name.width - excess(), 8)
  if most < name.width then
    local text = name.text
    name.width, name.text = most, function(r) return cut(text(r), most) end
  end
end

---@param rows table[] in their order
---@param total number microseconds of all rows, of which percentages are
---@param o table options of Averages:table
---@param by table options of key_averages
---@param recorded table options of the profile
---@return string
return function(rows, total, o, by, recorded)
  local columns = {}
  local function column(title, width, text) columns[#columns + 1] = { title = title, width = width, text = text } end
  local name_width = widest(rows, "key", o.max_name_column_width)
  column("Name", name_width, function(r) return cut(r.key, o.max_name_column_width) end)
  column("Self CPU %", WIDTH, function(r) return share(r.self_cpu_time_total, total) end)
  column("Self CPU", WIDTH, function(r) return time(r.self_cpu_time_total) end)
  column("CPU total %", WIDTH, function(r) return share(r.cpu_time_total, total) end)
  column("CPU total", WIDTH, function(r) return time(r.cpu_time_total) end)
  column("CPU time avg", WIDTH, function(r) return time(r.cpu_time) end)
  if recorded.profile_memory then
    column("CPU Mem", WIDTH, function(r) return bytes(r.cpu_memory_usage) end)
    column("Self CPU Mem", WIDTH, function(r) return bytes(r.self_cpu_memory_usage) end)
  end
  column("# of Calls", WIDTH, function(r) return tostring(r.count) end)
  if by.group_by_input_shape then
    column("Input Shapes", widest(rows, "input_shapes", o.max_shapes_column_width),
      function(r) return cut(r.input_shapes, o.max_shapes_column_width) end)
  end
  if by.group_by_stack_n > 0 then
    column("Source Location", math.max(widest(rows, "stack", o.max_src_column_width), #"Source Location"),
      function(r) return cut(r.stack or "", o.max_src_column_width) end)
  end
  local scale, title = flops_unit(rows)
  if recorded.with_flops and scale then
    column(title, WIDTH, function(r) return r.flops > 0 and ("%.3f"):format(r.flops / scale) or "--" end)
  end
  if o.width then fit(columns, o) end
  local rule, line, gap = {}, {}, (" "):rep(SPACING)
  for i, c in ipairs(columns) do
    rule[i] = ("-"):rep(c.width)
    line[i] = (" "):rep(c.width - #c.title) .. c.title
  end
  local between = table.concat(rule, gap) .. gap
  local out = {}
  local function put(text) out[#out + 1] = text end
  if o.header then
    put(("="):rep(#between))
    put(o.header)
  end
  put(between)
  put(table.concat(line, gap) .. gap)
  put(between)
  for i, row in ipairs(rows) do
    if o.row_limit >= 0 and i > o.row_limit then break end
    for k, c in ipairs(columns) do
      local text = c.text(row)
      line[k] = (" "):rep(math.max(c.width - #text, 0)) .. text
    end
    put(table.concat(line, gap) .. gap)
  end
  put(between)
  put("Self CPU time total: " .. time(total))
  put ""
  return table.concat(out, "\n")
end
