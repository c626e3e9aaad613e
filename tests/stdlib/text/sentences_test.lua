-- text.sentences: where sentences end and where they do not, with and without line breaks; every character that is no white space is kept.
-- tier: every change
local accel = require "accel"

local cases = {
  { 'Dr. Doe met J. Roe. It was late!  "Go," he said.', "Dr. Doe met J. Roe.", "It was late!", '"Go," he said.' },
  { "One, e.g. this. Three?\n\nFour \nline", "One, e.g. this.", "Three?", "Four line" },
  { "a\u{3002}b\u{ff01}c\u{3001}d", "a\u{3002}", "b\u{ff01}", "c\u{3001}d" },
  { 'He said "No." Then left. U.S. troops came. See Fig. 3. End', 'He said "No."', "Then left.", "U.S. troops came.", "See Fig. 3.", "End" },
  { "Pi is 3.14. What?! Yes... Maybe... no.", "Pi is 3.14.", "What?!", "Yes...", "Maybe... no." },
  { "So did I. Then (it ended.) \u{c9}t\u{e9} came.", "So did I.", "Then (it ended.)", "\u{c9}t\u{e9} came." },
  { "\n\n \n" }, { "" }, { "no end", "no end" },
}
for _, case in ipairs(cases) do
  local got = accel.text.sentences(case[1])
  assert(#got == #case - 1, ("%q: %d sentences"):format(case[1], #got))
  for i, s in ipairs(got) do assert(s == case[i + 1], ("%q: '%s', expected '%s'"):format(case[1], s, case[i + 1])) end
  local kept = table.concat(accel.text.sentences(case[1], true))
  assert(kept:gsub("%s", "") == case[1]:gsub("%s", ""), kept)
end
assert(accel.text.sentences("One.\nTwo.", true)[1] == "One.\n")
-- what begins anywhere is split in a time that grows with its length
local random = accel.Generator(1)
local picks, parts = accel.randint(0, 12, { 20000 }, { generator = random }):tolist(), {}
local pieces = { "a", "B", ".", "!", " ", "\n", "\n\n", '"', "\u{3002}", "\u{201d}", "3", "\xff" }
for i, k in ipairs(picks) do parts[i] = pieces[k + 1] end
local text = table.concat(parts)
assert(table.concat(accel.text.sentences(text)):gsub("%s", "") == text:gsub("%s", ""))
