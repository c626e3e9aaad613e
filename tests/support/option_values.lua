--- Values that are not the default of an option, from its name and type. Used by option_sweep.lua.
local reader = require "option_reader"

-- By name, where a type alone does not tell what is taken.
local by_name = {
  dtype = { "f64" }, device = { "meta" }, seed = { 12345 }, last_epoch = { 3 }, inplace = { true },
}

--- The words of a type, `"a"|"b"`.
local function words(kind)
  local list = {}
  for word in kind:gmatch '"([^"]*)"' do list[#list + 1] = word end
  return #list > 0 and list or nil
end

---@param entry table of option_reader
---@param option table
---@return any[]?
return function(_, option)
  local listed = by_name[option.name]
  if listed then return listed end
  local default, kind = reader.value_of(option.default), option.type or option.kind or ""
  if default ~= nil and not option.type then kind = math.type(default) or type(default) end
  if words(kind) then
    local list = {}
    for _, word in ipairs(words(kind)) do
      if word ~= default then list[#list + 1] = word end
    end
    return list
  end
  if type(default) == "boolean" then return { not default } end
  if kind:find "^boolean" then return { true, false, any = true } end
  if math.type(default) == "integer" and not kind:find "number" then return { default + 1 } end
  if type(default) == "number" then return { default == 0 and 0.3 or default * 0.5 } end
  return nil
end
