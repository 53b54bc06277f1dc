"""Draw a plan. Only this module of the package imports matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from harness.capacity.estimate import Estimate
from pytest_ssr.errors import SettingsError

if TYPE_CHECKING:
    from harness.capacity.simulation import Simulated

KINDS = ("pdf", "png", "svg")


def draw(estimates: Sequence[Estimate], simulated: Sequence[Simulated], *, kind: str) -> bytes:
    """Return a picture of time and utilisation by nodes; raises SettingsError for an unknown kind of file."""
    if kind not in KINDS:
        raise SettingsError(f"--plot writes .{', .'.join(KINDS)}, not {kind or 'a file without suffix'}", option="plot")
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "plan", "pdf.fonttype": 42}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        time, used = figure.subplots(1, 2)
        nodes = [e.nodes for e in estimates]
        hours = [e.seconds / 3600 for e in estimates]
        interval = [
            [(e.seconds - e.low_s) / 3600 for e in estimates],
            [(e.high_s - e.seconds) / 3600 for e in estimates],
        ]
        time.errorbar(nodes, hours, yerr=interval, fmt="o-", capsize=3, label="closed form, 95 %")
        used.plot(nodes, [100 * e.utilisation for e in estimates], "o-", label="closed form")
        if simulated:
            numbers = [s.nodes for s in simulated]
            time.plot(numbers, [s.seconds / 3600 for s in simulated], "x", label="simulation")
            used.plot(numbers, [100 * s.utilisation for s in simulated], "x", label="simulation")
        for axes, label in ((time, "hours"), (used, "utilisation %")):
            axes.set_xscale("log")
            axes.set_xlabel("nodes")
            axes.set_ylabel(label)
            axes.legend(fontsize=8)
        time.set_yscale("log")
        used.set_ylim(0, 105)
        out = io.BytesIO()
        # Without dates, so that the bytes are reproducible.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
        figure.savefig(out, format=kind, metadata=metadata, dpi=150)
    return out.getvalue()
