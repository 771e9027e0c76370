"""The machine and the versions, on which figures depend."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any


def processor() -> str:
    """Return the model name of the processor, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def memory() -> int:
    """Return the physical memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine() -> dict[str, Any]:
    """Return the properties of the machine, including its present load."""
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
    """Return a sentence on the machine and the versions."""
    programs = [("Python", found["python"]), *sorted(versions.items())]
    listed = ", ".join(f"{name} {version}" for name, version in programs)
    return (
        f"{found['date']}, {found['cores']} cores ({found['processor'] or found['architecture']}), "
        f"{found['memory_bytes'] / 2**30:.0f} GiB, {found['system']}, load {found['load_before']} "
        "at the start; "
        f"{listed}."
    )
