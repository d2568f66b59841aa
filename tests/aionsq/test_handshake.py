"""Handshake, discovery, reconnection and options, without a network."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from aionsq.discovery import FORGET_AFTER_POLLS, Discovery
from aionsq.handshake import Handshake, HandshakeFailed, Ready, Send, Upgrade
from aionsq.options import ConnectionOptions, ConsumerOptions, ProducerOptions, with_text, with_texts
from aionsq.reconnect import Reconnect
from nsqwire import frame


def answer(**fields) -> bytes:
    return json.dumps({"max_rdy_count": 100, "version": "1.3.0", **fields}).encode()


def started(topic=None, channel=None, **options) -> Handshake:
    handshake = Handshake(ConnectionOptions(**options), topic, channel)
    (first,) = handshake.begin()
    assert isinstance(first, Send)
    assert first.data.startswith(b"  V2IDENTIFY\n")
    return handshake


def test_a_publisher_is_ready_once_identified():
    """No SUB is sent without a topic."""
    (ready,) = started().received(frame.RESPONSE, answer())
    assert isinstance(ready, Ready)
    assert (ready.negotiated.max_rdy_count, ready.negotiated.version) == (100, "1.3.0")


def test_a_consumer_is_ready_once_its_subscription_is_confirmed():
    """The answer to SUB is awaited, so that the caller gets a refusal."""
    handshake = started("t", "c")
    assert handshake.received(frame.RESPONSE, answer()) == [Send(b"SUB t c\n")]
    assert handshake.received(frame.RESPONSE, b"_heartbeat_") == [Send(b"NOP\n")]
    (ready,) = handshake.received(frame.RESPONSE, b"OK")
    assert isinstance(ready, Ready)


def test_layers_are_enabled_in_order_and_each_is_confirmed():
    """TLS, then deflate inside it, then AUTH, then SUB."""
    handshake = started("t", "c", tls_v1=True, deflate=True, auth_secret="s")
    granted = answer(tls_v1=True, deflate=True, auth_required=True)
    assert handshake.received(frame.RESPONSE, granted) == [Upgrade.TLS]
    assert handshake.received(frame.RESPONSE, b"OK") == [Upgrade.DEFLATE]
    assert handshake.received(frame.RESPONSE, b"OK") == [Send(b"AUTH\n\0\0\0\1s")]
    assert handshake.received(frame.RESPONSE, b'{"identity":"","permission_count":1}') == [Send(b"SUB t c\n")]


@pytest.mark.parametrize(
    ("options", "reply", "says"),
    [
        ({"tls_v1": True}, (frame.RESPONSE, answer(tls_v1=False)), "does not grant tls_v1"),
        ({"tls_v1": True}, (frame.RESPONSE, b"OK"), "does not grant tls_v1"),
        ({"deflate": True}, (frame.RESPONSE, answer()), "does not grant deflate"),
        ({}, (frame.RESPONSE, answer(auth_required=True)), "requires an auth_secret"),
        ({}, (frame.ERROR, b"E_BAD_BODY IDENTIFY heartbeat"), "IDENTIFY was refused: E_BAD_BODY"),
        ({}, (frame.RESPONSE, b"[1]"), "is not a valid response to IDENTIFY"),
        ({}, (frame.RESPONSE, b'{"max_rdy_count":"many"}'), "is not a valid response to IDENTIFY"),
        ({}, (frame.MESSAGE, b"x" * 30), "frame of type 2"),
    ],
)
def test_a_handshake_that_cannot_continue_says_why(options, reply, says):
    """In particular, a connection with TLS configured never continues without TLS."""
    with pytest.raises(HandshakeFailed, match=says):
        started(**options).received(*reply)


def test_an_nsqd_from_before_negotiation_is_accepted():
    """It answers OK, and accepts RDY up to 2500."""
    (ready,) = started().received(frame.RESPONSE, b"OK")
    assert isinstance(ready, Ready)
    assert ready.negotiated.max_rdy_count == 2500


def test_an_nsqd_that_names_no_maximum_is_asked_for_nothing():
    """Without ``max_rdy_count`` in the response it is 0, as in go-nsq."""
    (ready,) = started().received(frame.RESPONSE, b'{"version":"1.3.0"}')
    assert isinstance(ready, Ready)
    assert ready.negotiated.max_rdy_count == 0


def test_an_nsqd_that_names_no_message_timeout_has_the_usual_one():
    """Messages are touched before 60 s, and not all the time."""
    (ready,) = started().received(frame.RESPONSE, b'{"version":"1.3.0"}')
    assert isinstance(ready, Ready)
    assert ready.negotiated.msg_timeout_ms == 60_000


def test_identify_sends_the_options_in_milliseconds():
    """Times are integers of milliseconds, and msg_timeout is sent only if it was set."""
    fields = ConsumerOptions(heartbeat_interval=timedelta(seconds=5), sample_rate=10).identify_fields()
    assert (fields["heartbeat_interval"], fields["sample_rate"]) == (5000, 10)
    assert fields["feature_negotiation"] is True
    assert "msg_timeout" not in fields
    assert ConsumerOptions(msg_timeout=timedelta(seconds=2)).identify_fields()["msg_timeout"] == 2000


def test_an_nsqd_is_forgotten_only_after_several_polls_without_it():
    """Polls that an nsqlookupd did not answer are not counted."""
    discovery = Discovery()
    discovery.polled(["a", "b"], complete=True)
    for _ in range(FORGET_AFTER_POLLS - 1):
        discovery.polled(["a"], complete=True)
    discovery.polled(["a"], complete=False)
    assert discovery.forgettable() == []
    discovery.polled(["a"], complete=True)
    assert discovery.forgettable() == ["b"]
    discovery.polled(["a", "b"], complete=True)
    assert discovery.forgettable() == []


def test_pauses_grow_to_the_maximum_and_restart_after_a_lasting_connection():
    """The first attempt is made at once."""
    pauses = Reconnect(timedelta(seconds=2))
    delays = [pauses.next_delay_s() for _ in range(12)]
    assert delays[0] == 0
    assert 0.05 <= delays[1] <= 0.1
    assert all(1 <= delay <= 2 for delay in delays[7:])
    pauses.lasted(0.2)
    assert pauses.next_delay_s() >= 1
    pauses.lasted(60)
    assert pauses.next_delay_s() == 0


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("max_attempts", "7", "max_attempts", 7),
        ("lookupd-poll-interval", "1500", "lookupd_poll_interval", timedelta(milliseconds=1500)),
        ("lookupd_poll_interval", "1m30s", "lookupd_poll_interval", timedelta(seconds=90)),
        ("deflate", None, "deflate", True),
        ("deflate", "f", "deflate", False),
        ("lookupd_poll_jitter", "0.5", "lookupd_poll_jitter", 0.5),
        ("backoff_strategy", "full_jitter", "backoff_strategy", "full_jitter"),
        ("snappy", "TRUE", "snappy", True),
        ("output-buffer-timeout", "-1", "output_buffer_timeout", timedelta(milliseconds=-1)),
        ("tls-min-version", "tls1.0", "tls_min_version", "tls1.0"),
        ("local_addr", "127.0.0.1:0", "local_addr", "127.0.0.1:0"),
        ("topology_zone", "a,b", "topology_zone", "a,b"),
        ("skip_lookupd_authorization", "false", "lookupd_authorization", False),
    ],
)
def test_an_option_can_be_given_as_text(name, text, field, value):
    """As the tools' --consumer-opt does: dashes or underscores, Go durations or milliseconds, no value for true."""
    assert getattr(with_text(ConsumerOptions(), name, text), field) == value


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("max_atempts", "7", "invalid option max_atempts"),
        ("max_attempts", "many", r"failed to coerce option max_attempts \(many\) - 'many' is not a whole number"),
        ("max_attempts", "70000", "invalid max_attempts ! 70000 > 65535"),
        ("max_attempts", None, r"failed to coerce option max_attempts \(true\) - a value is needed"),
        ("max-in-flight", "1_0", r"failed to coerce option max_in_flight \(1_0\)"),
        ("deflate", "perhaps", r"failed to coerce option deflate \(perhaps\)"),
        ("lookupd_poll_jitter", "nan", "failed to coerce option lookupd_poll_jitter"),
        ("lookupd_poll_jitter", "1.5", "invalid lookupd_poll_jitter ! 1.5 > 1"),
        ("read_timeout", "10", "invalid read_timeout ! 10ms < 100ms"),
        ("read-timeout", "6m", "invalid read_timeout ! 6m0s > 5m0s"),
        ("read_timeout", "1 second", r"failed to coerce option read_timeout \(1 second\)"),
        ("heartbeat_interval", "-1", "a consumer requires heartbeats"),
        ("heartbeat_interval", "0", "invalid heartbeat_interval ! 0s < 1ms"),
        ("local_addr", "here", "invalid local_addr ! 'here' is not an IP address"),
        ("tls_min_version", "tls9", "not one of ssl3.0, tls1.0, tls1.1, tls1.2, tls1.3"),
        ("backoff_strategy", "none", "not one of exponential, full_jitter"),
        ("read_timeout", "10s", "invalid heartbeat_interval"),
    ],
)
def test_an_invalid_option_is_reported_with_the_reason(name, text, says):
    """One sentence, naming the option."""
    with pytest.raises(ValueError, match=says):
        with_text(ConsumerOptions(), name, text)


