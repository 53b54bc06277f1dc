"""The settings of jobs and projects are data: none becomes a program, an option or a path of a client's choice."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.cli.app import parse
from harness.database.records import DatabaseRecords
from harness.models.registry import Entry, read_registry
from harness.service.dashboard.work import job_form, read_job_form
from harness.service.job_process import JobProcess
from harness.service.jobs import NEED_PROJECT, plan_of, schema_of, settings_of, validated
from harness.service.projects import Project, ProjectErrorCode, ProjectRefusedError, Projects
from harness.service.queue import Job, JobKind, JobStatus
from harness.service.registered_models import KeyNotAllowedError
from pytest_ssr.errors import ArtifactError, ProjectError, SettingsError
from pytest_ssr.storage.store import Store

ARTIFACT = "0" * 24
EXAMPLES: dict[JobKind, dict[str, Any]] = {
    JobKind.PLAY: {
        "injector": "mutation,removal",
        "rounds": 2,
        "count": 3,
        "higher_order": 0,
        "solver": "model:small",
        "attempts": 2,
        "steps": 20,
        "rollout_limit": 30,
        "budget_usd": 1.5,
        "temperature": 0.5,
        "judge": "model:small",
        "seed": 7,
        "jobs": 2,
    },
    JobKind.INJECT: {"injector": "removal", "count": 3, "time": "1h30m", "per_hunk": True, "seed": 7, "jobs": 2},
    JobKind.VALIDATE: {"artifact": ARTIFACT, "per_hunk": True},
    JobKind.SOLVE: {"artifact": ARTIFACT, "solver": "mini-swe-agent:model:small", "attempts": 2, "seed": 7},
    JobKind.EXPORT: {
        "format": "slime-prompts",
        "image": "registry.example/calc:1",
        "seed": 7,
        "near_duplicates": "drop",
        "most_per": "function=2,repository=200",
    },
    JobKind.LEADERBOARD: {"seed": 7},
}
MODELS = {"small": Entry("openai/gpt-5", input=1.0, output=2.0), "other": Entry("vllm:http://server")}
HTTPS = "https://git.example/group/calc.git"


def job_for(kind: JobKind, settings: dict[str, Any]) -> Job:
    return Job(
        id="j" * 32,
        number=1,
        kind=kind,
        project_id="p",
        settings=settings,
        status=JobStatus.RUNNING,
        stage="",
        error_code="",  # type: ignore[arg-type]
        error="",
        result={},
        attempt=1,
        max_attempts=5,
        cancel_requested=False,
        worker_id="w",
        created_at=0.0,
        started_at=None,
        ended_at=None,
    )


def project_at(source: str, **settings: str) -> Project:
    values = {"commit": "", "image": "", "python": "", **settings}
    return Project(id="p", name="calc", source=source, created_at=0.0, **values)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    (store.root / "artifacts" / ARTIFACT).mkdir()
    return store


def parsed_job(kind: JobKind, settings: dict[str, Any], store: Store, project: Path) -> Any:
    """Return the settings that `ssr` reads from the command line of a job."""
    chosen = project_at(str(project)) if kind in NEED_PROJECT else None
    plan = plan_of(job_for(kind, settings), chosen, store, sandbox="process", models=MODELS)
    assert plan.argv[1:4] == ["-m", "harness.cli", kind]
    parsed = parse(plan.argv[3:])
    assert parsed is not None
    assert parsed.settings.json
    parsed.settings.check()
    return parsed.settings


@pytest.mark.usefixtures("as_command")
@pytest.mark.parametrize("kind", JobKind)
def test_the_command_accepts_the_settings_of_a_job(kind: JobKind, store: Store, project: Path) -> None:
    parsed_job(kind, EXAMPLES[kind], store, project)


@pytest.mark.usefixtures("as_command")
@pytest.mark.parametrize("kind", JobKind)
def test_a_form_that_is_sent_unchanged_is_the_command_with_its_defaults(
    kind: JobKind, store: Store, project: Path
) -> None:
    form = job_form(kind, MODELS)
    sent = {field.name: field.value for field in form.fields if not field.is_switch}
    needed = {n: EXAMPLES[kind][n] for n, setting in settings_of(kind).items() if setting.leaf.is_required}
    sent |= {"kind": str(kind), "key": form.key, **({"project": "p"} if form.needs_project else {}), **needed}
    _, settings, _, _ = read_job_form(sent, MODELS)
    assert settings == needed
    parsed_job(kind, settings, store, project)


def test_a_form_offers_the_registered_models() -> None:
    offered = {field.name: field.suggestions for field in job_form("play", MODELS).fields if field.suggestions}
    assert offered == {name: ["model:small", "model:other"] for name in ("injector", "solver", "judge")}


def test_a_job_gets_the_models_that_it_names_and_no_others(store: Store, project: Path) -> None:
    chosen = project_at(str(project))
    plan = plan_of(job_for(JobKind.PLAY, EXAMPLES[JobKind.PLAY]), chosen, store, models=MODELS)
    (name,) = plan.files
    assert f"--models={name}" in plan.argv
    assert "server" not in plan.files[name]
    process = JobProcess(replace(plan, argv=[sys.executable, "-c", ""]))
    assert read_registry(process.folder / name) == {"small": replace(MODELS["small"], hidden=True)}
    process.kill()
    process.remove()
    assert not plan_of(job_for(JobKind.PLAY, {}), chosen, store, models=MODELS).files


def test_a_job_gets_no_key_that_its_model_may_not_use(store: Store, project: Path) -> None:
    job, chosen = job_for(JobKind.PLAY, EXAMPLES[JobKind.PLAY]), project_at(str(project))
    models = {name: replace(entry, key="TEAM_KEY") for name, entry in MODELS.items()}
    with pytest.raises(KeyNotAllowedError):
        plan_of(job, chosen, store, models=models)
    plan = plan_of(job, chosen, store, models=models, model_keys=["TEAM_*"])
    assert "TEAM_KEY" in plan.files["models.json"]


@pytest.mark.parametrize("kind", JobKind)
def test_settings_are_described_as_they_are_checked(kind: JobKind) -> None:
    schema = schema_of(kind)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(EXAMPLES[kind])
    for name, setting in settings_of(kind).items():
        for value in (-1, 0, 0.5, 1, 65, 10**6, 2**40, "", "search", "x y", True):
            try:
                setting.check(value)
            except SettingsError:
                is_valid = False
            else:
                is_valid = True
            described = validator.evolve(schema=schema["properties"][name]).is_valid(value)
            assert described == is_valid, (name, value)


@pytest.mark.parametrize(
    ("kind", "settings", "option"),
    [
        (JobKind.PLAY, {"budget_usd": 1.0}, "budget_usd"),
        (JobKind.PLAY, {"temperature": 0.5}, "temperature"),
        (JobKind.PLAY, {"solver": "model:small", "tries": 20}, "tries"),
        (JobKind.PLAY, {"judge": "model:small", "judge_votes": 5, "submissions": 2}, "submissions"),
        (JobKind.SOLVE, {"artifact": ARTIFACT, "judge_votes": 5}, "judge_votes"),
        (JobKind.INJECT, {"injector": "model:small"}, "injector"),
        (JobKind.INJECT, {"time": "0"}, "time"),
        (JobKind.EXPORT, {"format": "artifacts", "as": "jsonl"}, "as"),
        (JobKind.EXPORT, {"format": "sft", "samples": "segment"}, "samples"),
        (JobKind.EXPORT, {"format": "sft", "min_calls": -5}, "min_calls"),
        (JobKind.EXPORT, {"format": "sft", "most_per": "function=2,function=3"}, "most_per"),
    ],
)
def test_what_the_command_refuses_is_refused_when_a_job_is_submitted(
    kind: JobKind, settings: dict[str, Any], option: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        validated(kind, settings, MODELS)
    assert refused.value.option == option


@pytest.mark.parametrize(
    ("kind", "settings", "option"),
    [
        (JobKind.PLAY, {"injector": "replay:/etc/passwd"}, "injector"),
        (JobKind.PLAY, {"injector": "artifacts:/srv"}, "injector"),
        (JobKind.PLAY, {"injector": "mutation; touch /tmp/x"}, "injector"),
        (JobKind.PLAY, {"injector": "mutation\n"}, "injector"),
        (JobKind.PLAY, {"solver": "scripted:/srv/replies.json"}, "solver"),
        (JobKind.PLAY, {"solver": "search:/srv/policy"}, "solver"),
        (JobKind.PLAY, {"solver": "vllm:/srv/model"}, "solver"),
        (JobKind.PLAY, {"solver": "openai/gpt-5"}, "solver"),
        (JobKind.PLAY, {"solver": "model:unknown"}, "solver"),
        (JobKind.PLAY, {"injector": "model:small,mutation"}, "injector"),
        (JobKind.PLAY, {"judge": "model:../small"}, "judge"),
        (JobKind.PLAY, {"models": "/srv/models.yaml"}, "models"),
        (JobKind.PLAY, {"solver": "openai/$(id)"}, "solver"),
        (JobKind.PLAY, {"solver": "openai/http://169.254.169.254/"}, "solver"),
        (JobKind.PLAY, {"judge": "vllm:http://127.0.0.1/"}, "judge"),
        (JobKind.PLAY, {"solver": "bedrock/agentcore/arn:aws:bedrock-agentcore:evil.example/x:1:runtime/y"}, "solver"),
        (JobKind.PLAY, {"solver": "bedrock/arn:aws:bedrock:evil.example/x"}, "solver"),
        (JobKind.PLAY, {"solver": "bedrock/x/agentcore/y"}, "solver"),
        (JobKind.PLAY, {"solver": "mini-swe-agent:ollama/qwen"}, "solver"),
        (JobKind.PLAY, {"solver": "vllm/folder/name"}, "solver"),
        (JobKind.PLAY, {"injector": "openai/a:b/c"}, "injector"),
        (JobKind.PLAY, {"url": "http://127.0.0.1/"}, "url"),
        (JobKind.PLAY, {"vllm_args": "--x"}, "vllm_args"),
        (JobKind.PLAY, {"solver": "--python=/bin/sh"}, "solver"),
        (JobKind.PLAY, {"python": "/bin/sh"}, "python"),
        (JobKind.PLAY, {"store": "/srv"}, "store"),
        (JobKind.PLAY, {"sandbox": "none"}, "sandbox"),
        (JobKind.PLAY, {"count": True}, "count"),
        (JobKind.PLAY, {"count": "4"}, "count"),
        (JobKind.PLAY, {"count": 0}, "count"),
        (JobKind.PLAY, {"count": 10**30}, "count"),
        (JobKind.PLAY, {"budget_usd": float("nan")}, "budget_usd"),
        (JobKind.PLAY, {"budget_usd": float("inf")}, "budget_usd"),
        (JobKind.PLAY, {"budget_usd": 10**400}, "budget_usd"),
        (JobKind.PLAY, {"solver": ["search"]}, "solver"),
        (JobKind.INJECT, {"time": ""}, "time"),
        (JobKind.INJECT, {"time": "1h --store=/srv"}, "time"),
        (JobKind.SOLVE, {}, "artifact"),
        (JobKind.SOLVE, {"artifact": "../../etc"}, "artifact"),
        (JobKind.VALIDATE, {"artifact": "/srv/artifact"}, "artifact"),
        (JobKind.EXPORT, {"format": "/srv"}, "format"),
        (JobKind.EXPORT, {"format": "sft", "most_per": "file=2"}, "most_per"),
    ],
)
def test_settings_that_a_client_may_not_choose_are_refused(
    kind: JobKind, settings: dict[str, Any], option: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        validated(kind, settings, MODELS)
    assert refused.value.option == option


def test_a_repository_is_cloned_by_https_alone_into_a_folder_of_the_job(store: Store) -> None:
    plan = plan_of(job_for(JobKind.PLAY, {}), project_at(HTTPS, commit="a" * 40, image="python:3.12"), store)
    clone, checkout = plan.before
    folder = store.root / "checkouts" / ("j" * 32)
    assert plan.checkout == folder
    assert clone[-3:] == ["--", HTTPS, str(folder / "calc")]
    assert {"protocol.allow=never", "protocol.https.allow=always", "core.hooksPath=/dev/null"} <= set(clone)
    assert checkout[-1] == "a" * 40
    assert {str(folder / "calc"), "--sandbox=docker:python:3.12"} <= set(plan.argv)


def test_a_job_without_its_project_folder_or_artifact_is_refused(store: Store, tmp_path: Path, project: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    for chosen in (None, project_at(str(tmp_path / "missing")), project_at(str(tmp_path / "link"))):
        with pytest.raises(ProjectError):
            plan_of(job_for(JobKind.PLAY, {}), chosen, store)
    with pytest.raises(ArtifactError):
        plan_of(job_for(JobKind.SOLVE, {"artifact": "f" * 24}), project_at(str(project)), store)


def test_projects_are_kept(records: DatabaseRecords, project: Path) -> None:
    projects = Projects(records.engine, [project.parent])
    added = projects.add("calc", str(project), python="python3.12")
    remote = projects.add("Remote", HTTPS, commit="a" * 40, image="python:3.12")
    assert (added.is_address, remote.is_address) == (False, True)
    assert projects.get(added.id) == added
    assert {p.id for p in projects.list()} == {added.id, remote.id}
    with pytest.raises(ProjectRefusedError) as refused:
        projects.add("calc", HTTPS)
    assert refused.value.code is ProjectErrorCode.NAME_TAKEN
    assert projects.remove(added.id)
    assert not projects.remove(added.id)
    assert projects.get(added.id) is None


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "source",
    [
        "{root}/missing",
        "{root}/../outside",
        "{root}/link",
        "{root}/file",
        "{root}/circle",
        "{root}/%s" % ("a" * 300),
        "{outside}",
        "project",
        "/",
        "",
        "{root}\0/project",
        "file://{root}/project",
        "http://git.example/calc",
        "ssh://git.example/calc",
        "git@git.example:calc",
        "ext::sh -c id",
        "https://user:password@git.example/calc",
        "https://-oProxyCommand=id/calc",
        "https://git.example",
        "https://git.example/calc --upload-pack=id",
        "--upload-pack=id",
    ],
)
def test_projects_elsewhere_are_refused(records: DatabaseRecords, tmp_path: Path, source: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "project", outside):
        folder.mkdir(parents=True)
    (root / "link").symlink_to(outside)
    (root / "file").touch()
    (root / "circle").symlink_to("circle")
    with pytest.raises(ProjectRefusedError) as refused:
        Projects(records.engine, [root]).add("calc", source.format(root=root, outside=outside))
    assert refused.value.code is ProjectErrorCode.SOURCE


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"name": "../calc"}, ProjectErrorCode.NAME),
        ({"name": ""}, ProjectErrorCode.NAME),
        ({"name": "-calc"}, ProjectErrorCode.NAME),
        ({"name": "calc\n"}, ProjectErrorCode.NAME),
        ({"commit": "main"}, ProjectErrorCode.COMMIT),
        ({"commit": "--help"}, ProjectErrorCode.COMMIT),
        ({"image": "--privileged"}, ProjectErrorCode.IMAGE),
        ({"image": "a b"}, ProjectErrorCode.IMAGE),
        ({"python": "/bin/sh"}, ProjectErrorCode.PYTHON),
        ({"python": "sh"}, ProjectErrorCode.PYTHON),
        ({"source": "folder", "commit": "a" * 40}, ProjectErrorCode.COMMIT),
    ],
)
def test_wrong_values_of_a_project_are_refused(
    records: DatabaseRecords, project: Path, settings: dict[str, str], code: ProjectErrorCode
) -> None:
    values = {"name": "calc", "source": HTTPS, **settings}
    if values["source"] == "folder":
        values["source"] = str(project)
    with pytest.raises(ProjectRefusedError) as refused:
        Projects(records.engine, [project.parent]).add(**values)
    assert refused.value.code is code


@pytest.mark.parametrize("settings", [{}, {"python": "python3.12"}, {"image": "registry.example/calc"}])
def test_the_environment_that_a_repository_has_committed_is_not_used(store: Store, settings: dict[str, str]) -> None:
    plan = plan_of(job_for(JobKind.INJECT, {}), project_at(HTTPS, **settings), store, sandbox="bubblewrap")
    chosen = [word for word in plan.argv if word.startswith("--python=")]
    expected = {"python": ["--python=python3.12"], "image": []}
    assert chosen == expected.get(next(iter(settings), ""), [f"--python={sys.executable}"])
