"""An injector that makes each bug from one reply of a model without tools; the tests are found and weakened here.

The strategies are those of SWE-smith (arXiv 2504.21798): `lm-modify` has a function changed, `lm-rewrite`
has it rewritten from its signature and docstring, and `pr-mirror` has what a past commit brought taken out of
today's code. The bug is then weakened and validated like those of operators.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random

from harness.agents.attempt import require_room
from harness.agents.loop import record_end
from harness.agents.prompts import DEFAULT, Prompts
from harness.injectors.artifact_codec import encode_artifact
from harness.injectors.model import Injected, nothing_submitted, require_strategy
from harness.injectors.project_history import history_of
from harness.models.protocol import Model, identity_of, label_of, served_model_of
from harness.records.messages import ASSISTANT, SYSTEM, USER, Message, Sampling
from harness.records.trajectory import ExitReason, Journal, ModelCall, Trajectory
from pytest_ssr.campaign.artifact_builder import make_artifact
from pytest_ssr.checks import NamedCheck
from pytest_ssr.checks.context import suite_fault
from pytest_ssr.checks.validator import validate
from pytest_ssr.errors import ArtifactError, ProjectError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.injectors.git_history import diff_of, past_commits
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.pytest_config import root_options
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.skip_comments import skipped_lines
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store, key_of

MODIFY, REWRITE, MIRROR = "lm-modify", "lm-rewrite", "pr-mirror"
STRATEGIES = (MODIFY, REWRITE, MIRROR)
_LEAST_STATEMENTS = 2
_MOST_FILES, _MOST_CHARS = 3, 30_000
_BLOCK = re.compile(r"^```[ \t]*[\w+-]*[ \t]*(\S*)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked for, and how its reply becomes a change."""

    prompt: str
    path: str
    """The file of the function; empty for several whole files."""
    first: int = 0
    """The 1-based first line of the function, with its decorators."""
    last: int = 0
    name: str = ""
    files: tuple[str, ...] = ()
    """The files that the reply may replace, of a past commit."""

    def changes(self, reply: str, snapshot: Snapshot) -> Mapping[str, bytes]:
        """Return the files that a reply changes; raises ArtifactError for a reply that cannot be used."""
        blocks = _BLOCK.findall(reply)
        if self.files:
            changed = {path: text.encode() for path, text in blocks if path in self.files}
            if not changed:
                raise ArtifactError("the reply has no block with the path of one of the files")
            return changed
        if not blocks:
            raise ArtifactError("the reply has no block of code")
        code = textwrap.dedent(blocks[-1][1]).strip("\n") + "\n"
        tree = parse_module(code.encode("utf-8", "surrogatepass"))
        functions = [node.name for node in tree.body if isinstance(node, _Function)] if tree is not None else []
        if functions != [self.name]:
            raise ArtifactError(f"the reply's code is not the function {self.name} alone")
        lines = snapshot.read(self.path).decode().splitlines(keepends=True)
        first = lines[self.first - 1]
        indent = first[: len(first) - len(first.lstrip())]
        lines[self.first - 1 : self.last] = [textwrap.indent(code, indent)]
        return {self.path: "".join(lines).encode()}


