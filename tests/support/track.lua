--- What the tests of accel.track share: they skip without a library (exit status 77), and start the page of runs.
local accel = require "accel"
local core = require "accel.track.core"

local M = {}

--- Skips where one of these libraries of accel.track.core is not on the machine.
---@param ... fun(): string?, string? core.sqlite, core.http_library, core.rest_library
function M.needs(...)
  for _, library in ipairs { ... } do
    local version, message = library()
    if not version then
      print("skip: " .. message)
      os.exit(77)
    end
  end
end

--- Starts accel-run ui with these arguments; its output goes into files of root. Returns the address that it prints, and its process id.
---@param args string
---@param root string
---@return string url, string pid
function M.page(args, root)
  local pipe <close> = assert(io.popen(("'%s' ui %s > '%s/url' 2> '%s/err' & echo $!"):format(accel.process.program(), args, root, root)))
  local pid = pipe:read "l"
  local url
  for _ = 1, 600 do
    local file = io.open(root .. "/url")
    url = file and file:read "l"
    if file then file:close() end
    if url then break end
    core.pause(0.05)
  end
  if url then return url, pid end
  os.execute("kill " .. pid)
  local file <close> = assert(io.open(root .. "/err"))
  error("accel-run ui does not start: " .. file:read "a")
end

local function output(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

--- The path of Chromium. Skips where it or python3 is missing.
---@return string
function M.browser()
  local browser = output("command -v chromium chromium-browser google-chrome 2>/dev/null"):match "[^\n]+"
  if not browser or output "command -v python3" == "" then
    print "skip: chromium (package chromium) or python3 is not here"
    os.exit(77)
  end
  return browser
end

--- Runs a script of tests/support with the browser on an address. Returns the JSON that it prints, decoded.
---@param browser string
---@param script string
---@param url string
---@param ... string? further arguments
---@return table
function M.in_browser(browser, script, url, ...)
  local words = { "python3", (debug.getinfo(1, "S").source:match "^@(.*/)" or "./") .. script, browser, url, ... }
  for i, word in ipairs(words) do words[i] = "'" .. word:gsub("'", "'\\''") .. "'" end
  local text = output(table.concat(words, " ") .. " 2>&1")
  return accel.json.decode((assert(text:match "{.*}", text)))
end

return M
