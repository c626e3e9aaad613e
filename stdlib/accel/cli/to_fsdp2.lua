--- accel-run to-fsdp2: a configuration of FSDP version 1 as one of version 2.
local command = require "accel.cli.command"
local read = require "accel.config.read"
local schema = require "accel.config.schema"
local write = require "accel.config.write"
local lfs = require "lfs"

local NAME <const> = "accel-run to-fsdp2"

--- Keys that version 2 does not have.
local GONE <const> = { "fsdp_backward_prefetch", "fsdp_sync_module_states", "fsdp_use_orig_params", "fsdp_forward_prefetch" }
--- Sharding strategies as whether parameters are freed after the forward pass.
local RESHARD <const> = { FULL_SHARD = true, HYBRID_SHARD = true, SHARD_GRAD_OP = false, HYBRID_SHARD_ZERO2 = false,
  NO_SHARD = false }
local STRATEGIES <const> = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2" }

local function refuse(...) return command.refuse(NAME, ...) end

local function exists(path) return lfs.attributes(path, "mode") ~= nil end

--- Fields of version 2. Other fields of the section are kept.
local function convert(fields)
  local from, to = fields.fsdp_config, {}
  for key, value in next, from do
    local row = schema.in_section(schema.sections.fsdp_config, key)
    to[row and row.key or key] = value
  end
  for _, key in ipairs(GONE) do to[key] = nil end
  local strategy = to.fsdp_sharding_strategy
  to.fsdp_sharding_strategy = nil
  if strategy ~= nil then to.fsdp_reshard_after_forward = RESHARD[STRATEGIES[strategy] or strategy] end
  to.fsdp_version = 2
  fields.fsdp_config = to
  return fields
end

return function(...)
  local o = command.parse({ name = NAME, usage = "--config_file FILE [options]",
    summary = "Writes a configuration of FSDP version 1 in the words of version 2.",
    { "config_file", "string", nil, "FILE", "the configuration of version 1" },
    { "output_file", "string", nil, "FILE", "the file to write" },
    { "overwrite", "flag", false, nil, "write to the same file, or over one that is there" },
  }, 0, 0, ...)
  if not o.config_file then return refuse("say --config_file") end
  local file, why = read.file(o.config_file)
  if not file then return refuse("%s", why) end
  if not o.output_file and not o.overwrite then return refuse("say --output_file, or --overwrite to change %s itself", o.config_file) end
  if o.output_file and exists(o.output_file) and not o.overwrite then
    return refuse("%s exists; add --overwrite", o.output_file)
  end
  for _, p in ipairs(file.problems) do
    if p.kind ~= "unknown" then return refuse("%s", read.explain(file, p)) end
  end
  local fields = read.fields(file)
  if next(fields.fsdp_config) == nil then return refuse("%s has no fsdp_config", o.config_file) end
  local path = o.output_file or o.config_file
  if file.values.fsdp_version == 2 then
    command.tell("%s: warning: %s already has version 2; nothing was changed", NAME, o.config_file)
    return true
  end
  local ok, message = write.file(convert(fields), path)
  if not ok then return refuse("%s", message) end
  command.say("configuration of version 2 written to %s", path)
  return true
end
