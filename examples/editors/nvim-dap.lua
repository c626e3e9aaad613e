-- nvim-dap (github.com/mfussenegger/nvim-dap): accel's adapter, and two configurations for Lua files.
local dap = require "dap"

dap.adapters.accel = { type = "executable", command = "accel-run", args = { "dap" } }

dap.configurations.lua = {
  { type = "accel", request = "launch", name = "accel: this script", program = "${file}", cwd = "${workspaceFolder}" },
  { type = "accel", request = "launch", name = "accel: this script on 2 ranks", program = "${file}", cwd = "${workspaceFolder}",
    numProcesses = 2 },
  { type = "accel", request = "attach", name = "accel: the job that runs" },
}
