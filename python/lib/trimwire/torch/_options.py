# SPDX-License-Identifier: Apache-2.0
"""How groups and hooks work: one list of options, for keywords, environment variables and the documentation's table."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import torch.distributed as dist

from .._native import PLANES
from .._operation import GRADIENT_PLANES

if TYPE_CHECKING:
    from typing_extensions import Unpack

LONGEST_KEY = 32
#: Kernels for tensors of a GPU where there are some; the host for all; kernels for all (without a GPU in Triton's interpreter).
CODECS = ("auto", "host", "triton")


def one_of(name: str, value: object, *valid: object) -> None:
    """Refuses what is none of them."""
    # 1 is no True.
    if not any(type(value) is type(each) and value == each for each in valid):
        raise ValueError(f"{name}: {value!r}; valid are {', '.join(map(repr, valid))}")


def within(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuses what is no such whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        raise ValueError(f"{name}: {value!r}; valid are whole numbers from {least} {'on' if most is None else f'to {most}'}")


def _positive(name: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ValueError(f"{name}: {value!r}; valid are seconds above 0")


@dataclass(frozen=True)
class Network:
    """What who runs the network sets: addresses, ports, speeds. Each has an environment variable, `TRIMWIRE_` and its name in capitals.

    Raises:
        ValueError: one has a value that it cannot have; the text names both, and what is valid.
    """

    #: Addresses that this rank listens on, with commas between; None: what TRIMWIRE_SOCKET_IFNAME selects, or what reaches MASTER_ADDR.
    address: str | None = None
    #: The first UDP port that this rank listens on; 0: a free one.
    port: int = 0
    #: Source ports that data leaves by: ECMP spreads them over paths.
    paths: int = 16
    #: Bits a second that a rank sends at most; None: the interface's speed.
    rate_bps: int | None = None
    #: Seconds that a queue takes from which switches trim: the fabric file's least `shallow_at` over the line's rate. None: 20 µs.
    trim_delay: float | None = None
    #: How packets are taken: 'socket'; 'raw', for switches that trim and leave lengths as they were (needs CAP_NET_RAW); 'auto', sockets, and a warning when such packets come.
    receive: str = "auto"
    #: Of data: 'filled', for switches that set them to 0 when they trim; 'zero', for those that leave them alone.
    checksums: str = "filled"
    #: Threads that each move and code a part of every operation, by a UDP port of their own; the same at all ranks. None: as many as each rank has processors, up to four; for tensors of a GPU, with `port` or `record`, one.
    channels: int | None = None
    #: Ranks that make a group have all been started: of one that was never heard, no operation waits for longer than so many seconds after that, and `give_up`. 0: it is waited for as `operation_timeout` says.
    rendezvous_timeout: float = 20.0
    #: A file that what arrives of every packet is written into (docs/reference/transcript.md); `{rank}` is replaced, else `.RANK` appended.
    record: str | None = None
    #: HOST:PORT where this process tells its counters in Prometheus' format, the next process of this host (LOCAL_RANK) at the next port; None: nowhere.
    metrics: str | None = None

    def __post_init__(self) -> None:
        one_of("receive", self.receive, "auto", "socket", "raw")
        one_of("checksums", self.checksums, "filled", "zero")
        within("port", self.port, 0, 65_535)
        within("paths", self.paths, 1, 256)
        within("rate_bps", 1 if self.rate_bps is None else self.rate_bps, 1)
        within("channels", 1 if self.channels is None else self.channels, 1, 16)
        _positive("trim_delay", self.trim_delay)
        if not 0 <= self.rendezvous_timeout < math.inf:
            raise ValueError(f"rendezvous_timeout: {self.rendezvous_timeout!r}; valid are seconds from 0 on")


@dataclass(frozen=True)
class Options:
    """What who trains sets: what is exact, and how exact the rest is. Each has an environment variable, as `Network` has.

    Raises:
        ValueError: an option has a value that it cannot have; the text names both, and what is valid.
    """

    #: 'exact': every bit of every result is right. 'lossy': sums and means of float32, float16 and bfloat16 tensors of `smallest` elements and more may be trimmed.
    gradients: str = "exact"
    #: Planes sent of each coordinate that may be trimmed, 1 to 10; eight are one byte, nine two.
    planes: int = GRADIENT_PLANES
    #: Sums of fewer elements are exact, whatever `gradients` says: losses, norms and counters. So are the hook's gradients of tensors of one dimension that have fewer.
    smallest: int = 16_384
    #: Every rank decodes at the precision of the one that got least, so that replicas keep the same bits. Without it replicas drift apart where packets are trimmed.
    consistent: bool = True
    #: With 'lossy', parameters that are gathered (FSDP) may be trimmed. Checkpoints that are gathered are, too.
    lossy_all_gather: bool = False
    #: A planes algorithm, which says with how many planes, up to `planes`, the next step's sums are sent (docs/explanation/planner.md); None: always `planes`.
    adaptive: str | None = None
    #: Who codes what may be trimmed: 'auto', Triton's kernels for tensors of a GPU; 'host', the host for all; 'triton', kernels for all.
    codec: str = "auto"
    #: A secret of the job that seals packets: the name of a file that holds it, or the 16 or 32 bytes. The same at all ranks.
    seal_key: str | bytes | os.PathLike[str] | None = field(default=None, repr=False)
    #: A rank that has answered before, and then answers nothing for so many seconds, is given up.
    give_up: float = 10.0
    #: A rank that answers, but does not take part in an operation, or that was never heard where `rendezvous_timeout` is 0, is waited for so many seconds; None: the group's timeout.
    operation_timeout: float | None = None
    # Addresses, ports, speeds: for who runs the network.
    network: Network = field(default_factory=Network)

    @property
    def _secret(self) -> bytes | None:
        """`seal_key`, read."""
        assert self.seal_key is None or isinstance(self.seal_key, bytes)
        return self.seal_key

    @property
    def _timeout(self) -> datetime.timedelta:
        """What device meshes take a group's timeout from; who makes a group itself says `timeout=`."""
        default: datetime.timedelta = dist.default_pg_timeout
        return default

    def __post_init__(self) -> None:
        one_of("gradients", self.gradients, "exact", "lossy")
        one_of("codec", self.codec, *CODECS)
        within("planes", self.planes, 1, PLANES)
        within("smallest", self.smallest, 0)
        one_of("consistent", self.consistent, True, False)
        one_of("lossy_all_gather", self.lossy_all_gather, True, False)
        _positive("give_up", self.give_up)
        _positive("operation_timeout", self.operation_timeout)
        if not isinstance(self.network, Network):
            raise ValueError(f"network: {self.network!r}; valid is trimwire.torch.Network(…)")
        if self.seal_key is not None:
            # From here on the bytes, so that a file that changes is read once.
            object.__setattr__(self, "seal_key", _secret(self.seal_key))