def test_options_out_of_range_are_refused_when_made():
    """Not when they are first used."""
    with pytest.raises(ValueError, match="invalid max_in_flight ! -1 < 0"):
        ConsumerOptions(max_in_flight=-1)
    with pytest.raises(ValueError, match="publish_timeout"):
        ProducerOptions(publish_timeout=timedelta(0))


def test_options_are_checked_together():
    """Options that are valid only together may be in any order; of a repeated option, the last counts."""
    texts = [("read_timeout", "10s"), ("max_attempts", "1"), ("heartbeat_interval", "5s"), ("max-attempts", "2")]
    options = with_texts(ConsumerOptions(), texts)
    assert (options.read_timeout, options.heartbeat_interval) == (timedelta(seconds=10), timedelta(seconds=5))
    assert options.max_attempts == 2


def test_a_producer_takes_a_consumers_option_without_effect():
    """go-nsq has one set of names for both; invalid values are refused anyway."""
    assert with_text(ProducerOptions(), "max_in_flight", "5") == ProducerOptions()
    with pytest.raises(ValueError, match="invalid max_in_flight ! -1 < 0"):
        with_text(ProducerOptions(), "max_in_flight", "-1")


def test_deflate_and_snappy_exclude_each_other():
    """nsqd would refuse the connection."""
    with pytest.raises(ValueError, match="one compression"):
        ProducerOptions(deflate=True, snappy=True)


def test_a_producer_can_disable_heartbeats():
    """IDENTIFY then contains -1."""
    options = with_text(ProducerOptions(), "heartbeat_interval", "-1")
    assert options.identify_fields()["heartbeat_interval"] == -1


def test_the_secret_goes_to_nsqlookupd_by_default():
    """As a bearer token, if there is a secret."""
    assert ConsumerOptions().lookupd_headers() == {}
    assert ConsumerOptions(auth_secret="s").lookupd_headers() == {"Authorization": "Bearer s"}
    assert ConsumerOptions(auth_secret="s", lookupd_authorization=False).lookupd_headers() == {}
