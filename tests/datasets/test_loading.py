"""Rows of every family become instances; invalid data raises an error that names its location."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rows import written

from harness.datasets import InstanceError
from harness.datasets.families import read_row
from harness.datasets.loading import Selection, read_instances
from pytest_ssr.errors import SettingsError

TESTS = ["tests/test_shop.py::test_add", "tests/test_shop.py::test_add_more"]


def test_a_row_of_swe_bench(row):
    instance = read_row(row, "here")
    assert (instance.id, instance.repo, instance.family) == ("acme__shop-1", "acme/shop", "swe-bench")
    assert list(instance.fail_to_pass) == TESTS
    assert instance.patch.paths == ("shop.py",)
    assert instance.test_patch.paths == ("tests/test_shop.py",)
    assert instance.image == "swebench/sweb.eval.x86_64.acme_1776_shop-1:latest"


def test_lists_of_ids_may_be_lists_and_the_image_may_be_named(row):
    row |= {"FAIL_TO_PASS": TESTS, "PASS_TO_PASS": [], "image_name": "mine:2"}
    instance = read_row(row, "here")
    assert list(instance.fail_to_pass) == TESTS
    assert instance.pass_to_pass == ()
    assert instance.image == "mine:2"


def test_the_reverse_patch_of_a_swe_smith_row_is_its_solution(row):
    del row["base_commit"]
    row |= {"repo": "swesmith/acme__shop.1a2b3c4d", "instance_id": "acme__shop.1a2b3c4d.lm_rewrite__0abc12de"}
    row |= {"FAIL_TO_PASS": TESTS, "test_patch": None}
    instance = read_row(row, "here")
    assert (instance.family, instance.repo, instance.base_commit) == ("swe-smith", "acme/shop", "1a2b3c4d")
    assert b"-    return a + b\n+    return a - b" in instance.patch.data
    assert instance.test_patch.data == b""
    assert instance.image == "swebench/swesmith.x86_64.acme_1776_shop.1a2b3c4d:latest"


def test_rows_of_swe_gym_and_swe_rebench(row):
    gym = read_row({**row, "FAIL_TO_PASS": TESTS}, "here")
    assert (gym.family, gym.image) == ("swe-gym", "xingyaoww/sweb.eval.x86_64.acme_s_shop-1:latest")
    config = {"python": "3.9", "install": "pip install -e .[dev]", "pip_packages": ["pytest"]}
    for install in (config, json.dumps(config)):
        instance = read_row({**row, "install_config": install, "docker_image": "reb:1"}, "here")
        assert (instance.family, instance.image) == ("swe-rebench", "reb:1")
        assert instance.install["python"] == "3.9"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instance_id": "../up"}, "cannot name a folder"),
        ({"instance_id": None}, "cannot name a folder"),
        ({"repo": "acme"}, "is not owner/name"),
        ({"repo": "../shop"}, "is not owner/name"),
        ({"base_commit": "--upload-pack=x"}, "is not a commit"),
        ({"patch": "diff --git a/x b/x\n@@ nonsense"}, "patch"),
        ({"patch": 3}, "patch is int"),
        (
            {
                "test_patch": "diff --git a/../x b/../x\nnew file mode 100644\n--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+a\n"
            },
            "test_patch",
        ),
        ({"FAIL_TO_PASS": "[1"}, "FAIL_TO_PASS is neither JSON"),
        ({"FAIL_TO_PASS": "3"}, "FAIL_TO_PASS is not a list"),
        ({"PASS_TO_PASS": [1]}, "PASS_TO_PASS is not a list"),
        ({"install_config": "{"}, "install_config is not JSON"),
        ({"install_config": [1]}, "install_config is list"),
        ({"install_config": {"test_cmd": 7}}, "test_cmd is neither text nor a list"),
        ({"instance_id": "x" * 201}, "cannot name a folder"),
        ({"patch": None}, "no reference solution"),
    ],
)
def test_an_error_in_a_row_names_its_location(row, change, message):
    with pytest.raises(InstanceError, match=r"^rows\.jsonl: line 3") as error:
        read_row({**row, **change}, "rows.jsonl: line 3")
    assert message in str(error.value)


def test_files_and_folders(repository, tmp_path: Path):
    rows = repository[1]
    lines = written(tmp_path / "a.jsonl", rows[:1])
    (tmp_path / "b.json").write_text(json.dumps(rows[1:]))
    assert [i.id for i in read_instances(str(lines))] == ["acme__shop-1"]
    assert [i.id for i in read_instances(str(tmp_path))] == ["acme__shop-1", "acme__shop-2"]
    written(tmp_path / "c.jsonl", rows[:1])
    with pytest.raises(InstanceError, match="acme__shop-1 occurs twice"):
        read_instances(str(tmp_path))


def test_a_folder_in_the_hub_s_layout(row, tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "README.md").write_text("a card")
    written(tmp_path / "data" / "train.jsonl", [row])
    written(tmp_path / "data" / "test-00000-of-00001.jsonl", [{**row, "instance_id": "acme__shop-9"}])
    assert [i.id for i in read_instances(str(tmp_path))] == ["acme__shop-9", "acme__shop-1"]
    assert [i.id for i in read_instances(str(tmp_path), split="train")] == ["acme__shop-1"]
    assert [i.id for i in read_instances(str(tmp_path), split="test")] == ["acme__shop-9"]
    with pytest.raises(
        SettingsError, match=r"has no split dev; its files are test-00000-of-00001\.jsonl, train\.jsonl"
    ):
        read_instances(str(tmp_path), split="dev")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.jsonl", '{"instance_id": "a"\n', "line 1 is not JSON"),
        ("rows.jsonl", "[]\n", "line 1 is not an object"),
        ("rows.jsonl", "", "contains no instances"),
        ("rows.json", "[3]", "row 1 is not an object"),
        ("rows.json", "[" * 100_000, "is not JSON"),
        ("rows.csv", "a,b\n", "its name must end in"),
    ],
)
def test_an_invalid_file_is_an_error(tmp_path: Path, name: str, text: str, message: str):
    (tmp_path / name).write_text(text)
    with pytest.raises((InstanceError, SettingsError)) as error:
        read_instances(str(tmp_path / name))
    assert message in str(error.value)


def test_a_missing_dataset_is_an_error(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"dataset .* does not exist"):
        read_instances(str(tmp_path / "none.jsonl"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match=r"contains no \.jsonl"):
        read_instances(str(tmp_path / "empty"))


def test_instances_are_selected(row):
    instances = [read_row({**row, "instance_id": f"acme__shop-{n}"}, "") for n in range(10)]

    def ids(**options):
        return [int(i.id.rpartition("-")[2]) for i in Selection(**options).select(instances)]

    assert ids() == list(range(10))
    assert ids(only="-[13]$") == [1, 3]
    assert ids(part="2:5") == [2, 3, 4]
    assert ids(part="::4") == [0, 4, 8]
    assert ids(shuffle=1) == ids(shuffle=1) != ids(shuffle=2)
    assert sorted(ids(shuffle=1)) == list(range(10))
    assert ids(shuffle=1, part=":3") == ids(shuffle=1)[:3]
    for invalid in ({"only": "("}, {"part": "3"}, {"part": "::0"}, {"part": "a:b"}, {"only": "none"}):
        with pytest.raises(SettingsError, match=r"--only|--slice"):
            ids(**invalid)


def test_the_key_covers_what_a_grade_depends_on(row):
    key = read_row(row, "").key
    assert read_row({**row, "problem_statement": "other", "hints_text": "x"}, "").key == key
    for change in ({"FAIL_TO_PASS": TESTS[:1]}, {"base_commit": "0" * 40}, {"test_patch": ""}, {"instance_id": "b"}):
        assert read_row({**row, **change}, "").key != key
