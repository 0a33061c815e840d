"""Runs a command with real servers on the loopback interface. Usage: with_servers.py FOLDER COMMAND...

Two servers serve the files of FOLDER. One is an S3 emulator (moto) with the files in the bucket `feedwater`. The other
one is Python's HTTP server, which does not support range requests. The environment variables AWS_ENDPOINT_URL and
FEEDWATER_HTTP_SERVER give their addresses to the command.
"""

import functools
import http.server
import logging
import os
import pathlib
import subprocess
import sys
import threading


class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


def main():
    folder, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    os.environ.update(
        AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1"
    )
    import boto3
    from moto.server import ThreadedMotoServer

    emulator = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    emulator.start()
    host, port = emulator.get_host_and_port()
    os.environ["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
    client = boto3.client("s3")
    client.create_bucket(Bucket="feedwater")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), "feedwater", path.relative_to(folder).as_posix())

    handler = functools.partial(Quiet, directory=str(folder))
    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    files.daemon_threads = True
    threading.Thread(target=files.serve_forever, daemon=True).start()
    os.environ["FEEDWATER_HTTP_SERVER"] = f"http://127.0.0.1:{files.server_port}"
    # The servers' threads never end, so the process exits without waiting for them.
    code = subprocess.run(command, check=False).returncode
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
