"""Make the helpers of one test module importable from others."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
