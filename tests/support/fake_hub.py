"""A hub for data sets as huggingface_hub talks to it: repositories, commits, large files, tags."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class Repository:
    """A data set, with the files of each commit."""

    name: str
    private: bool
    commits: list[dict[str, bytes]] = field(default_factory=lambda: [{".gitattributes": b"*.png filter=lfs\n"}])
    branches: dict[str, int] = field(default_factory=lambda: {"main": 0})
    tags: dict[str, int] = field(default_factory=dict)

    def files(self, branch: str = "main") -> dict[str, bytes]:
        return self.commits[self.branches[branch]]

    def number(self, revision: str) -> int | None:
        """Return the number of a commit by its id or the name of a branch."""
        return next((n for n in range(len(self.commits)) if oid(n) == revision), self.branches.get(revision))


@dataclass
class Hub:
    """What a hub holds."""

    token: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    loses_commits: bool = False
    """Whether the server refuses each commit, after the files were uploaded."""
    requests: list[str] = field(default_factory=list)
    url: str = ""


def oid(number: int) -> str:
    return hashlib.sha1(b"%d" % number).hexdigest()


def blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(data), data)).hexdigest()


@contextlib.contextmanager
def hub(token: str = "hub-token") -> Iterator[Hub]:
    """Start a hub that accepts a token."""
    held = Hub(token)

    class Handler(_Handler):
        hub = held

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    held.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield held
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, content: Any, status: int = 200, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self, status: int, code: str) -> None:
        self.answer({"error": code}, status, X_Error_Code=code)

    def handle_request(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(self.path.partition("?")[0])
        self.hub.requests.append(f"{self.command} {path}")
        if path.startswith("/lfs/"):
            self.hub.large[path.removeprefix("/lfs/")] = data
            return self.answer({})
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self.refuse(401, "RepoNotFound" if self.command != "POST" else "Unauthorized")
        if path == "/api/repos/create":
            return self.create(json.loads(data))
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        name = "/".join(path.replace("/api", "", 1).split("/")[2:4])
        repository = self.hub.repositories.get(name.removesuffix(".git"))
        if repository is None:
            return self.refuse(404, "RepoNotFound")
        what, _, rest = path.partition(f"{name}/")[2].partition("/")
        reply = getattr(self, f"do_{what}")
        return reply(repository, rest, data)  # type: ignore[no-any-return]

    do_GET = do_HEAD = do_POST = do_PUT = handle_request  # noqa: N815 - the names of http.server

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if name in self.hub.repositories:
            return self.answer({"url": f"{self.hub.url}/datasets/{name}"}, 409)
        self.hub.repositories[name] = Repository(name, asked.get("visibility") == "private")
        return self.answer({"url": f"{self.hub.url}/datasets/{name}", "name": name})

    def do_revision(self, repository: Repository, revision: str, _: bytes) -> None:
        number = repository.number(revision)
        if number is None:
            return self.refuse(404, "RevisionNotFound")
        siblings = [{"rfilename": path} for path in repository.commits[number]]
        return self.answer({"id": "me/bugs", "sha": oid(number), "siblings": siblings})

    def do_resolve(self, repository: Repository, rest: str, _: bytes) -> None:
        revision, _, path = rest.partition("/")
        number = repository.number(revision)
        if number is None or path not in repository.commits[number]:
            return self.refuse(404, "EntryNotFound")
        data = repository.commits[number][path]
        return self.answer(data, ETag=f'"{blob(data)}"', X_Repo_Commit=oid(number))

    def do_preupload(self, repository: Repository, revision: str, data: bytes) -> None:
        number = repository.number(revision)
        assert number is not None
        present = repository.commits[number]
        files = []
        for file in json.loads(data)["files"]:
            is_large = file["path"].endswith(".png")
            content = present.get(file["path"])
            digest = None
            if content is not None:
                digest = hashlib.sha256(content).hexdigest() if is_large else blob(content)
            mode = "lfs" if is_large else "regular"
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": digest})
        self.answer({"files": files})

    def do_info(self, repository: Repository, rest: str, data: bytes) -> None:
        assert rest == "lfs/objects/batch"
        objects = [
            {**item, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{item['oid']}"}}}
            if item["oid"] not in self.hub.large
            else item
            for item in json.loads(data)["objects"]
        ]
        self.answer({"transfer": "basic", "objects": objects}, Content_Type="application/vnd.git-lfs+json")

    def do_commit(self, repository: Repository, branch: str, data: bytes) -> None:
        header, *changes = [json.loads(line) for line in data.splitlines()]
        if self.hub.loses_commits:
            return self.refuse(400, "Broken")
        if header["value"].get("parentCommit") not in (None, oid(repository.branches[branch])):
            return self.refuse(412, "Conflict")
        files = dict(repository.files(branch))
        for change in changes:
            value = change["value"]
            if change["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif change["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
            else:
                del files[value["path"]]
        repository.commits.append(files)
        number = repository.branches[branch] = len(repository.commits) - 1
        return self.answer(
            {
                "success": True,
                "commitUrl": f"{self.hub.url}/datasets/{repository.name}/commit/{oid(number)}",
                "commitOid": oid(number),
            }
        )

    def do_branch(self, repository: Repository, branch: str, _: bytes) -> None:
        if branch in repository.branches:
            return self.refuse(409, "Conflict")
        repository.branches[branch] = repository.branches["main"]
        return self.answer({})

    def do_refs(self, repository: Repository, *_: Any) -> None:
        refs = {
            kind: [{"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": oid(n)} for name, n in held.items()]
            for kind, held in (("branches", repository.branches), ("tags", repository.tags))
        }
        self.answer({**refs, "converts": [], "pullRequests": []})

    def do_tag(self, repository: Repository, revision: str, data: bytes) -> None:
        number = repository.number(revision)
        assert number is not None
        repository.tags[json.loads(data)["tag"]] = number
        self.answer({})
