--- text.train_bpe(texts, opts): a byte-level BPE tokenizer learned from texts: the merges that the package `tokenizers` learns
--- from the same ones.
---
---   local tok = accel.text.train_bpe({ files = { "a.txt", "b.txt" }, vocab_size = 8000, special_tokens = { "<|end|>" } })
---   tok:save("tokenizer.json")
local Progress = require "accel.util.progress"
local Tokenizer = require "accel.text.tokenizer"
local check = require "accel.util.check"
local core = require "accel.text.core"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local open_read = require("accel.file.core").open_read

local M = {}

local ENOENT <const> = 2

--- Feeds the lines of a file, each with its end. false, message, code when it cannot be read.
local function feed_file(trainer, path, tick)
  local f, message, errno = open_read(path)
  if not f then return false, message, errno == ENOENT and "not_found" or "io" end
  local _ <close> = f
  for line in f:lines "L" do
    if not utf8.len(line) then return false, path .. ": not valid UTF-8", "parse" end
    trainer:feed(line)
    tick(#line)
  end
  return true
end

--- A tokenizer. nil, message, code if a file cannot be read. texts: a list of texts, an iterator function that returns one
--- after another, or the options themselves, with `files`. Of a file each line counts as a text.
---
--- example: local tok = accel.text.train_bpe({ "low lower lowest" }, { vocab_size = 260, special_tokens = { "<s>" } })
---  return tok:encode("lowest").tokens, tok:token_to_id("<s>"), #tok --> { "low", "e", "s", "t" }, 0, 260
---@param texts string[]|(fun(): string?)|table
---@param opts? table
---  vocab_size integer = 30000: tokens, the 256 bytes and the special ones among them
---  min_frequency integer = 0: how often a pair must occur to be merged
---  special_tokens string[] = {}: they get the first ids
---  max_token_length integer = 0: maximum bytes of a token. 0: no limit
---  add_prefix_space boolean = false: each text begins with a blank
---  progress boolean = false: show a progress bar
---  files string[]: texts from files, each line one
---@return accel.text.Tokenizer?
---@return string? message
---@return string? code
function M.train_bpe(texts, opts, ...)
  if type(texts) == "table" and #texts == 0 and next(texts) ~= nil and opts == nil then texts, opts = nil, texts end
  local o = options("train_bpe", opts, {
    vocab_size = 30000, min_frequency = 0, special_tokens = {}, max_token_length = 0, add_prefix_space = false,
    progress = false, files = options.none,
  }, ...)
  check.positive("train_bpe", "vocab_size", o.vocab_size)
  check.count("train_bpe", "min_frequency", o.min_frequency)
  if (texts == nil) == (o.files == nil) then raise "train_bpe: give either texts or files = { ... }" end
  local trainer = core.trainer(o)
  local bar = o.progress and Progress { label = "words", unit = "B" } or nil
  local bytes, all = 0, 0
  local function tick(n)
    bytes = bytes + n
    if bar and bar:due() then bar:update(all > 0 and bytes / all or 0, bytes, { { "words", trainer:words() } }) end
  end
  if o.files then
    local files = type(o.files) == "string" and { o.files } or o.files
    for _, path in ipairs(files) do
      local f = open_read(path)
      if f then all = all + (f:seek "end" or 0) end
      if f then f:close() end
    end
    for _, path in ipairs(files) do
      local ok, message, code = feed_file(trainer, path, tick)
      if not ok then return nil, message, code end
    end
  elseif type(texts) == "function" then
    for text in texts do
      trainer:feed(text)
      tick(#text)
    end
  elseif type(texts) == "table" then
    for i, text in ipairs(texts) do
      if type(text) ~= "string" then raise("train_bpe: text %d is %s", i, check.shown(text)) end
      trainer:feed(text)
      tick(#text)
    end
  else
    raise("train_bpe: texts must be a list or an iterator, got %s", check.shown(texts))
  end
  if bar then
    bar:finish()
    bar = Progress { label = "merges", unit = "tok" }
  end
  local native = trainer:finish(bar and function(done, size)
    if bar:due() or done == size then bar:update(done / size, done) end
  end or nil)
  if bar then bar:finish() end
  return Tokenizer(native)
end

return M
