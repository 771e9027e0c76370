"""The Helm chart renders valid, restricted objects, and refuses values that contradict
each other: ``make test-engines``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from tests.engines.charts import (
    CHART,
    FLAGS,
    OLDEST,
    PAGE,
    Document,
    documents,
    examples,
    helm,
    leaves,
    named,
    options,
    pods,
    rendered,
    template,
    unrestricted,
)
from zmqdata.cli.commands import dispatcher_arguments, worker_arguments
from zmqdata.cli.options import chosen_settings
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.worker import WorkerConfig
from zmqdata.transport.visitors import HostNames
from zmqdata.worker.processes.options import ProcessSettings
from zmqdata.worker.processes.supervisor import child_configs

pytestmark = [
    pytest.mark.skipif(
        "ZMQDATA_ENGINES" not in os.environ, reason="only `make test-engines` runs it"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(400),
]
SCALING = {"autoscaling.enabled": True}
BUILT_IN = re.compile(r"^(v1|apps/v1|batch/v1|policy/v1|networking\.k8s\.io/v1|rbac\.\S+)$")
"""Versions of the interface that are Kubernetes' own, not a custom resource."""


def check_all(objects: list[Document], version: str) -> None:
    """Check objects against the schemas of a version of Kubernetes, or that of KEDA."""
    import kubernetes_validate

    for item in objects:
        if BUILT_IN.match(item["apiVersion"]):
            kubernetes_validate.validate(item, version, strict=True)
        else:
            check_scaled_object(item)


def check_scaled_object(item: Document) -> None:
    """Check an object of KEDA. Its model ignores what it does not know, so compare."""
    from cloudcoil.models.keda.v1alpha1 import ScaledObject

    model = ScaledObject.model_validate(item)
    assert model.model_dump(by_alias=True, exclude_unset=True, exclude_none=True) == item


def newest() -> str:
    import kubernetes_validate

    return str(kubernetes_validate.latest_version())


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_renders_valid_and_restricted_objects(flag: str) -> None:
    """Kubernetes' oldest and newest supported version know each field, and each pod
    keeps the *restricted* Pod Security Standard with a read-only root.
    """
    for version in (OLDEST, newest()):
        objects = rendered(FLAGS[flag], version)
        check_all(objects, version)
    found = list(pods(objects))
    assert [unrestricted(pod) for pod in found] == [[], []]
    for pod in found:
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        [container] = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_check_of_objects_finds_faults() -> None:
    """The checks of the test above refuse a wrong field, a wrong type and a right."""
    import kubernetes_validate

    objects = rendered(SCALING)
    service, scaled = named(objects, "Service"), named(objects, "ScaledObject")
    service["spec"]["clusterIp"] = "None"
    with pytest.raises(kubernetes_validate.ValidationError):
        check_all([service], OLDEST)
    with pytest.raises(AssertionError):
        check_scaled_object({**scaled, "spec": {**scaled["spec"], "minReplicas": 1}})
    pod = next(iter(pods(objects)))
    del pod["securityContext"]
    assert unrestricted(pod) == ["runAsNonRoot", "seccompProfile"]


