-- accel-run help: what topics are found, that methods are known through the classes they come from, that code keeps its
-- lines, and that nothing is wider than it is told, on any page.
--   accel-run tests/lua/help_test.lua
local accel = require "accel"
local build = os.getenv "ACCEL_TEST_BUILD"
local layout, pages, help = accel.host_chunk "help/layout", accel.host_chunk "help/pages", accel.host_chunk "help"
local p = pages.load(build and build .. "/reference")
if not p then
  print "the reference pages are missing: build the target `reference`"
  os.exit(77)
end

local function text_of(topic, width)
  local lines, why = help.lines(topic, width or 80)
  assert(lines, why)
  return table.concat(lines, "\n") .. "\n", lines
end
local function has(topic, ...)
  local text = text_of(topic)
  for _, part in ipairs { ... } do
    assert(text:find(part, 1, true), ("help %s: no '%s' in\n%s"):format(topic, part, text))
  end
  return text
end
local function first(topic, want)
  local got = assert(help.lines(topic, 80))[1]
  assert(got == want, ("help %s shows %s, not %s"):format(topic, got, want))
end

do -- the user's class comes first, others of the name are told
  first("DataLoader", "data.DataLoader")
  has("DataLoader", "See also: accelerator.DataLoader")
  first("accelerator.DataLoader", "accelerator.DataLoader")
  first("dropout", "dropout")
  has("dropout", "nn.Dropout")
end

