"""The environment variables that Opweave reads. Nothing else reads the environment."""

from __future__ import annotations

import os
from pathlib import Path

from opweave.errors import UsageError


def debug() -> bool:
    """OPWEAVE_DEBUG: the command line shows tracebacks, and broken plugins raise."""
    return _flag("OPWEAVE_DEBUG")


def threads() -> int | None:
    """OPWEAVE_THREADS: threads of a call on the `cpu` device; default: what the process may use."""
    return _positive("OPWEAVE_THREADS")


def cpu_isa() -> str | None:
    """OPWEAVE_CPU_ISA: the instruction set of the `cpu` kernels (avx512, avx2, generic); default: the best there is."""
    return os.environ.get("OPWEAVE_CPU_ISA") or None


def memory_limit() -> int | None:
    """OPWEAVE_MEMORY_LIMIT: bytes that all calls on the `cpu` device together may use; default: three quarters of the
    machine's memory, or of the control group's."""
    return _positive("OPWEAVE_MEMORY_LIMIT")


def disabled_plugins() -> frozenset[str]:
    """OPWEAVE_DISABLE: names of plugins (entry points) that are not loaded, separated by commas."""
    return frozenset(n.strip() for n in os.environ.get("OPWEAVE_DISABLE", "").split(",") if n.strip())


def plan_cache() -> int:
    """OPWEAVE_PLAN_CACHE: how many input-shape signatures a session keeps plans for; default 32."""
    return _positive("OPWEAVE_PLAN_CACHE") or 32


def cache_dir() -> Path:
    """OPWEAVE_CACHE_DIR: where downloads and caches go; default `$XDG_CACHE_HOME/opweave` or `~/.cache/opweave`."""
    own = os.environ.get("OPWEAVE_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opweave"


def _positive(name: str) -> int | None:
    text = os.environ.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 2**62:
        raise UsageError(name, f"found {text!r}", "give a number of at least 1")
    return int(text)


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "no", "false", "off")
