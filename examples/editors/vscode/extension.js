// Starts `accel-run dap` for debug sessions of the type accel, gives F5 in a Lua file a configuration, and adds accel's stubs to the
// settings of the Lua language server.
const vscode = require('vscode')

const setting = name => vscode.workspace.getConfiguration('accel').get(name)

class AdapterFactory {
  createDebugAdapterDescriptor() {
    return new vscode.DebugAdapterExecutable(setting('program') || 'accel-run', ['dap'])
  }
}

// F5 without a launch.json: the script of the editor in front.
class ConfigurationProvider {
  resolveDebugConfiguration(folder, config) {
    if (config.type || config.request || config.name) return config
    const editor = vscode.window.activeTextEditor
    if (!editor || editor.document.languageId !== 'lua') return undefined
    return { type: 'accel', request: 'launch', name: 'Train', program: '${file}', cwd: folder ? '${workspaceFolder}' : undefined }
  }
}

async function addStubs() {
  const settings = vscode.workspace.getConfiguration('Lua')
  const library = settings.get('workspace.library') || []
  const stubs = setting('stubs')
  if (!library.includes(stubs)) await settings.update('workspace.library', [...library, stubs])
  await settings.update('runtime.version', 'Lua 5.4')
}

function activate(context) {
  context.subscriptions.push(
    vscode.debug.registerDebugAdapterDescriptorFactory('accel', new AdapterFactory()),
    vscode.debug.registerDebugConfigurationProvider('accel', new ConfigurationProvider()),
    vscode.commands.registerCommand('accel.addStubs', addStubs))
}

module.exports = { activate }
