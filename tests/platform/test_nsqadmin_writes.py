"""nsqadmin's actions: the calls, the answers, the notifications; and who may act."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.harness.waiting import wait_until
from tests.platform.go_nsq import GoRegistry

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def given_nodes(go_cluster, settings) -> Any:
    """The cluster without its registry: mode D."""
    settings.NSQLOOKUPD_HTTP_ADDRESSES = ()
    settings.NSQD_HTTP_ADDRESSES = tuple(node.address for node in go_cluster.nodes)
    return go_cluster


@pytest.fixture
def watches(collect, snapshot) -> Callable[[int], None]:
    """Makes a collector see this many topics and stop; its snapshot counts as fresh for ten seconds."""

    def look(topics: int) -> None:
        collecting = collect()
        wait_until(lambda: len((snapshot() or {"topics": []})["topics"]) == topics, "the snapshot")
        collecting.stop()

    return look


@pytest.fixture
def second_registry(go_cluster, settings) -> Iterator[GoRegistry]:
    """One more registry, which knows no topic."""
    other = GoRegistry([])
    settings.NSQLOOKUPD_HTTP_ADDRESSES = (go_cluster.registry.address, other.address)
    yield other
    other.stop()


def refused(answer: Any, status: int, message: str) -> None:
    assert (answer.status_code, answer.json()) == (status, {"message": message})


# ---- what is done


def test_a_topic_is_created_at_the_registries_only(go_cluster, api):
    answer = api.post("/api/topics", {"topic": "orders"})
    assert answer.status_code == 200
    assert answer.json()["message"] == ""
    assert go_cluster.registry.posts == [("/topic/create", {"topic": "orders"})]
    assert all(node.posts == [] for node in go_cluster.nodes)


def test_creating_a_channel_makes_it_on_registries_and_producers(go_cluster, api):
    """Keys may be in any case, and only the first value is read."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    assert api.post("/api/topics", '{"Topic":"orders","CHANNEL":"billing","x":1} rest').json()["message"] == ""
    assert [path for path, _ in go_cluster.registry.posts] == ["/topic/create", "/channel/create"]
    assert all(node.posts == [("/channel/create", {"topic": "orders", "channel": "billing"})] for node in (alpha, beta))


def test_without_registries_a_topic_is_made_on_the_nodes(given_nodes, api):
    """nsqadmin does nothing in this case."""
    assert api.post("/api/topics", {"topic": "orders", "channel": ""}).json()["message"] == ""
    assert all("orders" in node.topics for node in given_nodes.nodes)


def test_without_registries_a_topic_and_its_channel_are_made_on_the_nodes(given_nodes, api):
    """On all of them if none has the topic, otherwise on those that have it."""
    answer = api.post("/api/topics", {"topic": "orders", "channel": "billing"})
    assert (answer.status_code, answer.json()["message"]) == (200, "")
    for node in given_nodes.nodes:
        assert [each["channel_name"] for each in node.topics["orders"]["channels"]] == ["billing"]
    given_nodes.nodes[0].topic("audit")
    assert api.post("/api/topics", {"topic": "audit", "channel": "archive"}).json()["message"] == ""
    assert ["audit" in node.topics for node in given_nodes.nodes] == [True, False]


def test_without_registries_a_channel_is_made_where_nodes_answer(given_nodes, api):
    """The node that is down is named."""
    alpha, beta = given_nodes.nodes
    beta.stop()
    answer = api.post("/api/topics", {"topic": "orders", "channel": "billing"})
    beta.start()
    assert (answer.status_code, answer.json()["message"]) == (200, f"WARNING: nsqd {beta.address}: connection refused")
    assert [each["channel_name"] for each in alpha.topics["orders"]["channels"]] == ["billing"]


