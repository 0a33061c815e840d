"""Checks the output of all processes of one distributed run. Usage: check.py FOLDER LAUNCHER WORLD LAST SAMPLES BATCH"""

import json
import pathlib
import sys

folder, launcher, last = sys.argv[1], sys.argv[2], sys.argv[4]
world, samples, batch = int(sys.argv[3]), int(sys.argv[5]), int(sys.argv[6])

ranks, batches, seen = [], [], []
for process in pathlib.Path(folder).iterdir():
    said = json.loads((process / "result.json").read_text().splitlines()[-1])
    shard = said["shard"]
    assert shard["world"] == world, f"world {shard['world']}, not {world}"
    assert shard["from"] == launcher, f"the rank comes from {shard['from']}, not from {launcher}"
    ranks.append(shard["rank"])
    batches.append(said["batches"])
    entries = json.loads((process / "samples.json").read_text())
    own = [it["index"] for it in entries if not it.get("padding")]
    if last != "drop":
        expected = (samples - shard["rank"] + world - 1) // world
        assert len(own) == expected, f"rank {shard['rank']} has {len(own)} samples, not {expected}"
    seen += own

assert sorted(ranks) == list(range(world)), f"ranks {sorted(ranks)} of {world}"
if last == "drop":
    assert len(seen) == samples // (batch * world) * batch * world, f"{len(seen)} samples"
    assert len(set(seen)) == len(seen), "a sample appears twice"
else:
    assert sorted(seen) == list(range(samples)), f"samples {sorted(seen)}"
if last != "partial":
    assert len(set(batches)) == 1, f"batches {batches}"
print(f"{launcher}, {world} processes, {last}: {len(seen)} samples in batches {sorted(batches)}")