do -- the page of the loader: what it is for, every option with its default, the source's own lines
  local text = has("data.DataLoader", "for batch in loader() do local x, y", "num_workers = n reads ahead", "state_dict contains",
    "- batch_size integer = 1: ", "- shuffle boolean = false: ", "- num_workers integer = 0: ",
    "- prefetch_factor integer = 2: ", "- worker_init_fn string: ", "- pin_memory boolean = false: ")
  assert(text:find("\n    for batch in loader() do sizes[#sizes + 1] = batch[1].shape[1] end\n    return sizes --> ", 1, true), text)
  has("optim.Adam", "- lr number = 1e-3: ", "- betas number[] = { 0.9, 0.999 }: ", "- amsgrad boolean = false: ")
  has("optim.SGD", "- lr number = 1e-3: ")
  has("nn.Conv2d", "kernel_size, stride = 1,", 'padding_mode = "zeros"')
  has("Function", "\n      forward = function(ctx, x)\n        ctx:save_for_backward(x)\n        return x * x\n      end,\n")
  has("get_scheduler", "- num_warmup_steps integer = 0: ", "- num_training_steps integer: ", '"cosine_with_min_lr" (num_cycles')
  local keys_of = {}
  for _, key in ipairs(help.option_keys "get_scheduler") do keys_of[#keys_of + 1] = key end
  assert(table.concat(keys_of, " ") == "num_warmup_steps last_epoch num_training_steps", table.concat(keys_of, " "))
  has("Tokenizer", '\n    local enc = tok:encode("To be, or not to be")\n')
  local keys = {}
  for _, key in ipairs(help.option_keys "data.DataLoader") do keys[key] = true end
  assert(keys.batch_size and keys.worker_init_fn and keys.dataset)
  keys = {}
  for _, key in ipairs(help.option_keys "accel.tensor") do keys[key] = true end
  assert(keys.dtype and keys.device and keys.requires_grad, "options of native functions")
end

do -- modules below modules
  for topic, parts in pairs {
    ["nn.functional"] = { "functions of the modules", "nn.functional.softmin", "cross_entropy" },
    ["nn.init"] = { "fills tensors in place", "nn.init.kaiming_uniform_" },
    ["optim.lr_scheduler"] = { "optim.lr_scheduler.OneCycleLR" },
    ["autograd.functional"] = { "autograd.functional.jacobian" },
  } do has(topic, table.unpack(parts)) end
  first("nn.functional.relu", "relu")
  first("autograd.Function", "Function")
end

do -- methods, those that a class inherits too, in full
  for _, topic in ipairs { "AdamW:step", "optim.AdamW.step", "optim.AdamW:step", "Optimizer:step" } do
    first(topic, "optim.Optimizer:step")
    has(topic, "Updates every parameter that has a gradient", "- closure?: ")
  end
  first("nn.Linear:parameters", "nn.Module:parameters")
  has("LoggerType", "Values of log_with", '- TENSORBOARD: "tensorboard"', '- ALL: "all"')
  has("accelerator.DistributedType", '- MULTI_CPU: "MULTI_CPU"')
  has("StepLR", ":load_state_dict", ":state_dict")
  has("LRScheduler:state_dict", "the steps taken, and each group's initial")
  has("GreedyLR:load_state_dict", "- state: table")
  has("Accelerator", "from -clip_value to clip_value, after unscaling")
  has("optim.AdamW", "Inherited from optim.Optimizer: ", ":zero_grad")
  has("Tokenizer:encode", "- add_special_tokens boolean = true")
  local _, why = help.lines("AdamW:stepp", 80)
  assert(why:find("did you mean AdamW:step?", 1, true), why)
  has("add_param_group", "optim.Optimizer:add_param_group") -- a method that one class has
  has("load_state_dict", "several classes", "nn.Module:load_state_dict")
end

do -- examples: titles are whole, the folder is a plain path, names, numbers and paths are found
  local text = has("examples", "23_recompute.lua", "again when backward needs", "help embed")
  assert(not text:find("...", 1, true) and not text:find("/../", 1, true), text)
  for _, topic in ipairs { "02", "02_mlp", "02_mlp.lua", "examples/02_mlp.lua" } do
    has(topic, "02_mlp.lua", "interleaved spirals")
  end
  has("mlp", "accel.mlp(x, weight1") -- an op comes before an example of its name
  has("21", "\n    accel-run examples/21_data_workers.lua [--num-workers N]")
end

do -- embedding, and what is Lua's own
  has("embed", "ac_host_exit_code", "#include <accel/accel.h>", "examples/embed/")
  has("ac_host_exit_code", "bool ac_host_exit_code(const ac_host *h, int *code);", "os.exit")
  has("print", "of Lua itself", "manual.html#pdf-print")
  has("string.format", "manual.html#pdf-string.format")
  has("", "examples", "embed")
  has("matmull", "Nothing is named 'matmull'. Pages with 'matmul':", "\n  help matmul\n")
end

do -- what prose says is not an option; a range in a first sentence is not its end; schedules have states; C has types
  local text = has("get_scheduler", "num_warmup_steps integer = 0: ", "num_training_steps integer: ")
  for _, word in ipairs { "and", "what", "the", "schedule", "takes" } do assert(not text:find("\n  - " .. word .. "\n"), text) end
  has("util.Random", "- :choice(weights, n): A position 1 .. n with probability proportional to")
  has("optim.lr_scheduler.StepLR:state_dict", "optim.lr_scheduler.LRScheduler:state_dict", "initial")
  has("StepLR", ":state_dict", ":load_state_dict")
  has("state_dict", "optim.lr_scheduler.LRScheduler:state_dict")
  has("ac_host_options", "typedef struct ac_host_options {", "bool join;")
  has("ac_err", "char msg[600];", "The story of one failure.")
  has("ac_status", "AC_OK = 0,", "AC_NOT_FOUND = 14,")
  has("ac_status_name", "const char *ac_status_name(ac_status s);")
  has("ac_host_fn", "A C function for scripts.")
  has("ac_tensor", "typedef struct ac_tensor ac_tensor;")
  has("AC_HOST_OPTIONS_INIT", "sizeof(ac_host_options)")
  assert(not text_of "ac_host_close":find("AC_HOST_OPTIONS_INIT", 1, true), "the comment of a neighbour")
end

do -- Python's names: what is here, what stands in its place, what is misspelt
  first("torch.nn.Linear", "nn.Linear")
  first("torch.where", "where")
  first("torch.utils.data.DataLoader", "data.DataLoader")
  first("torch.distributed.all_reduce", "dist.all_reduce")
  first("torch.special.xlogy", "xlogy")
  first("torch.cuda.amp.GradScaler", "amp.GradScaler")
  first("torch.optim.lr_scheduler.StepLR", "optim.lr_scheduler.StepLR")
  first("F.relu", "relu")
  first("accelerate.Accelerator", "accelerator.Accelerator")
  has("torch.nn", "nn.Linear")
  has("torch.cuda.is_available", "cuda is not in accel; devices are strings")
  for _, topic in ipairs { "torch.Tensor.numpy", "Tensor.numpy", "tensor:numpy", "x.numpy" } do
    has(topic, "Tensor:numpy is not in accel; t:tolist() makes tables")
  end
  for _, topic in ipairs { "nn.DataParallel", "torch.nn.DataParallel", "accel.nn.DataParallel", "DataParallel" } do
    has(topic, "DataParallel is not in accel; accelerator:prepare")
  end
  local _, why = help.lines("torch.nn.Linaer", 80)
  assert(why:find("did you mean nn.Linear?", 1, true), why)
end

do -- options, misspelt ones too
  has("--num-processes", "number of ranks on all machines")
  has("--num_processes", "number of ranks on all machines")
  local _, why = help.lines("--num-proceses", 80)
  assert(why:find("did you mean --num-processes?", 1, true), why)
  _, why = help.lines("--nothing-like-it", 80)
  assert(why:find("accel-run --help lists them", 1, true), why)
end

do -- what someone who writes an optimizer sets
  has("optim.Optimizer", "- defaults: table<string, any> ", "- buffers: string[] ", "- counts: boolean ", "- numbers: string[] ",
    "- spends: function? ", "- update: function ", "\n    SignSGD.defaults = { lr = 0.1 }\n    SignSGD.counts = false\n")
end

do -- commands of accel-run; what is misspelt or two names has an answer
  has("env", "accel-run env: list versions, devices", "See also:", "help guide devices")
  has("bench", "accel-run bench [NAME...]: measure speed on this machine", "bench --help", "help guide accel-run        Benchmarks")
  has("repl", "accel.repl(text)", "accel-run repl: open a prompt for Lua")
  has("-e", "-e, --execute CODE", "accel is a global")
  has("-h", "--help")
  has("ACCEL_TIMEOUT", "seconds")
  has("ACCEL_TIMEOU", "did you mean ACCEL_TIMEOUT?")
  local text = has("sign sgd", "\n  help sign\n", "\n  help optim.SGD\n")
  assert(not text:find("help sign\n.-help sign\n"), text)
  local _, why = help.lines("nothing-like-it neither-this", 80)
  assert(why:find("nothing is known of", 1, true), why)
end

do -- what Accelerate and PyTorch have and accel has not, and Accelerate's commands
  has("FSDP", "not in accel yet", "sharding of models")
  has("TensorParallel", "TensorParallel is not in accel", "parallelize_module(model, mesh")
  has("tracker", "TensorBoardTracker", "help CLASS:tracker")
  has("tensorboard", "TensorBoardTracker")
  has("save_state", "asynchronous = true", "automatic_checkpoint_naming")
  has("save_accelerator_state", "accelerator:save_state(folder)")
  has("write_basic_config", "accel-run config default")
  local text = has("launch", "Runs a function on several ranks")
  assert(text:find "^launch\n", text)
  assert(not text_of "load_state_dict":find("there is no", 1, true), "what there is")
end

do -- guides: the list, one of them, tables in columns, code; words that are nobody's name
  has("guide", "\n  accelerator ", "The Accelerator", "\n  ranks ")
  assert(text_of "guides" == text_of "guide")
  local text = has("guide indexing", "\nParts\n-----\n", "\n    print(t:argmax(2)) --> tensor([0, 2])\n",
    "t[#t + 1], one past the last position, is nil")
  assert(text:find "^Positions, values, and parts of tensors\n=====", text)
  text = has("guide accel-run", "\nstatus   meaning\n", "\n128 + N  terminated by signal N\n")
  assert(not text:find "\n|" and not text:find "```", text)
  local _, why = help.lines("guide dat", 80)
  assert(why:find("no guide 'dat'; did you mean guide data?", 1, true), why)
  has("gradient accumulation", "help guide accelerator", "Accumulation and precision")
  has("optimizers", "did you mean optim.Optimizer?", "help guide models", "help guide checkpoints")
  has("checkpointing", "examples/24_checkpointing.lua", "--resume auto")
  for _, guide in ipairs(accel.host_chunk "help/guides".all(p)) do
    for _, width in ipairs { 80, 60 } do
      for _, line in ipairs(select(2, text_of("guide " .. guide.name, width))) do
        assert((utf8.len(line) or #line) <= width or not line:gsub(" \\$", ""):find " %S+ %S", ("%d columns: %s"):format(width, line))
      end
    end
  end
end

do -- every page fits, in its narrowest terminal too but for words that are longer
  local function fits(topic, width)
    local _, lines = text_of(topic, width)
    for _, line in ipairs(lines) do
      local n = utf8.len(line) or #line
      local long = false
      for word in line:gmatch "%S+" do long = long or #word > width - 12 end
      assert(n <= width or long and (width < 80 or line:find("%S" .. ("%S"):rep(72))), ("help %s, %d columns: %s"):format(topic, width, line))
    end
  end
  local taken = dofile((arg[0]:match "^.*/" or "") .. "../support/sample.lua").one_of(5)
  for name, entry in pairs(p.entries) do
    if taken() then
      fits(name, 80)
      fits(name, 50)
      for _, m in ipairs(entry.methods) do fits(name .. m.name, 80) end
    end
  end
  for name in pairs(p.modules) do fits(name, 80) end
  for _, topic in ipairs { "", "examples", "21", "print" } do fits(topic, 80) end
end

do -- code is broken where Lua may be, so that it stays the same program
  local function lines_of(code, width) return layout.plain({ "```lua", code, "```" }, width) end
  local code = 'local long = { "some, text ( in it", 1, 2, 3 } local other = f(long, "more text -- no comment", { a = 1 }) '
    .. "return other and long or other --> { 1, 2, 3 }"
  for width = 24, 120, 7 do
    local broken = lines_of(code, width)
    local back = {}
    for i, line in ipairs(broken) do back[i] = line end
    local f = assert(load(table.concat(back, "\n")))
    assert(string.dump(f, true) and #broken >= (width < 100 and 2 or 1))
    local joined = table.concat(back, " "):gsub("%s+", "")
    assert(joined:gsub("%-%-", "") == code:gsub("%s+", ""):gsub("%-%-", ""), joined)
  end
  -- a statement begins a line rather than ending one
  local two = lines_of("local a = accel.ones(2, 3) local b = accel.zeros(2, 3) return a + b --> { 1 }", 60)
  assert(two[2] == "    return a + b --> { 1 }", table.concat(two, "\n"))
  -- text that was filled is filled anew, lines of their own stay
  local text = layout.plain({ "```text", ("word "):rep(19) .. "word", "goes on here. " .. ("w "):rep(8), "y = a + b", "```" }, 60)
  assert(#text == 4 and text[4]:find "y = a %+ b$", table.concat(text, "\n"))
end
if build then -- where the reference is not built the guides are there, and the command that builds it is told
  local dir = (os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d") .. "/unbuilt"
  local function sh(fmt, ...) return assert(os.execute(fmt:format(...))) end
  local share = dir .. "/share/lua/5.4"
  sh("mkdir -p '%s' && cp -P '%s/share/lua/5.4/accel' '%s/' && touch '%s/CMakeCache.txt'", share, build, share, dir)
  local function told(topic)
    local code = ("package.path = '%s/?/init.lua;' .. package.path os.exit(accel.host_chunk('help').run('%s'))"):format(share, topic)
    local pipe = io.popen(("'%s/bin/accel-run' -e \"%s\" 2>&1"):format(build, code))
    return pipe:read "a", pipe:close()
  end
  local command = ("cmake --build %s --target reference"):format(dir)
  local function holds(topic, ...)
    local text = told(topic)
    for _, part in ipairs { ... } do assert(text:find(part, 1, true), ("help %s: no '%s' in\n%s"):format(topic, part, text)) end
  end
  holds("", "guide", "\n    " .. command .. "\n")
  holds("guide", "\n  ranks ", "Several ranks")
  holds("guide ranks", "\nStart ranks\n")
  holds("gradient accumulation", "help guide accelerator", "\n    " .. command .. "\n")
  holds("guide rank", "did you mean guide ranks?")
  local text, ok = told "zzzz"
  assert(not ok and text:find(command .. " writes them", 1, true), text)
end

if build and os.execute "command -v script >/dev/null 2>&1" then -- on a terminal, long pages go to the pager and short ones do not
  local function on_terminal(topic)
    local pipe <close> = assert(io.popen(("PAGER='sed s/^/paged:/' script -qec \"'%s/bin/accel-run' help '%s'\" /dev/null </dev/null 2>&1")
      :format(build, topic)))
    return pipe:read "a"
  end
  local text = on_terminal "nn.Module"
  if text:find("nn.Module", 1, true) then -- script may have no terminal to give
    assert(text:find "^[^\n]*paged:nn.Module" and not on_terminal "env":find "paged:", text)
  end
end

do -- commands are broken so that a copy of them runs the same; comments stay comments
  local tmp = (os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d") .. "/help"
  assert(os.execute(("mkdir -p '%s' && printf '#!/bin/sh\\nprintf \"<%%%%s>\" cmd \"$@\"\\necho\\ncat </dev/null\\n' > '%s/cmd' && chmod +x '%s/cmd'")
    :format(tmp, tmp, tmp)))
  local function run(lines)
    local script = assert(io.open(tmp .. "/script", "w"))
    script:write("PATH='", tmp, "':$PATH\n", table.concat(lines, "\n"), "\n")
    script:close()
    local pipe <close> = io.popen(("sh '%s/script' 2>&1"):format(tmp))
    return pipe:read "a"
  end
  local commands = {
    "cmd --num-processes 8 --num-machines 2 --machine-rank 0 --main-process-ip 10.0.0.1 --main-process-port 29500 train.lua",
    "cmd --preset release && cmd --build build/release || cmd --never; cmd --install build/release && cmd the end",
    [[cmd -e 'print("several words", in quotes)' --and "more of them, in others" plain\ escaped words at the end $(cmd in one)]],
    "cmd one two three                       # a comment that is longer than its line, of many words; with cmd in it",
    "cmd a_very_long_word_of_a_command another_long_word_of_the_command --and-an-option # and a comment of it",
    "cmd one | cmd two | cmd three three three three | cmd four four four four four four four four",
    "X=1 cmd first \\", "  second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth \\", "  last",
    "cmd 'a quotation of", "two lines, the second of them long enough that it goes on and on' and then some words after it",
    "cat <<EOF", "words of a here document that is longer than its line, which nobody may break anywhere", "EOF",
  }
  local want = run(commands)
  assert(select(2, want:gsub("<cmd>", "")) == 12 and want:find("<plain escaped>", 1, true), want)
  for width = 44, 84, 8 do
    local page = { "```sh" }
    table.move(commands, 1, #commands, 2, page)
    page[#page + 1] = "```"
    local broken = layout.plain(page, width)
    for i, line in ipairs(broken) do broken[i] = line:gsub("^    ", "") end
    local got = run(broken)
    assert(got == want, ("%d columns:\n%s\n%s\nnot\n%s"):format(width, table.concat(broken, "\n"), got, want))
  end
  local ranks = text_of "guide ranks"
  assert(ranks:find("\n    accel-run --num-processes 8 --num-machines 2 --machine-rank 0 \\\n      --main-process-ip", 1, true), ranks)
end
print "ok"