@pytest.mark.parametrize("action", ["pause", "unpause", "empty"])
@pytest.mark.parametrize("channel", ["", "/billing"])
def test_pausing_and_emptying_go_to_every_producer(go_cluster, api, action, channel):
    for node in go_cluster.nodes:
        node.channel("orders", "billing", depth=5)
    answer = api.post(f"/api/topics/orders{channel}", {"action": action})
    assert answer.json()["message"] == ""
    kind, query = ("channel", {"topic": "orders", "channel": "billing"}) if channel else ("topic", {"topic": "orders"})
    assert all(node.posts == [(f"/{kind}/{action}", query)] for node in go_cluster.nodes)
    assert [each["outcome"] for each in answer.json()["results"]] == ["done", "done"]


@pytest.mark.parametrize("channel", ["", "/billing%23ephemeral"])
def test_deleting_goes_to_registries_and_producers(go_cluster, api, channel):
    for node in go_cluster.nodes:
        node.channel("orders", "billing#ephemeral")
    assert api.delete(f"/api/topics/orders{channel}").json()["message"] == ""
    path = "/channel/delete" if channel else "/topic/delete"
    assert [each.posts[0][0] for each in go_cluster.everything] == [path] * 3
    assert all((node.topics == {}) is not bool(channel) for node in go_cluster.nodes)


def test_a_tombstone_marks_the_node_and_removes_the_topic_from_it(go_cluster, api):
    """The other producer keeps it."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    answer = api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"})
    assert (answer.status_code, answer.json()["message"]) == (200, "")
    assert go_cluster.registry.tombstones == {("orders", alpha.address)}
    assert ("orders" in alpha.topics, "orders" in beta.topics) == (False, True)


def test_a_tombstone_shows_until_the_node_has_unregistered(go_cluster, api):
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    alpha.post = lambda path, query: (200, "")  # a slow node
    api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"})
    assert api.get("/api/nodes").json()["nodes"][0]["topics"] == [{"topic": "orders", "tombstoned": True}]


def test_a_tombstone_on_a_dead_node_reports_each_step(go_cluster, api):
    """The registries did mark it: 200, with the node that could not be reached."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    alpha.stop()
    answer = api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"})
    alpha.start()
    assert answer.status_code == 200
    assert answer.json()["message"] == f"WARNING: nsqd {alpha.address}: connection refused"
    assert {each["target"]: each["outcome"] for each in answer.json()["results"]} == {
        "nsqlookupd": "done",
        "nsqd": "unreachable",
    }


