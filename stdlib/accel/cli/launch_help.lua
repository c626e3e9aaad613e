--- accel-run launch --help[=TOPIC]: the flags by topic, from the schema. Called by accel.cli.launch.
local cli = require "accel.util.cli"
local schema = require "accel.config.schema"

local function flag_line(row)
  local value = row.type == "switch" and "" or " " .. (row.allowed and "WORD" or row.type == "int" and "N" or "VALUE")
  local left = "  --" .. (row.flag_names and row.flag_names[1] or row.key):gsub("_", "-") .. value
  local help = row.help
  if row.allowed and #row.allowed <= 6 then
    local words = {}
    for i, word in ipairs(row.allowed) do words[i] = tostring(word) end
    help = ("%s: %s"):format(help, table.concat(words, ", "))
  end
  if row.default ~= nil and row.default ~= "" and type(row.default) ~= "table" and row.type ~= "switch" then
    help = ("%s [%s]"):format(help, tostring(row.default))
  end
  if #left > 28 then return left .. "\n" .. cli.filled("", help, 30) end
  return cli.filled(left, help, 30)
end

--- Writes the flags of a topic to stdout. group: its title, all, or nil for the flags of a launch.
---@param name string the name of the command
---@param group? string
---@return boolean
return function(name, group)
  local lines = { "Usage: " .. name .. " [flags] script.lua [arguments of the script]", "" }
  local groups = {}
  for _, topic in ipairs(schema.topics) do
    groups[#groups + 1] = topic.title
    if topic.title == group or group == "all" or (not group and topic.title == "launch") then
      lines[#lines + 1] = topic.title .. ":"
      for _, list in ipairs { topic.flags or {}, topic.keys } do
        for _, row in ipairs(list) do
          if row.flag ~= false then lines[#lines + 1] = flag_line(row) end
        end
      end
      lines[#lines + 1] = ""
    end
  end
  lines[#lines + 1] = cli.filled("More flags:", "--help=" .. table.concat(groups, ", --help=") .. ", or all.", 12)
  io.stdout:write(table.concat(lines, "\n"), "\n")
  return true
end