@pytest.mark.parametrize("flag", FLAGS)
def test_helm_finds_no_fault(flag: str) -> None:
    """``helm lint --strict`` has nothing to say of any flag."""
    done = helm("lint", "--strict", str(CHART), *options(FLAGS[flag]))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"image": ""}, "image is empty"),
        ({"insecure": True}, 'insecure is true, and key.secretName is "zmqdata-key"'),
        ({"key.secretName": ""}, "key.secretName is empty, and insecure is false"),
        ({"metrics.port": 5050}, "metrics.port and dispatcher.port are both 5050"),
        ({**SCALING, "metrics.enabled": False}, "Set metrics.enabled=true"),
        ({**SCALING, "worker.replicas": 3}, "worker.replicas is 3. KEDA sets"),
        ({**SCALING, "autoscaling.minReplicas": 65}, "exceeds autoscaling.maxReplicas"),
        ({**SCALING, "autoscaling.fallbackReplicas": 65}, "autoscaling.fallbackReplicas is 65"),
        ({**SCALING, "networkPolicy.scrapers": []}, "so KEDA cannot read /metrics"),
        ({"worker.drainSeconds": 21}, "Set worker.terminationGracePeriodSeconds to 31"),
        ({"worker.processes": 2}, "worker.processes (2) times worker.memoryLimit (1500MiB)"),
        ({"worker.resources.limits.memory": "2Gb"}, '"2Gb" is no quantity of bytes'),
        ({"worker.extraArgs": ["--port", "1"]}, 'worker.extraArgs has "--port"'),
        ({"dispatcher.extraArgs": ["--host=::"]}, 'dispatcher.extraArgs has "--host=::"'),
        ({"worker.env": [{"name": "ZMQDATA_INSECURE", "value": "1"}]}, 'has "ZMQDATA_INSECURE"'),
        ({"worker.podLabels": {"app.kubernetes.io/name": "x"}}, "by which the chart selects"),
        ({"worker.processes": 0}, "at '/worker/processes': minimum: got 0, want 1"),
        ({"worker.replica": 3}, "at '/worker': additional properties 'replica' not allowed"),
        ({"worker.memoryLimit": "2Gi"}, "at '/worker/memoryLimit'"),
        ({"securityContext.runAsUser": 0}, "at '/securityContext/runAsUser'"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    values: Mapping[str, object], reason: str
) -> None:
    """``helm template`` fails, and says why."""
    done = template(values)
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr


@pytest.mark.parametrize("release", ["1st", "a.b", "a" * 42])
def test_a_release_that_can_name_no_service_is_refused(release: str) -> None:
    """The name of a release must be the beginning of a Service's name."""
    assert "Choose another name" in template({}, release).stderr
    assert template({}, "a" * 41).returncode == 0


def test_names_may_look_like_other_values() -> None:
    """Names of a release or a namespace that mean something else in YAML stay names."""
    done = helm("template", "true", str(CHART), "--namespace=123", *options(SCALING))
    objects = documents(done.stdout)
    check_all(objects, OLDEST)
    assert {item["metadata"]["namespace"] for item in objects} == {"123"}
    selector = named(objects, "Service")["spec"]["selector"]
    assert selector["app.kubernetes.io/instance"] == "true"


def test_an_unsupported_kubernetes_is_refused() -> None:
    """A version before the oldest supported one is refused by its name."""
    assert "incompatible with Kubernetes v1.27" in template({}, version="1.27").stderr


CHANGED = {
    "key.secretName": "other",
    "imagePullPolicy": "Always",
    "worker.memoryLimit": "1GiB",
    "worker.replicas": 9,
    "networkPolicy.workerEgress": [],
    "autoscaling.fallbackReplicas": 7,
    "worker.resources": {"limits": {"memory": "9Gi"}},
    "dispatcher.resources": {"limits": {"memory": "9Gi"}},
    "podDisruptionBudget.workerMaxUnavailable": 9,
}


