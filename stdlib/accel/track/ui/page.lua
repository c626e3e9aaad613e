--- The page of accel-run ui as one text: index.html with its style and scripts inside. Used by server.lua.
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$"
local raise = require "accel.util.raise"

local function read(name)
  local file, message = io.open(here .. "/" .. name, "rb")
  if not file then raise("the page lacks a part: %s", message) end
  local text = file:read "a"
  file:close()
  return text
end

---@param nonce string allows the page's scripts to run in the browser
---@return string
return function(nonce)
  local html = read "index.html"
  return (html:gsub("{{([%w_.]+)}}", function(name)
    if name == "nonce" then return nonce end
    return read(name)
  end))
end
