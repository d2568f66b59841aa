"""Who may do what in a cluster: every endpoint and method, for callers with a role in one cluster only."""

from __future__ import annotations

from typing import Any

import pytest

from nsqplatform.accounts.roles import Permission, Role, allows
from nsqplatform.accounts.tokens import create_token
from nsqplatform.clusters import current
from nsqplatform.clusters.declaration import DEFAULT
from tests.platform.callers import ROLES, Caller
from tests.platform.test_clusters import berlin, in_one, signed_in
from tests.platform.test_permissions import Endpoint, check_each_endpoint, everything

pytestmark = pytest.mark.django_db(transaction=True)

__all__ = ["berlin"]


def caller_in_one(account: Any, cluster: str, name: str, by: str) -> Caller:
    """A caller of CLUSTER_ROLES, whose credentials are valid in one cluster only."""
    role, patterns = (Role.OPERATOR, ["orders.*"]) if name == "limited" else (Role(name), [])
    user = account(role.value, "somebody")
    if by == "token of the cluster":  # the owner has the role everywhere
        user.topic_patterns = patterns
        user.save()
        return Caller(name, user, {"Authorization": f"Bearer {create_token(user=user, name='one', cluster=cluster)}"})
    in_one(user, cluster, role, patterns)
    if by == "session":
        return Caller(name, user, signed_in(user))
    return Caller(name, user, {"Authorization": f"Bearer {create_token(user=user, name='script', role=role)}"})


ON_EVERY_DATABASE = "limited"
"""The role whose callers execute all statements that callers of any role execute."""
EACH_ROLE = pytest.mark.parametrize(
    "role", [pytest.param(role, marks=[pytest.mark.database] if role == ON_EVERY_DATABASE else []) for role in ROLES]
)
BY = pytest.mark.parametrize("by", ["session", "token", "token of the cluster"])


@BY
@EACH_ROLE
@pytest.mark.parametrize("at_home", [False, True], ids=["elsewhere", "at home"])
def test_a_role_in_one_cluster_opens_no_door_of_another(
    role, by, at_home, berlin, account, locked_api, go_cluster, nsqadmin_settings
):
    """Every endpoint and method of the other cluster refuses."""
    home, other = (DEFAULT, berlin) if at_home else (berlin, DEFAULT)
    caller = caller_in_one(account, home, role, by)
    for endpoint in everything():
        if endpoint.permission is None:
            continue  # for strangers
        answer = locked_api.request(
            endpoint.method,
            current.path(other) + endpoint.concrete,
            {} if endpoint.method != "GET" else None,
            **caller.headers,
        )
        assert answer.status_code == 403, (endpoint, answer.status_code, answer.text[:200])
    me = locked_api.get(f"{current.path(home)}/api/v1/me", **caller.headers)
    assert me.status_code == 200, me.text
    assert (me.json()["role"], me.json()["cluster"], me.json()["administers"]) == (
        caller.user.cluster_roles.get(home, {}).get("role", caller.user.role),
        home,
        False,
    )
    assert [each["name"] for each in me.json()["clusters"]] == [home]
    assert all(upstream.posts == [] for upstream in go_cluster.everything)


@BY
@EACH_ROLE
def test_a_role_in_one_cluster_opens_the_doors_that_it_has_there(
    role, by, berlin, account, locked_api, go_cluster, caplog, nsqadmin_settings
):
    """Every endpoint and method answers as the same role does in the default cluster, except that accounts are managed
    by administrators of all clusters only."""
    caller = caller_in_one(account, berlin, role, by)
    own = Role.OPERATOR if role == "limited" else Role(role)

    def granted(endpoint: Endpoint) -> bool:
        if endpoint.permission is None:
            return True
        may = endpoint.permission is not Permission.ADMINISTER and allows(own, endpoint.permission)
        return may and (endpoint.by_token or not caller.token)

    check_each_endpoint(caller, locked_api, caplog, granted=granted, below=f"/c/{berlin}")
    if own == Role.VIEWER:
        assert all(upstream.posts == [] for upstream in go_cluster.everything)