@dataclass(frozen=True, slots=True)
class SingleReplyInjector:
    """Makes bugs with single replies of a model."""

    model: Model
    strategy: str
    store: Store
    """Has the baseline of the project."""
    sampling: Sampling = Sampling()
    prompts: Prompts = DEFAULT

    def __post_init__(self) -> None:
        """Raise SettingsError for an unknown strategy."""
        require_strategy(self.strategy, STRATEGIES)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def label(self) -> str:
        """The model's name in tables; see `label_of`."""
        return label_of(self.model)

    @property
    def key(self) -> str:
        """A hash of everything that an attempt depends on, except the project."""
        return key_of(identity_of(self.model), self.strategy, self.sampling, self.prompts.key)

    def history(self, snapshot: Snapshot) -> str:
        """Return the last commit of a project's history; empty if the strategy does not use the history."""
        history = history_of(snapshot.origin) if self.strategy == MIRROR else None
        return history.commit if history is not None else ""

    def require(self, snapshot: Snapshot) -> None:
        """Raise ProjectError or SettingsError if no attempt at the project is possible."""
        require_room(self.model, self.sampling)
        if not self.request(snapshot, Random(0)):
            what = "past commit" if self.strategy == MIRROR else "function"
            raise ProjectError(f"{snapshot.origin} has no {what} that {self.strategy} could use")

    def request(self, snapshot: Snapshot, rng: Random, paths: Sequence[str] = ()) -> Request | None:
        """Return a request drawn from the functions of some files (none: all code), or the commits of the project.

        None if there are none.
        """
        if self.strategy == MIRROR:
            return self._mirror(snapshot, rng)
        wanted = [p for p in snapshot.code_paths() if not paths or p in paths] or list(snapshot.code_paths())
        rng.shuffle(wanted)
        for path in wanted:
            functions = list(_functions(snapshot, path, bodies_only=self.strategy == REWRITE))
            if functions:
                return self._function(snapshot, path, rng.choice(functions))
        return None

    def _function(self, snapshot: Snapshot, path: str, node: _Function) -> Request:
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        last = node.end_lineno or node.lineno
        lines = snapshot.read(path).decode().splitlines(keepends=True)
        shown = lines[first - 1 : last]
        if self.strategy == REWRITE:
            shown = [*lines[first - 1 : _body_of(node)[0].lineno - 1], "    " * (node.col_offset // 4 + 1) + "...\n"]
        name = "lm_rewrite" if self.strategy == REWRITE else "lm_modify"
        code = textwrap.dedent("".join(shown)).rstrip("\n")
        return Request(self.prompts.fill(name, path=path, function=code), path, first, last, node.name)

    def _mirror(self, snapshot: Snapshot, rng: Random) -> Request | None:
        if history_of(snapshot.origin) is None:
            return None
        code = set(snapshot.code_paths())
        commits = [c for c in past_commits(snapshot.origin) if len(c.paths) <= _MOST_FILES and set(c.paths) <= code]
        rng.shuffle(commits)
        for commit in commits:
            diff = diff_of(snapshot.origin, commit, commit.paths).decode("utf-8", "replace")
            texts = {path: snapshot.read(path).decode("utf-8", "replace") for path in commit.paths}
            if diff and len(diff) + sum(map(len, texts.values())) <= _MOST_CHARS:
                files = "\n\n".join(f"```python {path}\n{text.rstrip()}\n```" for path, text in texts.items())
                return Request(self.prompts.fill("pr_mirror", change=diff, files=files), "", files=commit.paths)
        return None

    def inject(
        self, runner: Runner, *, seed: int, journal: Journal, extra_checks: Sequence[NamedCheck] = ()
    ) -> Injected:
        """Query the model once; find, weaken and validate the tests of the change in its reply."""
        journal.describe(
            tools=[],
            sampling=asdict(self.sampling),
            strategy=self.strategy,
            served_model=served_model_of(self.model),
        )
        with record_end(journal):
            baseline = project_baseline(runner, self.store)
            request = self.request(runner.snapshot, Random(seed), baseline.sources)
            assert request is not None
            reply = self._reply(request, seed, journal)
        if journal.ended:
            return self._nothing(journal.trajectory)
        try:
            changes = request.changes(reply, runner.snapshot)
            state = _changed(runner, changes)
        except ArtifactError as error:
            return self._rejected(journal, CheckReason.of(CheckCode.UNREADABLE, error=str(error)))
        artifact: BugArtifact | None = None
        reason = CheckReason(CheckCode.UNKNOWN)
        with record_end(journal):
            artifact, reason = self._artifact(runner, state)
        if journal.ended:
            return self._nothing(journal.trajectory)
        if artifact is None:
            return self._rejected(journal, reason)
        done = journal.end(ExitReason.SUBMITTED, "", encode_artifact(artifact))
        verdict = validate(artifact, runner.scoped(), extra_checks=extra_checks)
        return Injected(artifact, verdict, self.strategy, done, verdict.reason)

    def _reply(self, request: Request, seed: int, journal: Journal) -> str:
        messages = [Message(SYSTEM, self.prompts.fill("single_system")), Message(USER, request.prompt)]
        for message in messages:
            journal.message(message)
        sampling = replace(self.sampling, seed=seed)
        reply = self.model.session(journal.trajectory.rollout_id).reply(messages, tools=(), sampling=sampling)
        index = journal.message(replace(reply.message, role=ASSISTANT))
        journal.call(ModelCall.of(0, (0, 1), index, reply))
        return reply.message.content

    def _artifact(self, runner: Runner, state: CodebaseState) -> tuple[BugArtifact | None, CheckReason]:
        """Return the artifact of a buggy state, or the reason that it cannot be made."""
        baseline = project_baseline(runner, self.store)
        whole = replace(runner, pytest_options=root_options(runner.snapshot, ()))
        run, _ = whole.suite(state, baseline.files, like_s=baseline.seconds)
        fault = suite_fault(run, runner.test_runner)
        failing = baseline.stable - run.passing
        if fault is not None:
            return None, fault.on("buggy")
        if not failing:
            return None, CheckReason(CheckCode.NOT_NOTICED)
        try:
            artifact = make_artifact(state, failing, baseline, runner.settings, test_runner=runner.test_runner)
        except ArtifactError as error:
            return None, CheckReason.of(CheckCode.NOT_WEAKENABLE, error=str(error))
        return artifact, CheckReason(CheckCode.TESTS_BREAK)

    def _rejected(self, journal: Journal, reason: CheckReason) -> Injected:
        done = journal.end(ExitReason.SUBMITTED, reason.text, {"rejected": reason.text})
        return Injected(None, None, self.strategy, done, reason)

    def _nothing(self, done: Trajectory) -> Injected:
        return Injected(None, None, self.strategy, done, nothing_submitted(done))


def _changed(runner: Runner, changes: Mapping[str, bytes]) -> CodebaseState:
    original = runner.original
    entries: dict[str, FileEntry | None] = {}
    for path, data in changes.items():
        entries[path] = FileEntry(data, runner.snapshot.files[path].mode)
        if parse_module(data) is None:
            raise ArtifactError(f"with the reply's code, {path} cannot be parsed")
    state = original.replace(entries)
    if not state.changes:
        raise ArtifactError("the reply changes nothing")
    return state


def _functions(snapshot: Snapshot, path: str, *, bodies_only: bool) -> Iterator[_Function]:
    """Yield the functions of a file that have something to change; bodies_only: on lines of their own.

    Those that `# ssr: skip` excludes are left out.
    """
    data = snapshot.read(path)
    tree = parse_module(data)
    if tree is None:
        return
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    skipped = skipped_lines(path, data)
    for node in ast.walk(tree):
        if isinstance(node, _Function) and len(_body_of(node)) >= _LEAST_STATEMENTS:
            if skipped.overlaps((node.lineno - 1, node.end_lineno or node.lineno)):
                continue
            if not bodies_only or _body_of(node)[0].lineno > node.lineno:
                yield node


def _body_of(node: _Function) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
