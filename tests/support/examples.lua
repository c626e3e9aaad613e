--- Runs the examples for their tests (tests/examples): on several numbers of ranks, and with wrong arguments.
local src, build, tmp = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_BUILD", os.getenv "ACCEL_TEST_TMP"

local M = {}

-- Examples that a run of the tests is about, by name; nil: all (tests/run.sh one examples/NAME.lua).
local wanted = os.getenv "ACCEL_TEST_EXAMPLES"

--- The part of a test that is about one example.
---@param name string "06_accelerator"
---@param test fun()
function M.of(name, test)
  assert(io.open(("%s/examples/%s.lua"):format(src, name), "rb"), name):close()
  if wanted and not (" " .. wanted .. " "):find(" " .. name .. " ", 1, true) then return end
  print("example " .. name)
  test()
end

---@param path string
function M.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

--- Runs "@SCRIPT args", in which @ is the folder of examples and ~ the test's own; output, errors and status.
---@param args string
---@param ranks? integer
---@return string out, string err, integer status, string command
function M.try(args, ranks)
  local script = args:gsub("@(%S+)", function(name) return ("'%s/examples/%s'"):format(src, name) end)
  script = script:gsub("~(%S+)", function(name) return ("'%s/%s'"):format(tmp, name) end)
  local command = ("'%s/bin/accel-run' --num-threads 1 %s %s 2>'%s/err.txt'"):format(build,
    ranks and "--num-processes " .. ranks or "", script, tmp)
  local pipe = assert(io.popen(command))
  local out = pipe:read "a"
  local ok, _, code = pipe:close()
  return out, M.read(tmp .. "/err.txt"), ok and 0 or code, command
end

--- The output of a run that succeeds.
---@param args string
---@param ranks? integer
---@return string
function M.run(args, ranks)
  local out, err, code, command = M.try(args, ranks)
  assert(code == 0, ("%s: status %s\n%s%s"):format(command, code, out, err))
  return out
end

--- A second run of an example where an earlier one has saved: it ends with an error, and changes no file of the folder.
---@param args string
---@param folder string in the test's own folder
---@param ranks? integer
---@return string err
function M.again(args, folder, ranks)
  local function files()
    local pipe = assert(io.popen(("cd '%s/%s' && find . -type f -exec cksum {} + | sort"):format(tmp, folder)))
    local text = pipe:read "a"
    return pipe:close() and text
  end
  local before = files()
  assert(before and before:find "MANIFEST.json", folder .. " has no checkpoint")
  local _, err, code, command = M.try(args, ranks)
  assert(code ~= 0 and err:find("of another run", 1, true), ("%s: status %d\n%s"):format(command, code, err))
  assert(files() == before, command .. " changed files of " .. folder)
  return err
end

--- The output of runs on one rank (without a launcher), two and four, which is the same.
---@param args string
---@return string
function M.same(args)
  local out = M.run(args)
  assert(#out > 0, args .. " printed nothing")
  for _, ranks in ipairs { 2, 4 } do
    local other = M.run(args, ranks)
    assert(other == out, ("%s: one rank prints\n%s%d ranks print\n%s"):format(args, out, ranks, other))
  end
  return out
end

--- The run fails with this status, and the first line of its message has this in it; no traceback. On several ranks
--- it is a line of any of them: the others may say first that they were stopped.
---@param args string
---@param message string
---@param ranks? integer
---@param status? integer [2]
function M.refused(args, message, ranks, status)
  local out, err, code = M.try(args, ranks)
  assert(code == (status or 2), ("%s: status %s\n%s%s"):format(args, code, out, err))
  local said = ranks and err or err:match "^[^\n]*"
  assert(said:find(message, 1, true), ("%s: no '%s' in %s of\n%s"):format(args, message, ranks and "a line" or "line 1",
    err))
  assert(not err:find "stack traceback", err)
end

--- The number that a pattern finds in a text.
---@param text string
---@param pattern string
---@return number
function M.number(text, pattern)
  return tonumber(text:match(pattern)) or error(("no '%s' in\n%s"):format(pattern, text), 2)
end

return M
