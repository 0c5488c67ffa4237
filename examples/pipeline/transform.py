"""Step 2: the mean of every ten readings. It computes the readings again, because steps share no files."""

import json
import os
from pathlib import Path
from statistics import mean

readings = [n * n % 97 for n in range(1, 1001)]
means = [round(mean(readings[start : start + 10]), 2) for start in range(0, len(readings), 10)]

out = Path("out")
out.mkdir(exist_ok=True)
(out / "means.json").write_text(json.dumps(means))
print(f"Run {os.environ['PUNCTUAL_RUN_ID']}: transformed {len(readings)} readings into {len(means)} means")
