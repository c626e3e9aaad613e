#!/usr/bin/env python3
"""Asks a language server for what it finds in the examples, with the stubs of lua/meta and the annotations of stdlib.

  annotations.py <source tree> [file or folder ...]     default: examples

Takes lua-language-server or emmylua_ls from PATH, or $ACCEL_LUA_SERVER. Of emmylua_ls only what is said about names and the number
of arguments counts: its types are narrower than those of the annotations, which are written for lua-language-server. Exit status: 0
nothing found, 1 findings (printed), 77 no server here. Run by ctest as check/annotations.
"""
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

QUIET_SECONDS = 8      # after the last message the server is taken to be done
LIMIT_SECONDS = 200
NAMES = {"undefined-field", "undefined-global", "undefined-doc-name", "missing-parameter", "redundant-parameter", "syntax-error",
         "doc-syntax-error"}


def find_server():
    for name in (os.environ.get("ACCEL_LUA_SERVER"), "lua-language-server", "emmylua_ls"):
        path = name and shutil.which(name)
        if path:
            return path
    return None


class Session:
    """JSON-RPC over the pipes of a server; diagnostics are gathered by path."""

    def __init__(self, command, root):
        self.root, self.next, self.answers, self.found, self.last = root, 0, {}, {}, time.time()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        threading.Thread(target=self.read, daemon=True).start()

    def send(self, message):
        data = json.dumps(dict(message, jsonrpc="2.0")).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.process.stdin.flush()

    def request(self, method, params):
        self.next += 1
        number = self.next
        self.send({"id": number, "method": method, "params": params})
        end = time.time() + LIMIT_SECONDS
        while number not in self.answers and time.time() < end and self.process.poll() is None:
            time.sleep(0.02)
        return self.answers.get(number)

    def read(self):
        out = self.process.stdout
        while True:
            length = 0
            while True:
                line = out.readline()
                if not line:
                    return
                if line == b"\r\n":
                    break
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            message = json.loads(out.read(length))
            self.last = time.time()
            self.take(message)

    def take(self, message):
        method = message.get("method")
        if method == "textDocument/publishDiagnostics":
            self.found[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif method == "workspace/configuration":
            settings = json.loads((self.root / ".luarc.json").read_text())
            answer = []
            for item in message["params"]["items"]:
                answer.append(settings if item.get("section") == "Lua" else None)
            self.send({"id": message["id"], "result": answer})
        elif method and "id" in message:
            self.send({"id": message["id"], "result": None})
        elif "id" in message:
            self.answers[message["id"]] = message.get("result")

    def quiet(self, files):
        """Waits until every file was reported on, and then for silence."""
        end = time.time() + LIMIT_SECONDS
        while time.time() < end and self.process.poll() is None:
            if all(uri in self.found for uri in files) and time.time() - self.last > 2:
                return
            if self.found and time.time() - self.last > QUIET_SECONDS:
                return
            time.sleep(0.1)


def main():
    root = Path(sys.argv[1]).resolve()
    server = find_server()
    if not server:
        print("skipped: neither lua-language-server nor emmylua_ls is on PATH")
        return 77
    chosen = [root / name for name in sys.argv[2:] or ["examples"]]
    files = sorted(f for c in chosen for f in ([c] if c.is_file() else c.rglob("*.lua")))
    session = Session([server], root)
    uri = root.as_uri()
    session.request("initialize", {
        "processId": os.getpid(), "rootUri": uri, "workspaceFolders": [{"uri": uri, "name": "accel"}],
        "capabilities": {"workspace": {"configuration": True, "workspaceFolders": True},
                         "textDocument": {"publishDiagnostics": {"relatedInformation": False}}}})
    session.send({"method": "initialized", "params": {}})
    for f in files:
        session.send({"method": "textDocument/didOpen", "params": {"textDocument": {
            "uri": f.as_uri(), "languageId": "lua", "version": 1, "text": f.read_text()}}})
    uris = [f.as_uri() for f in files]
    session.quiet(uris)
    for f in files:  # servers that are asked
        answer = session.request("textDocument/diagnostic", {"textDocument": {"uri": f.as_uri()}})
        if answer and "items" in answer:
            session.found[f.as_uri()] = answer["items"]
    session.process.kill()
    n = 0
    for f in files:
        for d in session.found.get(f.as_uri(), []):
            if "emmylua" in server and d.get("code") not in NAMES:
                continue
            n += 1
            at = d["range"]["start"]
            print(f"{f.relative_to(root)}:{at['line'] + 1}:{at['character'] + 1}: {d.get('code', '')}: {d['message'].splitlines()[0]}")
    seen = sum(1 for u in uris if u in session.found)
    print(f"{Path(server).name}: {len(files)} files, {seen} reported on, {n} findings")
    return 1 if n or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
