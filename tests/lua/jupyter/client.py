"""Jupyter's own client with the kernel of accel. client.py NOTEBOOK OUT: the cells, interrupts and restarts of jupyter_client, and if nbclient is
here, the notebook, which is executed into OUT. Fails by an exception."""
import json
import sys
import threading
from queue import Empty

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="accel", startup_timeout=120)


def run(code, during=None, **options):
    streams, results, errors = {"stdout": "", "stderr": ""}, [], []

    def hook(message):
        content = message["content"]
        if message["msg_type"] == "stream":
            streams[content["name"]] += content["text"]
        elif message["msg_type"] in ("execute_result", "display_data"):
            results.append(content["data"])
        elif message["msg_type"] == "error":
            errors.append(content)
        elif message["msg_type"] == "execute_input" and during:
            during()

    reply = client.execute_interactive(code, timeout=120, output_hook=hook, **options)
    return reply["content"], streams, results, errors


def ask(method, *args, **options):
    wanted = getattr(client, method)(*args, **options)
    while True:
        reply = client.get_shell_msg(timeout=60)
        if reply["parent_header"]["msg_id"] == wanted:
            return reply["content"]


try:
    reply, streams, results, _ = run("local x = 41\nprint('text', x)\nx + 1")
    assert reply["status"] == "ok" and streams["stdout"] == "text\t41\n" and results == [{"text/plain": "42"}], (streams, results)
    _, _, results, _ = run("accel.tensor { { 1, 2 }, { 3, 4 } }")
    assert "<td>4</td>" in results[0]["text/html"] and "i64 (2, 2) cpu" in results[0]["text/plain"]
    reply, _, _, errors = run("error 'boom'")
    assert reply["status"] == "error" and errors[0]["evalue"] == "In[3]:1: boom" and errors[0]["traceback"]
    # cells that were sent together with one that fails are aborted
    ids = [client.execute("while not rawget(_G, 'late') do os.execute 'sleep 0.3' late = true end error 'first'"), client.execute("print 'never'")]
    states = {}
    while len(states) < 2:
        m = client.get_shell_msg(timeout=60)
        states[m["parent_header"]["msg_id"]] = m["content"]["status"]
    assert [states[i] for i in ids] == ["error", "aborted"], states
    assert "accel.arange" in ask("complete", "accel.aran")["matches"]
    assert ask("inspect", "x", 1)["data"]["text/plain"] == "x: integer"
    assert ask("is_complete", "for i = 1, 3 do")["status"] == "incomplete"
    assert "error 'first'" in ask("history", hist_access_type="tail", n=1)["history"][0][2]
    reply, _, _, _ = run("while true do pcall(function() while true do end end) end", threading.Timer(0.5, manager.interrupt_kernel).start)
    assert reply["status"] == "error" and reply["ename"] == "interrupted"
    assert run("x")[2] == [{"text/plain": "41"}]
    _, streams, results, _ = run("%%ranks 3\nlocal r = dist.get_rank()\nprint(r)\nr * 2")
    assert streams["stdout"] == "[rank 0] 0\n[rank 1] 1\n[rank 2] 2\n", streams
    assert results == [{"text/plain": "[rank 0] 0\n[rank 1] 2\n[rank 2] 4"}]
    assert run("%%ranks\nr + 1")[2] == [{"text/plain": "[rank 0] 1\n[rank 1] 2\n[rank 2] 3"}]
    _, _, results, _ = run("io.read()", allow_stdin=True, stdin_hook=lambda m: client.input("an answer"))
    assert results == [{"text/plain": '"an answer"'}], results
    manager.restart_kernel(now=False)
    client.wait_for_ready(timeout=120)
    assert run("rawget(_G, 'x')")[2] == []
    assert run("1")[0]["execution_count"] == 2
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=False)
print("client: right")

try:
    import nbformat
    from nbclient import NotebookClient
except ImportError as missing:
    print("no notebook:", missing)
    sys.exit(0)
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=120, kernel_name="accel").execute()
nbformat.validate(notebook)
cells = []
for cell in notebook.cells:
    if cell.cell_type == "code":
        out = {"code": cell.source, "stdout": "", "kinds": []}
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stdout":
                out["stdout"] += output.text
            out["kinds"] += list(output.get("data", {}))
            if output.output_type == "execute_result":
                out["value"] = output.data["text/plain"]
        cells.append(out)
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(cells, file)
