"""A stand-in for a W&B server, as much of it as `wandb sync` asks: takes runs, rows and files, and writes what it got as JSON.

python3 wandb_server.py PORT_FILE RESULT_FILE
"""
import gzip
import http.server
import json
import os
import sys
import threading

lock = threading.Lock()
got = {"runs": [], "rows": [], "files": {}, "exit": None}


def answer(name, v):
    if name == "UpsertBucket":
        got["runs"].append({k: v.get(k) for k in ("name", "project", "entity", "displayName", "config", "tags", "host", "commit")})
        return {"upsertBucket": {"inserted": True, "bucket": {
            "id": "b", "name": v["name"], "displayName": v.get("displayName"), "config": v.get("config"), "historyLineCount": 0,
            "project": {"id": "p", "name": v.get("project") or "p", "entity": {"id": "e", "name": v.get("entity") or "e"}}}}}
    if name == "CreateRunFiles":
        url = "http://127.0.0.1:%d/up/" % server.server_port
        return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": [{"name": f, "uploadUrl": url + f} for f in v["files"]]}}
    if name == "Viewer":
        return {"viewer": {"id": "u", "entity": "team", "username": "me", "email": "", "flags": "{}", "teams": {"edges": []}}}
    return {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def take(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        with lock:
            text = json.dumps(self.answer(body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def answer(self, body):
        out = {}
        if self.path == "/graphql":
            asked = json.loads(body)
            out = {"data": answer(asked.get("operationName"), asked.get("variables") or {})}
        elif self.path.endswith("/file_stream"):
            sent = json.loads(body)
            for line in (sent.get("files") or {}).get("wandb-history.jsonl", {}).get("content", []):
                got["rows"].append(json.loads(line))
            if sent.get("complete"):
                got["exit"] = sent.get("exitcode")
        elif self.path.startswith("/up/"):
            got["files"][self.path[4:]] = body.hex()
        with open(sys.argv[2] + ".new", "w") as f:
            json.dump(got, f)
        os.rename(sys.argv[2] + ".new", sys.argv[2])
        return out

    do_GET = do_POST = do_PUT = take


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
