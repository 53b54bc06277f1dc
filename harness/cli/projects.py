"""Open the projects that bugs are injected into: folders, and the instances of datasets with their environments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.cli.instances import chosen_instances, require_own_containers, require_own_images
from harness.datasets.environments import Environments
from harness.datasets.harbor_rows import holds_tasks
from harness.datasets.instance import Instance, InstanceError
from harness.datasets.instance_task import tree_of
from harness.datasets.loading import is_on_hub, is_saved
from harness.datasets.repositories import Repositories
from harness.datasets.test_runners import choose_runner, files_of_tests
from harness.evaluation.harbor_grading import open_harbor_task
from harness.executors.protocol import is_remote
from harness.harbor.containers import Engine
from harness.injectors.project_history import History
from harness.selfplay.project import Project
from harness.settings.sections import ExecutionSettings, InstanceSettings, SelectionSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.test_runners import PYTEST, ProgramRunner, TestRunner
from pytest_ssr.extensions import Extensions
from pytest_ssr.installed_plugins import load_extensions
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.records.test_run import abbreviate
from pytest_ssr.storage.store import Store


def is_dataset(source: Path) -> bool:
    """Return whether a source is a dataset: a file, a folder of `datasets` or of tasks, or a name on the hub."""
    return source.is_file() or is_saved(source) or is_on_hub(str(source)) or holds_tasks(source)


def require_sources(
    sources: Sequence[Path], instances: InstanceSettings, execution: ExecutionSettings, typed: Collection[str]
) -> None:
    """Raise SettingsError for options about instances without a dataset, and for a source that does not exist.

    typed: the options that a flag or a variable has set.
    """
    datasets = [s for s in sources if is_dataset(s)]
    given = next((n for n in ("split", "only", "shuffle", "slice", "images") if n in typed), None)
    if given is not None and not datasets:
        raise SettingsError(f"--{given} is for instances of a dataset; {sources[0]} is not a dataset", option=given)
    if any(holds_tasks(source) for source in sources):
        require_own_containers(instances, execution)
    require_own_images(instances, execution)
    for source in sources:
        if source not in datasets:
            require_directory(source)


def extensions_of_sources(sources: Sequence[Path], *, conftest: bool, ray: str) -> Extensions:
    """Return what plugins add to a command on these projects; raises SettingsError as `load_extensions` does.

    Also raises it if `--conftest` is given for several projects, a dataset or a cluster.
    """
    if conftest and (len(sources) != 1 or is_dataset(sources[0])):
        raise SettingsError("--conftest is for one project's directory", option="conftest")
    if conftest and is_remote(ray):
        raise SettingsError("--conftest has no effect on other machines; omit --ray", option="conftest")
    folder = sources[0] if len(sources) == 1 and not is_dataset(sources[0]) else Path()
    return load_extensions(folder, conftest=conftest)


def projects_of(
    source: Path,
    store: Store,
    selection: SelectionSettings,
    instances: InstanceSettings,
    python: Path | None,
    report: Callable[[str], None],
) -> Iterator[Project]:
    """Yield the projects of a source; those of instances are written, each with its environment.

    report: called before a slow step, with a line that describes it. Raises InstanceError.
    """
    if not is_dataset(source):
        yield Project(source)
        return
    repositories = Repositories(store, instances.repos, images=instances.images or "", report=report)
    environments = Environments(store, python, report)
    for instance in chosen_instances(source, selection):
        if instance.harbor is not None:
            report(f"{instance.id}: running its reference solution and its verifier")
            yield _project_of_task(instance, store)
            continue
        folder = tree_of(instance, repositories, store)
        test_runner = _test_runner(instance, folder)
        if instances.images:
            project = Project(folder, sandbox=instance.sandbox(instances.images), test_runner=test_runner)
        else:
            project = Project(folder, environments.python_of(instance, folder), test_runner=test_runner)
        yield replace(project, history=History(repositories.repository_of(instance), instance.base_commit))
        # A dataset has many. This store is not the cache of a node, so nothing is removed from it.
        environments.release()
        repositories.release()


def _project_of_task(instance: Instance, store: Store) -> Project:
    """Return the solved tree of a task directory, in the image of its agent."""
    assert instance.harbor is not None
    with contextlib.closing(Engine()) as engine:
        opened = open_harbor_task(instance, engine, store)
        image = engine.image(instance.harbor.place)
    return Project(opened.original.snapshot.directory, sandbox=f"docker:{image}", shown_at=Path(opened.workdir))


def _test_runner(instance: Instance, folder: Path) -> TestRunner:
    """Return pytest, which finds all tests of the project, or the row's runner, which runs the files of its tests."""
    runner = choose_runner(instance, folder)
    if isinstance(runner, CommandRunner):
        raise InstanceError(
            f"{instance.id}: bugs cannot be injected, because its tests are run by a command whose log is read"
        )
    if not isinstance(runner, ProgramRunner):
        return PYTEST
    return replace(runner, scope=tuple(files_of_tests(instance, runner, folder)))


def scope_line(project: Project) -> str:
    """Return which tests are run if they are not all of the project's; else an empty line."""
    scope = project.test_runner.scope
    if not scope:
        return ""
    files = "file" if len(scope) == 1 else "files"
    return (
        f"{project.folder.name}: the tests are those of {len(scope)} {files} of the row, run by "
        f"{project.test_runner.name}: {abbreviate(scope)}"
    )
