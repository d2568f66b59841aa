"""Export and import of definitions, with permissions and the audit trail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction

from nsqcluster import outcome_of
from nsqcluster.policies import Patterns
from nsqplatform.accounts import audit
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import NodeResultOut
from nsqplatform.cluster.actions.policies import record as record_policy
from nsqplatform.clusters import current
from nsqplatform.definitions.changes import Change
from nsqplatform.definitions.document import SECTIONS, VERSION, Document, from_toml
from nsqplatform.definitions.errors import FieldFault, InvalidDefinitions
from nsqplatform.definitions.policies import NodePolicies
from nsqplatform.definitions.sections.masks import Masks
from nsqplatform.definitions.sections.notifiers import Notifiers
from nsqplatform.definitions.sections.objectives import Objectives
from nsqplatform.definitions.sections.people import People
from nsqplatform.definitions.sections.rules import Rules
from nsqplatform.definitions.sections.schedules import Schedules
from nsqplatform.definitions.sections.section import Section
from nsqplatform.definitions.sections.silences import Silences
from nsqplatform.definitions.sections.views import Views
from nsqplatform.definitions.topics import Topics

InCluster = Topics | NodePolicies
IN_DATABASE: Final[Sequence[type[Section]]] = (Notifiers, Objectives, Rules, Silences, Schedules, Masks, Views, People)
"""In the order in which they are stored, because rules refer to notifiers, and silences to rules."""
MAX_DENIED = 5
PAST = {"create": "created", "change": "changed", "remove": "removed", "keep": "not in the file"}


@dataclass(kw_only=True)
class Review:
    """The changes of an import, planned or made. ``unanswered`` are servers of the cluster that did not answer, whose
    topics are therefore unknown."""

    changes: list[Change]
    unchanged: int
    unanswered: Sequence[str]

    @property
    def would_change(self) -> bool:
        return any(change.verb != "keep" for change in self.changes)

    @property
    def outcome(self) -> Literal["done", "partial"]:
        """The outcome of an import. A change that was not attempted because of an error counts as not done."""
        made = all(change.outcome == "done" for change in self.changes if change.verb != "keep")
        return "done" if made else "partial"

    def summary(self) -> str:
        """Such as ``1 created, 2 changed, 1 not completed``: the last counts changes that failed or are partly done."""
        made = [change for change in self.changes if change.verb != "keep"]
        counts = Counter(PAST[change.verb] if change.outcome == "done" else "not completed" for change in made)
        kinds = ("created", "changed", "removed", "not completed")
        return ", ".join(f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind])


def sections_in(text: str) -> list[str]:
    """The sections that ``text`` names, separated by commas; none if it is empty. Raises ValidationError for commas
    alone, and for an unknown section."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text.strip() and not names:
        raise ValidationError({"only": f"{text.strip()!r} names no section; there are {', '.join(SECTIONS)}"})
    if unknown := set(names) - set(SECTIONS):
        raise ValidationError({"only": f"there is no section {min(unknown)!r}; there are {', '.join(SECTIONS)}"})
    return names


def export(*, by: User, secrets: bool = False, only: Collection[str] = ()) -> Document:
    """The definitions that ``by`` may see, of the sections ``only``, or of all. ``secrets``: webhook URLs in full.

    Raises PermissionDenied and NotAllKnown.
    """
    require(by, Permission.VIEW)
    if secrets:
        require(by, Permission.ALERT)
    document = Document.model_validate({"version": VERSION, "cluster": current.name()})
    if not only or "topics" in only:
        document.topics = Topics(by).exported()
    if not only or "policies" in only:
        document.policies = NodePolicies(by).exported()
    for section in (kind(by) for kind in IN_DATABASE):
        if section.name in only:
            require(by, section.reads)
        elif only or not by.may(section.reads):
            continue
        setattr(document, section.name, section.exported(secrets=secrets))
    return document


