# SPDX-License-Identifier: Apache-2.0
"""What docs/how-to/mininet.md says to type, to the letter: an all-reduce beside TCP in at most ten commands."""
from __future__ import annotations

import re
import shlex
import subprocess

from trimwire_net.congestion import Promises
from trimwire_net.processes import own_session
from trimwire_net.programs import REPOSITORY
from trimwire_net.run_folder import Problem

PAGE = "docs/how-to/mininet.md"
HEADING = "## An all-reduce beside TCP, in ten commands"
PROMPT = "mininet> "
INSTALLS = ("sudo apt-get ", "cargo ")


def commands() -> list[str]:
    """The block's lines, without comments."""
    _, _, section = (REPOSITORY / PAGE).read_text().partition(f"\n{HEADING}\n")
    block, fence, _ = section.partition("```sh\n")[2].partition("\n```")
    if not fence:
        raise Problem(f"{PAGE}: no block of commands below “{HEADING}”")
    return [line.partition("  #")[0].rstrip() for line in block.splitlines()]


def typed(command: str, lines: list[str]) -> str:
    """All that a command with Mininet's prompt says while lines are typed in, each when the prompt is there.

    `mn` hands what is typed ahead to the host that a command runs on.
    """
    child = subprocess.Popen(shlex.split(command), cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, bufsize=0, start_new_session=True, preexec_fn=own_session)
    assert child.stdin is not None and child.stdout is not None
    said, waiting = b"", list(lines)
    while byte := child.stdout.read(1):
        said += byte
        if said.endswith(PROMPT.encode()):
            if not waiting:
                raise Problem(f"{PAGE}: after “{lines[-1]}” Mininet still waits for commands")
            line = waiting.pop(0)
            said += f"{line}\n".encode()
            child.stdin.write(f"{line}\n".encode())
    if child.wait() != 0 or waiting:
        raise Problem(f"{PAGE}: “{command}” ended with {child.returncode} before “{(waiting or lines)[0]}”:\n{said.decode(errors='replace')}")
    return said.decode(errors="replace")


def shares(text: str) -> list[tuple[float, float, float]]:
    """(trimmed %, missing %, NMSE) of every rank of every all-reduce, in order."""
    row = re.compile(r"^ +\d+ +h\d+ +\d+ +([\d.]+)% +([\d.]+)% +\d+ +([\d.e+-]+) ", re.MULTILINE)
    return [tuple(map(float, found)) for found in row.findall(text)]  # type: ignore[misc]


def run(promises: Promises) -> None:
    """Types it in, but for what installs and builds, and looks at what comes of it."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    promises.scenario = PAGE
    lines = commands()
    print(f"{PAGE}: {HEADING.lstrip('# ')}", flush=True)
    promises.check("ten commands at most", len(lines) <= 10, str(len(lines)))
    rest = [line for line in lines if not line.startswith(INSTALLS)]
    begin, prompts = rest[0].removeprefix("sudo "), [line.removeprefix(PROMPT) for line in rest[1:]]
    text = typed(begin, prompts)
    ranks = shares(text)
    promises.check("two all-reduces of two ranks have ended", len(ranks) == 4, f"{len(ranks)} results")
    promises.check("their sums are right", len(ranks) > 0 and all(missing <= 1 and nmse < 0.1 for _, missing, nmse in ranks),
               f"NMSE {max((nmse for *_, nmse in ranks), default=1):.1e} at worst")
    # The trunk from s1 to s2 is port 3: TRIM_PKTS of class 0 there.
    trunk = re.search(r"^s1:3 +5 class0 +\d+ +(\d+) ", text, re.MULTILINE)
    trimmed = int(trunk[1]) if trunk else 0
    promises.check("beside TCP the trunk trims, and the counters show it", trimmed > 0 and any(share > 0 for share, *_ in ranks[2:]), f"{trimmed} trimmed")
    promises.check("TCP gets through", re.search(r"[1-9]\d*(\.\d+)? [KMG]?bits/sec +receiver", text) is not None,
               next((line.strip() for line in text.splitlines() if line.endswith("receiver")), "no result"))
    if promises.broken:
        print(text)
