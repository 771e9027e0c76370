"""What figures depend on: the machine and the versions."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any


def processor() -> str:
    """The model's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def memory() -> int:
    """Bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine() -> dict[str, Any]:
    """The machine now: how much it is asked to do by others is part of it."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": memory(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }


def told(found: dict[str, Any], versions: dict[str, str]) -> str:
    """One sentence on both."""
    programs = [("Python", found["python"]), *sorted(versions.items())]
    listed = ", ".join(f"{name} {version}" for name, version in programs)
    return (
        f"{found['date']}, {found['cores']} cores ({found['processor'] or found['architecture']}), "
        f"{found['memory_bytes'] / 2**30:.0f} GiB, {found['system']}, load {found['load_before']} "
        "at the start; "
        f"{listed}."
    )
