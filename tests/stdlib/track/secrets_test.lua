-- Passwords of trackers' addresses reach the server and nothing else: no warning, no file; journals are their user's alone, and `runs sync`
-- finds the password where the run found it.
--   accel-run tests/stdlib/track/secrets_test.lua
-- tier: slow
local accel = require "accel"
local address = require "accel.util.address"
local core = require "accel.track.core"
local lfs = require "lfs"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
require("track").needs(core.http_library, core.rest_library)

-- Addresses.
for _, case in ipairs {
  { "http://u:p@h:1/x", "http://h:1/x", "u:p" }, { "https://h/x@y", "https://h/x@y" }, { "http://u%3a:p%40@h", "http://h", "u::p@" },
  { "http://a@b:c@h/", "http://h/", "a@b:c" }, { "http://token@h?key=1", "http://h?key=1", "token" }, { "sqlite:///x", "sqlite:///x" },
} do
  local bare, user = address.split(case[1])
  assert(bare == case[2] and user == case[3], case[1])
end
assert(address.shown "http://u:p@h/x?api_key=k#f" == "http://h/x?...")
assert(address.shown "http://h/\27[2J\u{202e}" == "http://h/\\x1b[2J\\u202e")

-- A server that asks for the password, away at first.
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or core.current_folder()) .. "/secrets-"))
local server = assert(core.http(0))
local port = server:port()
server:close()

local program = accel.process.program()
local function run(environment, how)
  local pipe <close> = assert(io.popen(("cd '%s' && umask 022 && %s '%s' %s 2>&1"):format(root, environment, program, how)))
  return pipe:read "a"
end
assert(accel.write_file(root .. "/s.lua", [[local accel = require "accel"
local a = accel.Accelerator { log_with = "trackio", project_dir = "." }
a:init_trackers("p", { lr = 1 }, { trackio = { name = "r", outbox = "box", finish_seconds = 1 } })
a:log({ loss = 1 }, 1)
a:end_training()]]))
local URL <const> = ("TRACKIO_SERVER_URL=http://user:HUSH%%40PASS@127.0.0.1:%d"):format(port)
local said = run(URL, "s.lua")
assert(said:find("127.0.0.1:" .. port, 1, true) and said:find("runs sync", 1, true), said)

local function everything(dir, found)
  for name in lfs.dir(dir) do
    local path = dir .. "/" .. name
    local a = lfs.attributes(path)
    if name:find "^%.%.?$" == nil and a.mode == "directory" then everything(path, found)
    elseif a.mode == "file" then found[#found + 1] = { path = path, mode = a.permissions } end
  end
  return found
end
local function hushed(text, where)
  for _, secret in ipairs { "HUSH", "PASS", "user:" } do assert(not text:find(secret, 1, true), where .. " holds the password: " .. text) end
end
hushed(said, "a warning")
local n = 0
for _, file in ipairs(everything(root .. "/box", {})) do
  n = n + 1
  assert(file.mode == "rw-------", file.path .. " " .. file.mode)
  local f <close> = assert(io.open(file.path, "rb"))
  hushed(f:read "a", file.path)
end
assert(n >= 1, n)

-- It comes back. Without the password nothing is taken, with it all.
server = assert(core.http(port))
local sent = { n = 0 }
local WANTED <const> = "Basic dXNlcjpIVVNIQFBBU1M=" -- user:HUSH@PASS
local function serve(seconds, until_)
  local limit = accel.clock() + seconds
  while accel.clock() < limit and not until_() do
    assert(server:poll(0.05, function(request)
      local known = request:header "authorization" == WANTED
      sent.n = sent.n + (known and 1 or 0)
      return { status = known and 200 or 401, headers = { ["Content-Type"] = "application/json" },
        body = known and '{"data":[]}' or '{"message":"who are you \\u001b[31m?"}' }
    end))
  end
end
local function sync(environment)
  local out = root .. "/out"
  os.remove(out)
  os.execute(("cd '%s' && (%s '%s' runs sync --seconds 1 box; echo \"exit $?\") > '%s' 2>&1 &"):format(root, environment, program, out))
  local text
  serve(60, function()
    local f <close> = io.open(out)
    text = f and f:read "a" or ""
    return text:find "exit %d" ~= nil
  end)
  return text
end
local text = sync "TRACKIO_X=1"
assert(text:find "exit 1" and text:find "status 401" and text:find("who are you \\x1b[31m?", 1, true) and not text:find "\27", text)
assert(sent.n == 0)
hushed(text, "runs sync")
text = sync(URL)
assert(text:find "exit 0" and sent.n > 0, text)
hushed(text, "runs sync")
server:close()
os.execute(("rm -rf '%s'"):format(root))
