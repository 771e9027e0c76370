"""A namespace in which a user may do nothing says so: ``make test-engines``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.engines.charts import CHART, helm, options, tools
from zmqdata import DispatchServer
from zmqdata.testing.cluster import await_condition

pytestmark = [
    pytest.mark.skipif(
        "ZMQDATA_ENGINES" not in os.environ, reason="only `make test-engines` runs it"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(180),
]
SOON = 60.0
RESOURCES = {
    "v1": {"services": "Service", "secrets": "Secret"},
    "apps/v1": {"deployments": "Deployment", "statefulsets": "StatefulSet"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
}
SCALE = {"name": "deployments/scale", "group": "autoscaling", "version": "v1", "kind": "Scale"}
ALL = {"namespaced": True, "verbs": ["get", "list", "create", "patch", "update"]}
GROUPS = [version for version in RESOURCES if "/" in version]
DISCOVERY: dict[str, object] = {
    "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": version.partition("/")[0],
                "versions": [{"groupVersion": version, "version": "v1"}],
                "preferredVersion": {"groupVersion": version, "version": "v1"},
            }
            for version in GROUPS
        ],
    },
    **{
        f"/{'apis' if '/' in version else 'api'}/{version}": {
            "kind": "APIResourceList",
            "groupVersion": version,
            "resources": [
                *({"name": name, "kind": kind, **ALL} for name, kind in kinds.items()),
                *([{**SCALE, **ALL}] if version == "apps/v1" else []),
            ],
        }
        for version, kinds in RESOURCES.items()
    },
}
"""Answers to questions that Kubernetes' default roles allow each user."""


class Forbidding(BaseHTTPRequestHandler):
    """Answers as a Kubernetes does to a user without any right."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path in DISCOVERY:
            self._answer(200, DISCOVERY[path])
            return
        what = "/".join(path.split("/namespaces/")[-1].split("/")[1:]) or path
        self._answer(
            403,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "message": f'{what} is forbidden: User "eve" may not do it in the namespace',
                "reason": "Forbidden",
                "code": 403,
            },
        )

    do_POST = do_PATCH = do_PUT = do_GET

    def _answer(self, code: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Be silent."""


@pytest.fixture
def eve(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user who may only ask what there is."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Forbidding) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = {
            "kind": "Config",
            "apiVersion": "v1",
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            ],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "eve"}}],
            "users": [{"name": "eve", "user": {}}],
            "current-context": "c",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        path = f"{tools()}:{os.environ['PATH']}"
        yield {**os.environ, "KUBECONFIG": str(tmp_path / "config"), "PATH": path}
        server.shutdown()


def test_helm_tells_what_is_forbidden(eve: dict[str, str]) -> None:
    """``helm install`` fails with the words of the server."""
    # The description of all fields, megabytes, is left out here.
    words = ["install", "zmqdata", str(CHART), "--disable-openapi-validation", *options({})]
    done = helm(*words, environment=eve)
    assert done.returncode != 0
    assert 'is forbidden: User "eve"' in done.stderr


def test_the_autoscaler_tells_what_is_forbidden(eve: dict[str, str]) -> None:
    """``zmqdata autoscale`` logs the words of ``kubectl``, and tries again."""
    with DispatchServer() as dispatcher:
        command = [sys.executable, "-m", "zmqdata", "autoscale", "--min=1", "--interval=0.3"]
        command += [f"--dispatcher={dispatcher.target}", "--", "kubectl", "scale"]
        command += ["deployment/zmqdata-worker", "--replicas={n}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=eve) as scaling:
            said: list[str] = []
            lines = (line for line in scaling.stderr or () if "workers ended" in line)
            reader = threading.Thread(target=said.extend, args=(lines,))
            reader.start()
            try:
                await_condition(lambda: len(said) > 1, SOON, "two failures")
            finally:
                scaling.terminate()
                reader.join(SOON)
    for line in said[:2]:
        assert "the command for 1 workers ended with exit code 1, and wrote: " in line
        assert 'is forbidden: User "eve"' in line
        assert "It is tried again in" in line