def test_without_registries_a_tombstone_deletes_the_topic_on_that_node(given_nodes, api):
    alpha, beta = given_nodes.nodes
    alpha.topic("orders")
    beta.topic("orders")
    assert api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"}).json()["message"] == ""
    assert ("orders" in alpha.topics, "orders" in beta.topics) == (False, True)
    refused(api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"}), 404, "TOPIC_NOT_FOUND")


def test_a_tombstone_of_a_topic_that_is_gone_makes_a_warning(go_cluster, api):
    """The registries have marked the node; it has nothing left to delete, and answers so."""
    alpha = go_cluster.nodes[0]
    answer = api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"})
    assert (answer.status_code, answer.json()["message"]) == (
        200,
        f"WARNING: nsqd {alpha.address}: 404 TOPIC_NOT_FOUND",
    )


def test_a_tombstone_on_a_given_node_that_is_down_is_no_success(given_nodes, api):
    """The node belongs to the cluster, although it does not answer."""
    beta = given_nodes.nodes[1]
    beta.stop()
    answer = api.delete(f"/api/nodes/{beta.address}", {"topic": "orders"})
    beta.start()
    assert answer.status_code == 502
    assert answer.json()["message"] == f"UPSTREAM_ERROR: nsqd {beta.address}: connection refused"


def test_a_node_that_only_a_dead_registry_may_know_is_not_called_unknown(go_cluster, second_registry, api):
    second_registry.stop()
    answer = api.delete("/api/nodes/10.0.0.1:4151", {"topic": "orders"})
    second_registry.start()
    assert answer.status_code == 502
    assert second_registry.address in answer.json()["message"]
    assert go_cluster.registry.posts == []


# ---- the cluster is asked, whatever the collector saw last


def test_a_new_channel_can_be_acted_on_at_once(given_nodes, api, watches):
    """A script that creates a channel on a node can pause it at once."""
    alpha, beta = given_nodes.nodes
    alpha.topic("orders")
    watches(1)
    beta.channel("fresh", "billing")
    for path in ("/api/topics/fresh/billing", "/api/topics/fresh"):
        answer = api.post(path, {"action": "pause"})
        assert (answer.status_code, answer.json()["message"]) == (200, "")
    assert beta.topics["fresh"]["paused"]
    assert beta.channel("fresh", "billing")["paused"]


def test_a_node_that_just_got_a_topic_is_not_left_out(given_nodes, api, watches):
    alpha, beta = given_nodes.nodes
    alpha.topic("orders")
    watches(1)
    beta.topic("orders")
    assert api.post("/api/topics/orders", {"action": "pause"}).json()["message"] == ""
    assert [node.topics["orders"]["paused"] for node in (alpha, beta)] == [True, True]


def test_a_given_node_that_is_down_is_named(given_nodes, api, watches):
    """It may have the topic, whatever the last snapshot says."""
    alpha, beta = given_nodes.nodes
    alpha.topic("orders")
    watches(1)
    beta.stop()
    answer = api.post("/api/topics/orders", {"action": "pause"})
    beta.start()
    assert (answer.status_code, answer.json()["message"]) == (200, f"WARNING: nsqd {beta.address}: connection refused")
    assert alpha.topics["orders"]["paused"]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_dead_registry_is_named(go_cluster, second_registry, api, watches, is_seen):
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    if is_seen:
        watches(1)
    second_registry.stop()
    answer = api.post("/api/topics/orders", {"action": "pause"})
    second_registry.start()
    assert answer.status_code == 200
    assert answer.json()["message"] == f"WARNING: nsqlookupd {second_registry.address}: connection refused"
    assert alpha.topics["orders"]["paused"]


@pytest.mark.parametrize("is_seen", [False, True])
def test_with_all_given_nodes_down_the_answer_is_502(given_nodes, api, watches, is_seen):
    """Not 404: nobody knows their topics."""
    given_nodes.nodes[0].topic("orders")
    if is_seen:
        watches(1)
    for node in given_nodes.nodes:
        node.stop()
    paused = api.post("/api/topics/orders", {"action": "pause"})
    unknown = api.post("/api/topics/other/billing", {"action": "empty"})
    for node in given_nodes.nodes:
        node.start()
    for answer in (paused, unknown):
        assert answer.status_code == 502
        assert answer.json()["message"].startswith("UPSTREAM_ERROR: failed to query any nsqd: ")
        assert all(f"nsqd {node.address}: connection refused" in answer.text for node in given_nodes.nodes)


def test_with_all_registries_down_the_snapshot_is_not_used(go_cluster, api, watches):
    """The snapshot names the topic's nodes, but they may not be all."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    watches(1)
    go_cluster.registry.stop()
    answer = api.post("/api/topics/orders", {"action": "empty"})
    go_cluster.registry.start()
    assert answer.status_code == 502
    assert answer.json()["message"].startswith("UPSTREAM_ERROR: failed to query any nsqlookupd: ")
    assert alpha.posts == []


def test_a_topic_is_not_created_again_on_a_node_that_lost_it(go_cluster, api, watches):
    """Creating a topic calls only the registries, whatever node had it before."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    watches(1)
    alpha.topics.clear()
    assert api.post("/api/topics", {"topic": "orders"}).json()["message"] == ""
    assert alpha.posts == []


# ---- who lacks it


def test_a_node_that_lacks_the_channel_makes_a_warning(go_cluster, api):
    """The others have done it; the answer is 200, and ``results`` contains no failure."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing")
    beta.topic("orders")
    answer = api.post("/api/topics/orders/billing", {"action": "pause"})
    assert answer.status_code == 200
    assert answer.json()["message"] == f"WARNING: nsqd {beta.address}: 404 CHANNEL_NOT_FOUND"
    assert {each["node"]: each["outcome"] for each in answer.json()["results"]} == {
        alpha.address: "done",
        beta.address: "absent",
    }


def test_a_given_node_without_the_topic_is_no_warning(given_nodes, api):
    """It is no producer of the topic."""
    given_nodes.nodes[0].channel("orders", "billing")
    for path in ("/api/topics/orders", "/api/topics/orders/billing"):
        answer = api.post(path, {"action": "pause"})
        assert (answer.json()["message"], len(answer.json()["results"])) == ("", 1)


def test_a_listed_node_that_lacks_the_topic_makes_a_warning(go_cluster, api):
    """A registry sends consumers there."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    beta.status["/topic/pause"] = (404, "TOPIC_NOT_FOUND")
    answer = api.post("/api/topics/orders", {"action": "pause"})
    assert (answer.status_code, answer.json()["message"]) == (200, f"WARNING: nsqd {beta.address}: 404 TOPIC_NOT_FOUND")


def test_a_registry_that_does_not_know_the_topic_makes_a_warning(go_cluster, second_registry, api):
    """As in an answer about the topic."""
    go_cluster.nodes[0].topic("orders")
    answer = api.post("/api/topics/orders", {"action": "pause"})
    assert answer.status_code == 200
    assert answer.json()["message"] == f"WARNING: nsqlookupd {second_registry.address}: 404 TOPIC_NOT_FOUND"


# ---- what is refused


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "EOF"),
        ("  \n", "EOF"),
        ("{", "unexpected EOF"),
        ('{"topic":"a', "unexpected EOF"),
        ("zzz", "invalid character 'z' looking for beginning of value"),
        ("{z", "invalid character 'z' looking for beginning of object key string"),
        ("[]", "json: cannot unmarshal array into Go value of type struct"),
        ('{"topic":7}', "json: cannot unmarshal number into Go struct field .topic of type string"),
        ("null", "INVALID_TOPIC"),
        ("{}", "INVALID_TOPIC"),
        ('{"topic":"a b"}', "INVALID_TOPIC"),
        (f'{{"topic":"{"t" * 65}"}}', "INVALID_TOPIC"),
        ('{"topic":"#ephemeral"}', "INVALID_TOPIC"),
        ('{"topic":"t","channel":"a/b"}', "INVALID_CHANNEL"),
    ],
)
def test_an_invalid_body_is_refused(go_cluster, api, body, message):
    """With the text of Go's decoder, or the error code of the name; nothing is sent anywhere."""
    refused(api.post("/api/topics", body), 400, message)
    assert all(upstream.posts == [] for upstream in go_cluster.everything)


