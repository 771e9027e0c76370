"""The image, and containers of it that have exactly the rights of a pod."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.engines.charts import ROOT, Document

PROGRAMS = ("podman", "runc", "debootstrap")
IMAGE = "localhost/zmqdata-tested"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
CONTAINERS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
STORAGE = """
[storage]
driver = "vfs"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


def are_installed() -> bool:
    """Return True if the programs are there to build and run images, as root."""
    found = (shutil.which(name, path=f"{os.environ['PATH']}:{PATH}") for name in PROGRAMS)
    return os.geteuid() == 0 and all(found)


class Podman:
    """Images and containers in a folder of their own.

    Args:
        folder: the folder, which is kept for other runs, so that only what has changed
            is built.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "containers.conf").write_text(CONTAINERS)
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
        self.folder = folder
        self._environment = {
            **os.environ,
            "PATH": f"{os.environ['PATH']}:{PATH}",
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def attempt(self, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run podman, which may fail."""
        return subprocess.run(
            ["podman", *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self._environment,
        )

    def call(self, *words: str, timeout: float = 60.0) -> str:
        """Return what podman writes."""
        done = self.attempt(*words, timeout=timeout)
        assert done.returncode == 0, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout.strip()

    def bring_base(self) -> None:
        """Make the image on which the Containerfile builds from Debian's packages, as
        no registry of images need be in reach.
        """
        name = f"docker.io/library/python:{PYTHON}-slim"
        if self.attempt("image", "exists", name).returncode == 0:
            return
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        with tempfile.TemporaryDirectory() as folder:
            root, archive = f"{folder}/root", f"{folder}/root.tar"
            for command in (
                f"debootstrap --variant=minbase --include=python3,python3-venv {release} {root}",
                # Its Python lies where that of the original does.
                f"chroot {root} python3 -m venv /usr/local",
                f"rm -rf {root}/usr/share/doc {root}/usr/share/locale {root}/var/cache",
                f"tar -C {root} -c -f {archive} .",
            ):
                subprocess.run(
                    command.split(),
                    check=True,
                    timeout=300,
                    env=self._environment,
                    stdout=subprocess.DEVNULL,
                )
            self.call("import", "--change", f"ENV PATH={PATH}", archive, name)

    def build(self, containerfile: Path, context: Path, tag: str) -> None:
        """Build an image, which installs packages as this machine does."""
        shared = [path for path in ("/etc/ssl/certs", "/etc/resolv.conf") if Path(path).exists()]
        # A folder with packages is one of this machine, which a container does not see.
        settings = [
            f"--env={name}={value}"
            for name, value in os.environ.items()
            if name.startswith(("PIP_", "SSL_")) and not Path(value).is_dir()
        ]
        self.call(
            "build",
            "--layers=false",  # each layer would be a copy of the whole image
            "--network=host",
            *(f"--volume={path}:{path}:ro" for path in shared),
            *settings,
            f"--build-arg=PYTHON={PYTHON}",
            f"--file={containerfile}",
            f"--tag={tag}",
            str(context),
            timeout=300.0,
        )
        self.call("image", "prune", "--force")

    def build_tested(self) -> None:
        """Build the image of this checkout."""
        self.bring_base()
        self.build(ROOT / "Containerfile", ROOT, IMAGE)


@dataclass
class Folders:
    """Files that pods of a test find.

    Args:
        root: folder of the test.
    """

    root: Path
    hosts: Path = field(init=False)
    """File that is mounted as ``/etc/hosts``, as the cluster's name service."""
    secret: Path = field(init=False)
    """Content of the Secret."""

    def __post_init__(self) -> None:
        self.hosts, self.secret = self.root / "hosts", self.root / "secret"
        self.hosts.write_text("127.0.0.1 localhost\n")
        self.secret.mkdir()

    def resolve(self, name: str) -> None:
        """Give a name the address of this machine."""
        with self.hosts.open("a") as file:
            file.write(f"127.0.0.1 {name}\n")

    def volume(self, name: str, group: int) -> Path:
        """Return a folder that a group may write, as a volume with ``fsGroup``."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        os.chown(folder, 0, group)
        folder.chmod(0o2775)
        return folder


def arguments(pod: Document, name: str, folders: Folders, claims: Sequence[str] = ()) -> list[str]:
    """Return the arguments of ``podman run`` for a pod with a single container.

    Args:
        pod: the pod; a field that is not known here is a failure, so that no right is
            left out in silence.
        name: name of the pod.
        folders: files that the pod finds.
        claims: names of volumes that the pod keeps when it is restarted.
    """
    pod = dict(pod)
    own = {**pod.pop("securityContext")}
    own.pop("fsGroupChangePolicy", None)  # how fast a volume gets its group
    [container] = [dict(item) for item in pod.pop("containers")]
    rights = container.pop("securityContext")
    group = own["fsGroup"]
    assert own == {
        "runAsNonRoot": True,
        "runAsUser": own["runAsUser"],
        "runAsGroup": own["runAsGroup"],
        "fsGroup": group,
        "seccompProfile": {"type": "RuntimeDefault"},  # podman's own default, too
    }
    assert rights == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    found = [
        f"--name={name}",
        f"--user={own['runAsUser']}:{own['runAsGroup']}",
        f"--group-add={group}",
        "--read-only",
        "--read-only-tmpfs=false",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        f"--stop-timeout={pod.pop('terminationGracePeriodSeconds', 30)}",
        f"--memory={container.pop('resources')['limits']['memory'].removesuffix('i').lower()}",
        f"--volume={folders.hosts}:/etc/hosts:ro",
        "--no-hosts",
        # What the kubelet sets even without links to Services.
        "--env=KUBERNETES_SERVICE_HOST=127.0.0.1",
    ]
    found += [f"--env={entry['name']}={_value(entry, name)}" for entry in container.pop("env")]
    volumes = {item["name"]: item for item in pod.pop("volumes")}
    volumes |= {claim: {"persistentVolumeClaim": {}} for claim in claims}
    for mount in container.pop("volumeMounts"):
        source = _source(volumes[mount["name"]], name, folders, group)
        mode = ":ro" if mount.get("readOnly") else ""
        found.append(f"--volume={source}:{mount['mountPath']}{mode}")
    command = container.pop("command", [])
    found += [f"--entrypoint={word}" for word in command[:1]]
    found += [container.pop("image"), *command[1:], *container.pop("args", [])]
    assert pod.pop("automountServiceAccountToken") is False
    assert pod.keys() <= {"enableServiceLinks", "restartPolicy"}
    beside = {"name", "imagePullPolicy", "ports", "readinessProbe", "livenessProbe", "startupProbe"}
    assert container.keys() <= beside
    return found


def _value(entry: Mapping[str, Any], name: str) -> str:
    fields = {"metadata.name": name, "status.podIP": "127.0.0.1"}
    if "value" in entry:
        return str(entry["value"])
    return fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]


def _source(volume: Mapping[str, Any], pod: str, folders: Folders, group: int) -> Path:
    if "persistentVolumeClaim" in volume:
        return folders.volume("kept", group)
    if "emptyDir" in volume:
        return folders.volume(f"{pod}-{volume['name']}", group)
    if "configMap" in volume:
        return folders.root / str(volume["configMap"]["name"])
    shown = folders.root / f"{pod}-secret"
    content = shown / "..content"
    shutil.rmtree(shown, ignore_errors=True)
    content.mkdir(parents=True)
    every = [{"key": path.name, "path": path.name} for path in folders.secret.iterdir()]
    for item in volume["secret"].get("items", every):
        source = folders.secret / item["key"]
        if source.exists():
            target = content / item["path"]
            target.write_bytes(source.read_bytes())
            os.chown(target, 0, group)
            target.chmod(volume["secret"]["defaultMode"])
            # The kubelet links files, so that it can replace all of them at once.
            (shown / item["path"]).symlink_to(f"{content.name}/{item['path']}")
    return shown


@contextmanager
def container(podman: Podman, words: Sequence[str]) -> Iterator[str]:
    """Run a container, and remove it at the end; yield its name."""
    [name] = [word.partition("=")[2] for word in words if word.startswith("--name=")]
    try:
        podman.call("run", "--detach", "--pull=never", *words)
        yield name
    finally:
        podman.call("rm", "--force", "--ignore", "--time=0", name)
