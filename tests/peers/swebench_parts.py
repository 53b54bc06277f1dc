"""swebench, 4.x or 5.x as it is installed, with a bare process in the place of each container.

Where all rows name an image (`benchmarks/row_images.py` makes some), containers are made of them. Rows of any
repository are made known to it: 5.x is told everything by the row, 4.x by its tables of repositories. Its parser of
pytest's logs cuts ids at spaces, so that is how rows name them.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import bare_container
from swebench.harness import grading, reporting, run_evaluation
from swebench.harness.utils import get_predictions_from_file
from swebench_script import NATIVE, command, eval_script, ids

Row = dict[str, Any]
VERSION = importlib.metadata.version("swebench")
OLD = VERSION.startswith("4.")
LOGS = Path("logs", "run_evaluation")


def cut(names: Sequence[str]) -> list[str]:
    """Return ids as the parser of both versions finds them."""
    return list(dict.fromkeys(name.split()[0] for name in names))


class Swebench:
    """Its own steps over some rows: from a prediction to a log, from logs to reports."""

    def __init__(self, rows: Sequence[Row], clones: Path, python: Path) -> None:
        self.rows = {row["instance_id"]: self._completed(row) for row in rows}
        self.native = {row["instance_id"] for row in rows if row["repo"] in NATIVE}
        """The rows whose ids are not those of pytest, or whose runner is the repository's own."""
        self._clones, self._python = clones, python
        self._docker = all(row.get("image") for row in rows)
        if self._docker:
            if OLD:
                run_evaluation.build_container = self._container_of_image
            return
        run_evaluation.cleanup_container = lambda _client, container, _logger: container and container.remove()
        name = "build_container" if OLD else "create_container"
        setattr(run_evaluation, name, lambda spec, *_: self._container(spec))

    def _completed(self, row: Row) -> Row:
        """Return a row with all that this version asks of one; an exported one has that itself."""
        if "test_command" in row:
            return row
        own, parser = NATIVE.get(row["repo"], ("", "parse_log_pytest"))
        both = {n: ids(row, n) if own else cut(ids(row, n)) for n in ("FAIL_TO_PASS", "PASS_TO_PASS")}
        complete = {**row, **both, "version": row["instance_id"]}
        if OLD:
            from swebench.harness import constants
            from swebench.harness.log_parsers import python

            grading.MAP_REPO_TO_PARSER[row["repo"]] = getattr(python, parser)
            constants.MAP_REPO_TO_EXT[row["repo"]] = "py"
            versions = constants.MAP_REPO_VERSION_TO_SPECS.setdefault(row["repo"], {})
            versions[row["instance_id"]] = {"python": "3", "packages": "", "test_cmd": own or command(row)}
            return complete
        image = {"image": row.get("image", ""), "log_parser": parser, "eval_type": "pass_and_fail"}
        return {**complete, **image, "eval_script": eval_script(complete)}

    def spec(self, instance: str) -> Any:
        """Return its own record of a row."""
        if OLD:
            return run_evaluation.make_test_spec(self.rows[instance], namespace="swebench")
        return run_evaluation.make_test_spec(self.rows[instance])

    def _container(self, spec: Any) -> Any:
        row = self.rows[spec.instance_id]
        names = (row["repo"].replace("/", "__"), f"{row['repo'].replace('/', '__')}.git")
        repository = next(p for n in names if (p := self._clones / n).is_dir())
        folder = Path(tempfile.mkdtemp(prefix="bare-"))
        return bare_container.BareContainer.of(repository, row["base_commit"], folder, self._python)

    def _container_of_image(self, spec: Any, client: Any, run: str, *_: object) -> Any:
        return client.containers.create(
            self.rows[spec.instance_id]["image"],
            name=spec.get_instance_container_name(run),
            user="root",
            detach=True,
            command="tail -f /dev/null",
            network_mode="none",
        )

    def predictions(self, path: Path) -> dict[str, Row]:
        """Read a file of predictions."""
        return {p["instance_id"]: p for p in get_predictions_from_file(str(path), "", "test")}

    def unpatched(self, folder: Path, run: str, *, timeout_s: int) -> dict[str, bool]:
        """Let version 5 run and grade all rows without a patch; return whether each is resolved."""
        verdicts = {}
        with _inside(folder):
            client = _client() if self._docker else None
            for name in self.rows:
                prediction = {"instance_id": name, "model_name_or_path": "none", "model_patch": ""}
                done = run_evaluation.run_instance(self.spec(name), prediction, client, run, timeout_s, skip_patch=True)
                assert done is not None, f"{name}: it has no report"
                verdicts[name] = done[1][name]["resolved"]
        return verdicts

    def run(self, predictions: Mapping[str, Row], folder: Path, run: str, *, timeout_s: int, jobs: int = 1) -> None:
        """Let it run and grade predictions; its logs and reports lie below a folder."""
        some = [p for p in predictions.values() if p["model_patch"] and p["instance_id"] in self.rows]
        with _inside(folder):
            client = _client() if self._docker else None
            between = (False, False, client) if OLD else (client,)
            payloads = [(self.spec(p["instance_id"]), p, *between, run, timeout_s) for p in some]
            run_evaluation.run_threadpool(run_evaluation.run_instance, payloads, jobs)

    def graded(self, prediction: Row, log: Path) -> Row:
        """Return its report of a log."""
        report: Row = grading.get_eval_report(self.spec(prediction["instance_id"]), prediction, str(log), True)
        return report[prediction["instance_id"]]

    def totals(self, predictions: Mapping[str, Row], folder: Path, run: str) -> Row:
        """Let it make a model's totals of the reports below a folder, where the file stays."""
        with _inside(folder):
            path = reporting.make_run_report(dict(predictions), list(self.rows.values()), run)
            report: Row = json.loads(Path(path).read_text())
        return report

    def dataset(self, folder: Path, run: str) -> str:
        """Return the dataset that it finds a run was graded against; nothing in 4.x, which keeps no record."""
        with _inside(folder):
            return "" if OLD else (run_evaluation.read_run_metadata(run) or {}).get("dataset", "")


def _client() -> Any:
    if OLD:
        import docker

        return docker.from_env()
    return run_evaluation._docker_client()


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder, as it knows its logs from there; what it says in passing is not shown."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        os.chdir(before)
