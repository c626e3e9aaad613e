--- accel-run jupyter: a kernel for notebooks (lua/jupyter), and its entry in the list of kernels that Jupyter reads.
local accel = require "accel"
local command = require "accel.cli.command"

local PROGRAM <const> = "accel-run jupyter"

-- The folder of a user's data for Jupyter. nil: there is no home.
local function user_folder()
  local own, data, home = os.getenv "JUPYTER_DATA_DIR", os.getenv "XDG_DATA_HOME", os.getenv "HOME"
  if own and own ~= "" then return own end
  if data and data:sub(1, 1) == "/" then return data .. "/jupyter" end
  return home and home:sub(1, 1) == "/" and home .. "/.local/share/jupyter" or nil
end

local function install(...)
  local who = PROGRAM .. " install"
  local o = command.parse({
    name = who, usage = "[options]", summary = "Lets Jupyter list this accel-run as a kernel.",
    { "user", "flag", false, nil, "for this user (the default)" },
    { "prefix", "string", nil, "DIR", "for an installation of Python: DIR/share/jupyter" },
    { "name", "string", "accel", "NAME", "the kernel's name for jupyter's own options" },
    { "display-name", "string", "accel (Lua)", "TEXT", "its name in menus" },
  }, 0, 0, ...)
  if o.user and o.prefix then return command.refuse(who, "--user and --prefix exclude each other") end
  if not o.name:find "^[%w._-]+$" or not o.name:find "%w" then
    return command.refuse(who, "--name %s: expected letters, digits, '.', '_' and '-'", o.name)
  end
  local root = o.prefix and o.prefix .. "/share/jupyter" or user_folder()
  if not root then return command.refuse(who, "there is no home folder; set HOME, or use --prefix DIR") end
  local ok, why = pcall(accel.console.zmq)
  if not ok then return command.refuse(who, "%s", tostring(why)) end
  local program, where = accel.process.program()
  if not program then return command.refuse(who, "accel-run is not at %s", where) end
  local folder = ("%s/kernels/%s"):format(root, o.name)
  local spec = { argv = accel.json.array { program, "jupyter", "kernel", "{connection_file}" }, display_name = o.display_name, language = "lua",
    interrupt_mode = "message", metadata = { debugger = false } }
  local done
  done, why = accel.makedirs(folder)
  if done then done, why = accel.write_file(folder .. "/kernel.json", accel.json.encode(spec, { pretty = true }) .. "\n") end
  if not done then return command.refuse(who, "%s", why) end
  command.say("kernel '%s' in %s; start `jupyter lab`, or `jupyter console --kernel %s`", o.name, folder, o.name)
  return true
end

local function kernel(...)
  local who = PROGRAM .. " kernel"
  local _, words = command.parse({
    name = who, usage = "CONNECTION_FILE", summary = "Serves one notebook. Jupyter starts it, and writes the file with the addresses and the key.",
  }, 1, 1, ...)
  local ok, why = accel.host_chunk("jupyter/kernel").run(words[1])
  return ok or command.refuse(who, "%s", why)
end

return function(...)
  return command.dispatch(PROGRAM, "Runs Lua in notebooks: JupyterLab, nbconvert and other programs of Jupyter. The guide `notebooks` tells more.", {
    { "install", "[--user] [--prefix DIR] [--name NAME]", "let Jupyter list this kernel", install },
    { "kernel", "CONNECTION_FILE", "serve a notebook, which Jupyter starts", kernel },
  }, ...)
end