@pytest.mark.parametrize(
    "body",
    [
        *(
            '{"topic":"a\nb"}',
            '{"topic":"a\\x"}',
            '{"topic" "a"}',
            '{"topic":"a" "b"}',
            '{"topic":tru}',
            '{"topic":01}',
        ),
        *("NaN", '{"topic":NaN}', '{"topic":"a",}', "\x00", "é", '"x"', "7", b"\xff", '{"topic":["a"]}'),
    ],
)
def test_other_faults_of_json_are_refused_alike(go_cluster, api, body):
    """With the same status and a sentence that begins as Go's, if not word for word."""
    answer = api.post("/api/topics", body)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(("invalid character ", "json: cannot unmarshal "))
    assert all(upstream.posts == [] for upstream in go_cluster.everything)


@pytest.mark.parametrize("path", ["/api/topics/orders", "/api/topics/orders/billing"])
@pytest.mark.parametrize(
    ("body", "message"), [("", "EOF"), ("{}", "INVALID_ACTION"), ('{"action":"explode"}', "INVALID_ACTION")]
)
def test_an_unknown_action_is_refused(go_cluster, api, path, body, message):
    refused(api.post(path, body), 400, message)


@pytest.mark.parametrize(("body", "message"), [("", "INVALID_BODY"), ("zzz", "INVALID_BODY"), ("{}", "INVALID_TOPIC")])
def test_a_tombstone_needs_a_topic(go_cluster, api, body, message):
    refused(api.delete(f"/api/nodes/{go_cluster.nodes[0].address}", body), 400, message)


