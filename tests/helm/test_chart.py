"""The chart, rendered by helm itself: valid over a matrix of values, what is refused, what is safe, what never changes."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from leadline.cli.main import cli
from leadline.contracts.acls import acls
from leadline.contracts.topics import TOPICS
from leadline.dashboard.access import access_from
from leadline.detection.policy_file import parse_policy
from leadline.settings import describe_settings, load_settings
from tests.helm import schemas, tools
from tests.helm.generate import CASES, CHART, GOLDENS, KEPT, golden, made, render
from tests.helm.manifests import CUSTOM, STRIMZI, custom_faults, manifests, of_kind, pods, strimzi_faults

NEEDS = "python -m tests.helm.tools (or `make deploy-test`) fetches it"
needs_helm = pytest.mark.skipif(tools.helm() is None, reason=f"helm is not here: {NEEDS}")
needs_schemas = pytest.mark.skipif(tools.libraries() is None, reason=f"the Kubernetes schemas are not here: {NEEDS}")

IMMUTABLE = ("serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates")


@pytest.fixture(scope="module")
def rendered() -> dict[str, str]:
    return {case: render(case) for case in CASES}


@pytest.mark.parametrize("path", sorted(made()), ids=lambda path: path.name)
def test_what_is_made_is_as_it_would_be_made_now(path: Path) -> None:
    """Drift: `python -m tests.helm.generate` writes it anew."""
    assert path.read_text() == made()[path]


def test_no_made_file_is_left_over() -> None:
    assert {path for path in (CHART / "files").rglob("*") if path.is_file()} <= made().keys()


@needs_helm
@pytest.mark.parametrize("case", KEPT)
def test_the_kept_manifests_are_those_that_helm_makes(case: str) -> None:
    assert (GOLDENS / f"{case}.yaml").read_text() == golden(case)


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_lint_finds_nothing(case: str) -> None:
    program = tools.helm()
    values = Path(__file__).with_name("values") / f"{case}.yaml"
    done = subprocess.run(
        [str(program), "lint", str(CHART), "--strict", "--values", str(values)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout + done.stderr


@needs_helm
@needs_schemas
@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
def test_every_manifest_is_valid(rendered: dict[str, str], version: str) -> None:
    """Strictly: a field that is not known is a fault."""
    found = [fault for text in rendered.values() for one in manifests(text) for fault in schemas.faults(one, version)]
    assert found == []


@needs_helm
@needs_schemas
def test_every_custom_resource_is_valid(rendered: dict[str, str]) -> None:
    given = [one for text in rendered.values() for one in manifests(text) if one["apiVersion"].startswith(CUSTOM)]
    kinds = {one["kind"] for one in given}
    assert kinds == {"ScaledObject", "TriggerAuthentication", "PodMonitor", "ServiceMonitor", "PrometheusRule"}
    assert custom_faults(given) == ""


@needs_schemas
def test_the_checks_themselves_find_what_is_wrong() -> None:
    """A misspelt field, a missing one, a kind that is not there."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"portz": []}}
    assert "'portz' was unexpected" in schemas.faults(service, "1.34")[0]
    assert "has no" in schemas.faults({**service, "apiVersion": "policy/v1beta1"}, "1.34")[0]
    scaler = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "x"},
        "spec": {"scaleTargetRef": {"name": "y"}},
    }
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "x"},
        "spec": {"selector": {}, "podMetricsEndpoints": [{"prot": "http"}]},
    }
    found = custom_faults([scaler, monitor]).splitlines()
    assert "triggers" in found[0]
    assert found[1] == "PodMonitor x: .spec.podMetricsEndpoints[0].prot is not known"


@needs_helm
def test_what_is_scraped_has_the_job_that_the_alerts_pick_by(rendered: dict[str, str]) -> None:
    """Left to itself the Prometheus operator names a job after the release, and no worker that is down would be told of."""
    rules = yaml.safe_load((CHART / "files" / "leadline.rules.yml").read_text())
    alert = next(rule for group in rules["groups"] for rule in group["rules"] if rule.get("alert") == "LeadlineWorkerDown")
    (wanted,) = re.findall(r'job=~"([^"]+)"', alert["expr"])
    for kind, endpoints in (("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")):
        found = [endpoint for text in rendered.values() for one in of_kind(text, kind) for endpoint in one["spec"][endpoints]]
        assert found
        for endpoint in found:
            (job,) = [one["replacement"] for one in endpoint["relabelings"] if one["targetLabel"] == "job"]
            assert re.fullmatch(wanted, job)


needs_strimzi = pytest.mark.skipif(tools.strimzi() is None, reason=f"Strimzi's classes are not here: {NEEDS}")


