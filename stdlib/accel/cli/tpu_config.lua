--- accel-run tpu-config: the command that would prepare the machines of a TPU pod. It is printed, not run: accel has no TPUs.
local command = require "accel.cli.command"
local read = require "accel.config.read"
local open_read = require("accel.file.core").open_read

local NAME <const> = "accel-run tpu-config"

return function(...)
  local o = command.parse({ name = NAME, usage = "[options]", summary = "Prints the command that prepares the machines of a TPU pod.",
    { "config_file", "string", nil, "FILE", "a configuration with tpu_name, tpu_zone, commands" },
    { "tpu_name", "string", nil, "NAME", "name of the pod" },
    { "tpu_zone", "string", nil, "ZONE", "its zone" },
    { "command", "string", nil, "TEXT", "commands for each machine; separate several by ;" },
    { "command_file", "string", nil, "FILE", "the same, a line each" },
    { "use_alpha", "flag", false, nil, "gcloud alpha" },
    { "install_accelerate", "flag", false, nil, "install accelerate first" },
    { "accelerate_version", "string", "latest", "V", "which version", needs = "install_accelerate" },
    { "debug", "flag", false, nil, "accepted", ignored = "the command is printed and never run" },
  }, 0, 0, ...)
  local file, values = nil, {}
  if o.config_file then
    local why
    file, why = read.file(o.config_file)
    if not file then return command.refuse(NAME, "%s", why) end
    values = file.values
  end
  local name, zone = o.tpu_name or values.tpu_name, o.tpu_zone or values.tpu_zone
  if not name or not zone then return command.refuse(NAME, "say --tpu_name and --tpu_zone, or a configuration that has them") end
  local lines, path = { "cd /usr/share" }, o.command_file or values.command_file
  if o.install_accelerate then
    lines[#lines + 1] = "pip install accelerate" .. (o.accelerate_version == "latest" and " -U" or "==" .. o.accelerate_version)
  end
  if path then
    local handle, why = open_read(path)
    if not handle then return command.refuse(NAME, "%s", why) end
    for line in handle:lines() do
      if line:find "%S" then lines[#lines + 1] = line end
    end
    handle:close()
  end
  if o.command then lines[#lines + 1] = o.command
  elseif not path then
    for _, line in ipairs(values.commands or {}) do lines[#lines + 1] = line end
  end
  if #lines < 2 then return command.refuse(NAME, "there is nothing to run: say --command or --command_file") end
  io.stdout:write(("gcloud %scompute tpus tpu-vm ssh %s --zone %s --command '%s' --worker all\n"):format(o.use_alpha and "alpha " or "",
    name, zone, (table.concat(lines, "; "):gsub("'", "'\\''"))))
  return true
end