def import_definitions(*, text: str, by: User, dry_run: bool, prune: bool, remote_address: str) -> Review:
    """Compare a file with the platform and, unless ``dry_run``, store the differences. ``prune`` also removes existing
    entries that the file's sections lack.

    The database is changed in one transaction, then the cluster. Raises InvalidDefinitions, PermissionDenied and
    NotAllKnown, having changed nothing.
    """
    document = from_toml(text)
    if document.cluster != current.name():
        raise InvalidDefinitions(
            [FieldFault("cluster", f"the file is for cluster {document.cluster}, not for {current.name()}")]
        )
    topics = Topics(by) if document.topics is not None else None
    policies = NodePolicies(by) if document.policies is not None else None
    in_cluster = [part for part in (topics, policies) if part is not None]
    with transaction.atomic():
        sections = [kind(by) for kind in IN_DATABASE if getattr(document, kind.name) is not None]
        _store(document, sections, prune)
        changes = topics.plan(document.topics, remove=prune) if topics and document.topics is not None else []
        if policies and document.policies is not None:
            changes += policies.plan(document.policies, remove=prune)
        _raise_refusals(document, [*sections, *in_cluster])
        if dry_run:
            transaction.set_rollback(True)
    changes += [change for section in sections for change in section.changes]
    review = Review(
        changes=changes,
        unchanged=sum(part.unchanged for part in [*sections, *in_cluster]),
        unanswered=list(dict.fromkeys(server for part in in_cluster for server in part.unanswered)),
    )
    if not dry_run and review.would_change:
        _finish(review, in_cluster, by, remote_address)
    return review


def _store(document: Document, sections: Sequence[Section], prune: bool) -> None:
    for section in sections:
        require(section.by, section.reads)
        section.store(getattr(document, section.name))
    for section in reversed(sections):
        section.prune(getattr(document, section.name), remove=prune)


def _raise_refusals(document: Document, parts: Sequence[Section | InCluster]) -> None:
    faults = [fault for part in parts if isinstance(part, Section) for fault in part.faults] + _duplicates(document)
    if faults:
        raise InvalidDefinitions(faults)
    denied = [each for part in parts for each in part.denied]
    if denied:
        more = f"; and {len(denied) - MAX_DENIED:,} more" if len(denied) > MAX_DENIED else ""
        raise PermissionDenied("; ".join(f"{path}: {why}" for path, why in denied[:MAX_DENIED]) + more)


def _duplicates(document: Document) -> list[FieldFault]:
    """The topics, channels and policies that are defined twice."""
    faults, names = [], Counter[str]()
    patterns = Counter[Patterns]()
    for index, policy in enumerate(document.policies or ()):
        key = Patterns(policy.topic_pattern, policy.channel_pattern)
        patterns[key] += 1
        if patterns[key] == 2:
            faults.append(FieldFault(f"policies.{index}", f"{key.as_name()} is defined twice"))
    for index, topic in enumerate(document.topics or ()):
        names[topic.name] += 1
        if names[topic.name] == 2:
            faults.append(FieldFault(f"topics.{index}", f"{topic.name} is defined twice"))
        channels = Counter(channel.name for channel in topic.channels)
        faults += [
            FieldFault(f"topics.{index}.channels", f"{topic.name}/{name} is defined twice")
            for name, count in channels.items()
            if count > 1
        ]
    return faults


def _finish(review: Review, in_cluster: Sequence[InCluster], by: User, remote_address: str) -> None:
    """Change the cluster, set the outcomes, and record the import in the audit trail.

    Each action on a topic or channel also gets an entry of its own, like an action on the pages, so that charts mark it
    and diagnoses name it; and so does each change of a policy.
    """
    for change in review.changes:
        if change.verb != "keep" and not change.is_of_cluster:
            change.outcome = "done"
    try:
        for part in in_cluster:
            part.perform(review.changes)
    finally:
        _record_actions(review.changes, by, remote_address)
        audit.record(
            user=by,
            action="import definitions",
            outcome=review.outcome,
            detail=review.summary(),
            results=[_audited(change).dict() for change in review.changes if change.verb != "keep"],
            remote_address=remote_address,
        )


def _record_actions(changes: Sequence[Change], by: User, remote_address: str) -> None:
    with transaction.atomic():
        for change in changes:
            if change.policy is not None and change.outcome != "planned":
                record_policy(
                    user=by,
                    patterns=change.policy.patterns,
                    values=change.policy.values,
                    results=change.results,
                    error=change.detail,
                    detail="import of definitions",
                    remote_address=remote_address,
                )
            topic, channel = change.topic_and_channel
            for each in change.performed:
                audit.record(
                    user=by,
                    action=each.action,
                    topic=topic,
                    channel=channel,
                    outcome="failed" if each.error else outcome_of(each.results),
                    detail=each.error or "import of definitions",
                    results=each.results,
                    remote_address=remote_address,
                )


def _audited(change: Change) -> NodeResultOut:
    """The change as a line of the audit entry."""
    fields = ", ".join(f"{each.field} {each.before or '–'} → {each.after or '–'}" for each in change.fields)
    failures = [f"{each['node']}: {each['detail']}" for each in change.results if each["outcome"] != "done"]
    outcome = PAST[change.verb] if change.outcome == "done" else change.outcome
    detail = "; ".join(part for part in (fields, change.detail, *failures) if part)
    return NodeResultOut(node=change.name, target=change.section, outcome=outcome, detail=detail)
