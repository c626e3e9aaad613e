-- How README and guides read: counts habits that make technical English hard to read, per 1,000 words, next to the same counts over the
-- documentation of two well-liked projects. The counts are a mirror and never fail. Phrases that are never right do fail, in README, guides
-- and scripts (prose_text.lua checks C and Lua sources).
--   accel-run tests/check/prose.lua [--lines] [FILE.md ...]     --lines prints each place; ACCEL_TEST_SRC as for every test
local source = os.getenv "ACCEL_TEST_SRC" or "."
local prose = dofile(source .. "/tests/check/prose_habits.lua")

local function output_of(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

--- The text without code: blocks, `code`, tags. Lines keep their numbers.
local function words(text)
  text = ("\n" .. text):gsub("\n```.-\n```", function(block) return ("\n"):rep(select(2, block:gsub("\n", ""))) end):sub(2)
  return (text:gsub("`[^`\n]*`", "X"):gsub("<[^>\n]+>", ""))
end

local show, pages = false, {}
for _, word in ipairs(arg) do
  if word == "--lines" then show = true else pages[#pages + 1] = word end
end
local given = #pages > 0
if not given then
  pages[1] = source .. "/README.md"
  for name in output_of(("ls '%s/lua/help/guides'"):format(source)):gmatch "%S+%.md" do pages[#pages + 1] = source .. "/lua/help/guides/" .. name end
end

local texts, n_words = {}, 0
for i, path in ipairs(pages) do
  texts[i] = words(read(path))
  n_words = n_words + prose.words(texts[i])
end
print(("%-42s%8s%12s%8s"):format(("%d words"):format(n_words), "here", "accelerate", "nng"))
for _, habit in ipairs(prose.habits) do
  local count, lines = 0, {}
  for i, text in ipairs(texts) do
    local n = 0
    for line in (text .. "\n"):gmatch "([^\n]*)\n" do
      n = n + 1
      local here = prose.count(habit, line)
      count = count + here
      if here > 0 then lines[#lines + 1] = ("    %s:%d: %s"):format(pages[i], n, line:match "^%s*(.-)%s*$":sub(1, 120)) end
    end
  end
  print(("%-42s%8.1f%12.2f%8.2f"):format(habit[1], 1000 * count / math.max(n_words, 1), habit[3], habit[4]))
  if show then print(table.concat(lines, "\n")) end
end
if given then return end

-- ---- phrases that are never right, in pages and scripts ----
local failed = 0
local list = output_of((
  "cd '%s' && find README.md host bindings lua stdlib examples -type f \\( -name '*.md' -o -name '*.sh' \\) | sort"):format(source))
for path in list:gmatch "[^\n]+" do
  local n = 0
  for line in (read(source .. "/" .. path) .. "\n"):gmatch "([^\n]*)\n" do
    n = n + 1
    if prose.never(line) then
      failed = failed + 1
      print(("FAIL %s:%d: %s"):format(path, n, line:match "^%s*(.-)%s*$":sub(1, 140)))
    end
  end
end
print(("%d phrases that are never right"):format(failed))
if failed > 0 then os.exit(1, true) end
