"""Publish to a data set on the Hugging Face Hub, by one commit. Only this module imports huggingface_hub.

The library takes the token from HF_TOKEN or from `hf auth login`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HFValidationError,
    LocalTokenNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from harness.exporters.dataset_writer import CARD
from harness.exporters.manifest import NAME
from harness.publishing.problems import NotPublishableError, Problem, ProblemKind
from harness.publishing.remotes import Plan, Present
from pytest_ssr.errors import SettingsError, SsrError, StoreWriteError

_KIND = "dataset"
_SUBJECT = "Published by ssr"
_MAIN = "main"


class HubRemote:
    """A branch of a data set."""

    def __init__(self, name: str, branch: str = "", *, tag: str = "", public: bool = False) -> None:
        """public: whether a data set that does not exist yet is made public."""
        self._id, self._branch, self._tag, self._public = name, branch or _MAIN, tag, public
        self._api: Any = huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))

    @property
    def name(self) -> str:
        """The name of the data set."""
        return f"hf:{self._id}" + (f"#{self._branch}" if self._branch != _MAIN else "")

    def present(self) -> Present:
        """Return what the branch holds; raises StoreWriteError if the hub does not answer."""
        with self._reporting(), tempfile.TemporaryDirectory(prefix="ssr-publish-") as folder:
            try:
                info = self._api.repo_info(self._id, repo_type=_KIND, revision=self._branch)
            except (RepositoryNotFoundError, RevisionNotFoundError):
                return Present()
            paths = [item.rfilename for item in info.siblings or ()]
            manifest, card = (self._content(name, info.sha, folder) for name in (NAME, CARD))
        return Present(info.sha, paths, manifest, card)

    def _content(self, name: str, revision: str, folder: str) -> bytes:
        try:
            path = self._api.hf_hub_download(self._id, name, repo_type=_KIND, revision=revision, local_dir=folder)
        except EntryNotFoundError:
            return b""
        return Path(path).read_bytes()

    def send(self, folder: Path, plan: Plan, present: Present) -> str:
        """Commit the files; the hub makes no commit of files that it has."""
        with self._reporting():
            self._api.create_repo(self._id, repo_type=_KIND, private=not self._public, exist_ok=True)
            if self._branch != _MAIN:
                self._api.create_branch(self._id, repo_type=_KIND, branch=self._branch, exist_ok=True)
            made = self._api.create_commit(
                self._id,
                [
                    *(huggingface_hub.CommitOperationDelete(path_in_repo=path) for path in plan.removed),
                    *(huggingface_hub.CommitOperationAdd(path, folder / path) for path in plan.written),
                ],
                commit_message=_SUBJECT,
                repo_type=_KIND,
                revision=self._branch,
                parent_commit=present.revision or None,
            )
            if self._tag:
                self._mark(made.oid)
        return str(made.commit_url)

    def _mark(self, revision: str) -> None:
        """Tag a commit; raises NotPublishableError if the tag marks another."""
        tags = self._api.list_repo_refs(self._id, repo_type=_KIND).tags
        found = next((tag.target_commit for tag in tags if tag.name == self._tag), None)
        if found is None:
            self._api.create_tag(self._id, repo_type=_KIND, tag=self._tag, revision=revision)
        elif found != revision:
            raise NotPublishableError(self.name, [Problem(ProblemKind.TAG_TAKEN, self._tag)])

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise the library's errors as SettingsErrors for what a user can mend, otherwise as StoreWriteErrors."""
        try:
            yield
        except (HFValidationError, LocalTokenNotFoundError) as error:
            raise SettingsError(f"{self.name}: {_first_line(error)}", option="to") from None
        except HfHubHTTPError as error:
            status = error.response.status_code if error.response is not None else 0
            if status in (401, 403):
                text = f"the hub refuses access to {self.name}; set HF_TOKEN to a token that may write there"
                raise SettingsError(text, option="to") from None
            raise StoreWriteError(f"{self.name} cannot be written: {_first_line(error)}") from None
        except SsrError:
            raise
        except Exception as error:  # the library hands on what its HTTP client raises, which differs by release
            raise StoreWriteError(f"{self.name} cannot be reached or written: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
