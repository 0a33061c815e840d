"""Tests of sources at URLs on a Ray cluster. Started by `tests/servers/run.sh`, they also read from its S3 emulator."""

import functools
import http.server
import os
import pathlib
import re
import subprocess
import sys
import threading

import numpy
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

import feedwater as fw  # noqa: E402
from ray_helpers import files  # noqa: E402

CHAIN = [fw.ops.Resize(width=8, height=8), fw.ops.Flip(horizontal=0.5)]
#: A folder with shards. The emulator serves the same folder.
RECORDS = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "records"
SHARDS = "train-{000000..000001}.tar"


class Parts(http.server.SimpleHTTPRequestHandler):
    """An HTTP server that supports range requests, which shards need."""

    def do_GET(self):
        path = pathlib.Path(self.translate_path(self.path))
        data = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = map(int, asked.groups()) if asked else (0, len(data) - 1)
        part = data[first : last + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module", params=["http", "s3"])
def address(request):
    """Returns the address of the shards, and environment variables with which workers can access it."""
    if request.param == "s3":
        if "AWS_ENDPOINT_URL" not in os.environ:
            pytest.skip("no S3 emulator runs; tests/servers/run.sh starts one")
        yield "s3://feedwater", {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        return
    handler = functools.partial(Parts, directory=str(RECORDS))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", {}
        server.shutdown()


def test_shards_behind_urls_are_read_and_packed(cluster, address, tmp_path):
    url, environment = address
    source = fw.webdataset(f"{url}/{SHARDS}")
    options = {"runtime_env": {"env_vars": {**ray.get_runtime_context().runtime_env["env_vars"], **environment}}}
    settings = {"batch_size": 4, "shuffle": True, "seed": 3, "last_batch": "partial"}
    rows = fw.ray.read(source, CHAIN, override_num_blocks=2, ray_remote_args=options, **settings).take_all()
    with fw.Loader(fw.webdataset(str(RECORDS / SHARDS)), CHAIN, framework="numpy", **settings) as loader:
        expected = [(images.copy(), labels.tolist()) for images, labels in loader]
    numpy.testing.assert_array_equal(numpy.stack([row["image"] for row in rows]), numpy.concatenate([images for images, _ in expected]))
    assert [row["label"] for row in rows] == sum((labels for _, labels in expected), [])
    assert all(row["location"].startswith(url) for row in rows)

    fw.ray.pack(source, tmp_path / "cluster", shard_bytes=1 << 20, samples_per_task=3, ray_remote_args=options)
    pipeline = tmp_path / "pipeline.toml"
    pipeline.write_text(fw.Loader(source, CHAIN, batch_size=1).settings())
    command = [sys.executable, "-m", "feedwater", "pack", str(pipeline), str(tmp_path / "one"), "--shard-mib", "1"]
    subprocess.run(command, check=True, capture_output=True)
    assert files(tmp_path / "cluster") == files(tmp_path / "one") != {}
