"""Build a container image for each row: its commit in /testbed, and an environment with pytest, as SWE-bench has them.

Run: `python benchmarks/row_images.py ROWS --repos CLONES --base IMAGE --out ROWS_WITH_IMAGES.jsonl [--most 6]`.
ROWS are in SWE-bench's format (`benchmarks/mine_rows.py` creates some) and need only pytest, CLONES are their
repositories. IMAGE contains git, bash and a Python with venv. The history of /testbed is its one commit. The output is
the rows with what swebench 5 needs of one: its image, its script and its parser.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "peers"))

from swebench_script import eval_script

_ENVIRONMENT = """\
FROM {base}
COPY wheels /wheels
RUN python3 -m venv /opt/env && /opt/env/bin/pip install -q --no-index --find-links /wheels pytest && rm -r /wheels
ENV PATH=/opt/env/bin:/usr/local/bin:/usr/bin:/bin PYTHONPATH=/testbed/src:/testbed PYTHONDONTWRITEBYTECODE=1
"""
_ROW = "FROM {base}\nCOPY testbed /testbed\nWORKDIR /testbed\n"


def build(folder: Path, dockerfile: str, name: str) -> None:
    """Build an image from a folder, without a network."""
    (folder / "Dockerfile").write_text(dockerfile)
    done = subprocess.run(
        ["docker", "build", "-q", "--network", "none", "-t", name, str(folder)],
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} could not be built: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def check_out(clone: Path, commit: str, testbed: Path) -> None:
    """Create a repository with a single commit."""
    git = ["git", "-C", str(testbed), "-c", "advice.detachedHead=false"]
    subprocess.run(["git", "init", "-q", str(testbed)], check=True)
    served = "git -c uploadpack.allowAnySHA1InWant=true upload-pack"
    fetched = ["fetch", "-q", "--depth", "1", "--upload-pack", served, clone.resolve().as_uri(), commit]
    subprocess.run([*git, *fetched], check=True)
    subprocess.run([*git, "checkout", "-q", "FETCH_HEAD"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--base", required=True, metavar="IMAGE")
    parser.add_argument("--most", type=int, default=6, help="number of rows to use, from the first on")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = [json.loads(text) for text in arguments.rows.read_text().splitlines()][: arguments.most]
    with tempfile.TemporaryDirectory(prefix="row-images-") as work:
        folder = Path(work)
        wheels = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
        subprocess.run([*wheels, "-w", str(folder / "wheels"), "pytest"], check=True)
        build(folder, _ENVIRONMENT.format(base=arguments.base), "ssr-rows-environment")
        for row in rows:
            name = row["repo"].replace("/", "__")
            clone = next(p for n in (name, f"{name}.git") if (p := arguments.repos / n).is_dir())
            row["image"] = f"ssr-rows:{row['instance_id'].lower()}"
            with tempfile.TemporaryDirectory(dir=work) as context:
                check_out(clone, row["base_commit"], Path(context, "testbed"))
                build(Path(context), _ROW.format(base="ssr-rows-environment"), row["image"])
            row |= {"log_parser": "parse_log_pytest", "eval_type": "pass_and_fail", "eval_script": eval_script(row)}
            print(row["image"], flush=True)
    arguments.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
