--- The hand-written stubs in lua/meta (all but ops.lua, which is generated): functions and methods that come from C and
--- are not ops. Used by the reference page core.md and its test.
local markdown = require "reference.markdown"

local M = {}

M.files = { "core.lua", "system.lua", "tensor.lua", "linalg.lua" }
--- Those of a module, for its page.
M.modules = { dist = "dist.lua" }

--- Names of accel that are the host's own business: no scripts call them.
M.private = { gc_check = true, gc_foreign = true, gc_phase = true, global = true, console = true, host_chunk = true, inspect = true, nearest = true,
  pairs = true, traceback = true, _alone = true }

--- Entries {name = "accel.tensor" | "Tensor:item" | "Tensor.shape", section =, text =, examples =, annotations =,
--- params =} in the order of the files. Fields of classes are entries with `field`, their type.
---@param root string the folder lua/meta
---@param sort_out fun(lines: string[]): table of reference.stdlib
---@param files? string[] M.files
---@return table[]
function M.entries(root, sort_out, files)
  local entries = {}
  for _, file in ipairs(files or M.files) do
    local comments, section = {}, nil
    for line in io.lines(root .. "/" .. file) do
      local name, params = line:match "^function ([%w_.:]+)(%b()) end$"
      local field, kind, about = line:match "^%-%-%-@field ([%w_]+) (%S+) (.*)$"
      if line:match "^%-%-%-" and not field then
        comments[#comments + 1] = line
      else
        if name then
          local entry = sort_out(comments)
          entry.name, entry.section, entry.call = name, section, name .. params
          entries[#entries + 1] = entry
        elseif field then
          entries[#entries + 1] = { name = "Tensor." .. field, section = "Fields of tensors", field = kind,
            text = { about }, examples = {}, annotations = {} }
        end
        comments, section = {}, line:match "^%-%- ## (.*)$" or section
      end
    end
  end
  return entries
end

--- The value of an entry's name in this library, or nil.
---@param accel table
---@param name string
function M.find(accel, name)
  local class, member = name:match "^(%u%w*)[.:](.*)$"
  if class == "Tensor" then return accel.Tensor[member] end
  if class == "Group" then return accel.dist.group.WORLD[member] end
  if class == "Work" then return accel.dist.barrier({ async_op = true })[member] end
  local at = accel
  for key in name:gsub("^accel%.", ""):gmatch "[^.]+" do at = type(at) == "table" and at[key] or nil end
  return at
end

--- Entries as text, section by section.
---@param entries table[]
---@param put fun(line: string)
function M.put(entries, put)
  local section
  for _, e in ipairs(entries) do
    if e.section ~= section then put(("\n## %s\n"):format(e.section)) end
    section = e.section
    if e.field then
      put(("- `x.%s`: %s. %s"):format(e.name:match "%.(.*)$", e.field:gsub("|", " or "), table.concat(e.text, " ")))
    else
      local call = e.call:gsub("^Tensor:", "x:"):gsub("^Group:", "group:"):gsub("^Work:", "work:")
      put(("\n### %s\n\n```lua\n%s\n```\n"):format(e.name:gsub("^accel%.", ""), call))
      markdown.annotations(put, e.annotations, "param")
      markdown.returns(put, e.annotations)
      put("\n" .. markdown.text(e.text))
      put("\n" .. markdown.examples(e.examples))
    end
  end
end

--- The page, as text.
---@param entries table[]
---@return string
function M.page(entries)
  local lines = {}
  local function put(line) lines[#lines + 1] = line end
  put [[
# accel

Functions and methods other than ops: tensors from Lua data, random numbers, gradients, files, memory. Functions on
elements are among the [ops](ops.md). The guide [indexing](guides/indexing.md) explains `t[...]`.]]
  M.put(entries, put)
  return (table.concat(lines, "\n") .. "\n"):gsub("\n\n\n+", "\n\n")
end

return M