def other(name: str, value: object) -> object:
    """Return another value of the same kind."""
    if name in CHANGED:
        return CHANGED[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return "9Gi" if re.match(r"\d+Gi", value) else value + "other"
    return FLAGS["every extra"].get(name) or [{"podSelector": {}}]


BASES: dict[str, Mapping[str, object]] = {
    "autoscaling": SCALING,
    "autoscaling.enabled": {},
    "insecure": {"key.secretName": ""},
    "worker": {"worker.memoryLimit": ""},
}
"""Values without which another one has no effect, by its name or that of its group."""


def immutable(text: str) -> list[Document]:
    """Return the fields of the StatefulSet that an upgrade cannot change."""
    found = [item["spec"] for item in documents(text) if item["kind"] == "StatefulSet"]
    return [{**spec, "replicas": None, "template": None} for spec in found]


def defaults() -> list[tuple[str, object]]:
    """Return the name and the default of each value of the chart."""
    return list(leaves(documents((CHART / "values.yaml").read_text(encoding="utf-8"))[0]))


def test_each_value_has_an_effect() -> None:
    """A change of each value in ``values.yaml`` changes what is rendered. An upgrade
    may change all but two of them.
    """
    unused, fixed = [], []
    for name, value in defaults():
        base = BASES.get(name, BASES.get(name.partition(".")[0], {}))
        before = template(base).stdout
        done = template({**base, name: other(name, value)})
        assert done.returncode == 0, done.stderr
        if done.stdout == before:
            unused.append(name)
        if before and immutable(done.stdout) != immutable(before):
            fixed.append(name)
    assert unused == []
    assert fixed == ["dispatcher.storage.size", "dispatcher.storage.className"]


def test_a_value_that_was_removed_is_refused() -> None:
    """``null`` removes a value. Helm then names it, unless it is null by default."""
    for name, value in defaults():
        group, _, last = name.rpartition(".")
        done = template({**BASES.get(name.partition(".")[0], {}), name: None})
        missing = f"at '{group and '/'}{group.replace('.', '/')}': missing property '{last}'"
        assert (missing in done.stderr) is (value is not None), (name, done.stderr)


@pytest.mark.parametrize("text", ["123", "true", "null", "a #b", "a: b", '{"}', "- a\nb"])
def test_a_text_is_rendered_as_it_is(text: str) -> None:
    """Texts that mean something else in YAML stay what they are in each value."""
    names = ["image", "key.secretName", "key.dispatcherFile", "key.workerFile", "clusterDomain"]
    names += ["dispatcher.storage.className"]
    names += ["dispatcher.priorityClassName", "worker.priorityClassName"]

    def with_all(content: str) -> str:
        tags = {"worker.tags": [content], "worker.extraArgs": [content]}
        return json.dumps(rendered({**dict.fromkeys(names, content), **tags}))

    assert with_all(text) == with_all("PLAIN").replace("PLAIN", json.dumps(text)[1:-1])


def test_a_pod_that_never_becomes_ready_holds_nothing_up() -> None:
    """An upgrade replaces a dispatcher that has never become ready. The drain of a node
    evicts such a pod.
    """
    objects = rendered({})
    assert named(objects, "StatefulSet")["spec"]["podManagementPolicy"] == "Parallel"
    policies = [
        item["spec"].get("unhealthyPodEvictionPolicy")
        for item in objects
        if item["kind"] == "PodDisruptionBudget"
    ]
    assert policies == ["AlwaysAllow", "AlwaysAllow"]


def test_a_long_time_is_a_whole_number() -> None:
    """Numbers of a million and more are rendered without an exponent."""
    names = ["pollingInterval", "cooldownPeriod"]
    long = {f"autoscaling.{name}": 2_000_000 for name in names}
    long |= {
        f"{role}.terminationGracePeriodSeconds": 2_000_000 for role in ("dispatcher", "worker")
    }
    check_all(rendered({**SCALING, **long, "worker.drainSeconds": 1_000_000}), OLDEST)


def arguments(objects: list[Document], kind: str) -> list[str]:
    """Return the arguments of the container in the only object of a kind."""
    found: list[str] = next(pods([named(objects, kind)]))["containers"][0]["args"]
    return found


@pytest.mark.parametrize("flag", FLAGS)
def test_the_servers_know_their_options(flag: str) -> None:
    """Dispatcher and workers accept the arguments of their containers, and a pod has
    the memory that its processes may take.
    """
    objects = rendered(FLAGS[flag])
    role, *options = arguments(objects, "StatefulSet")
    assert role == "dispatcher"
    dispatcher = chosen_settings(DispatcherConfig, dispatcher_arguments("x").parse_args(options))
    role, *options = arguments(objects, "Deployment")
    assert role == "worker"
    chosen = worker_arguments("x").parse_args(options)
    config, processes = (
        chosen_settings(WorkerConfig, chosen),
        chosen_settings(ProcessSettings, chosen),
    )
    wanted = FLAGS[flag].get("worker.processes", 1)
    assert len(child_configs(config, processes.count())) == wanted
    service = named(objects, "Service")
    assert config.dispatcher_address == f"tcp://{service['metadata']['name']}:{dispatcher.port}"


def test_keda_reads_the_number_of_processes() -> None:
    """KEDA asks the dispatcher under a name that its check of ``Host`` admits, for a
    metric that it has, and divides it by the processes of a pod. No number of pods
    stands in the Deployment.
    """
    objects = rendered(FLAGS["KEDA"])
    [trigger] = named(objects, "ScaledObject")["spec"]["triggers"]
    asked = urlsplit(trigger["metadata"]["url"])
    parsed = dispatcher_arguments("x").parse_args(arguments(objects, "StatefulSet")[1:])
    config = chosen_settings(DispatcherConfig, parsed)
    names = HostNames(config.metrics_names)
    assert asked.port == config.metrics_port
    assert names.has(asked.netloc)
    for name in ("zmqdata-dispatcher", "zmqdata-dispatcher.training.svc.cluster.local:9100"):
        assert names.has(name)
    assert not names.has("zmqdata-dispatcher.other.svc")
    assert trigger["metadata"]["valueLocation"] == "zmqdata_desired_workers"
    assert trigger["metadata"]["targetValue"] == "4"
    assert "replicas" not in named(objects, "Deployment")["spec"]


def test_the_objects_of_the_page_are_valid() -> None:
    """The page's training keeps the *restricted* Pod Security Standard and has the
    label that the NetworkPolicy asks for. Its values are values of the chart, and its
    rights exist.
    """
    job, values, role = (documents(text)[0] for text in examples("yaml"))
    for version in (OLDEST, newest()):
        check_all([job, role], version)
    [pod] = pods([job])
    assert unrestricted(pod) == []
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    [client] = dict(defaults())["networkPolicy.clients"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels == client["podSelector"]["matchLabels"]
    found = dict(leaves(values))
    assert "--processes=4" in arguments(rendered(found), "Deployment")


def test_the_commands_of_the_page_set_values_of_the_chart() -> None:
    """The chart accepts all values that commands on the page set, also together. No
    upgrade forgets what an earlier command has set.
    """
    commands = "".join(examples("bash"))
    words = re.findall(r"--set ([\w.]+)=(\S+)", commands)
    assert [name for name, _ in words] == [
        "image",
        "autoscaling.enabled",
        "autoscaling.maxReplicas",
    ]
    done = helm("template", "x", str(CHART), *(f"--set={name}={value}" for name, value in words))
    assert done.returncode == 0, done.stderr
    assert "maxReplicaCount: 32" in done.stdout
    upgrades = re.findall(r"helm upgrade zmqdata deploy/helm/zmqdata (\S+)", PAGE)
    assert upgrades == ["--reset-then-reuse-values"] * 2


ROLES = "--from-file=dispatcher.key=keys/dispatcher.key --from-file=worker.key=keys/worker.key"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("defaults", "--key-file cluster.key\n CREATE --from-file=cluster.key\n"),
        ("a key for each role", f"--roles keys/\n CREATE \\\n {ROLES}\n"),
        ("no key", "WARNING: there is no key."),
    ],
)
def test_an_installation_says_what_to_do_next(flag: str, words: str) -> None:
    """The notes of Helm have the address for a training, and the commands that make a
    key, or a warning that there is none.
    """
    place = ["--namespace=training", "--dry-run=client"]
    done = helm("install", "data", str(CHART), *place, *options(FLAGS[flag]))
    assert done.returncode == 0, done.stderr
    notes = re.sub(r"\n +", "\n ", done.stdout.partition("NOTES:")[2])
    assert 'distribute("distributed_epoch", "tcp://data-dispatcher:5050")' in notes
    create = "kubectl --namespace training create secret generic zmqdata-key"
    assert words.replace("CREATE", create) in notes
    assert notes.count("WARNING") + notes.count("create secret") == 1