@needs_helm
@needs_strimzi
def test_strimzis_own_classes_take_every_resource(rendered: dict[str, str]) -> None:
    """Of the chart, and of ``leadline topics acls``; what is misspelt or unknown is refused."""
    given = [one for text in rendered.values() for one in manifests(text) if one["apiVersion"].startswith("kafka.strimzi.io/")]
    assert {one["kind"] for one in given} == {"KafkaTopic", "KafkaUser"}
    arguments = ["topics", "acls", "--format", "strimzi", "--cluster", "main", "--agents", "User:fleet-one", "--acting"]
    printed = CliRunner().invoke(cli, arguments)
    assert printed.exit_code == 0, printed.output
    by_the_command = manifests(printed.stdout)
    assert {one["kind"] for one in by_the_command} == {"KafkaTopic", "KafkaUser"}
    assert strimzi_faults([*given, *by_the_command]) == []
    topic, user = (next(one for one in given if one["kind"] == kind) for kind in ("KafkaTopic", "KafkaUser"))
    misspelt = {**topic, "spec": {**topic["spec"], "partitionz": 3}}
    unknown = {**user, "spec": {**user["spec"], "authentication": {"type": "scram"}}}
    found = strimzi_faults([misspelt, unknown])
    assert ["partitionz" in found[0], "scram" in found[1]] == [True, True]


@needs_helm
@pytest.mark.parametrize("case", ["strimzi", "everything"])
def test_strimzi_gets_the_table_of_topics_and_the_permissions(rendered: dict[str, str], case: str) -> None:
    group = "watch" if case == "everything" else "leadline"
    found = [one for one in manifests(rendered[case]) if one["apiVersion"].startswith("kafka.strimzi.io/")]
    for one in found:
        jsonschema.validate(one["spec"], STRIMZI[one["kind"]])
    topics = {one["spec"]["topicName"]: one["spec"] for one in found if one["kind"] == "KafkaTopic"}
    assert {name: spec["config"] for name, spec in topics.items()} == {topic.name: topic.config for topic in TOPICS}
    assert {spec["partitions"] for spec in topics.values()} == {64 if case == "strimzi" else 32}
    given = {
        (one["metadata"]["name"].rpartition("-")[2], rule["resource"]["type"], rule["resource"]["name"], operation)
        for one in found
        if one["kind"] == "KafkaUser"
        for rule in one["spec"]["authorization"]["acls"]
        for operation in rule["operations"]
    }
    acting = case == "everything"
    assert given == {tuple(one) for one in acls(group, acting=acting) if one.role != "admin"}


