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
  { "\u{421}\u{43a}\u{430}\u{437}\u{430}\u{43b} \u{43e}\u{43d}... \u{43f}\u{43e}\u{442}\u{43e}\u{43c}.  \u{42f} \u{442}\u{443}\u{442}.",
    "\u{421}\u{43a}\u{430}\u{437}\u{430}\u{43b} \u{43e}\u{43d}... \u{43f}\u{43e}\u{442}\u{43e}\u{43c}.", "\u{42f} \u{442}\u{443}\u{442}." },
  { "Wait! \u{e9}t\u{e9}? \u{391}. \u{3b1}", "Wait! \u{e9}t\u{e9}?", "\u{391}. \u{3b1}" },
  { "Bytes. \xff. \xd0 X. \x80", "Bytes.", "\xff.", "\xd0 X. \x80" },
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
-- what stands before a full stop is not read again and again
for _, long in ipairs { ("a"):rep(200000) .. " b. C", ("a"):rep(200000) .. ". C", ("a. "):rep(50000) .. "C" } do
  local began = accel.clock()
  local got = accel.text.sentences(long)
  assert(table.concat(got, " ") == long and accel.clock() - began < 3, ("%d bytes took %.1f s"):format(#long, accel.clock() - began))
end
assert(#accel.text.sentences("U.S.A. " .. ("a."):rep(20) .. " B") == 2, "so long a word is not an abbreviation")
