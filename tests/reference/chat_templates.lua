-- Chat templates give the text that jinja2 gives in the environment of Transformers, and an error where it gives one.
--   accel-run tests/reference/chat_templates.lua DIR
local accel = require "accel"
local Template = accel.text.Template
local here = arg[0]:match "^(.*)/[^/]*$" or "."
local dir = arg[1] or here .. "/chat_templates"

-- What differs on purpose.
local views = "keys and items of a dictionary print as lists" -- there as dict_items([...])
local inside = "names of Python's own objects do not exist"
local different = {
  ["{{ d.items() }}"] = views, ["{{ d.keys() }}"] = views, ["{{ n.real }}"] = inside, ["{{ self is defined }}"] = inside,
}

local file <close> = assert(io.open(dir .. "/chat_templates.json", "rb"))
local cases = accel.json.decode(file:read "a").cases
local function with_nulls(x)
  if x == "<null>" then return accel.json.null end
  for key, value in next, type(x) == "table" and x or {} do
    if value ~= accel.json.null then x[key] = with_nulls(value) end
  end
  return x
end

local passed, failed, skipped = 0, 0, 0
for _, case in ipairs(cases) do
  local template, message = Template.parse(case.template)
  local text
  if template then text, message = template:try_render(with_nulls(case.names)) end
  if text == case.text and (text or message:find "^template, line %d+: ." or message:find "^template: .") then
    passed = passed + 1
  elseif different[case.template] then
    skipped = skipped + 1
  else
    failed = failed + 1
    print(("FAIL %q\n  got    %s\n  wanted %s"):format(case.template, text and ("%q"):format(text) or message,
      case.text and ("%q"):format(case.text) or case.error))
  end
end
print(("%d passed, %d failed, %d skipped (they differ on purpose)"):format(passed, failed, skipped))
os.exit(failed == 0 and passed > 0, true)