def test_a_tombstone_needs_a_node_that_is_there(go_cluster, api):
    refused(api.delete("/api/nodes/10.0.0.1:4151", {"topic": "orders"}), 404, "NODE_NOT_FOUND")
    assert go_cluster.registry.posts == []


@pytest.mark.parametrize("path", ["/api/topics/nowhere", "/api/topics/nowhere/billing", "/api/topics/a%20b"])
def test_actions_on_unknown_topics_are_not_found(go_cluster, api, path):
    for answer in (api.post(path, {"action": "pause"}), api.delete(path)):
        refused(answer, 404, "TOPIC_NOT_FOUND")


def test_given_nodes_do_not_know_a_topic_or_a_channel(given_nodes, api):
    """The answer says which of the two is missing."""
    given_nodes.nodes[0].topic("orders")
    refused(api.post("/api/topics/nowhere/billing", {"action": "pause"}), 404, "TOPIC_NOT_FOUND")
    refused(api.post("/api/topics/orders/nowhere", {"action": "pause"}), 404, "CHANNEL_NOT_FOUND")


def test_a_channel_that_no_node_has_is_not_found(go_cluster, api):
    go_cluster.nodes[0].topic("orders")
    refused(api.post("/api/topics/orders/nowhere", {"action": "pause"}), 404, "CHANNEL_NOT_FOUND")


