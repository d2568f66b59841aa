"""The HTTP endpoints of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerd.policies import MAX_RULES, is_pattern
from brokerd.policy import InvalidPolicy, parsed
from nsqdaemon.http import HTTPError, Request, Response, empty
from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER
from nsqwire.gojson import encode_without_floats

if TYPE_CHECKING:
    from brokerd.broker import Broker


class PolicyVerbs:
    """The endpoints ``/policies`` and ``/policy``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def list(self, request: Request) -> Response:
        """All policies, the most specific first."""
        rules = self._broker.runtime.policies.rules
        policies: list[dict[str, object]] = [
            {"pattern": each.topic, "channel": each.channel, "policy": each.values} for each in rules
        ]
        fixed = self._broker.runtime.policies.fixed
        for each in policies:
            if (each["pattern"], each["channel"]) in fixed:
                each["in_file"] = True
        return Response(200, encode_without_floats({"policies": policies}), (JSON_HEADER, NSQ_HEADER))

    def set(self, request: Request) -> Response:
        """Set the policy of the channels whose topic and name match two patterns; an earlier one is replaced."""
        topic, channel = self._changeable(request)
        known = self._broker.runtime.policies.values
        if (topic, channel) not in known and len(known) >= MAX_RULES:
            raise HTTPError(400, "TOO_MANY_POLICIES")
        try:
            self._broker.set_policy(topic, channel, parsed(request.body, channel))
        except InvalidPolicy as error:
            raise HTTPError(400, f"INVALID_POLICY {error}") from None
        return empty()

    def delete(self, request: Request) -> Response:
        """Delete the policy of two patterns."""
        try:
            found = self._broker.delete_policy(*self._changeable(request))
        except InvalidPolicy as error:
            raise HTTPError(400, f"INVALID_POLICY {error}") from None
        if not found:
            raise HTTPError(404, "POLICY_NOT_FOUND")
        return empty()

    def _changeable(self, request: Request) -> tuple[str, str]:
        """The patterns of a policy that is not in the settings' file. Raises HTTPError."""
        patterns = _patterns(request)
        if patterns in self._broker.runtime.policies.fixed:
            raise HTTPError(400, "POLICY_IN_FILE")
        return patterns


def _patterns(request: Request) -> tuple[str, str]:
    """The patterns of topic and channel. Raises HTTPError with the parameter's name."""
    topic = request.required("pattern", "MISSING_ARG_PATTERN")
    if not is_pattern(topic):
        raise HTTPError(400, "INVALID_ARG_PATTERN")
    channel = request.params.get("channel", "*")
    if not is_pattern(channel):
        raise HTTPError(400, "INVALID_ARG_CHANNEL")
    return topic, channel
