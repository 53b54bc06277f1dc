"""Reading of task directories: fields that are kept, ignored, or refused with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from harbor_tasks import KINDS, write_task

from harness.cli.main import main
from harness.datasets.instance import InstanceError
from harness.datasets.loading import has_form_of_dataset, read_dataset
from harness.environments import DatasetTasks
from harness.evaluation.harbor_grading import parts_of, series
from harness.harbor.reading import read_task, task_folders
from harness.harbor.schema import Artifact
from harness.harbor.task import Refusal, TaskError
from harness.harbor.trial import is_excluded, read_rewards, without_collisions
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.reasons import ReasonCode

TOML = KINDS["shared"]["task.toml"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_read(kind: str, tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path, kind, "image:1"))
    assert (task.name, task.has_solution) == (f"acme/{kind}", True)
    separate = [step.verification.place is not None for step in task.steps]
    assert separate == [kind in ("separate", "separate-same-image", "services")] * len(task.steps)


def test_steps_have_their_own_files(tmp_path: Path) -> None:
    one, two = read_task(write_task(tmp_path, "steps-final", "image:1")).steps
    assert (one.name, one.files, one.least_reward) == ("one", None, {"reward": 1.0})
    assert two.files is not None
    assert (two.files / "numbers.txt").is_file()
    assert [folder.parent.name for folder in two.verification.tests] == ["two"]


def test_a_verifier_in_its_own_image_brings_its_tests(tmp_path: Path) -> None:
    own = read_task(write_task(tmp_path, "separate", "image:1")).steps[0].verification
    same = read_task(write_task(tmp_path, "separate-same-image", "image:1")).steps[0].verification
    assert own.place is not None
    assert same.place is not None
    assert (own.has_tests, own.place.folder.name) == (True, "tests")
    assert (same.has_tests, same.place.folder.name) == (False, "environment")
    assert [(a.source, a.exclude) for a in same.artifacts] == [("/logs/artifacts", ()), ("/app", ("*.pyc",))]


REFUSED: Mapping[str, tuple[Refusal, Mapping[str, str | None]]] = {
    "gpu": (Refusal.ACCELERATOR, {"task.toml": TOML + "[environment]\ngpus = 1\n"}),
    "tpu": (Refusal.ACCELERATOR, {"task.toml": TOML + '[environment.tpu]\ntype = "v4"\ntopology = "2x2"\n'}),
    "windows": (Refusal.OPERATING_SYSTEM, {"task.toml": TOML + '[environment]\nos = "Windows"\n'}),
    "no-instruction": (Refusal.INCOMPLETE, {"instruction.md": None}),
    "no-environment": (Refusal.INCOMPLETE, {"environment/Dockerfile": None}),
    "no-verifier": (Refusal.INCOMPLETE, {"tests/test.sh": None}),
    "not-toml": (Refusal.UNREADABLE, {"task.toml": "= no"}),
    "wrong-type": (Refusal.UNREADABLE, {"task.toml": TOML + "[verifier]\ntimeout_sec = 'long'\n"}),
    "unknown-mode": (Refusal.UNREADABLE, {"task.toml": TOML + "[verifier]\nenvironment_mode = 'other'\n"}),
    "unknown-network": (Refusal.UNREADABLE, {"task.toml": TOML + "[environment]\nnetwork_mode = 'other'\n"}),
    "step-outside": (Refusal.UNREADABLE, {"task.toml": TOML + '[[steps]]\nname = "../one"\n'}),
    "same-steps": (Refusal.UNREADABLE, {"task.toml": TOML + '[[steps]]\nname = "one"\n' * 2}),
    "artifact-outside": (Refusal.LEAVES_DIRECTORY, {"task.toml": 'artifacts = ["/app/../etc"]\n' + TOML}),
    "tools": (
        Refusal.MCP_SERVERS,
        {"task.toml": TOML + '[[environment.mcp_servers]]\nname = "a"\nurl = "http://b"\n'},
    ),
    "some-hosts": (Refusal.ALLOWED_HOSTS, {"task.toml": TOML + "[verifier]\nnetwork_mode = 'allowlist'\n"}),
    "no-name-of-a-task": (Refusal.UNREADABLE, {"task.toml": '[task]\nname = "acme/.."\n'}),
    "no-organisation": (Refusal.UNREADABLE, {"task.toml": '[task]\nname = "../../up"\n'}),
    "same-folded-steps": (
        Refusal.UNREADABLE,
        {"task.toml": TOML + '[[steps]]\nname = "one"\n[[steps]]\nname = "One"\n'},
    ),
    "shared-with-environment": (
        Refusal.UNREADABLE,
        {"task.toml": TOML + '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1\n'},
    ),
    "no-size": (Refusal.UNREADABLE, {"task.toml": TOML + '[environment]\nmemory = "lots"\n'}),
    "no-number": (Refusal.UNREADABLE, {"task.toml": TOML + "[environment]\ncpus = nan\n"}),
    "endless-build": (Refusal.UNREADABLE, {"task.toml": TOML + "[environment]\nbuild_timeout_sec = inf\n"}),
    "host-variable": (Refusal.HOST_VARIABLE, {"task.toml": TOML + '[verifier]\nenv = { KEY = "${SECRET}" }\n'}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_supported_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    refusal, changed = REFUSED[name]
    folder = write_task(tmp_path, "shared", "image:1", changed)
    with pytest.raises(TaskError) as caught:
        read_task(folder)
    assert caught.value.refusal is refusal


def test_a_link_that_leaves_the_directory_is_refused_and_an_inner_one_is_not(tmp_path: Path) -> None:
    inner = write_task(tmp_path, "shared", "image:1")
    (inner / "tests" / "more.sh").symlink_to("test.sh")
    (inner / "also").symlink_to("tests")
    (inner / "tests" / "loop").symlink_to("loop")
    (inner / "environment" / "of-image").symlink_to("/usr/bin/python3")
    read_task(inner)
    for link in ("tests/secret", "environment/docker-compose.yaml"):
        (inner / link).symlink_to("/etc/hostname")
        with pytest.raises(TaskError) as caught:
            read_task(inner)
        assert caught.value.refusal is Refusal.LEAVES_DIRECTORY
        (inner / link).unlink()


def test_a_link_counts_for_the_digest(tmp_path: Path) -> None:
    folder = write_task(tmp_path, "shared", "image:1")
    (folder / "tests" / "data").symlink_to("../solution")
    before = read_task(folder).digest
    (folder / "tests" / "data").unlink()
    (folder / "tests" / "data").symlink_to("../environment")
    assert read_task(folder).digest != before


def test_marks_of_benchmarks_are_no_part_of_the_instruction(tmp_path: Path) -> None:
    text = "<!-- harbor-canary GUID 1 -->\n# Canary 2\n\n# Title\n\nDo it.\n"
    (step,) = read_task(write_task(tmp_path, "shared", "image:1", {"instruction.md": text})).steps
    assert step.instruction == "# Title\n\nDo it.\n"


def test_steps_may_have_names_with_spaces(tmp_path: Path) -> None:
    folder = write_task(tmp_path, "steps-mean", "image:1")
    (folder / "steps" / "one").rename(folder / "steps" / "the first")
    toml = folder / "task.toml"
    toml.write_text(toml.read_text().replace('name = "one"', 'name = "the first"'))
    assert [step.name for step in read_task(folder).steps] == ["the first", "two"]


def test_unknown_fields_are_ignored_and_older_ones_are_read(tmp_path: Path) -> None:
    toml = TOML.replace('"1.4"', '"1.0"') + "[environment]\nallow_internet = false\nmemory = '2G'\nnew = 1\n"
    task = read_task(write_task(tmp_path, "shared", "image:1", {"task.toml": toml}))
    assert (task.network, task.steps[0].verification.network) == ("no-network", "no-network")
    assert task.place.environment.memory_bytes == 2 << 30


def test_templates_of_variables_get_their_defaults_and_nothing_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUM", "secret")
    task = read_task(write_task(tmp_path, "users", "image:1"))
    assert task.steps[0].verification.env == {"EXPECTED": "3"}
    toml = TOML + '[verifier]\nenv = { A = "x${SUM}", B = "${SUM:-a}b}", C = "$SUM" }\n'
    (step,) = read_task(write_task(tmp_path, "shared", "image:1", {"task.toml": toml})).steps
    assert step.verification.env == {"A": "x${SUM}", "B": "a}b", "C": "$SUM"}


def test_every_file_counts_for_the_digest(tmp_path: Path) -> None:
    before = read_task(write_task(tmp_path / "a", "shared", "image:1")).digest
    folder = write_task(tmp_path / "b", "shared", "image:1")
    assert read_task(folder).digest == before
    (folder / "tests" / "test.sh").chmod(0o644)
    assert read_task(folder).digest != before


def test_tasks_are_found_in_a_folder_and_in_its_splits(tmp_path: Path) -> None:
    one = write_task(tmp_path / "flat", "shared", "image:1")
    write_task(tmp_path / "split" / "train", "shared", "image:1")
    write_task(tmp_path / "split" / "test", "separate", "image:1")
    assert task_folders(one) == task_folders(tmp_path / "flat") == [one]
    assert [folder.name for folder in task_folders(tmp_path / "split")] == ["separate", "shared"]
    assert task_folders(tmp_path / "absent") == []


def test_unusable_tasks_and_equal_names_are_rows_that_say_why(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "a", "shared", "image:1")
    write_task(tmp_path / "tasks" / "b", "shared", "image:1")
    write_task(tmp_path / "tasks" / "b", "separate", "image:1", REFUSED["gpu"][1])
    assert has_form_of_dataset(tmp_path / "tasks")
    found = {i.id: (bool(i.invalid), i.invalid_code) for i in read_dataset(str(tmp_path / "tasks"))}
    assert found == {
        "shared": (False, ReasonCode.INVALID_ROW),
        "separate": (True, ReasonCode.UNSUPPORTED_TASK),
        "b-shared": (True, ReasonCode.INVALID_ROW),
    }


@pytest.mark.parametrize(
    ("text", "is_json", "rewards"),
    [
        ("1\n", False, {"reward": 1.0}),
        ('{"reward": 1, "style": 0.5}', True, {"reward": 1.0, "style": 0.5}),
    ],
)
def test_rewards_are_numbers_by_name(text: str, is_json: bool, rewards: dict[str, float]) -> None:
    assert read_rewards(text.encode(), is_json=is_json) == rewards


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "one", "{}", '{"reward": "1"}', '{"reward": 1e999}', "[1]", "NaN", "[" * 100_000]
)
def test_other_rewards_are_no_rewards(text: str) -> None:
    for is_json in (True, False):
        with pytest.raises(ValueError):
            read_rewards(text.encode(), is_json=is_json)


@pytest.mark.parametrize("text", ["0.5", '{"reward": 1' + "0" * 400 + "}"])
def test_rewards_in_json_are_an_object_of_floats(text: str) -> None:
    with pytest.raises(ValueError):
        read_rewards(text.encode(), is_json=True)


@pytest.mark.parametrize(
    ("pattern", "excluded"),
    [
        ("*.log", {"a.log", "deep/b.log"}),
        ("./cache", {"cache/x"}),
        ("cache", {"cache/x", "deep/cache/y"}),
        ("deep/*", {"deep/b.log", "deep/cache/y"}),
        ("cache/", set()),
        ("/cache", set()),
        ("/app/cache", set()),
    ],
)
def test_patterns_of_exclusion_are_those_of_tar(pattern: str, excluded: set[str]) -> None:
    paths = ("a.log", "deep/b.log", "cache/x", "deep/cache/y", "kept")
    assert {path for path in paths if is_excluded(path.split("/"), [pattern])} == excluded


def test_of_artifacts_at_one_path_the_first_counts() -> None:
    first, second = Artifact("/a", destination="x"), Artifact("/b", destination="x/y")
    of_service, other = Artifact("/x", service="store"), Artifact("/c")
    assert without_collisions([of_service, first, second, other]) == [first, other]
    assert without_collisions([of_service, other]) == [other, of_service]


@pytest.mark.parametrize("diffs", [["a\n", "b\n"], ["", "b\n"], ["a\n", ""], ["", ""]])
def test_a_series_has_a_diff_for_each_step(diffs: list[str]) -> None:
    assert parts_of(series(diffs), 2) == diffs
    assert parts_of("a\n", 2) == ["a\n", ""]
    assert parts_of("a\n", 1) == ["a\n"]


def test_prompts_need_no_container(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks", "shared", "image:1")
    export = ["export", str(tmp_path / "tasks"), "--out", str(tmp_path / "out"), "--format"]
    assert main([*export, "grpo"]) == 0
    assert "sums.py" in (tmp_path / "out" / "data" / "train.jsonl").read_text()


def test_formats_that_name_tests_leave_task_directories_out(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks", "named-image", "image:1")
    assert main(["export", str(tmp_path / "tasks"), "--out", str(tmp_path / "out"), "--format", "harbor"]) != 0


@pytest.mark.parametrize("options", [{"sandbox": "bubblewrap"}, {"images": "docker"}, {"python": "python3"}])
def test_an_environment_refuses_options_about_other_environments(options: dict[str, str], tmp_path: Path) -> None:
    write_task(tmp_path / "tasks", "shared", "image:1")
    with pytest.raises(SettingsError):
        DatasetTasks(tmp_path / "tasks", tmp_path / "store", **options).open()


def test_an_environment_refuses_a_task_of_several_steps(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "tasks", "steps-mean", "image:1")
    tasks = DatasetTasks(folder, tmp_path / "store").open()
    with pytest.raises(InstanceError):
        tasks.task("steps-mean")


@pytest.mark.parametrize("option", [("--sandbox", "bubblewrap"), ("--images", "docker"), ("--python", "python3")])
def test_options_about_other_environments_are_refused(option: tuple[str, str], tmp_path: Path) -> None:
    write_task(tmp_path / "tasks", "shared", "image:1")
    argv = ["eval", str(tmp_path / "tasks"), "--predictions", "gold", "--out", str(tmp_path / "out"), *option]
    assert main(argv) == 2