def test_a_body_beyond_the_platforms_limit_is_refused(go_cluster, api, settings):
    """Before it is read as JSON."""
    refused(api.post("/api/topics", b"x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE + b"x"), 413, "BODY_TOO_BIG")


# ---- who does not answer


def test_a_dead_node_makes_a_warning_and_the_others_act(go_cluster, api):
    """The registry still lists it: the answer is 200, and names it."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    beta.stop()
    answer = api.post("/api/topics/orders", {"action": "pause"})
    beta.start()
    assert answer.status_code == 200
    assert answer.json()["message"] == f"WARNING: nsqd {beta.address}: connection refused"
    assert alpha.topics["orders"]["paused"]


def test_frozen_nodes_cost_one_timeout_together(go_cluster, api, short_request_timeout):
    """They are called at once, not one after the other."""
    for node in go_cluster.nodes:
        node.topic("orders")
        node.hold = threading.Event()
    answer = api.post("/api/topics/orders", {"action": "pause"})
    for node in go_cluster.nodes:
        node.hold.set()
    assert answer.status_code == 502
    assert answer.json()["message"].count("no answer within 3 s; it may still do it") == 2
    assert answer.json()["message"].startswith("UPSTREAM_ERROR: nsqd ")


def test_when_all_refuse_the_answer_is_no_success(go_cluster, api):
    """With the text of each."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    alpha.status["/topic/pause"] = (500, "INTERNAL_ERROR")
    answer = api.post("/api/topics/orders", {"action": "pause"})
    assert answer.status_code == 502
    assert answer.json()["message"] == f"UPSTREAM_ERROR: nsqd {alpha.address}: 500 INTERNAL_ERROR"


def test_without_any_registry_nothing_is_done(go_cluster, api):
    """This holds for existing topics and for new ones."""
    go_cluster.nodes[0].topic("orders")
    go_cluster.registry.stop()
    answers = [
        api.post("/api/topics", {"topic": "fresh"}),
        api.delete("/api/topics/orders"),
        api.post("/api/topics/orders", {"action": "empty"}),
    ]
    go_cluster.registry.start()
    for answer in answers:
        assert answer.status_code == 502
        assert answer.json()["message"].startswith("UPSTREAM_ERROR: failed to query any nsqlookupd: ")
    assert "orders" in go_cluster.nodes[0].topics


def test_given_nodes_one_of_them_down(given_nodes, api):
    """A topic that the others do not have: it is not found, or may be on the dead node, which the answer says."""
    given_nodes.nodes[1].stop()
    answer = api.post("/api/topics/orders", {"action": "pause"})
    given_nodes.nodes[1].start()
    assert answer.status_code == 502
    assert given_nodes.nodes[1].address in answer.json()["message"]


# ---- notifications


class Endpoint:
    """Receives notifications."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.kinds: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.kinds.append(self.headers["Content-Type"])
                endpoint.got.append(json.loads(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def endpoint(nsqadmin_settings) -> Iterator[Endpoint]:
    made = Endpoint()
    nsqadmin_settings(notification_http_endpoint=made.url)
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_each_action_sends_a_notification(go_cluster, api, endpoint):
    """With nsqadmin's keys; empty ones are left out."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing")
    api.post(
        "/api/topics/orders/billing",
        {"action": "pause"},
        Authorization="Basic YWxpY2U6c2VjcmV0",
        User_Agent="cron/1",
        X_Scheme="https",
    )
    [notification] = wait_until(lambda: endpoint.got, "the notification")
    assert endpoint.kinds == ["application/json"]
    assert notification.pop("timestamp") > 1_700_000_000
    assert notification.pop("via")
    assert notification == {
        "action": "pause_channel",
        "topic": "orders",
        "channel": "billing",
        "user": "alice",
        "remote_ip": "127.0.0.1:51234",
        "user_agent": "cron/1",
        "url": "https://localhost/api/topics/orders/billing",
    }


def test_every_action_has_its_name(go_cluster, api, endpoint):
    """Creating a channel also creates its topic, and sends a notification of each."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    api.post("/api/topics", {"topic": "orders", "channel": "billing"})
    for action in ("pause", "unpause", "empty"):
        api.post("/api/topics/orders", {"action": action})
        api.post("/api/topics/orders/billing", {"action": action})
    api.delete("/api/topics/orders/billing")
    api.delete("/api/topics/orders")
    alpha.topic("orders")
    api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"})
    wait_until(lambda: len(endpoint.got) == 11, "all of them")
    assert [notification["action"] for notification in endpoint.got] == [
        *("create_topic", "create_channel", "pause_topic", "pause_channel", "unpause_topic", "unpause_channel"),
        *("empty_topic", "empty_channel", "delete_channel", "delete_topic", "tombstone_topic_producer"),
    ]
    assert endpoint.got[-1]["node"] == alpha.address
    assert "user" not in endpoint.got[0]
    assert "channel" not in endpoint.got[0]


def test_an_unreachable_notification_endpoint_fails_no_request(go_cluster, api, nsqadmin_settings):
    nsqadmin_settings(notification_http_endpoint="http://127.0.0.1:1/hook")
    for _ in range(3):
        assert api.post("/api/topics", {"topic": "orders"}).status_code == 200
    assert api.get("/ping").text == "OK"


def test_a_refused_action_sends_no_notification(go_cluster, api, endpoint):
    api.post("/api/topics/nowhere", {"action": "pause"})
    api.post("/api/topics", {"topic": "orders"})
    wait_until(lambda: endpoint.got, "the one that was done")
    assert [notification["action"] for notification in endpoint.got] == ["create_topic"]


def test_actions_of_the_pages_send_notifications_too(go_cluster, browser, account, endpoint):
    """They name the user."""
    go_cluster.nodes[0].topic("orders")
    account("operator")
    operator = browser()
    operator.sign_in("operator")
    operator.request("POST", "actions", {"action": "pause", "topic": "orders"})
    [notification] = wait_until(lambda: endpoint.got, "the notification")
    assert (notification["action"], notification["user"], notification["remote_ip"]) == (
        "pause_topic",
        "operator",
        "127.0.0.1",
    )
