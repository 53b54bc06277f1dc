"""Build images in SWE-bench's layout for rows of `benchmarks/mine_native_rows.py`, and run each row in its image.

Run: `python benchmarks/native_row_images.py ROWS --instance ID --runner django --package sqlparse --package asgiref \
--repos CLONES --base IMAGE --out ROWS_WITH_IMAGES.jsonl`.
An image contains the row's commit in `/testbed`, below a commit for what `--prepare` changes, and an environment with
the packages in `/opt/miniconda3/envs/testbed`, where the repository is installed as editable. That is a virtual
environment, and `/opt/miniconda3/bin/activate` imitates conda's. IMAGE contains git, bash and a Python with venv.
Images are named `ssr-rows/ID:1` and built without a network. Each row then runs in a container without a network,
without and with its patch.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mine_native_rows import RUNNERS, NativeRunner
from row_images import build, check_out

_ENVIRONMENT = "/opt/miniconda3/envs/testbed"
_ACTIVATE = f"""\
# Imitates conda's script: to be read by bash, and then `conda activate testbed`.
conda() {{
  [ "$1" = activate ] || {{ echo "conda: only activate is known here" >&2; return 1; }}
  if [ "${{2:-base}}" = base ]; then
    export CONDA_DEFAULT_ENV=base CONDA_PREFIX=/opt/miniconda3
  else
    export CONDA_DEFAULT_ENV="$2" CONDA_PREFIX="/opt/miniconda3/envs/$2"
    case ":$PATH:" in *":$CONDA_PREFIX/bin:"*) ;; *) export PATH="$CONDA_PREFIX/bin:$PATH" ;; esac
  fi
}}
# "{_ENVIRONMENT}" is the only environment.
conda activate "${{1:-base}}"
"""
_DOCKERFILE = """\
FROM {base}
COPY wheels /wheels
COPY testbed /testbed
COPY activate /opt/miniconda3/bin/activate
WORKDIR /testbed
RUN mkdir -p /opt/miniconda3/etc/profile.d && cp /opt/miniconda3/bin/activate /opt/miniconda3/etc/profile.d/conda.sh \
 && python3 -m venv {environment} \
 && {environment}/bin/python -m pip install -q --no-index --find-links /wheels {packages} && rm -r /wheels
RUN {prepare} \
 && {environment}/bin/python -m pip install -q --no-index --no-deps --no-build-isolation -e . \
 && git config --global user.email setup@example.org && git config --global user.name setup \
 && git commit -q --allow-empty -am Setup
CMD ["/bin/bash"]
"""


def run_row(row: dict[str, Any], runner: NativeRunner, patches: list[str]) -> frozenset[str]:
    """Run a row's test files in its image, with patches; return the ids that passed."""
    files = re.findall(r"^\+\+\+ b/(.*)$", row["test_patch"], re.M)
    script = "source /opt/miniconda3/bin/activate && conda activate testbed && cat > /tmp/all.diff"
    script += " && git apply /tmp/all.diff && exec " + shlex.join(["python", *runner.command(files)])
    variables = [part for name, value in runner.environment.items() for part in ("--env", f"{name}={value}")]
    done = subprocess.run(
        ["docker", "run", "--rm", "-i", "--network", "none", *variables, row["image"], "bash", "-c", script],
        input="".join(patches).encode("utf-8", "surrogateescape"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return runner.read(done.stdout.decode(errors="replace")).passed


def holds(row: dict[str, Any], runner: NativeRunner) -> bool:
    """Return whether a row's tests fail and pass in its image as the row says."""
    before = run_row(row, runner, [row["test_patch"]])
    after = run_row(row, runner, [row["test_patch"], row["patch"]])
    wanted, kept = set(json.loads(row["FAIL_TO_PASS"])), set(json.loads(row["PASS_TO_PASS"]))
    for name in sorted((wanted & before) | ((wanted | kept) - after)):
        print(f"  {row['instance_id']}: {name}", file=sys.stderr)
    return not wanted & before and wanted | kept <= after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--instance", action="append", required=True, help="a row to build an image for")
    parser.add_argument("--runner", choices=RUNNERS, required=True)
    parser.add_argument("--package", action="append", default=[], help="what the environment contains")
    parser.add_argument("--prepare", default=":", help="shell command in /testbed before the repository is installed")
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--base", required=True, metavar="IMAGE")
    parser.add_argument("--out", type=Path, required=True, help="rows with an image are added to this file")
    arguments = parser.parse_args()
    packages = [*arguments.package, "setuptools", "wheel"]
    rows = [json.loads(text) for text in arguments.rows.read_text().splitlines()]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="row-images-") as work, arguments.out.open("a") as out:
        folder = Path(work)
        wheels = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "-w"]
        subprocess.run([*wheels, str(folder / "wheels"), *packages], check=True)
        (folder / "activate").write_text(_ACTIVATE)
        for row in [row for row in rows if row["instance_id"] in arguments.instance]:
            subprocess.run(["rm", "-rf", str(folder / "testbed")], check=True)
            name = row["repo"].replace("/", "__")
            clone = next(p for n in (name, f"{name}.git") if (p := arguments.repos / n).is_dir())
            check_out(clone, row["base_commit"], folder / "testbed")
            row["image"] = f"ssr-rows/{row['instance_id'].lower()}:1"
            text = _DOCKERFILE.format(
                base=arguments.base, environment=_ENVIRONMENT, packages=shlex.join(packages), prepare=arguments.prepare
            )
            build(folder, text, row["image"])
            good = holds(row, RUNNERS[arguments.runner])
            bad += not good
            out.write(json.dumps(row) + "\n")
            print(row["image"], "holds" if good else "does not hold", flush=True)
    sys.exit(bad and 1)


if __name__ == "__main__":
    main()
