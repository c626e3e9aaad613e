--- text.sentences(text): the sentences of a text by rules: for data sets of sentences (accel-run preprocess --split-sentences).
---
--- A sentence ends after ".", "!" or "?" (and closing quotes and brackets), if white space and a possible beginning follow, but no
--- lower-case letter. It does not end after an abbreviation or an initial ("Dr. J. J." Doe). It always ends at an empty line, and
--- after the full stops of Chinese and Japanese.
local arguments = require "accel.util.arguments"
local Tokenizer = require "accel.text.tokenizer"

local sentences_arguments = arguments("sentences", { "keep_newlines", false })

local ABBREVIATIONS <const> = {}
for word in ([[mr mrs ms dr prof st jr sr gen col sgt capt lt rev hon vs etc eg ie cf al no nos vol fig figs eq ch pp ed eds inc ltd co corp
  dept univ approx jan feb mar apr jun jul aug sep sept oct nov dec mt ft viz resp]]):gmatch "%S+" do
  ABBREVIATIONS[word] = true
end

-- Maximum bytes of an abbreviation: only this part before a full stop is checked, not the whole text.
local LONGEST <const> = 32

-- A tokenizer whose first id is a lower-case letter as Unicode has it: its regular expressions know the categories.
local CASES <const> = [[{"normalizer": {"type": "Replace", "pattern": {"Regex": "\\p{Ll}"}, "content": "a"},
  "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}]]
local cases, is_lower = nil, {}

--- Whether a character of UTF-8 begins at `at` that is a lower-case letter.
local function lower_at(text, at)
  local c = text:match("^" .. utf8.charpattern, at)
  if not c or #c == 1 or not utf8.len(c) then return text:find("^%l", at) ~= nil end
  if is_lower[c] == nil then
    cases = cases or Tokenizer.from_str(CASES)
    is_lower[c] = cases:encode(c).ids[1] == 0
  end
  return is_lower[c]
end

-- Full stops that no white space follows, in UTF-8: ideographic, full-width exclamation and question marks.
local FULL_STOPS <const> = { "\u{3002}", "\u{ff01}", "\u{ff1f}" }
local CLOSING <const> = { ['"'] = 1, ["'"] = 1, [")"] = 1, ["]"] = 1, ["\u{201d}"] = 3, ["\u{2019}"] = 3, ["\u{300d}"] = 3 }

--- Behind closing quotes and brackets.
local function behind_closing(text, at)
  while true do
    local n = CLOSING[text:sub(at, at)] or CLOSING[text:sub(at, at + 2)]
    if not n then return at end
    at = at + n
  end
end

--- Whether the word before a full stop at `at` is one that is followed by one.
local function is_abbreviation(text, first, at)
  local word = text:sub(math.max(first, at - LONGEST - 1), at - 1):match "([%a.]+)$"
  if not word or #word > LONGEST then return false end
  local bare = word:gsub("%.", ""):lower()
  return ABBREVIATIONS[bare] or #word == 1 and word ~= "I" or word:find "^%a%.[%a.]*$" ~= nil
end

--- Sentences of a text, in order, without white space around them. White space inside them becomes one space.
--- example: accel.text.sentences "Dr. Doe met J. Roe.  It was late!" --> { "Dr. Doe met J. Roe.", "It was late!" }
---@param text string UTF-8
---@param ... any keep_newlines = false, by position or in a table: white space is kept, with the white space after each sentence up to its
---  last line break
---@return string[]
local function sentences(text, ...)
  local keep_newlines = sentences_arguments(...).keep_newlines
  local out, first, at = {}, 1, 1
  local function put(last)
    local s = text:sub(first, last)
    if keep_newlines then
      local space = text:match("^%s*", last + 1)
      local breaks = space:match "^.*\n" or ""
      if s:find "%S" then out[#out + 1] = s:gsub("^[ \t]+", "") .. breaks end
      first = last + 1 + #breaks
    else
      s = s:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", "")
      if s ~= "" then out[#out + 1] = s end
      first = last + 1
    end
    at = first
  end
  while at <= #text do
    local stop = text:find("[.!?\n\xe3\xef]", at)
    if not stop then break end
    local byte, wide = text:sub(stop, stop), false
    for _, mark in ipairs(FULL_STOPS) do wide = wide or text:sub(stop, stop + 2) == mark end
    if byte == "\n" then
      local behind = text:match("^\n[ \t\r]*\n()", stop)
      if behind then put(stop - 1) end
      at = math.max(at, behind or stop + 1)
    elseif wide then
      put(behind_closing(text, stop + 3) - 1)
    elseif byte == "\xe3" or byte == "\xef" then
      at = stop + 1
    else
      local last = text:match("^[.!?]+()", stop)
      local behind = behind_closing(text, last)
      local next_ = text:match("^%s+()%S", behind)
      local ends = next_ and not lower_at(text, next_) or not text:find("%S", behind)
      if ends and not (byte == "." and last == stop + 1 and behind == last and next_ and is_abbreviation(text, first, stop)) then
        put(behind - 1)
      else
        at = behind
      end
    end
  end
  if text:find("%S", first) then put(#text) end
  return out
end

return sentences
