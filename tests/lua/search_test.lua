-- Search of accel-run help and of the site: what newcomers ask for is among the first places, misspelt words and words that mean the same
-- are understood, whole words come before parts of words, and the site's script ranks as lua/help/search.lua does.
--   accel-run tests/lua/search_test.lua
local accel = require "accel"
local build = os.getenv "ACCEL_TEST_BUILD"
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local pages, help, search = accel.host_chunk "help/pages", accel.host_chunk "help", accel.host_chunk "help/search"
local p = pages.load(build and build .. "/reference")
if not p or not pages.read(p.root .. "/html/search-index.js") then
  print "the reference pages are missing: build the target `reference`"
  os.exit(77)
end

local FIRST <const> = 6

local function answer(query)
  local lines, why = help.lines(query, 100)
  assert(lines, ("help %s: %s"):format(query, why))
  return table.concat(lines, "\n") .. "\n", lines
end

-- query = topic that is its page, or one of the first places
local function finds(query, topic)
  local text, lines = answer(query)
  if lines[1] == topic then return end
  local n = 0
  for _, line in ipairs(lines) do
    local found = line:match "^  help (%S+ ?%S*)"
    n = n + (found and 1 or 0)
    if found and n <= FIRST and (found == topic or found:match "^%S+" == topic) then return end
  end
  error(("help %s: %s is not among the first %d:\n%s"):format(query, topic, FIRST, text), 2)
end

local QUERIES <const> = {
  -- of PyTorch, Transformers and Accelerate
  { "get_linear_schedule_with_warmup", "optim.lr_scheduler.get_linear_schedule_with_warmup" }, { "torch.cuda.max_memory_allocated", "mem_stats" },
  { "torch.cuda.reset_peak_memory_stats", "reset_peak_memory" }, { "torch.nn.Linear", "nn.Linear" }, { "torch.no_grad", "no_grad" },
  { "F.cross_entropy", "cross_entropy" }, { "transformers.get_cosine_schedule_with_warmup", "optim.lr_scheduler.get_cosine_schedule_with_warmup" },
  -- topics
  { "early stopping", "12_early_stopping.lua" }, { "learning rate", "optim.lr_scheduler" }, { "mixed precision", "autocast" },
  { "gradient clipping", "clip_grad_norm_" }, { "gradient accumulation", "07_gradient_accumulation.lua" },
  { "save a checkpoint", "accelerator.Accelerator:save_state" }, { "resume training", "guide checkpoints" },
  { "out of memory", "09_memory.lua" }, { "random seed", "manual_seed" }, { "lora", "peft" }, { "data parallel", "guide ranks" },
  { "inspect running job", "guide debugging" }, { "warm up", "optim.lr_scheduler.get_linear_schedule_with_warmup" },
  { "loss is nan", "guide tracking" }, { "cross validation", "11_cross_validation.lua" }, { "deepspeed zero 3", "guide deepspeed" },
  { "multi gpu", "guide ranks" },
  { "train a tokenizer", "guide text" }, { "how to embed in C", "guide embedding" },
  -- spelt otherwise
  { "checkpont", "guide checkpoints" }, { "tokenzier", "text.Tokenizer" }, { "schedulr", "optim.lr_scheduler" },
  { "quantise", "guide quantization" }, { "fine-tune", "peft" }, { "lerning rate", "optim.lr_scheduler" },
  { "reproducable", "guide reproducibility" },
}
local failed = {}
for _, q in ipairs(QUERIES) do
  local ok, why = pcall(finds, q[1], q[2])
  if not ok then failed[#failed + 1] = why end
end
assert(#failed == 0, table.concat(failed, "\n"))

do -- whole words before parts of words, in titles before texts
  local parts = search.parts "sign"
  local function entry(title, text) return { row = {}, title = title, text = text, page = "x" } end
  local whole, part, text = search.score(entry("sign", ""), parts, "sign"), search.score(entry("design", ""), parts, "sign"),
    search.score(entry("other", "the sign of x"), parts, "sign")
  local inside = search.score(entry("other", "a design"), parts, "sign")
  assert(whole > part and whole > text and text > inside and inside == 0, ("%g %g %g %g"):format(whole, part, text, inside))
end

do -- nothing found is an error, and a misspelt name of a page names that page
  local lines, why = help.lines("qqqqzzzz xxxxyyyy", 80)
  assert(lines == nil and why:find("nothing is known of", 1, true), why)
  lines, why = help.lines("nn.Linaer", 80)
  assert(lines == nil and why:find("did you mean nn.Linear?", 1, true), why)
end

do -- groups: each form in one of them
  local seen = {}
  for _, group in ipairs(search.groups) do
    for _, form in ipairs(group) do
      assert(not seen[form] and form == form:lower(), form)
      seen[form] = true
    end
  end
end

-- the site's script, by node where it is installed
if os.execute "command -v node >/dev/null 2>&1" then
  local script = { [[const fs = require("fs"), vm = require("vm");
const load = (name) => vm.runInThisContext(fs.readFileSync(process.argv[2] + "/" + name, "utf8"));
load("search-index.js"); load("search-words.js"); load("site.js");
for (const q of JSON.parse(process.argv[3])) console.log(SEARCH.find(q).found.slice(0, 12).map((e) => e.row[1]).join(" "));]] }
  local file = assert(io.open(tmp .. "/search.js", "w"))
  file:write(script[1])
  file:close()
  local queries, want = accel.json.array {}, {}
  for _, q in ipairs(QUERIES) do
    local rows, _, corrected = search.find(p, q[1])
    if corrected == q[1] then -- the site corrects no spelling
      local addresses = {}
      for i = 1, math.min(12, #rows) do addresses[i] = rows[i][2] end
      queries[#queries + 1], want[#want + 1] = q[1], table.concat(addresses, " ")
    end
  end
  assert(#want > 20)
  local pipe <close> = assert(io.popen(("node '%s/search.js' '%s/html' '%s' 2>&1"):format(tmp, p.root, accel.json.encode(queries))))
  local i = 0
  for line in pipe:lines() do
    i = i + 1
    assert(line == want[i], ("%s: the site finds\n%s\nnot\n%s"):format(queries[i], line, want[i]))
  end
  assert(i == #want, i)
else
  print "skipped in part: node is not installed, the site's script was not compared"
end
print(("%d queries"):format(#QUERIES))
