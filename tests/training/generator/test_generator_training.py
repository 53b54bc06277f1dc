"""The generator learns to fill holes; training and the solver compute the same."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from harness.solvers.search.generator.generator import load_generator  # noqa: E402
from harness.solvers.search.generator.network import Network as SolverNetwork  # noqa: E402
from harness.solvers.search.generator.vocabulary import padded  # noqa: E402
from harness.training.search.generator.fitting import fit_generator  # noqa: E402
from harness.training.search.generator.holes_data import hole_examples, vocabulary_of  # noqa: E402
from harness.training.search.generator.network import Network  # noqa: E402
from harness.training.search.policy_fitting import TrainingSettings  # noqa: E402
from harness.training.search.sources import open_sources  # noqa: E402
from harness.training.search.training import train_generator  # noqa: E402


def test_both_networks_give_the_same_probabilities(projects: list[Path]):
    sources = open_sources(projects)
    vocabulary = vocabulary_of(sources, random.Random(1))
    examples = list(hole_examples(sources[0], vocabulary, random.Random(1), 5))
    torch.manual_seed(1)
    network = Network(vocabulary.rows, len(vocabulary))
    batch = padded([e.context for e in examples])
    rows = np.array([[e.rows[0], 3, 5] for e in examples])
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()} | {"target_rows": torch.from_numpy(rows)}
    with torch.no_grad():
        written, copied = network(tensors)
    solver = SolverNetwork(network.arrays())
    prepared = solver.read(batch)
    states = prepared.start
    for index in range(rows.shape[1]):
        states, logs = solver.step(prepared, np.arange(len(rows)), states, rows[:, index])
        expected = torch.cat([written, copied], -1)[:, index].numpy()
        np.testing.assert_allclose(np.exp(logs), np.exp(expected), atol=1e-5)


def test_training_lowers_the_loss_and_is_the_same_each_time(projects: list[Path]):
    torch.set_num_threads(1)
    losses: list[float] = []
    generators = [
        fit_generator(open_sources(projects), holes=count, seed=1, progress=lambda _, loss: losses.append(loss))
        for count in (64, 640, 640)
    ]
    assert losses[1] < losses[0]
    assert generators[1].key == generators[2].key


def test_a_trained_generator_is_kept(projects: list[Path], tmp_path: Path):
    settings = TrainingSettings(holes=32)
    path = train_generator(open_sources(projects), tmp_path, settings, lambda _: None)
    load_generator(path)
    before = path.stat().st_mtime_ns
    assert train_generator(open_sources(projects), tmp_path, settings, lambda _: None) == path
    assert path.stat().st_mtime_ns == before
