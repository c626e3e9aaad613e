-- Jupyter's own client with the kernel: client.py. It also executes examples/notebook.ipynb, whose output must be what its cells print as
-- scripts: the cells of one process joined, and those of `%%ranks` under accel-run --num-processes.
-- tier: slow
local accel = require "accel"
local exe, tmp, src = accel.process.program(), os.getenv "ACCEL_TEST_TMP", os.getenv "ACCEL_TEST_SRC"

local function skip(why)
  print("skipped: " .. why)
  os.exit(77)
end
if not os.execute "python3 -c 'import jupyter_client' >/dev/null 2>&1" then skip "python3 has no package jupyter_client" end
local ok, why = pcall(accel.console.zmq)
if not ok then skip(tostring(why)) end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end
local function command(words)
  local pipe = assert(io.popen(words .. " 2>&1"))
  local text = pipe:read "a"
  return pipe:close() == true, text
end

-- the entry in Jupyter's list
local done, text = command(("'%s' jupyter install --prefix '%s/p' --name accel"):format(exe, tmp))
assert(done and text:find("p/share/jupyter/kernels/accel", 1, true), text)
local spec = accel.json.decode(read(tmp .. "/p/share/jupyter/kernels/accel/kernel.json"))
assert(spec.argv[1] == exe and spec.argv[4] == "{connection_file}" and spec.interrupt_mode == "message" and spec.language == "lua")
done, text = command(("'%s' jupyter install --user --prefix '%s/p'"):format(exe, tmp))
assert(not done and text:find "exclude each other", text)
done, text = command(("'%s' jupyter install --name 'a b'"):format(exe))
assert(not done and text:find "expected letters", text)
done, text = command(("'%s' jupyter install --prefix '%s/p' --name .."):format(exe, tmp))
assert(not done and text:find "expected letters", text)

done, text = command(("JUPYTER_PATH='%s/p/share/jupyter' JUPYTER_RUNTIME_DIR='%s/r' python3 '%s/tests/lua/jupyter/client.py' "
  .. "'%s/examples/notebook.ipynb' '%s/cells.json'"):format(tmp, tmp, src, src, tmp))
assert(done and text:find "client: right", text)
if text:find "no notebook" then skip(text:match "no notebook[^\n]*") end

local alone, ranks, expected, of_ranks = {}, {}, "", {}
for _, cell in ipairs(accel.json.decode(read(tmp .. "/cells.json"))) do
  local n, code = cell.code:match "^%%%%ranks ?(%d*)\n(.*)$"
  if n then
    ranks[#ranks + 1] = code:gsub("\nlocal ", "\n"):gsub("^local ", "")
    of_ranks[#of_ranks + 1] = cell.stdout
  else
    alone[#alone + 1] = cell.code
    if not cell.code:find "accel.display" then expected = expected .. cell.stdout end
  end
  if cell.code:find "accel.display" then assert(table.concat(cell.kinds, " "):find("image/svg+xml", 1, true)) end
  if cell.code:find "\nrows$" then
    assert(table.concat(cell.kinds, " "):find("text/html", 1, true) and cell.value:find "model = ", cell.value)
  end
end
assert(#alone == 4 and #ranks == 2 and expected:find "step 200: loss 0%.")
local script = table.concat({ alone[1], alone[2] }, "\n")
assert(accel.write_file(tmp .. "/alone.lua", script))
done, text = command(("'%s' '%s/alone.lua'"):format(exe, tmp))
assert(done and text == expected, text .. expected)
assert(accel.write_file(tmp .. "/ranks.lua", "local accel = require 'accel'\n" .. ranks[1]))
done, text = command(("'%s' --num-processes 2 '%s/ranks.lua' 2>/dev/null"):format(exe, tmp))
assert(done and text:match "sum over ranks\t%S+" == of_ranks[1]:match "sum over ranks\t%S+", text .. of_ranks[1])
print "Jupyter's client: right"
