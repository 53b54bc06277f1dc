"""Read and filter rows of the SWE-bench family, and prepare tasks and grades from them."""

from harness.datasets.instance import Instance, InstanceError

__all__ = ["Instance", "InstanceError"]
