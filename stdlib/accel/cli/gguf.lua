--- accel-run gguf: files of llama.cpp: show, export from a model's folder, import into one.
local accel = require "accel"
local command = require "accel.cli.command"
local types = require "accel.models.gguf.types"

local PROGRAM <const> = "accel-run gguf"

local TYPES <const> = {}
for i, name in ipairs(types.names) do TYPES[i] = name:lower() end

local function shape_text(shape)
  local parts = {}
  for i, n in ipairs(shape) do parts[i] = tostring(n) end
  return "[" .. table.concat(parts, ", ") .. "]"
end

local function value_text(v)
  if type(v) == "table" then return ("%d values"):format(#v) end
  if type(v) == "string" then
    local text = v:gsub("[%c\128-\255]", "?")
    return #text > 60 and ("%q... (%d bytes)"):format(text:sub(1, 57), #v) or ("'%s'"):format(text)
  end
  return tostring(v)
end

local function show(...)
  local _, words = command.parse({ name = PROGRAM .. " show", usage = "FILE", summary = "Prints the metadata and the tensors of a file." }, 1, 1, ...)
  local info, message = accel.models.gguf.info(words[1])
  if not info then return command.refuse(PROGRAM, "%s", message) end
  for key, value in accel.pairs(info.metadata) do command.say("%-44s %s", key, value_text(value)) end
  local bytes = 0
  for _, t in ipairs(info.tensors) do
    command.say("%-44s %-5s %s", t.name, t.type, shape_text(t.shape))
    bytes = bytes + t.bytes
  end
  print(("%d tensors, %d bytes"):format(#info.tensors, bytes))
  return true
end

local function export(...)
  local o, words = command.parse({
    name = PROGRAM .. " export", usage = "DIR FILE [options]", summary = "Writes the language model in DIR with its tokenizer into FILE.",
    { "type", TYPES, "f16", "WORD", "of matrices; K types give some tensors more bits, as llama.cpp does" },
    { "name", "string", nil, "TEXT", "the model's name in the file" },
    { "class", "string", nil, "NAME", "load this class of DIR, in place of the one that config.json names" },
    { "no_tokenizer", "flag", false, nil, "leave the tokenizer out" },
  }, 2, 2, ...)
  local writable, reason = require "accel.util.writable".file(words[2])
  if not writable then return command.refuse(PROGRAM, "cannot write %s", reason) end
  local model, message = accel.models.from_pretrained(words[1], { class = o.class })
  if not model then return command.refuse(PROGRAM, "%s", message) end
  local tok, why
  if not o.no_tokenizer then
    tok, why = accel.text.Tokenizer.from_pretrained(words[1])
    if not tok then return command.refuse(PROGRAM, "%s (--no-tokenizer leaves it out)", why) end
  end
  local done, ok
  done, ok, message = command.try(accel.models.gguf.save, model, words[2], { type = o.type:upper(), tokenizer = tok, name = o.name })
  if not done then return command.refuse(PROGRAM, "%s", (tostring(type(ok) == "table" and ok.message or ok):gsub("^[^\n]-:%d+: ", ""))) end
  if not ok then return command.refuse(PROGRAM, "%s", message) end
  return true
end

local function import(...)
  local o, words = command.parse({
    name = PROGRAM .. " import", usage = "FILE DIR [options]",
    summary = "Writes the model in FILE and its tokenizer into the new folder DIR. If the model has several files, name the first.",
    { "dtype", { "auto", "f32", "f16", "bf16" }, "f32", "WORD", "of the weights; auto: the file's if they are f16 or bf16" },
  }, 2, 2, ...)
  local writable, reason = require "accel.util.writable".folder(words[2])
  if not writable then return command.refuse(PROGRAM, "cannot write %s", reason) end
  local model, extra = accel.models.gguf.load(words[1], { dtype = o.dtype })
  if not model then return command.refuse(PROGRAM, "%s", extra) end
  local ok, message = model:save_pretrained(words[2], { beside = extra.tokenizer and extra.tokenizer:_files() })
  if not ok then return command.refuse(PROGRAM, "%s", message) end
  if not extra.tokenizer then io.stderr:write(PROGRAM, ": warning: ", extra.tokenizer_problem, "\n") end
  return true
end

return function(...)
  return command.dispatch(PROGRAM, "Files of llama.cpp (GGUF).", {
    { "show", "FILE", "metadata and tensors", show },
    { "export", "DIR FILE", "a model's folder as a file: --type f16|q8_0|q4_k_m|...", function(...)
      return command.until_interrupted(PROGRAM, "FILE is as it was", export, ...)
    end },
    { "import", "FILE DIR", "a file as a model's folder", function(...)
      return command.until_interrupted(PROGRAM, "DIR has no new weights", import, ...)
    end },
  }, ...)
end
