--- Sums of spans by name, and their table: torch's key_averages().
local class = require "accel.util.class"
local columns = require "accel.profiler.columns"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- A list of rows, one per name: key, count, cpu_time_total and self_cpu_time_total in microseconds, cpu_memory_usage and
--- self_cpu_memory_usage in bytes, flops, bytes (of collectives and offload), input_shapes, stack, kind.
---@class accel.profiler.Averages
local Averages = class("accel.profiler.Averages")

--- ProfilerStep#3 and its like are one row.
local function key_of(name) return (name:gsub("^ProfilerStep#%d+$", "ProfilerStep*")) end

function Averages:init(events, by, recorded)
  local rows, order = {}, self
  for _, e in ipairs(events) do
    local key = key_of(e.name)
    local id = key
    if by.group_by_input_shape then id = id .. "\0" .. (e.shapes or "") end
    if by.group_by_stack_n > 0 then id = id .. "\0" .. (e.site or "") end
    local row = rows[id]
    if not row then
      row = { key = key, count = 0, cpu_time_total = 0, self_cpu_time_total = 0, cpu_memory_usage = 0, self_cpu_memory_usage = 0,
        flops = 0, bytes = 0, input_shapes = e.shapes or "[]", stack = e.site, kind = e.kind }
      rows[id] = row
      order[#order + 1] = row
    end
    row.count = row.count + 1
    row.cpu_time_total = row.cpu_time_total + (e.stop - e.start) / 1000
    row.self_cpu_time_total = row.self_cpu_time_total + e.self_time / 1000
    row.cpu_memory_usage = row.cpu_memory_usage + e.memory
    row.self_cpu_memory_usage = row.self_cpu_memory_usage + e.self_memory
    row.flops = row.flops + (e.flops or 0)
    row.bytes = row.bytes + e.bytes
  end
  for _, row in ipairs(order) do row.cpu_time = row.cpu_time_total / row.count end
  self._by, self._recorded = by, recorded
end

--- The first row of that name, nil without one.
function Averages:find(key)
  for _, row in ipairs(self) do
    if row.key == key then return row end
  end
  return nil
end

--- Microseconds in all spans together, none counted twice.
function Averages:self_cpu_time_total()
  local sum = 0
  for _, row in ipairs(self) do sum = sum + row.self_cpu_time_total end
  return sum
end

--- One row with the sums of all.
function Averages:total_average()
  local sum = { key = "Total", count = 0, cpu_time_total = 0, self_cpu_time_total = 0, self_cpu_memory_usage = 0, flops = 0, bytes = 0 }
  for _, row in ipairs(self) do
    for key in next, sum do
      if key ~= "key" then sum[key] = sum[key] + row[key] end
    end
  end
  return sum
end

local SORT <const> = { cpu_time = true, cpu_time_total = true, self_cpu_time_total = true, cpu_memory_usage = true,
  self_cpu_memory_usage = true, count = true, flops = true, bytes = true }

--- Names of the reference for times on a device: here an op's span holds them, as every op waited for its device.
local DEVICE <const> = { cuda_time = "cpu_time", cuda_time_total = "cpu_time_total", self_cuda_time_total = "self_cpu_time_total",
  device_time = "cpu_time", device_time_total = "cpu_time_total", self_device_time_total = "self_cpu_time_total" }

local function sorted(self, by)
  local rows = table.move(self, 1, #self, 1, {})
  if by == nil then return rows end
  local field = DEVICE[by] or by
  if not SORT[field] then
    local nearest = require "accel.util.nearest"(tostring(by), SORT)
    raise("table: sort_by has no '%s'%s", tostring(by), nearest and ("; did you mean '%s'?"):format(nearest) or options.listed(SORT))
  end
  local place = {}
  for i, row in ipairs(rows) do place[row] = i end
  table.sort(rows, function(a, b)
    if a[field] ~= b[field] then return a[field] > b[field] end
    return place[a] < place[b]
  end)
  return rows
end

--- The rows as PyTorch prints them. sort_by: cpu_time, cpu_time_total, self_cpu_time_total, cpu_memory_usage,
--- self_cpu_memory_usage, count, flops, bytes. Spans that are in no other span are those that prof:events() lists without a parent.
---@param opts? table
---  sort_by string: the greatest first (default: by their beginning)
---  row_limit integer = 100: rows that are shown, below 0 all of them
---  header string: a line above the table
---  max_name_column_width integer = 55: longer names are cut
---  max_shapes_column_width integer = 80: longer lists of shapes are cut
---  max_src_column_width integer = 75: longer places in the script are cut
---  width integer: columns that do not fit into so many characters are left out, the least important first
---@return string
function Averages:table(opts, ...)
  local o = options("table", opts, { sort_by = options.none, row_limit = 100, header = options.none, max_name_column_width = 55,
    max_shapes_column_width = 80, max_src_column_width = 75, width = options.none }, ...)
  return columns(sorted(self, o.sort_by), self:self_cpu_time_total(), o, self._by, self._recorded)
end

function Averages.__tostring(self) return self:table() end

---@param events accel.profiler.Event[]
---@param by {group_by_input_shape: boolean, group_by_stack_n: integer}
---@param recorded table options of the profile
return function(events, by, recorded) return Averages(events, by, recorded) end
