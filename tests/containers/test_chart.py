"""The Helm chart, rendered by Helm's own library and checked with the schemas of Kubernetes. No cluster is needed."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from brokerd.settings import BrokerSettings
from nsqdaemon.settings import load
from nsqlookup.settings import LookupSettings

helm = pytest.importorskip("helm_python", reason="helm-python-sdk has wheels for Linux on x86-64 only")

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "nsq"
KUBERNETES = "1.37.0"

SECRET = {
    "secretKey": "0123456789abcdef0123456789abcdef",
    "databaseUrl": "postgres://nsq:x@postgres:5432/nsq",
    "redisUrl": "redis://redis:6379/0",
}
VALUES: dict[str, dict[str, Any]] = {
    "default": {"platform": {"secret": SECRET}},
    "brokers alone": {"platform": {"enabled": False}},
    "everything": {
        "images": {"pullSecrets": ["registry-login"]},
        "broker": {
            "replicas": 5,
            "flags": ["--retention=24h"],
            "annotations": {"example.org/team": "payments"},
            "nodeSelector": {"disk": "nvme"},
            "tolerations": [{"key": "brokers", "operator": "Exists", "effect": "NoSchedule"}],
            "storage": {"storageClass": "local-nvme"},
        },
        "platform": {
            "existingSecret": "nsq-secrets",
            "envSecret": "oidc",
            "env": {"NSQ_OIDC_ISSUER": "https://id.example.org"},
            "archive": "s3a://archive/nsq",
            "storage": {"existingClaim": "shared", "storageClass": "nfs"},
            "affinity": {"podAntiAffinity": {}},
        },
        "reports": {"onKubernetes": True, "sparkConf": {"spark.executor.memoryOverhead": "512m"}},
        "ingress": {"enabled": True, "className": "nginx", "host": "nsq.example.org", "tlsSecret": "nsq-tls"},
    },
}


@pytest.fixture(scope="module")
def schemas() -> zipfile.ZipFile:
    """The wheel with the schemas, which ``make unit`` fetches."""
    wheels = list((ROOT / ".venv" / "kubernetes-schemas").glob("*.whl"))
    assert wheels, "make .venv/kubernetes-schemas fetches the schemas"
    return zipfile.ZipFile(wheels[0])


@pytest.fixture(scope="module")
def validator(schemas: zipfile.ZipFile) -> Any:
    """A function: kind and apiVersion -> the validator of its strict schema, which refuses unknown fields."""
    folder = f"kubernetes_validate/kubernetes-json-schema/v{KUBERNETES}-local-strict"
    definitions = Resource.from_contents(json.loads(schemas.read(f"{folder}/_definitions.json")))
    registry: Registry[Any] = definitions @ Registry()

    def find(kind: str, api_version: str) -> Draft202012Validator:
        group, _, version = api_version.rpartition("/")
        name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], version)))
        schema = json.loads(schemas.read(f"{folder}/{name}.json"))
        return Draft202012Validator(schema, registry=registry)

    return find


def render(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The documents that Helm would apply for a release ``demo`` in the namespace ``prod``."""
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        rendered = chart.render(values, name="demo", namespace="prod")
    texts = [text for path, text in rendered.items() if not path.endswith("NOTES.txt")]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def named(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def container(document: dict[str, Any]) -> dict[str, Any]:
    (only,) = document["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("values", VALUES)
def test_every_document_is_valid_for_kubernetes(values: str, validator: Any) -> None:
    """An unknown field, a wrong type or a missing required field is an error."""
    documents = render(VALUES[values])
    assert {"Service", "StatefulSet", "PodDisruptionBudget"} <= {document["kind"] for document in documents}
    problems = [
        f"{document['kind']} {document['metadata']['name']}: {error.json_path}: {error.message}"
        for document in documents
        for error in validator(document["kind"], document["apiVersion"]).iter_errors(document)
    ]
    assert problems == []


def test_the_schemas_find_a_misspelt_field(validator: Any) -> None:
    """So that the test above can fail."""
    broker = named(render(VALUES["default"]), "StatefulSet", "demo-nsq-broker")
    container(broker)["livenesProbe"] = {}
    errors = [error.message for error in validator("StatefulSet", "apps/v1").iter_errors(broker)]
    assert any("livenesProbe" in message for message in errors), errors


@pytest.mark.parametrize("values", VALUES)
def test_helm_finds_nothing_to_criticize(values: str) -> None:
    report = helm.lint(CHART, VALUES[values], strict=True)
    assert report["errors"] == []
    assert [message for message in report["messages"] if message["severity"] > 1] == []


@pytest.mark.parametrize(
    ("values", "named_problem"),
    [
        ({"broker": {"replica": 3}}, "additional properties 'replica' not allowed"),
        ({"broker": {"replicas": 0}}, "/broker/replicas"),
        ({"broker": {"replicas": 1025}}, "/broker/replicas"),
        ({"broker": {"flags": ["retention=24h"]}}, "/broker/flags/0"),
        ({"platform": {"env": {"nsq-site": "x"}}}, "nsq-site"),
        ({"platform": {"secret": {**SECRET, "databaseUrl": "mysql://x"}}}, "/platform/secret/databaseUrl"),
        ({"reports": {"executorMemory": "2GB"}}, "/reports/executorMemory"),
        ({}, "platform.secret.secretKey, or platform.existingSecret, is required"),
        ({"platform": {"secret": SECRET}, "ingress": {"enabled": True}}, "ingress.host is required"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], named_problem: str) -> None:
    with pytest.raises(helm.HelmError, match=named_problem):
        render(values)


def test_the_schema_has_every_value_and_no_other() -> None:
    """A value that the schema lacks could not be set; one that values.yaml lacks has no explanation."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def declared(node: dict[str, Any], at: str) -> set[str]:
        properties = {} if "$ref" in node else node.get("properties", {})
        return (
            {at}
            if not properties
            else {path for key in properties for path in declared(properties[key], f"{at}.{key}")}
        )

    def existing(node: Any, schema_node: dict[str, Any], at: str) -> set[str]:
        properties = {} if "$ref" in schema_node else schema_node.get("properties", {})
        if not properties:
            return {at}
        return {path for key in node for path in existing(node[key], properties.get(key, {}), f"{at}.{key}")}

    assert existing(values, schema, "") == declared(schema, "") - {".global"}


@pytest.mark.parametrize("values", VALUES)
def test_daemons_accept_their_flags(values: str) -> None:
    """The flags of the brokers' and registries' pods, parsed as nsqd and nsqlookupd parse them."""
    documents = render(VALUES[values])
    of_broker = container(named(documents, "StatefulSet", "demo-nsq-broker"))["args"]
    of_registry = container(named(documents, "StatefulSet", "demo-nsq-registry"))["args"]
    assert (of_broker[0], of_registry[0]) == ("nsqd", "nsqlookupd")
    flags = [flag.replace("$(POD_INDEX)", "2") for flag in of_broker[1:]]
    broker = load(BrokerSettings, prog="nsqd", argv=flags, environ={}, version_text="")
    load(LookupSettings, prog="nsqlookupd", argv=of_registry[1:], environ={}, version_text="")
    assert broker.node_id == 2
    registries = named(documents, "StatefulSet", "demo-nsq-registry")["spec"]["replicas"]
    assert [*broker.lookupd_tcp_address] == [
        f"demo-nsq-registry-{n}.demo-nsq-registry.prod.svc.cluster.local:4160" for n in range(registries)
    ]


def test_a_broker_drains_before_kubernetes_ends_it() -> None:
    """The hook sends SIGUSR1; the deadline of the drain is before that of the pod; a draining broker stays alive."""
    broker = named(
        render({"platform": {"secret": SECRET}, "broker": {"drainTimeoutSeconds": 40}}),
        "StatefulSet",
        "demo-nsq-broker",
    )
    pod = broker["spec"]["template"]["spec"]
    only = container(broker)
    assert only["lifecycle"]["preStop"]["exec"]["command"] == ["python", "-m", "nsqdaemon.stop", "USR1"]
    assert "--drain-timeout=40s" in only["args"]
    assert pod["terminationGracePeriodSeconds"] == 70
    # /ping answers 500 during a drain, /info does not.
    assert only["livenessProbe"]["httpGet"]["path"] == only["startupProbe"]["httpGet"]["path"] == "/info"
    assert only["readinessProbe"]["httpGet"]["path"] == "/ping"


@pytest.mark.parametrize("values", VALUES)
def test_pods_have_no_privileges(values: str) -> None:
    """No root, no capabilities, no writable image, no token of Kubernetes except for the driver of Spark."""
    pods = [each for each in render(VALUES[values]) if "template" in each.get("spec", {})]
    assert len(pods) >= 2
    for document in pods:
        pod = document["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is (pod.get("serviceAccountName") == "demo-nsq-spark")
        for each in [*pod["containers"], *pod.get("initContainers", ())]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {*each["resources"]} == {"requests", "limits"}


@pytest.mark.parametrize("values", VALUES)
def test_selectors_find_the_pods_of_their_own_component(values: str) -> None:
    """Kubernetes accepts a selector that matches no pods, or those of two components."""
    documents = render(VALUES[values])
    pods = {
        f"{each['kind']} {each['metadata']['name']}": each["spec"]["template"]["metadata"]["labels"].items()
        for each in documents
        if "template" in each.get("spec", {})
    }
    selecting = [
        each for each in documents if each["kind"] in ("Service", "PodDisruptionBudget", "StatefulSet", "Deployment")
    ]
    for each in selecting:
        selector = each["spec"]["selector"]
        wanted = selector.get("matchLabels", selector).items()
        assert len([name for name, labels in pods.items() if wanted <= labels]) == 1, each["metadata"]["name"]


def test_names_that_documents_refer_to_exist() -> None:
    """Secrets, claims, accounts and config maps that pods use are in the chart, unless the values name others."""
    documents = render({**VALUES["default"], "reports": {"onKubernetes": True}})
    exists = {(each["kind"], each["metadata"]["name"]) for each in documents}
    used = set()
    for document in documents:
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        if account := pod.get("serviceAccountName"):
            used.add(("ServiceAccount", account))
        for volume in pod.get("volumes", ()):
            if claim := volume.get("persistentVolumeClaim"):
                used.add(("PersistentVolumeClaim", claim["claimName"]))
            if config := volume.get("configMap"):
                used.add(("ConfigMap", config["name"]))
        for each in pod.get("containers", ()):
            used |= {("Secret", source["secretRef"]["name"]) for source in each.get("envFrom", ())}
    assert {kind for kind, _ in used} == {"ServiceAccount", "PersistentVolumeClaim", "ConfigMap", "Secret"}
    assert used <= exists


def test_reports_on_kubernetes_start_executors_with_the_platforms_image() -> None:
    documents = render({**VALUES["default"], "reports": {"onKubernetes": True, "executors": 7}})
    worker = container(named(documents, "Deployment", "demo-nsq-worker"))
    environment = {each["name"]: each.get("value") for each in worker["env"]}
    assert environment["SPARK_MASTER"].startswith("k8s://https://")
    lines = named(documents, "ConfigMap", "demo-nsq-spark")["data"]["spark-defaults.conf"].splitlines()
    conf = dict(line.split(" ", 1) for line in lines)
    assert conf["spark.kubernetes.container.image"] == worker["image"]
    assert conf["spark.executor.instances"] == "7"
    claim = conf["spark.kubernetes.executor.volumes.persistentVolumeClaim.shared.options.claimName"]
    assert ("PersistentVolumeClaim", claim) in {(each["kind"], each["metadata"]["name"]) for each in documents}


def test_the_chart_has_the_version_of_the_distributions() -> None:
    """Images are tagged with the version, and the chart uses the tag of its appVersion."""
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    images = {container(each)["image"] for each in render(VALUES["default"]) if "template" in each.get("spec", {})}
    assert images == {f"nsq-broker:{version}", f"nsq-platform:{version}"}


def test_variables_of_the_platform_are_those_that_it_reads() -> None:
    """A misspelt name would silently have no effect."""
    from nsqplatform.console import environment
    from nsqplatform.console.variable import Variable

    known = {each.name for each in vars(environment).values() if isinstance(each, Variable)}
    documents = render(VALUES["default"])
    web = container(named(documents, "Deployment", "demo-nsq-web"))
    names = {each["name"] for each in web["env"]} | {*named(documents, "Secret", "demo-nsq-platform")["stringData"]}
    assert names <= known
