--- accel-run data convert: any file of records as JSON Lines or CSV.
local accel = require "accel"
local command = require "accel.cli.command"
local source_of = require "accel.cli.data_source"
local writer = require "accel.util.writer"

local NAME <const> = "accel-run data convert"

local function cell(v)
  if v == nil then return "" end
  if type(v) == "table" then v = accel.json.encode(source_of.plain(v)) end
  v = tostring(v)
  if v:find '[",\r\n]' then v = '"' .. v:gsub('"', '""') .. '"' end
  return v
end

--- Writers of lines: fn(sample) -> bytes. The columns of a CSV file are those of the first sample, or of the table.
local function json_line(sample) return accel.json.encode(source_of.plain(sample)) .. "\n" end

local function csv_lines(names)
  local first = true
  return function(sample, i)
    if type(sample) ~= "table" then error(("sample %d has no columns; write .jsonl"):format(i), 0) end
    if not names then
      names = {}
      for name in accel.pairs(sample) do names[#names + 1] = name end
    end
    local known, parts, line = {}, {}, ""
    for k, name in ipairs(names) do known[name], parts[k] = true, cell(sample[name]) end
    for name in next, sample do
      if not known[name] then error(("sample %d has the column '%s', which the first one lacks; write .jsonl"):format(i, name), 0) end
    end
    if first then
      local heads = {}
      for k, name in ipairs(names) do heads[k] = cell(name) end
      line, first = table.concat(heads, ",") .. "\n", false
    end
    return line .. table.concat(parts, ",") .. "\n"
  end
end

return function(...)
  local o, paths = command.parse({
    name = NAME, usage = "FILE OUT", summary = "Writes the samples of FILE to OUT, a .jsonl or .csv file.",
    { "columns", "string", nil, "NAME[,NAME...]", "only these" },
    { "rows", "int", nil, "N", "the first N samples [all]", least = 1 },
    source_of.LIMIT,
  }, 2, 2, ...)
  local source, message = source_of.open(paths[1], o.limit)
  if not source then return command.refuse(NAME, "%s", message) end
  local names
  if o.columns then
    names = {}
    for name in o.columns:gmatch "[^,]+" do names[#names + 1] = name end
  end
  local line
  if paths[2]:find "%.jsonl$" then
    line = json_line
  elseif paths[2]:find "%.csv$" then
    local known = names
    if not known and source.columns then
      known = {}
      for i, c in ipairs(source.columns) do known[i] = c.name end
    end
    line = csv_lines(known)
  else
    return command.refuse(NAME, "%s: OUT must end with .jsonl or .csv", paths[2])
  end
  local out, why = writer.create(paths[2])
  if not out then return command.refuse(NAME, "%s", why) end
  local n, bad = 0, nil
  local ok, wrong = source_of.each(source, names, function(sample, i)
    n = i
    local good, reason = out:write(line(sample, i))
    if not good then bad = reason end
    return good and i ~= o.rows or false
  end)
  if ok and not bad then ok, bad = out:commit() end
  if not ok or bad then
    out:close()
    return command.refuse(NAME, "%s", wrong or bad)
  end
  command.say("%d samples: %s", n, paths[2])
  return true
end
