--- accel-run ckpt: lists folders of checkpoints, verifies, compares and converts them, and removes old ones.
local accel = require "accel"
local ckpt = require "accel.ckpt"
local command = require "accel.cli.command"
local convert_bytes = require("accel.util.sizes").convert_bytes

local visible = require("accel.util.terminal").visible

local PROGRAM <const> = "accel-run ckpt"

--- Lines of columns, as wide as their content. The last one is not padded.
local function print_table(rows)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do row[i] = visible(text) end
    for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, #text) end
  end
  for _, row in ipairs(rows) do
    local line = {}
    for i, text in ipairs(row) do line[i] = i == #row and text or text .. (" "):rep(widths[i] - #text) end
    print((table.concat(line, "  "):gsub("%s+$", "")))
  end
end

--- The folder itself, or the checkpoints that accelerator:save_state puts below a project.
local function folder_of(dir)
  local below = dir .. "/checkpoints"
  return accel.listdir(below) and below or dir
end

local function cell(value) return value == nil and "-" or tostring(value) end

local function ls(...)
  local o, dirs = command.parse({
    name = PROGRAM .. " ls", usage = "[FOLDER ...]", summary = "Lists the checkpoints of folders, the oldest first; default: the current folder.",
    { "json", "flag", false, nil, "print JSON" },
  }, 0, math.maxinteger, ...)
  if #dirs == 0 then dirs[1] = "." end
  local all, failed = {}, false
  for _, dir in ipairs(dirs) do
    local entries, message = ckpt.scan(folder_of(dir))
    if not entries then
      command.refuse(PROGRAM .. " ls", "%s", message)
      failed = true
    end
    table.move(entries or {}, 1, #(entries or {}), #all + 1, all)
  end
  if o.json then
    print(accel.json.encode(accel.json.array(all), { pretty = true }))
  elseif #all > 0 then
    local rows = { { "NAME", "STEP", "EPOCH", "RANKS", "SIZE", "STATUS" } }
    for _, entry in ipairs(all) do
      local state = entry.state or {}
      rows[#rows + 1] = { entry.name, cell(state.step), cell(state.epoch), cell((state.world or {}).num_processes),
        entry.status == "ok" and convert_bytes(entry.bytes) or "-",
        entry.status == "ok" and "ok" or ("%s: %s"):format(entry.status, entry.reason) }
    end
    print_table(rows)
  elseif not failed then
    for i, dir in ipairs(dirs) do dirs[i] = folder_of(dir) end
    command.say("no checkpoints in %s\nWith automatic_checkpoint_naming an Accelerator saves them in\nproject_dir/checkpoints; give that folder.",
      table.concat(dirs, ", "))
  end
  return not failed
end

--- Plain data of a file as text.
local function shown_file(c, file)
  local bytes, message = c:bytes(file)
  if not bytes then return message end
  local ok, value = pcall(accel.decode, bytes)
  return ok and accel.inspect(value) or ("%d bytes"):format(#bytes)
end

local function show(...)
  local o, words = command.parse({
    name = PROGRAM .. " show", usage = "CHECKPOINT [OBJECT | FILE]",
    summary = "Lists the record, files and objects of a checkpoint. With OBJECT it lists the tensors, with FILE the values.",
    { "json", "flag", false, nil, "print the manifest as JSON" },
  }, 1, 2, ...)
  if o.json and words[2] then
    return command.refuse(PROGRAM .. " show", "--json prints the whole manifest; leave out --json or '%s'", words[2])
  end
  local c <close>, message = ckpt.open(words[1])
  if not c then
    local inside = ckpt.newest(words[1])
    return command.refuse(PROGRAM .. " show", "%s%s", message, inside and ("; the newest checkpoint in it is " .. inside) or "")
  end
  if o.json then
    print(accel.json.encode(c.manifest, { pretty = true }))
    return true
  end
  local what, files = words[2], {}
  for _, file in ipairs(c.manifest.files) do files[file.name] = file end
  local is_object = {}
  for _, object in ipairs(c:objects()) do is_object[object] = true end
  if what and is_object[what] then
    local list, why = c:tensors(what)
    if not list then return command.refuse(PROGRAM .. " show", "%s", why) end
    local rows = {}
    for i, t in ipairs(list) do
      rows[i] = { t.name, t.dtype, "(" .. table.concat(t.shape, ", ") .. ")", convert_bytes(t.bytes) }
    end
    print_table(rows)
  elseif what and files[what] then
    print(visible(shown_file(c, what), true))
  elseif what then
    return command.refuse(PROGRAM .. " show", "%s has no object and no file '%s'", words[1], what)
  else
    local total = 0
    for _, file in ipairs(c.manifest.files) do total = total + file.bytes end
    command.say("%s: written %s by accel %s, %d file%s, %s", c.path, cell(c.manifest.created), cell(c.manifest.accel),
      #c.manifest.files, #c.manifest.files == 1 and "" or "s", convert_bytes(total))
    print(accel.inspect(c.manifest.state))
    local rows = { { "OBJECT", "TENSORS", "ELEMENTS", "SIZE" } }
    for _, object in ipairs(c:objects()) do
      local list, why = c:tensors(object)
      if not list then return command.refuse(PROGRAM .. " show", "%s", why) end
      local bytes, elements = 0, 0
      for _, t in ipairs(list) do
        local n = 1
        for _, extent in ipairs(t.shape) do n = n * extent end
        bytes, elements = bytes + t.bytes, elements + n
      end
      rows[#rows + 1] = { object, tostring(#list), tostring(elements), convert_bytes(bytes) }
    end
    if #rows > 1 then print_table(rows) end
    rows = { { "FILE", "SIZE" } }
    for _, file in ipairs(c.manifest.files) do rows[#rows + 1] = { file.name, convert_bytes(file.bytes) } end
    print_table(rows)
  end
  return true
end

local function verify(...)
  local _, paths = command.parse({
    name = PROGRAM .. " verify", usage = "CHECKPOINT ...",
    summary = "Compares every byte with the checksums of the manifest. Exit status 1 if one differs.",
  }, 1, math.maxinteger, ...)
  local Progress, terminal = require "accel.util.progress", require "accel.util.terminal"
  local all_good = true
  for _, path in ipairs(paths) do
    local c <close>, message = ckpt.open(path)
    local good, bar = false, nil
    if c then
      good, message = c:verify(terminal.interactive(2) and function(done, all)
        bar = bar or Progress { label = "verify", unit = "B" }
        if bar:due() then bar:update(all > 0 and done / all or 1, done) end
      end or nil)
    end
    if bar then bar:finish() end
    if good then command.say("%s: ok", path) else all_good = command.refuse(PROGRAM .. " verify", "%s", message) end
  end
  return all_good
end

local function prune(...)
  local o, dirs = command.parse({
    name = PROGRAM .. " prune", usage = "--keep N FOLDER ...",
    summary = "Removes the oldest checkpoints of folders. Incomplete ones do not count and stay.",
    { "keep", "int", nil, "N", "how many to keep; at least 1" },
    { "dry_run", "flag", false, nil, "only list the checkpoints to remove" },
  }, 1, math.maxinteger, ...)
  if not o.keep or o.keep < 1 then
    io.stderr:write(PROGRAM, " prune: needs --keep N, 1 at least\n")
    os.exit(2, true)
  end
  for _, dir in ipairs(dirs) do
    local parent = folder_of(dir)
    local removed, message = ckpt.prune(parent, o.keep, { dry_run = o.dry_run })
    if not removed then return command.refuse(PROGRAM .. " prune", "%s", message) end
    for _, name in ipairs(removed) do command.say("%s %s/%s", o.dry_run and "would remove" or "removed", parent, name) end
  end
  return true
end

return function(...)
  return command.dispatch(PROGRAM, "Looks after checkpoints that accelerator:save_state wrote.", {
    { "ls", "[FOLDER ...]", "the checkpoints of folders", ls },
    { "show", "CHECKPOINT [WHAT]", "list the content of one", show },
    { "verify", "CHECKPOINT ...", "whether every byte is as it was written", verify },
    { "diff", "CHECKPOINT CHECKPOINT", "compare two of them", require "accel.cli.ckpt_diff" },
    { "convert", "CHECKPOINT FOLDER", "write one for another tool", require "accel.cli.ckpt_convert" },
    { "prune", "--keep N FOLDER ...", "remove the oldest", prune },
  }, ...)
end
