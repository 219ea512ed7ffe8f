# SPDX-License-Identifier: Apache-2.0
"""Reads a transcript as docs/reference/transcript.md says, apart from the Rust code, and prints what it holds as JSON."""

import gzip
import json
import sys

with gzip.open(sys.argv[1], "rt") as file:
    header, *records = map(json.loads, file)
assert (header["trimwire"], header["version"]) == ("transcript", 2)
messages = [record["message"] for record in records if "message" in record]
maps = [[record["map"][key] for key in ("to", "message", "planes")] for record in records if "map" in record]
print(json.dumps({**header, "messages": messages, "maps": maps}))
