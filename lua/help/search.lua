-- Finds words in the guides, the reference pages, the examples and the commands, for accel-run help and for the site. Both use one index:
-- rows of { title, address, page, text, topic } that the build writes with the site (lua/gen/reference/site.lua). `topic` is the
-- argument of accel-run help. Without a build the index holds the sections of the guides. lua/gen/reference/site/site.js ranks as
-- `score` does here; tests/lua/search_test.lua compares the two.
local accel = ...
local pages = accel.host_chunk "help/pages"

local M = {}

-- Words that mean the same: a query with one of a group finds places with any other. Every form is a phrase.
M.groups = {
  { "learning rate", "lr" }, { "early stopping", "early_stopping", "set_trigger" }, { "warmup", "warm up", "warm-up" },
  { "checkpoint", "checkpoints", "checkpointing", "save_state" }, { "resume", "load_state", "continue" },
  { "quantize", "quantise", "quantized", "quantised", "quantization", "quantisation" },
  { "gpu", "gpus", "cuda" }, { "ranks", "distributed", "multi gpu", "multi-gpu", "processes" }, { "ddp", "data parallel", "DistributedDataParallel" },
  { "tokenizer", "tokeniser", "tokenizers" }, { "fine-tune", "finetune", "fine-tuning", "finetuning", "lora", "peft" },
  { "clip", "clipping", "clip_grad_norm_" }, { "accumulate", "accumulation" }, { "oom", "out of memory", "out_of_memory" },
  { "seed", "manual_seed", "reproducible", "reproducibility" }, { "scheduler", "schedule", "lr_scheduler" },
  { "amp", "mixed precision", "mixed_precision", "autocast", "half precision" }, { "tensorboard", "SummaryWriter", "TensorBoardTracker" },
  { "dataset", "data set", "datasets" }, { "dataloader", "data loader", "loader" }, { "logging", "log", "tracker", "tracking" },
  { "profile", "profiler", "profiling" }, { "debug", "debugger", "debugging", "breakpoint" }, { "freeze", "requires_grad_" },
  { "generate", "generation", "sampling", "inference" }, { "metric", "metrics", "accuracy", "gather_for_metrics" },
  { "plot", "curve", "curves" }, { "embed", "embedding in c", "c api", "ac_host_open" }, { "install", "installation", "build" },
  { "normalize", "normalise", "normalization", "normalisation" }, { "hang", "hangs", "deadlock", "stacks" }, { "nan", "not finite", "non-finite" },
}
-- Words of questions, which occur everywhere.
M.ignored = {}
for word in ("a an the to of in on for with and or do does i my is are how what can use using from by"):gmatch "%S+" do
  M.ignored[#M.ignored + 1] = word
end

local MOST_TYPO <const> = 3 -- words shorter than this and one are not corrected

local ignored, group_of = {}, {}
for _, word in ipairs(M.ignored) do ignored[word] = true end
for _, group in ipairs(M.groups) do
  for i, form in ipairs(group) do
    group[i] = form:lower()
    group_of[group[i]] = group
  end
end

-- ---- the index ----
local INDEX <const> = "/html/search-index.js"

local function rows_of_guides(p)
  local rows = {}
  for _, guide in ipairs(accel.host_chunk "help/guides".all(p)) do
    for _, section in ipairs(guide.sections) do
      rows[#rows + 1] = { section.title ~= "" and section.title or guide.title, "", "guide " .. guide.name, section.text, "guide " .. guide.name }
    end
  end
  return rows
end

local alone = {} -- the index without pages

--- Rows with their texts in lower case: { row =, title =, text =, kind = }.
---@param p? table pages.load()
---@return table[]
function M.rows(p)
  local owner = p or alone
  if owner.search then return owner.search end
  local text = p and pages.read(p.root .. INDEX)
  local rows = text and accel.json.decode((text:match "^const SEARCH_INDEX = (.*);%s*$")) or rows_of_guides(p)
  local out = {}
  for i, row in ipairs(rows) do
    out[i] = { row = row, title = row[1]:lower(), text = row[4]:lower(), page = row[3]:lower() }
  end
  owner.search = out
  return out
end

-- ---- ranking ----
-- How a phrase occurs: 3 as whole words, 2 at the beginning of a word, 1 inside of one, 0 not at all. "_" and "." end a word.
local function occurs(text, phrase)
  local best, at = 0, 1
  while true do
    local from, to = text:find(phrase, at, true)
    if not from then return best end
    local begins = from == 1 or not text:find("^%w", from - 1)
    local ends = not text:find("^%w", to + 1)
    best = math.max(best, begins and ends and 3 or begins and 2 or 1)
    if best == 3 then return 3 end
    at = from + 1
  end
end

local TITLE <const>, TEXT <const> = { 6, 14, 24 }, { 0, 3, 6 }

-- One part of a query in a row: its own form counts fully, others of its group a little less. 0: it does not occur.
local function score_part(entry, part)
  local best = 0
  for i, form in ipairs(part) do
    local in_title, in_text = occurs(entry.title, form), occurs(entry.text, form)
    local sum = (TITLE[in_title] or 0) + (TEXT[in_text] or 0)
    if in_title == 0 and occurs(entry.page, form) == 3 then sum = sum + 4 end
    if sum > 0 then best = math.max(best, i == 1 and sum or sum * 0.7) end
  end
  return best
end

--- The rank of a row for parts (M.parts), 0 for a row with none of them; and how many parts occur.
---@param entry table
---@param parts string[][]
---@param whole string the query in lower case
---@return number, integer
function M.score(entry, parts, whole)
  local sum, n = 0, 0
  for _, part in ipairs(parts) do
    local s = score_part(entry, part)
    if s > 0 then sum, n = sum + s, n + 1 end
  end
  if n == 0 then return 0, 0 end
  if #parts > 1 and entry.title:find(whole, 1, true) then sum = sum + 30
  elseif #parts > 1 and entry.text:find(whole, 1, true) then sum = sum + 10 end
  local last = entry.title:match "([^.:]+)$" or entry.title
  if entry.title == whole or last == whole then sum = sum + 40 end
  if entry.page:find("^guide ") or entry.page == "examples" then sum = sum + 8 end
  if entry.page == "embed" or entry.page == "configurations" then sum = sum - 10 end
  if entry.title:find ":" then sum = sum - 4 end -- a method comes after its class
  return math.max(sum, 1) - #entry.title / 100, n
end

--- A query as parts, each a list of forms that mean the same, the query's own first.
---@param query string
---@return string[][]
function M.parts(query)
  local words, parts, i = {}, {}, 1
  for word in query:lower():gmatch "[^%s,;?!]+" do words[#words + 1] = word end
  while i <= #words do
    local form, n = words[i], 1
    for k = math.min(3, #words - i + 1), 2, -1 do -- the longest phrase of a group
      local phrase = table.concat(words, " ", i, i + k - 1)
      if group_of[phrase] then
        form, n = phrase, k
        break
      end
    end
    if not ignored[form] or #words == 1 then
      local part = { form }
      for _, other in ipairs(group_of[form] or {}) do
        if other ~= form then part[#part + 1] = other end
      end
      parts[#parts + 1] = part
    end
    i = i + n
  end
  return parts
end

-- Words of titles and texts, for misspelt ones.
local function vocabulary(p)
  local owner = p or alone
  if owner.vocabulary then return owner.vocabulary end
  local list, count = {}, {}
  for _, entry in ipairs(M.rows(p)) do
    for word in (entry.title .. " " .. entry.text):gmatch "%a[%a%d]+" do
      count[word] = (count[word] or 0) + 1
      if count[word] == 3 then list[#list + 1] = word end
    end
  end
  for form in next, group_of do
    if not form:find "%s" and (count[form] or 0) < 3 then list[#list + 1] = form end
  end
  table.sort(list)
  owner.vocabulary = list
  return list
end

-- The parts with words that occur nowhere replaced by the nearest that does; nil where nothing changed.
local function corrected(p, parts)
  local changed, out = false, {}
  for i, part in ipairs(parts) do
    local form, found = part[1], false
    out[i] = form
    for _, entry in ipairs(M.rows(p)) do
      found = found or entry.title:find(form, 1, true) or entry.text:find(form, 1, true)
      if found then break end
    end
    local near = not found and #part == 1 and #form > MOST_TYPO and form:find "^%a+$" and accel.nearest(form, vocabulary(p))
    if near then out[i], changed = near, true end
  end
  return changed and table.concat(out, " ") or nil
end

--- Places for a query, the best first: rows of the index; whether all parts occur in them; and the query that was searched, with
--- misspelt words corrected.
---@param p? table
---@param query string
---@return table[] rows, boolean all, string query
function M.find(p, query)
  local parts, found, most = M.parts(query), {}, 0
  local better = corrected(p, parts)
  if better then query, parts = better, M.parts(better) end
  for at, entry in ipairs(M.rows(p)) do
    local s, n = M.score(entry, parts, query:lower())
    if n > 0 then
      found[#found + 1] = { row = entry.row, score = s, n = n, at = at }
      most = math.max(most, n)
    end
  end
  table.sort(found, function(a, b)
    if a.n ~= b.n then return a.n > b.n end
    if a.score ~= b.score then return a.score > b.score end
    return a.at < b.at
  end)
  local rows = {}
  for _, f in ipairs(found) do
    if f.n == #parts or most < #parts then rows[#rows + 1] = f.row end
  end
  return rows, most == #parts, query
end

--- Lines "help TOPIC  title", one for each topic and title, `most` at most; nil: nothing was found.
---@return string[]?
function M.lines(rows, width, most)
  local lines, seen, more = {}, {}, 0
  for _, row in ipairs(rows) do
    local topic, title = row[5], row[1]
    local head = "  help " .. topic
    if title ~= topic and row[3] ~= "program" then head = ("%-28s  %s"):format(head, title) end
    if not seen[head] then
      seen[head] = true
      if #lines == most then more = more + 1
      else lines[#lines + 1] = #head <= width and head or head:sub(1, width - 3) .. "..." end
    end
  end
  if more > 0 then lines[#lines + 1] = ("  and %d more places"):format(more) end
  return #lines > 0 and lines or nil
end

return M