class Changes(TypedDict, total=False):
    """Options as keywords of which each may be left out: for editors and type checkers."""

    gradients: str
    planes: int
    smallest: int
    consistent: bool
    lossy_all_gather: bool
    adaptive: str | None
    codec: str
    seal_key: str | bytes | os.PathLike[str] | None
    give_up: float
    operation_timeout: float | None
    network: Network | dict[str, Any]


_NETWORK = {each.name: each for each in dataclasses.fields(Network)}
_FIELDS = {each.name: each for each in dataclasses.fields(Options)}
_PREFIX = "TRIMWIRE_"
#: Variables of this package, without the prefix: those of options, and of what is no option.
_NAMES = [*(name.upper() for name in (*_FIELDS, *_NETWORK)), "SOCKET_IFNAME", "MTU", "LOCAL_SIZE", "DEBUG"]
#: Names as near as this (difflib's ratio) are taken for misspelt.
_NEAR = 0.8


def changed(before: Options, changes: dict[str, Any]) -> Options:
    """Options with some of them changed; `network` may be a dict of what changes of it.

    Raises:
        TypeError: there is no such option; the text names the nearest.
        ValueError: as `Options`.
    """
    _refuse_unknown(changes, _FIELDS, "option")
    network = changes.get("network")
    if isinstance(network, dict):
        _refuse_unknown(network, _NETWORK, "option of the network")
        changes = {**changes, "network": dataclasses.replace(before.network, **network)}
    return dataclasses.replace(before, **changes)