@needs_helm
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["monitor.replica=3"], "replica"),
        (["kafka.security.protcol=SSL"], "protcol"),
        (["kafka.security.protocol=TLS"], "protocol"),
        (["kafka.bootstrap="], "kafka.bootstrap must be given"),
        (["kafka.bootstrap=kafka"], "bootstrap"),
        (["kafka.security.protocol=SSL"], "existingSecret must be given"),
        (["kafka.security.protocol=SASL_SSL", "kafka.security.existingSecret=s"], "mechanism must be given"),
        (["signing.commands=true"], "signing.existingSecret must be given"),
        (["autoscaling.kind=keda", "autoscaling.maxReplicas=33"], "there are 32 partitions"),
        (["autoscaling.kind=hpa", "autoscaling.minReplicas=9"], "minReplicas is above"),
        (["dashboard.enabled=true"], "a page that anybody can open is not served"),
        (
            ["dashboard.enabled=true", "dashboard.existingSecret=s", "dashboard.ingress.enabled=true"],
            "ingress.host must be given",
        ),
        (
            [
                *("dashboard.enabled=true", "dashboard.userHeader=X-Forwarded-User"),
                *("dashboard.ingress.enabled=true", "dashboard.ingress.host=h.example"),
            ],
            "dashboard.proxies must name the ingress controller",
        ),
        (
            [
                *("dashboard.enabled=true", "dashboard.userHeader=X-Forwarded-User"),
                *("dashboard.ingress.enabled=true", "dashboard.ingress.host=h.example"),
                r"dashboard.proxies=::1/128\, 127.0.0.0/8\,127.0.0.1\,",
            ],
            "dashboard.proxies must name the ingress controller",
        ),
        (["monitor.persistence.size=ten"], "size"),
        (["image.digest=latest"], "digest"),
    ],
)
def test_a_misspelt_or_missing_value_is_refused_by_name(settings: list[str], said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        render("minimal", *(word for setting in settings for word in ("--set", setting)))
    assert said in caught.value.stderr


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_whatever_runs_is_confined(rendered: dict[str, str], case: str) -> None:
    """Not root, no way to more rights, nothing writable but what is mounted for it, no token, limits."""
    running = pods(rendered[case])
    assert len(running) >= 2
    for name, spec in running:
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert "memory" in container["resources"]["limits"], name


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_each_variable_is_a_setting_that_the_program_takes(rendered: dict[str, str], case: str, tmp_path: Path) -> None:
    """Names from the settings, and together values that the settings accept; no secret stands in a manifest."""
    known = {variable for variable, _ in describe_settings()}
    for name, spec in pods(rendered[case]):
        for container in spec["containers"]:
            environ = {one["name"]: one.get("value", "from-elsewhere") for one in container["env"]}
            environ = {key: "10.0.0.1" if key == "LEADLINE_HTTP_HOST" else value for key, value in environ.items()}
            ours = {key for key in environ if key.startswith("LEADLINE_")}
            assert ours <= known, name
            settings = load_settings({**environ, "LEADLINE_DATA_DIR": str(tmp_path)})
            assert settings.bootstrap.startswith(("kafka", "main")), name
            assert not any(key.endswith(("PASSWORD", "SECRET")) for key in ours), name


@needs_helm
@pytest.mark.parametrize("case", ["dashboard", "everything"])
def test_the_dashboard_starts_with_what_it_is_given(rendered: dict[str, str], case: str, tmp_path: Path) -> None:
    """Its tokens are there, its proxies can be read and trusted; it is probed on pages that ask for no token."""
    (spec,) = [spec for name, spec in pods(rendered[case]) if name.endswith("-dashboard")]
    (container,) = spec["containers"]
    environ = {one["name"]: one.get("value", "from-elsewhere") for one in container["env"]}
    for name in ("token", "act-token"):
        (tmp_path / name).write_text(f"a long enough {name}")
    environ = {key: value.replace("/etc/leadline/dashboard", str(tmp_path)) for key, value in environ.items()}
    access = access_from(load_settings(environ))
    assert (access.token, access.act_token) == ("a long enough token", "a long enough act-token")
    assert access.trusts("10.42.3.4") is (case == "everything")
    assert not access.trusts("10.43.3.4")
    assert access.user_header == ("x-forwarded-user" if case == "everything" else "")
    probes = [container[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe")]
    assert probes == ["/healthz", "/livez"]


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_a_file_that_a_setting_names_is_mounted(rendered: dict[str, str], case: str) -> None:
    for name, spec in pods(rendered[case]):
        volumes = {one["name"] for one in spec.get("volumes", [])} | {"state"}
        for container in spec["containers"]:
            mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
            assert set(mounts.values()) <= volumes, name
            for variable in container["env"]:
                value = str(variable.get("value", ""))
                if value.startswith("/"):
                    assert any(value.startswith(f"{path}/") for path in mounts), f"{name}: {variable}"


@needs_helm
def test_the_worker_is_given_time_to_restore_and_to_drain(rendered: dict[str, str]) -> None:
    """The grace period is above the drain deadline; the start may take the half hour that the values say; static membership."""
    (workers,) = of_kind(rendered["minimal"], "StatefulSet")
    spec = workers["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environ = {one["name"]: one for one in container["env"]}
    assert spec["terminationGracePeriodSeconds"] == 37
    assert environ["LEADLINE_DRAIN_S"]["value"] == "20"
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 1800
    assert (container["readinessProbe"]["httpGet"]["path"], container["livenessProbe"]["httpGet"]["path"]) == ("/ready", "/live")
    assert environ["LEADLINE_INSTANCE_ID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "2"]
    (service,) = of_kind(rendered["minimal"], "Service")
    assert service["metadata"]["name"] == workers["spec"]["serviceName"]
    assert service["spec"]["clusterIP"] == "None"


@needs_helm
def test_autoscaling_leaves_the_number_of_workers_alone(rendered: dict[str, str]) -> None:
    for case, kind in (("keda", "ScaledObject"), ("oauth", "HorizontalPodAutoscaler")):
        (workers,) = of_kind(rendered[case], "StatefulSet")
        assert "replicas" not in workers["spec"]
        (scaler,) = of_kind(rendered[case], kind)
        assert scaler["spec"]["scaleTargetRef"]["name"] == workers["metadata"]["name"]


@needs_helm
def test_the_policy_arrives_by_itself_and_is_one(rendered: dict[str, str]) -> None:
    """Mounted as a directory, and no hash of it in the pod: a change restarts nothing and is read by the running worker."""
    changed = render("everything", "--set-string", "policy=[default]\nraw_ratio_floor = 0.1\n")
    before, after = (of_kind(text, "StatefulSet")[0]["spec"]["template"] for text in (rendered["everything"], changed))
    assert before == after
    (mount,) = [one for one in before["spec"]["containers"][0]["volumeMounts"] if one["name"] == "policy"]
    assert "subPath" not in mount
    (policy,) = [one for one in of_kind(rendered["everything"], "ConfigMap") if one["metadata"]["name"] == "watch-policy"]
    assert parse_policy(policy["data"]["policy.toml"]).default.raw_ratio_floor == 0.2


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_an_upgrade_changes_no_field_that_cannot_be_changed(rendered: dict[str, str], case: str, tmp_path: Path) -> None:
    """The chart as another version, with another image: selectors, claims and names are as before; labels are not."""
    newer = tmp_path / "leadline"
    shutil.copytree(CHART, newer)
    chart = newer / "Chart.yaml"
    text = re.sub(r"^version: .*$", "version: 9.8.7", chart.read_text(), flags=re.MULTILINE)
    chart.write_text(re.sub(r"^appVersion: .*$", 'appVersion: "9.8.7"', text, flags=re.MULTILINE))
    after = manifests(render(case, "--set", "image.tag=9.8.7", chart=newer))
    before = manifests(rendered[case])
    assert [(one["kind"], one["metadata"]["name"]) for one in before] == [(one["kind"], one["metadata"]["name"]) for one in after]
    for old, new in zip(before, after, strict=True):
        if old["kind"] == "StatefulSet":
            assert {name: old["spec"].get(name) for name in IMMUTABLE} == {name: new["spec"].get(name) for name in IMMUTABLE}
            assert "9.8.7" in str(new["metadata"]["labels"])
        if old["kind"] in ("Deployment", "Service"):
            assert old["spec"]["selector"] == new["spec"]["selector"]


@needs_helm
def test_selectors_pick_the_pods_they_are_for(rendered: dict[str, str]) -> None:
    """And no others: each policy, budget, monitor and service matches the labels of exactly one kind of pod."""
    text = rendered["everything"]
    labels = {
        one["metadata"]["name"]: (one if one["kind"] == "Pod" else one["spec"]["template"])["metadata"]["labels"]
        for one in manifests(text)
        if one["kind"] in ("Pod", "StatefulSet", "Deployment", "Job")
    }
    for one in manifests(text):
        spec = one.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector"))
        if one["kind"] in ("NetworkPolicy", "PodDisruptionBudget", "Service", "PodMonitor", "StatefulSet", "Deployment"):
            wanted = selector.get("matchLabels", selector)
            matched = [name for name, has in labels.items() if wanted.items() <= has.items()]
            expected = 0 if one["metadata"]["name"] == "watch-topics" else 1
            assert len(matched) == expected, f"{one['kind']} {one['metadata']['name']}: {matched}"


@needs_helm
def test_helm_test_sends_a_session_as_an_agent_would(rendered: dict[str, str]) -> None:
    (pod,) = [one for one in of_kind(rendered["secure"], "Pod") if one["metadata"]["annotations"]["helm.sh/hook"] == "test"]
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["check", "--fleet", "leadline-check", "--timeout", "60"]
    secrets = {one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one}
    assert secrets == {"leadline-agent", "leadline-agent-keys"}


def test_the_plan_in_the_documents_is_about_the_charts_defaults() -> None:
    """And its example comes out of its steps."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    text = " ".join((CHART.parents[1] / "docs" / "sizing.md").read_text().split())
    assert (values["dashboard"]["resources"]["limits"]["memory"], values["monitor"]["persistence"]["size"]) == ("1Gi", "10Gi")
    assert "chart's limit of 1 GiB is enough for 200,000 sessions" in text
    assert 2 * (60e6 + 200_000 * 1_800) <= 2**30
    assert "the chart's 10 GiB are ample" in text
    assert values["topics"]["partitions"] == 32
    sessions, state, week_s = 100_000, 700, 604_800
    events = sessions / 60 * 1.1
    assert 1_830 < events <= 1_840
    assert math.ceil(events / (10_610 / 2)) + 1 == 2
    for said, figure in (
        ("70 MB in all", sessions * state / 1e6),
        ("= 210 MB with one standby", sessions * state * 2 / 2 * 3 / 1e6),
        ("= 420 MB", sessions * state * 2 * 3 / 1e6),
        ("= 1.7 TB", 1_840 * 500 * week_s * 3 / 1e12),
        ("takes 240 MB", 60 + sessions * 1_800 / 1e6),
    ):
        assert said in text
        (number,) = re.findall(r"[\d.]+", said)
        assert round(figure, 1 if "." in number else 0) == float(number), said