def _refuse_unknown(changes: dict[str, Any], known: dict[str, Any], what: str) -> None:
    for name in changes:
        if name in known:
            continue
        if name in _NETWORK:
            raise TypeError(f"{name!r} is an option of the network: network={{{name!r}: …}}")
        near = difflib.get_close_matches(name, known, 1)
        hint = f" ({near[0]} is one)" if near else ""
        raise TypeError(f"{name!r} is no {what}{hint}; there are {', '.join(known)}")


def from_environment(environment: dict[str, str] | os._Environ[str] = os.environ) -> Options:
    """The defaults, changed by TRIMWIRE_ variables.

    Raises:
        ValueError: a variable does not say what its option can be; the text names the variable.
    """

    def said(kind: type[Any], fields: dict[str, Any]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for name, each in fields.items():
            variable = f"{_PREFIX}{name.upper()}"
            text = environment.get(variable)
            if not text or name == "network":
                continue
            try:
                changes[name] = _parsed(text, str(each.type))
                # One at a time: what is wrong is then this variable.
                kind(**{name: changes[name]})
            except ValueError as error:
                raise ValueError(f"{variable}={text}: {error}") from None
        return changes

    return Options(**said(Options, _FIELDS), network=Network(**said(Network, _NETWORK)))


def warn_of_misspelt(environment: dict[str, str] | os._Environ[str] = os.environ) -> None:
    """Warns of variables that nothing reads and that are nearly one that this package does: a job with TRIMWIRE_GRADIENT=lossy would train exactly. The other programs' variables are not near enough."""
    if environment.get("LOCAL_RANK", "0") != "0":
        return
    for variable in sorted(environment):
        name = variable.removeprefix(_PREFIX)
        if name == variable or name in _NAMES:
            continue
        near = difflib.get_close_matches(name, _NAMES, 1, cutoff=_NEAR)
        if near:
            warnings.warn(f"{variable} is no variable of trimwire: did you mean {_PREFIX}{near[0]}?", RuntimeWarning, stacklevel=2)


def _parsed(text: str, kind: str) -> Any:
    if kind.startswith("bool"):
        if text.lower() not in ("0", "1", "true", "false"):
            raise ValueError("valid are 0, 1, false and true")
        return text.lower() in ("1", "true")
    if kind.startswith("int"):
        return int(text)
    if kind.startswith("float"):
        return float(text)
    return text


def _secret(given: str | bytes | os.PathLike[str]) -> bytes:
    """The key itself, from a file's name or from its bytes."""
    if isinstance(given, bytes):
        secret, place = given, "seal_key"
    else:
        place = f"seal_key: {os.fspath(given)}"
        try:
            with open(given, "rb") as file:
                secret = file.read(LONGEST_KEY + 1)
        except OSError as error:
            raise ValueError(f"{place}: {error.strerror}; valid are names of files that hold a key") from None
    if len(secret) not in (16, LONGEST_KEY):
        said = f"more than {LONGEST_KEY}" if len(secret) > LONGEST_KEY else str(len(secret))
        raise ValueError(f"{place}: {said} bytes; valid are 16 and {LONGEST_KEY}")
    return secret


_options: Options | None = None


def current() -> Options:
    """Those of groups that are made from now on."""
    return from_environment() if _options is None else _options


def given(pg_options: object) -> Options:
    """Those of a group that is made with `pg_options`.

    Raises:
        TypeError: they are somebody else's.
    """
    if pg_options is None:
        return current()
    if isinstance(pg_options, Options):
        return pg_options
    if isinstance(pg_options, dict):
        return changed(current(), pg_options)
    raise TypeError(f"pg_options: {type(pg_options).__name__}; the backend 'trimwire' takes trimwire.torch.Options, or a dict of some of them")


@contextmanager
def _restored(before: Options | None, now: Options) -> Iterator[Options]:
    global _options
    try:
        yield now
    finally:
        _options = before


def options(**changes: Unpack[Changes]) -> Any:
    """Changes how groups that are made from now on work; as a context manager, until its end.

    Args:
        changes: some of `Options`, of the network's as `network={…}`.

    Raises:
        TypeError: there is no such option; the text names the nearest.
        ValueError: as `Options`.
    """
    global _options
    before = _options
    _options = now = changed(current(), dict(changes))
    return _restored(before, now)
